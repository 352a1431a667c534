// The checks of docs/integrations/checks.md that run under node: stock clients against the
// service that MEMAGENT_URL names. Prints one line of JSON for each check. MEMAGENT_CLIENTS=before
// takes the major versions before the newest.

import assert from "node:assert/strict";

import Anthropic from "@anthropic-ai/sdk";
import { z } from "zod";

const url = process.env.MEMAGENT_URL;
const major = process.env.MEMAGENT_CLIENTS === "before" ? "-before" : "";
const { default: OpenAI } = await import(`openai${major}`);
const { zodResponseFormat } = await import(`openai${major}/helpers/zod`);
const { createOpenAI } = await import(`@ai-sdk/openai${major}`);
const { createOpenAICompatible } = await import(`@ai-sdk/openai-compatible${major}`);
const { embed, generateObject, generateText, stepCountIs, streamText, tool } = await import(
  `ai${major}`
);
const baseURL = `${url}/v1`;
const openai = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0 });
const model = "memagent";
const City = z.object({ city: z.string() });
const parameters = z.toJSONSchema(City);
const weatherTool = { type: "function", function: { name: "weather", parameters } };
const anthropic = new Anthropic({ baseURL: url, apiKey: "any", maxRetries: 0 });
const asked = (user, content, more = {}) => ({
  model,
  max_tokens: 100,
  metadata: { user_id: user },
  messages: [{ role: "user", content }],
  ...more,
});
const messagesOf = (content) => [{ role: "user", content }];
const say = (user, content, more = {}) =>
  openai.chat.completions.create({ model, user, messages: [{ role: "user", content }], ...more });
const compatible = (user) =>
  createOpenAICompatible({
    name: "memagent",
    baseURL,
    apiKey: "any",
    queryParams: { user_id: user },
    includeUsage: true,
    supportsStructuredOutputs: true,
  })(model);
const provider = (user) =>
  createOpenAI({
    baseURL,
    apiKey: "any",
    fetch: (address, init) => fetch(`${address}?user_id=${user}`, init),
  });
const weather = tool({
  description: "Tell the weather in a city",
  inputSchema: City,
  execute: async ({ city }) => `sunny in ${city}`,
});

async function turns(user) {
  const answer = await fetch(`${url}/v1/sessions?limit=100&user_id=${user}`);
  return (await answer.json()).items.flatMap((session) => session.turns.map((turn) => turn.text));
}

const TOOL_LOOP = ["The weather?", "It is sunny in Lisbon.", "Thanks!", "You said: Thanks!"];

