/**
 * Client of the memagent service.
 *
 * The types come from the service's OpenAPI document (`npm run generate`). `api` reaches
 * every path of it; the methods beside it are the ones that programs need most. Every
 * refusal and failure is a `MemagentError`.
 */

import createClient, { type Client, type Middleware } from "openapi-fetch";

import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];

export type Answer = Schemas["Answer"];
export type Hits = Schemas["Hits"];
export type MemoryItem = Schemas["MemoryItem"];
export type Problem = Schemas["Problem"];
export type Question =
  paths["/v1/questions"]["post"]["requestBody"]["content"]["application/json"];
export type Reply = Schemas["Reply"];
export type ChatRequest = Schemas["ChatRequest"];
export type SearchRequest = Schemas["SearchRequest"];
export type NewMemory = Schemas["NewMemory"];
export type { components, paths };

/** A piece of a streamed reply; the last one has the whole `reply`. */
export type ReplyDelta = { text: string; reply?: Reply };

export interface Options {
  /** Address of the service, such as `http://127.0.0.1:8377`. */
  baseUrl: string;
  /** API key; a service without keys on this machine needs none. */
  apiKey?: string;
  /** Whose memory, for a key that is bound to no user. */
  userId?: string;
  fetch?: typeof globalThis.fetch;
}

/** A refused or failed request, as the service tells it (RFC 9457). */
export class MemagentError extends Error {
  override readonly name = "MemagentError";
  /** HTTP status; 0 when no answer came. */
  readonly status: number;
  /** Stable name of the reason, such as `not_found` or `model_rate_limited`. */
  readonly code: string;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  readonly requestId: string;
  /** The wrong fields of the request. */
  readonly errors: NonNullable<Problem["errors"]>;

  constructor(problem: Partial<Problem>, options?: ErrorOptions) {
    super(problem.detail || problem.title || "the request failed", options);
    this.status = problem.status ?? 0;
    this.code = problem.code ?? "unreachable";
    this.retryable = problem.retryable ?? false;
    this.requestId = problem.request_id ?? "";
    this.errors = problem.errors ?? [];
  }
}

export class Memagent {
  /** Every path of the service, typed: `memagent.api.GET("/v1/memories/{item_id}", ...)`. */
  readonly api: Client<paths>;
  private readonly query: { user_id?: string };

  constructor({ baseUrl, apiKey, userId, fetch }: Options) {
    this.query = userId === undefined ? {} : { user_id: userId };
    this.api = createClient<paths>({
      baseUrl: baseUrl.replace(/\/+$/, ""),
      ...(apiKey === undefined ? {} : { headers: { Authorization: `Bearer ${apiKey}` } }),
      ...(fetch === undefined ? {} : { fetch }),
    });
    this.api.use(RAISING);
  }

  /** Keep a statement as a memory. */
  async add(text: string, more: Omit<NewMemory, "text"> = {}): Promise<MemoryItem> {
    const params = { query: this.query };
    const { data } = await this.api.POST("/v1/memories", { params, body: { ...more, text } });
    return data as MemoryItem;
  }

  /** Find memories, best first. */
  async search(text: string, more: Omit<SearchRequest, "text"> = {}): Promise<Hits> {
    const params = { query: this.query };
    const { data } = await this.api.POST("/v1/search", { params, body: { ...more, text } });
    return data as Hits;
  }

  /** Answer a question from memory, with citations. */
  async ask(text: string, more: Omit<Question, "text"> = {}): Promise<Answer> {
    const params = { query: this.query };
    const { data } = await this.api.POST("/v1/questions", { params, body: { ...more, text } });
    return data as Answer;
  }

  /** Reply to a message of a conversation and remember the exchange. */
  async chat(text: string, more: Omit<ChatRequest, "text"> = {}): Promise<Reply> {
    const params = { query: this.query };
    const { data } = await this.api.POST("/v1/chat", { params, body: { ...more, text } });
    return data as Reply;
  }

  /** Yield the reply of `chat` as the model speaks; the last piece has the whole reply. */
  async *streamChat(
    text: string,
    more: Omit<ChatRequest, "text"> = {},
    options: { signal?: AbortSignal } = {},
  ): AsyncGenerator<ReplyDelta, void, undefined> {
    const { data } = await this.api.POST("/v1/chat", {
      params: { query: this.query },
      body: { ...more, text },
      headers: { Accept: "text/event-stream" },
      parseAs: "stream",
      ...options,
    });
    for await (const { event, data: json } of serverSentEvents(data as ReadableStream)) {
      const value: unknown = JSON.parse(json);
      if (event === "problem") throw new MemagentError(value as Problem);
      if (event === "delta") yield { text: (value as { text: string }).text };
      if (event === "answer") yield { text: "", reply: value as Reply };
      if (event === "done") return;
    }
    throw new MemagentError({ detail: "the stream ended before the reply", retryable: true });
  }
}

/** Turns refusals, failures and lost connections into `MemagentError`s. */
const RAISING: Middleware = {
  async onResponse({ response }) {
    if (response.ok) return;
    const problem: Partial<Problem> = await response.json().catch(() => ({}));
    throw new MemagentError({ title: response.statusText, ...problem, status: response.status });
  },
  onError({ error }) {
    if (error instanceof DOMException && error.name === "AbortError") return;
    const detail = error instanceof Error ? error.message : String(error);
    return new MemagentError({ detail, retryable: true }, { cause: error });
  },
};

interface ServerSentEvent {
  event: string;
  data: string;
}

async function* serverSentEvents(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<ServerSentEvent, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let held = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      held += decoder.decode(value, { stream: true });
      const blocks = held.split("\n\n");
      held = blocks.pop() ?? "";
      for (const block of blocks) {
        const fields = new Map(block.split("\n").map((line) => split(line)));
        yield { event: fields.get("event") ?? "message", data: fields.get("data") ?? "" };
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function split(line: string): [string, string] {
  const at = line.indexOf(":");
  return [line.slice(0, at), line.slice(at + 1).trimStart()];
}
