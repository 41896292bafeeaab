// A shop: `node order_site.mjs PROTOCOL LOG CERTIFICATE KEY`, PROTOCOL one of http, https, h2. It prints its port.
//
// It writes each order to LOG before anything else. The first one of a number is answered when the connection is closed
// anyway, each later one of that number at once.
import { appendFileSync, readFileSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";

const [protocol, log, certificate, key] = process.argv.slice(2);
const PAGE = `<title>Shop</title><script>
const outcomes = {};
async function order(number, path) {
  // The connection of the answer is used again.
  await (await fetch("/beat")).text();
  outcomes[number] = fetch(path, { method: "POST", body: number }).then(() => "done", () => "failed");
}
</script>`;
const numbers = new Set();

async function serve(request, response) {
  if (request.method !== "POST") {
    response.setHeader("content-type", "text/html");
    response.end(PAGE);
    return;
  }
  let number = "";
  for await (const chunk of request) number += chunk;
  appendFileSync(log, number + "\n");
  if (request.url === "/order" && !numbers.has(number)) {
    numbers.add(number);
    return;
  }
  response.end("thanks");
}

const tls = protocol === "http" ? {} : { cert: readFileSync(certificate), key: readFileSync(key) };
const server =
  protocol === "h2" ? http2.createSecureServer(tls, serve)
  : protocol === "https" ? https.createServer(tls, serve)
  : http.createServer(serve);
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