const CHECKS = {
  "openai-node | a reply, with its thread": async (user) => {
    const answer = await say(user, "I row");
    assert.equal(answer.choices[0].message.content, "You said: I row");
    assert.ok(answer.memagent.thread && answer.usage.total_tokens > 0);
  },
  "openai-node | a stream with usage": async (user) => {
    const stream = await say(user, "I row", {
      stream: true,
      stream_options: { include_usage: true },
    });
    let words = "";
    let usage;
    for await (const chunk of stream) {
      words += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(words, "You said: I row");
    assert.ok(usage.total_tokens > 0);
  },
  "openai-node | `runTools` calls the tool and answers": async (user) => {
    const run = openai.chat.completions.runTools({
      model,
      user,
      messages: [{ role: "user", content: "The weather?" }],
      tools: [
        {
          type: "function",
          function: {
            name: "weather",
            parse: JSON.parse,
            function: ({ city }) => `sunny in ${city}`,
            parameters,
          },
        },
      ],
    });
    assert.equal(await run.finalContent(), "It is sunny in Lisbon.");
    assert.deepEqual(await turns(user), TOOL_LOOP.slice(0, 2));
  },
  "openai-node | `parse` with a zod schema": async (user) => {
    const answer = await openai.chat.completions.parse({
      model,
      user,
      messages: [{ role: "user", content: "Where do I live?" }],
      response_format: zodResponseFormat(City, "city"),
    });
    assert.deepEqual(answer.choices[0].message.parsed, { city: "Lisbon" });
  },
  "openai-node | responses, streamed and chained": async (user) => {
    const first = await openai.responses.create({ model, user, input: "I row." });
    const stream = openai.responses.stream({
      model,
      user,
      input: "And ski.",
      previous_response_id: first.id,
    });
    const last = await stream.finalResponse();
    assert.equal(last.output_text, "You said: And ski.");
    assert.deepEqual((await turns(user)).length, 4);
  },
  "openai-node | errors have their classes": async (user) => {
    await assert.rejects(say(user, "too fast"), OpenAI.RateLimitError);
    await assert.rejects(say(user, "Hello", { audio: { voice: "a" } }), OpenAI.BadRequestError);
    await assert.rejects(say(user, "Hello", { model: "gpt-4o" }), OpenAI.NotFoundError);
    const stream = await say(user, "too fast", { stream: true });
    await assert.rejects(async () => {
      for await (const _ of stream);
    }, /quota/);
  },
  "openai-node | embeddings": async () => {
    const { data } = await openai.embeddings.create({ model, input: ["tea", "a dog"] });
    assert.equal(data.length, 2);
    assert.ok(data[0].embedding.length > 100);
  },
  "ai | `generateText` and `streamText`": async (user) => {
    const whole = await generateText({ model: compatible(user), prompt: "I row" });
    assert.equal(whole.text, "You said: I row");
    const stream = streamText({ model: compatible(user), prompt: "I ski" });
    let words = "";
    for await (const piece of stream.textStream) words += piece;
    assert.equal(words, "You said: I ski");
    assert.ok((await stream.usage).totalTokens > 0);
  },
  "ai | `generateObject`": async (user) => {
    const { object } = await generateObject({
      model: compatible(user),
      schema: City,
      prompt: "Where do I live?",
    });
    assert.deepEqual(object, { city: "Lisbon" });
  },
  "ai | `streamText` with a tool, several steps, written once": async (user) => {
    const messages = [{ role: "user", content: "The weather?" }];
    const given = { model: compatible(user), tools: { weather }, stopWhen: stepCountIs(4) };
    const stream = streamText({ ...given, messages });
    assert.equal(await stream.text, "It is sunny in Lisbon.");
    messages.push(...(await stream.response).messages, { role: "user", content: "Thanks!" });
    await generateText({ ...given, messages });
    assert.deepEqual(await turns(user), TOOL_LOOP);
  },
  "ai | the OpenAI provider's responses, several steps": async (user) => {
    const given = { model: provider(user)(model), tools: { weather }, stopWhen: stepCountIs(4) };
    const messages = [{ role: "user", content: "The weather?" }];
    const stream = streamText({ ...given, messages });
    assert.equal(await stream.text, "It is sunny in Lisbon.");
    messages.push(...(await stream.response).messages, { role: "user", content: "Thanks!" });
    await generateText({ ...given, messages });
    assert.deepEqual(await turns(user), TOOL_LOOP);
  },
  "ai | the OpenAI provider's chat and `generateObject`": async (user) => {
    const { object } = await generateObject({
      model: provider(user).chat(model),
      schema: City,
      prompt: "Where do I live?",
    });
    assert.deepEqual(object, { city: "Lisbon" });
  },
  "ai | `embed`": async (user) => {
    const { embedding } = await embed({ model: provider(user).embedding(model), value: "tea" });
    assert.ok(embedding.length > 100);
  },
  "ai | errors tell their status": async (user) => {
    const asked = generateText({ model: compatible(user), prompt: "too fast", maxRetries: 0 });
    await assert.rejects(asked, (error) => error.statusCode === 429);
  },
  "anthropic-node | a message, and its tokens counted": async (user) => {
    const message = await anthropic.messages.create(asked(user, "I row"));
    assert.deepEqual(message.content, [{ type: "text", text: "You said: I row" }]);
    assert.equal(message.stop_reason, "end_turn");
    const count = await anthropic.messages.countTokens({ model, messages: messagesOf("I row") });
    assert.ok(count.input_tokens > 0);
    assert.deepEqual(await turns(user), ["I row", "You said: I row"]);
  },
  "anthropic-node | the events of a stream, put together": async (user) => {
    const words = [];
    const stream = anthropic.messages.stream(asked(user, "I row"));
    stream.on("text", (piece) => words.push(piece));
    const message = await stream.finalMessage();
    assert.equal(words.join(""), "You said: I row");
    assert.deepEqual(message.content, [{ type: "text", text: "You said: I row" }]);
    assert.ok(words.length > 1 && message.usage.output_tokens > 0);
  },
  "anthropic-node | a streamed tool loop, written once": async (user) => {
    const tools = [{ name: "weather", description: "Tell it", input_schema: parameters }];
    const messages = messagesOf("The weather?");
    for (let round = 0; round < 2; round++) {
      const more = { tools, messages };
      const said = await anthropic.messages.stream(asked(user, "", more)).finalMessage();
      messages.push({ role: "assistant", content: said.content });
      const calls = said.content.filter((block) => block.type === "tool_use");
      assert.equal(said.stop_reason, calls.length ? "tool_use" : "end_turn");
      if (!calls.length) break;
      const results = calls.map((call) => ({
        type: "tool_result",
        tool_use_id: call.id,
        content: `sunny in ${call.input.city}`,
      }));
      messages.push({ role: "user", content: results });
    }
    messages.push({ role: "user", content: "Thanks!" });
    await anthropic.messages.create(asked(user, "", { messages, tools }));
    assert.deepEqual(await turns(user), TOOL_LOOP);
  },
  "anthropic-node | errors have their classes": async (user) => {
    const limited = anthropic.messages.create(asked(user, "too fast"));
    await assert.rejects(limited, Anthropic.RateLimitError);
    const other = anthropic.messages.create(asked(user, "Hello", { model: "claude-x" }));
    await assert.rejects(other, Anthropic.NotFoundError);
    const stream = anthropic.messages.stream(asked(user, "too fast"));
    await assert.rejects(stream.finalMessage(), /quota/);
  },
};

for (const [number, [name, run]] of Object.entries(CHECKS).entries()) {
  if (major && name.startsWith("anthropic")) continue;
  let fault = null;
  try {
    await run(`npm${major}${number}`);
  } catch (error) {
    fault = String(error.stack ?? error);
  }
  console.log(JSON.stringify({ name, fault }));
}
