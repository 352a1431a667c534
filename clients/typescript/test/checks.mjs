// The checks of docs/integrations/checks.md that run under node: stock clients against the
// service that MEMAGENT_URL names. Prints one line of JSON for each check.

import assert from "node:assert/strict";

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const url = process.env.MEMAGENT_URL;
const baseURL = `${url}/v1`;
const openai = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0 });
const model = "memagent";
const City = z.object({ city: z.string() });
const parameters = z.toJSONSchema(City);
const weatherTool = { type: "function", function: { name: "weather", parameters } };
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
};

for (const [number, [name, run]] of Object.entries(CHECKS).entries()) {
  let fault = null;
  try {
    await run(`npm${number}`);
  } catch (error) {
    fault = String(error.stack ?? error);
  }
  console.log(JSON.stringify({ name, fault }));
}
