// A browser in a process of its own. It starts the browser, prints where drivers attach to it as one JSON-RPC notification,
// and lives until its stdin ends, or the browser does.
"use strict";

const { package: playwright, options } = JSON.parse(process.argv[2]);
const print = (method, params) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", method, params }) + "\n");

// Playwright keeps the DevTools sessions of a server that was killed, and those would pause requests that nobody continues any
// more. Each one that has no listener left ends when the next server opens one.
function endAbandonedSessions(browser) {
  const impl = browser._connection.toImpl(browser);
  const open = impl.newBrowserCDPSession.bind(impl);
  const sessions = new Set();
  impl.newBrowserCDPSession = async () => {
    for (const session of [...sessions]) {
      if (session.listenerCount("event")) continue;
      sessions.delete(session);
      await session._session.detach().catch(() => {});
    }
    const session = await open();
    setImmediate(() => sessions.add(session));
    return session;
  };
}

(async () => {
  const browser = await require(playwright).chromium.launch(options);
  endAbandonedSessions(browser);
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
