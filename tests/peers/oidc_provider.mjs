// An OpenID provider on a loopback port: node oidc_provider.mjs [opaque] [forms SECONDS LOG HOLD]
//
// It prints its issuer URL. Every login is that of the account in the cookie `account`, else alice, and every consent is
// given, for the scopes that were asked for. With `opaque`, access tokens are opaque, else JWT.
//
// With `forms`, a person logs in and agrees at its pages, to the scope `notes`. Access tokens live for SECONDS, refresh tokens
// are used once, and LOG gets one line per answer of the token endpoint, which is sent HOLD milliseconds later.
import { generateKeyPairSync } from "node:crypto";
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";

import Provider from "oidc-provider";

const hasForms = process.argv.includes("forms");
const [seconds, log, hold] = hasForms ? process.argv.slice(-3) : ["300"];
const SCOPES = hasForms ? "notes" : "statehold:read statehold:use statehold:control statehold:admin";
const groupsOf = (account) => (account === "olga" ? ["staff", "operators"] : ["staff"]);
const isOpaque = process.argv.includes("opaque");
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const server = createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "statehold",
      client_secret: "introspection-secret-0123456789",
      redirect_uris: [],
      response_types: [],
      grant_types: [],
    },
  ],
  cookies: { keys: ["only for tests"] },
  features: {
    devInteractions: { enabled: hasForms },
    introspection: { enabled: true, allowedPolicy: () => true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({
        scope: SCOPES,
        audience: resource,
        accessTokenTTL: Number(seconds),
        accessTokenFormat: isOpaque ? "opaque" : "jwt",
        jwt: { sign: { alg: "RS256" } },
      }),
    },
    revocation: { enabled: true },
  },
  extraTokenClaims: (_, token) => ({ groups: groupsOf(token.accountId) }),
  claims: { openid: ["sub", "groups"] },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: groupsOf(id) }) }),
  ...(hasForms || { interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` } }),
  issueRefreshToken: () => true,
  rotateRefreshToken: true,
  expiresWithSession: () => false,
  jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: "one" }] },
  pkce: { required: () => true },
  scopes: ["openid", "offline_access", ...SCOPES.split(" ")],
});

async function interact(request, response) {
  const { prompt, params, grantId, session } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    const account = /account=(\w+)/.exec(request.headers.cookie ?? "")?.[1] ?? "alice";
    await provider.interactionFinished(request, response, { login: { accountId: account } });
    return;
  }
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope ?? "");
  if (params.resource) grant.addResourceScope(params.resource, params.scope ?? "");
  const consent = { grantId: await grant.save() };
  await provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
}

// Otherwise a client could never ask for more than the scopes with which it was registered.
async function register(request, response) {
  const parts = [];
  for await (const part of request) parts.push(part);
  const { scope, ...metadata } = JSON.parse(Buffer.concat(parts));
  request.body = metadata;
  answer(request, response);
}

const answer = provider.callback();
const handlers = hasForms ? { "/reg": register } : { "/interaction/": interact, "/reg": register };
server.on("request", (request, response) => {
  if (hold > 0 && request.url.startsWith("/token")) {
    const end = response.end.bind(response);
    response.end = (...parts) => setTimeout(() => end(...parts), hold);
  }
  const path = Object.keys(handlers).find((start) => request.url.startsWith(start));
  if (path === undefined) {
    answer(request, response);
    return;
  }
  handlers[path](request, response).catch((error) => {
    response.statusCode = 500;
    response.end(String(error));
  });
});
if (hasForms) {
  const write = (outcome) => (context, error) => {
    const { params } = context.oidc;
    appendFileSync(log, `${JSON.stringify({ outcome, grant: params?.grant_type, error: error?.error, why: error?.error_detail })}\n`);
  };
  provider.on("grant.success", write("success"));
  provider.on("grant.error", write("error"));
}
console.log(issuer);
