// A client on the TypeScript SDK 2.x that logs in by a code with PKCE, steps up, refreshes and registers anew.
// One JSON object in: {"mode": "legacy" | "auto", "url": "http://...", "account": NAME}
// Out comes {"version", "scopes": [[SCOPE]], "counts": [NUMBER], "refreshed": BOOLEAN, "clients": [ID]}: the scopes of ours
// of each login, and the answers of the counter of one session, after each step.

import { text } from "node:stream/consumers";

import { Client, StreamableHTTPClientTransport, UnauthorizedError } from "@modelcontextprotocol/client";

const CALLBACK = "http://127.0.0.1:9/callback";
const ABOUT = { name: "typescript-login", version: "1.0.0" };

// A person with a browser, who logs in and agrees to everything, and the storage of a client.
class Person {
  redirectUrl = CALLBACK;
  clientMetadata = {
    client_name: "tests",
    redirect_uris: [CALLBACK],
    token_endpoint_auth_method: "none",
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
  };
  scopes = [];
  clients = [];
  #cookies = new Map();
  #client;
  #tokens;
  #verifier;
  #state;

  constructor(account) {
    this.#cookies.set("account", account);
  }

  state() {
    this.#state = crypto.randomUUID();
    return this.#state;
  }
  clientInformation() {
    return this.#client;
  }
  saveClientInformation(client) {
    this.#client = client;
    this.clients.push(client.client_id);
  }
  tokens() {
    return this.#tokens;
  }
  saveTokens(tokens) {
    this.#tokens = tokens;
  }
  codeVerifier() {
    return this.#verifier;
  }
  saveCodeVerifier(verifier) {
    this.#verifier = verifier;
  }

  async redirectToAuthorization(url) {
    const scopes = (url.searchParams.get("scope") ?? "").split(" ");
    this.scopes.push(scopes.filter((scope) => scope.startsWith("statehold:")).sort());
    let at = url;
    while (!at.href.startsWith(CALLBACK)) {
      const answer = await this.#fetch(at, {});
      at = answer.headers.has("location") ? new URL(answer.headers.get("location"), at) : await this.#agree(answer, at);
    }
    if (at.searchParams.get("state") !== this.#state) throw new Error("another state came back");
    this.callback = at.searchParams;
  }

  async #fetch(url, options) {
    const cookie = [...this.#cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const answer = await fetch(url, { redirect: "manual", ...options, headers: { cookie } });
    for (const line of answer.headers.getSetCookie()) {
      const [pair] = line.split(";");
      const sign = pair.indexOf("=");
      this.#cookies.set(pair.slice(0, sign), pair.slice(sign + 1));
    }
    return answer;
  }

  // Agree on a page of consent, and return the URL to which it leads.
  async #agree(page, url) {
    const html = await page.text();
    const fields = [...html.matchAll(/<input type="hidden" name="(\w+)" value="([^"]*)">/g)];
    if (fields.length === 0) throw new Error(`no redirect from ${url}: ${html}`);
    const body = new URLSearchParams([...fields.map(([, name, value]) => [name, value]), ["decision", "allow"]]);
    const answer = await this.#fetch(new URL(url.pathname, url), { method: "POST", body });
    const next = /http-equiv="refresh" content="0; url=([^"]+)"/.exec(await answer.text());
    return new URL(next[1].replaceAll("&amp;", "&"));
  }

  // Have the access token be refused, as after its end.
  spoil() {
    this.#tokens = { ...this.#tokens, access_token: `${this.#tokens.access_token}x` };
  }
  forget() {
    this.#client = undefined;
    this.#tokens = undefined;
  }
}

// Do it, and log in if it needs that.
async function attempt(person, transport, work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    await transport.finishAuth(person.callback);
    return undefined;
  }
}

async function connect(person, { url, mode }) {
  for (;;) {
    const client = new Client(ABOUT, { versionNegotiation: { mode } });
    const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: person });
    const connected = await attempt(person, transport, async () => {
      await client.connect(transport);
      return true;
    });
    if (connected) return { client, transport };
  }
}

async function call(person, { client, transport }, name, args) {
  const work = () => client.callTool({ name, arguments: args });
  const result = (await attempt(person, transport, work)) ?? (await work());
  if (result.isError) throw new Error(`${name}: ${JSON.stringify(result)}`);
  return result.structuredContent;
}

const given = JSON.parse(await text(process.stdin));
const person = new Person(given.account);
const counts = [];

let connection = await connect(person, given);
const version = connection.client.getNegotiatedProtocolVersion();
const { session_id } = await call(person, connection, "session_create", {});
const count = async () => counts.push((await call(person, connection, "inc", { session_id })).count);
await count();
await call(person, connection, "server_stats", {});
await count();
const before = person.tokens().access_token;
person.spoil();
await count();
const refreshed = !person.tokens().access_token.startsWith(before);
await connection.client.close();
person.forget();
connection = await connect(person, given);
await count();
await connection.client.close();
process.stdout.write(JSON.stringify({ version, scopes: person.scopes, counts, refreshed, clients: person.clients }));
