// A client on the TypeScript SDK, 1.x or 2.x. One JSON object in:
//   {"sdk": "1" | "2", "mode": "legacy" | "auto", "url": "http://...", "steps": [STEP]}
// A step is {"list": true}, or {"tool": NAME, "arguments": {}, "cancel": true}; each opens a connection of its own, and
// `cancel` aborts the call on its first progress. Out comes a JSON list with one object per step:
// {"version": ..., "result": ... or "error": MESSAGE, "progress": [NUMBER], "asked": [MESSAGE]}. `version` is the one of
// the protocol. A question is answered with 42.

import { text } from "node:stream/consumers";

const ANSWER = { action: "accept", content: { answer: "42" } };
const ABOUT = { name: "typescript-client", version: "1.0.0" };
const capabilities = { elicitation: {} };

// The two releases, as far as they differ.
const RELEASES = {
  1: async () => {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
    return {
      create: () => new Client(ABOUT, { capabilities }),
      Transport: StreamableHTTPClientTransport,
      onElicitation: (client, handler) => client.setRequestHandler(ElicitRequestSchema, handler),
      call: (client, params, options) => client.callTool(params, undefined, options),
      version: (_client, transport) => transport.protocolVersion,
    };
  },
  2: async (mode) => {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    return {
      create: () => new Client(ABOUT, { capabilities, versionNegotiation: { mode } }),
      Transport: StreamableHTTPClientTransport,
      onElicitation: (client, handler) => client.setRequestHandler("elicitation/create", handler),
      call: (client, params, options) => client.callTool(params, options),
      version: (client) => client.getNegotiatedProtocolVersion(),
    };
  },
};

async function run(release, url, step) {
  const progress = [];
  const asked = [];
  const client = release.create();
  release.onElicitation(client, async (request) => {
    asked.push(request.params.message);
    return ANSWER;
  });
  const transport = new release.Transport(new URL(url));
  await client.connect(transport);
  const version = release.version(client, transport);
  const cancellation = new AbortController();
  const onprogress = (update) => {
    progress.push(update.progress);
    if (step.cancel) cancellation.abort("the person pressed stop");
  };
  try {
    const result = step.list
      ? await client.listTools()
      : await release.call(
          client,
          { name: step.tool, arguments: step.arguments ?? {} },
          { onprogress, signal: cancellation.signal },
        );
    return { version, result, progress, asked };
  } catch (error) {
    // The connection goes on, as in an application: close() at once would abort the request with the cancellation.
    if (step.cancel) await client.listTools();
    return { version, error: String(error?.message ?? error), progress, asked };
  } finally {
    await client.close();
  }
}

const given = JSON.parse(await text(process.stdin));
const release = await RELEASES[given.sdk](given.mode);
const results = [];
for (const step of given.steps) results.push(await run(release, given.url, step));
process.stdout.write(JSON.stringify(results));
