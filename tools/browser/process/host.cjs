// A browser in a process of its own. It starts the browser, prints where drivers attach to it as one JSON-RPC notification,
// and lives until its stdin ends, or the browser does.
"use strict";

const { package: playwright, options } = JSON.parse(process.argv[2]);
const print = (method, params) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", method, params }) + "\n");

(async () => {
  const browser = await require(playwright).chromium.launch(options);
  browser.on("disconnected", () => process.exit(0));
  process.stdin.on("end", () => browser.close());
  process.stdin.resume();
  // A TCP port with a secret in its address: the path of a socket would be too long in a deep data folder.
  const { endpoint } = await browser.bind("statehold", { host: "127.0.0.1", port: 0 });
  print("bound", { endpoint });
})().catch((error) => {
  print("failed", { message: String((error && error.message) || error) });
  process.exitCode = 1;
});
