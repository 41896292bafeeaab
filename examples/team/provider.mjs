// The identity provider of the example: npm start --prefix examples/team [PORT] [STATEHOLD]
//
// It knows three people, and asks for no password: whoever opens its page chooses one. It listens on loopback only.
// PORT is 8930, and STATEHOLD, the address of Statehold, http://127.0.0.1:8931 if they are left out.
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";

import Provider, { interactionPolicy } from "oidc-provider";

const [port = "8930", statehold = "http://127.0.0.1:8931"] = process.argv.slice(2);
const people = {
  ada: { name: "Ada", groups: ["team"] },
  ben: { name: "Ben", groups: ["team"] },
  olga: { name: "Olga", groups: ["operators"] },
};
const SCOPES = ["statehold:read", "statehold:use", "statehold:control"];
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });

const server = createServer();
server.on("error", (error) => {
  const reason = error.code === "EADDRINUSE" ? `port ${port} is in use: end the program there` : String(error);
  console.error(`provider: ${reason}`);
  process.exit(1);
});
await new Promise((resolve) => server.listen(Number(port), "127.0.0.1", resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;

// Every login asks who it is, so that one browser can play all three people.
const policy = interactionPolicy.base();
policy.get("login").checks.add(
  new interactionPolicy.Check("person", "a person has to be chosen", (ctx) =>
    ctx.oidc.result?.login ? interactionPolicy.Check.NO_NEED_TO_PROMPT : interactionPolicy.Check.REQUEST_PROMPT,
  ),
);

const provider = new Provider(issuer, {
  claims: { openid: ["sub", "name", "groups"] },
  clients: [
    {
      client_id: "statehold-console",
      token_endpoint_auth_method: "none",
      client_name: "the console of Statehold",
      redirect_uris: [`${statehold}/console/callback`],
    },
  ],
  conformIdTokenClaims: false,
  cookies: { keys: [randomBytes(32).toString("hex")] },
  expiresWithSession: () => false,
  extraTokenClaims: (_, token) => ({ groups: people[token.accountId]?.groups ?? [] }),
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({
        scope: SCOPES.join(" "),
        audience: resource,
        accessTokenTTL: 600,
        accessTokenFormat: "jwt",
        jwt: { sign: { alg: "RS256" } },
      }),
    },
    revocation: { enabled: true },
  },
  findAccount: (_, id) => people[id] && { accountId: id, claims: () => ({ sub: id, ...people[id] }) },
  interactions: { policy, url: (_, interaction) => `/interaction/${interaction.uid}` },
  issueRefreshToken: () => true,
  jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: randomBytes(8).toString("hex") }] },
  pkce: { required: () => true },
  scopes: ["openid", "offline_access", ...SCOPES],
});

async function interact(request, response) {
  const { prompt, params, grantId, session } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    const person = new URL(request.url, issuer).searchParams.get("person");
    if (person in people) {
      await provider.interactionFinished(request, response, { login: { accountId: person } });
      return;
    }
    const client = await provider.Client.find(params.client_id);
    response.setHeader("Content-Type", "text/html; charset=utf-8");
    response.end(page(client.clientName ?? params.client_id, params.scope ?? ""));
    return;
  }
  // The company trusts its own clients: there is no page that asks the person to agree.
  const grant =
    (grantId && (await provider.Grant.find(grantId))) ||
    new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope ?? "");
  if (params.resource) grant.addResourceScope(params.resource, params.scope ?? "");
  const consent = { grantId: await grant.save() };
  await provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
}

function page(client, scope) {
  const escape = (text) => text.replace(/[&<>"]/g, (each) => `&#${each.charCodeAt(0)};`);
  const rights = scope.split(" ").filter((each) => SCOPES.includes(each));
  const buttons = Object.entries(people).map(
    ([id, { name, groups }]) => `<a href="?person=${id}">${name}<small>${groups.join(", ")}</small></a>`,
  );
  return `<!DOCTYPE html><html lang="en"><meta name="viewport" content="width=device-width">
<title>Log in</title><style>
:root { color-scheme: light dark } body { font: 18px system-ui, sans-serif; max-width: 24em; margin: 12vh auto; padding: 0 1em }
a { display: flex; justify-content: space-between; align-items: baseline; margin: .6em 0; padding: .7em 1em; border: 1px solid;
border-radius: .5em; color: inherit; text-decoration: none } a:hover, a:focus { outline: 2px solid } small { opacity: .75 }</style>
<h1>Who are you?</h1><p>You log in for ${escape(client)}${rights.length ? `, which asks for ${rights.join(", ")}` : ""}.</p>
${buttons.join("\n")}</html>`;
}

// A client that registers gets no list of scopes: the provider would never give it more than those later.
async function register(request, response) {
  const parts = [];
  for await (const part of request) parts.push(part);
  const { scope, ...metadata } = JSON.parse(Buffer.concat(parts));
  request.body = metadata;
  answer(request, response);
}

const answer = provider.callback();
const handlers = { "/interaction/": interact, "/reg": register };
server.on("request", (request, response) => {
  const path = Object.keys(handlers).find((start) => request.url.startsWith(start));
  if (path === undefined) {
    answer(request, response);
    return;
  }
  handlers[path](request, response).catch((error) => {
    response.statusCode = 400;
    response.end(`${error.message}: begin the login again\n`);
  });
});
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(0));
console.log(`The identity provider is at ${issuer}; Ctrl-C ends it`);
