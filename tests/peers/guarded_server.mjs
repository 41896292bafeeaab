// An MCP server of the TypeScript SDK that demands access tokens of an OpenID provider: node guarded_server.mjs ISSUER
//
// It prints its port. Its tool `whoami` answers with the subject of the token.
import { createMcpExpressApp } from "@modelcontextprotocol/sdk/server/express.js";
import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import { mcpAuthMetadataRouter } from "@modelcontextprotocol/sdk/server/auth/router.js";
import { InvalidTokenError } from "@modelcontextprotocol/sdk/server/auth/errors.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { createRemoteJWKSet, decodeJwt, jwtVerify } from "jose";

const issuer = process.argv[2];
const discovered = await fetch(`${issuer}/.well-known/openid-configuration`);
const oauthMetadata = await discovered.json();
const keys = createRemoteJWKSet(new URL(oauthMetadata.jwks_uri));

async function verifyAccessToken(token) {
  try {
    const { payload } = await jwtVerify(token, keys, { issuer, audience: resource });
    const scopes = (payload.scope ?? "").split(" ");
    return { token, clientId: payload.client_id, scopes, expiresAt: payload.exp };
  } catch (error) {
    throw new InvalidTokenError(error.message);
  }
}

async function serve(request, response) {
  const server = new McpServer({ name: "guarded", version: "1" });
  server.registerTool("whoami", { inputSchema: {} }, async (_, { authInfo }) => ({
    content: [{ type: "text", text: decodeJwt(authInfo.token).sub }],
  }));
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  response.on("close", () => transport.close());
  await server.connect(transport);
  await transport.handleRequest(request, response, request.body);
}

const app = createMcpExpressApp();
const listener = app.listen(0, "127.0.0.1");
await new Promise((resolve) => listener.once("listening", resolve));
const { port } = listener.address();
const resource = `http://127.0.0.1:${port}/mcp`;
const resourceServerUrl = new URL(resource);
app.use(mcpAuthMetadataRouter({ oauthMetadata, resourceServerUrl, scopesSupported: ["notes"] }));
const resourceMetadataUrl = `http://127.0.0.1:${port}/.well-known/oauth-protected-resource/mcp`;
app.all("/mcp", requireBearerAuth({ verifier: { verifyAccessToken }, requiredScopes: ["notes"], resourceMetadataUrl }), serve);
console.log(JSON.stringify({ port }));
