// Runs against the service that MEMAGENT_URL names; see tests/integrations/clients.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Memagent, MemagentError } from "../dist/index.js";

const baseUrl = process.env.MEMAGENT_URL;
const fresh = (userId) => new Memagent({ baseUrl, userId });

test("a memory is added, found and fetched by its path", async () => {
  const memory = fresh("ts-1");
  const item = await memory.add("My dog Rex is allergic to chicken");
  const { hits } = await memory.search("What is Rex allergic to?", { k: 3 });
  assert.equal(hits?.[0]?.item?.text, "My dog Rex is allergic to chicken");
  const params = { path: { item_id: item.id }, query: { user_id: "ts-1" } };
  const { data } = await memory.api.GET("/v1/memories/{item_id}", { params });
  assert.equal(data?.text, item.text);
});

test("users are apart", async () => {
  await fresh("ts-2").add("My dog Rex is allergic to chicken");
  const { hits } = await fresh("ts-3").search("What is Rex allergic to?");
  assert.deepEqual(hits, []);
});

test("a reply streams word by word and ends with the whole", async () => {
  const pieces = [];
  let reply;
  for await (const delta of fresh("ts-4").streamChat("I grow figs – and plums", { thread: "t" })) {
    if (delta.text) pieces.push(delta.text);
    reply = delta.reply ?? reply;
  }
  assert.equal(pieces.join(""), "You said: I grow figs – and plums");
  assert.ok(pieces.length > 2);
  assert.equal(reply?.text, pieces.join(""));
  assert.equal(reply?.thread, "t");
  const again = await fresh("ts-4").chat("I grow pears", { thread: "t" });
  assert.equal(again.text, "You said: I grow pears");
});

test("an answer comes with its verdict", async () => {
  const answer = await fresh("ts-5").ask("What do I grow?");
  assert.ok(answer.verdict);
});

test("a refusal is a typed error", async () => {
  const params = { path: { item_id: "mem_nothing" } };
  await assert.rejects(fresh("ts-6").api.GET("/v1/memories/{item_id}", { params }), (error) => {
    assert.ok(error instanceof MemagentError);
    assert.deepEqual([error.status, error.code, error.retryable], [404, "not_found", false]);
    assert.ok(error.requestId);
    return true;
  });
  await assert.rejects(fresh("ts-6").add(""), (error) => {
    assert.equal(error.code, "invalid_request");
    assert.equal(error.errors[0].pointer, "/text");
    return true;
  });
});

test("a failing model is told in a stream too", async () => {
  const story = async () => {
    for await (const _ of fresh("ts-7").streamChat("too fast")) assert.ok(_);
  };
  await assert.rejects(story(), (error) => error.code === "quota_exhausted");
  await assert.rejects(fresh("ts-7").chat("too fast"), (error) => error.status === 503);
});

test("a service that is not there is a retryable error", async () => {
  const nobody = new Memagent({ baseUrl: "http://127.0.0.1:9" });
  await assert.rejects(nobody.search("x"), (error) => {
    return error instanceof MemagentError && error.code === "unreachable" && error.retryable;
  });
});
