"""A site that asks a browser what it is, as sites do that refuse automated browsers, and notes the headers of requests."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from served import Served

NOTED: Final = ("user-agent", "accept-language", "sec-ch-ua", "sec-ch-ua-platform")

_DESCRIBE: Final = """async function describe() {
  const data = navigator.userAgentData;
  return {
    userAgent: navigator.userAgent,
    languages: [...navigator.languages],
    brands: data.brands,
    hints: await data.getHighEntropyValues([
      "architecture", "bitness", "formFactors", "fullVersionList", "model", "platform", "platformVersion"]),
  };
}"""

_PAGE: Final = f"""<!doctype html><title>Probes</title><link rel="icon" href="data:,"><script>
{_DESCRIBE}
const heard = new Promise(resolve => addEventListener("message", event => resolve(event.data)));
function answer(port) {{ return new Promise(resolve => port.onmessage = event => resolve(event.data)); }}
async function serviceWorker() {{
  await navigator.serviceWorker.register("/service-worker.js");
  const {{ active }} = await navigator.serviceWorker.ready, channel = new MessageChannel();
  active.postMessage(null, [channel.port2]);
  return answer(channel.port1);
}}
function frame(url) {{
  const element = document.createElement("iframe");
  element.src = url;
  document.body.append(element);
  return heard;
}}
function popup() {{
  return new Promise(resolve => {{
    new BroadcastChannel("popup").onmessage = event => resolve(event.data);
    open("/popup");
  }});
}}
function graphics() {{
  const context = document.createElement("canvas").getContext("webgl");
  if (!context) return null;
  return context.getParameter(context.getExtension("WEBGL_debug_renderer_info").UNMASKED_VENDOR_WEBGL);
}}
async function probe(frameUrl) {{
  return {{
    ...await describe(),
    webdriver: navigator.webdriver,
    platform: navigator.platform,
    vendor: navigator.vendor,
    touchPoints: navigator.maxTouchPoints,
    hover: matchMedia("(hover: hover) and (pointer: fine)").matches,
    pixelRatio: devicePixelRatio,
    locale: Intl.DateTimeFormat().resolvedOptions().locale,
    worker: await answer(new Worker("/worker.js")),
    serviceWorker: await serviceWorker(),
    sharedWorker: await answer(new SharedWorker("/shared-worker.js").port),
    frame: await frame(frameUrl),
    popup: await popup(),
    windowFitsScreen: outerWidth <= screen.width && outerHeight <= screen.height,
    windowHasFrame: outerHeight > innerHeight,
    plugins: [...navigator.plugins].map(plugin => plugin.name),
    chrome: typeof chrome,
    notifications: [Notification.permission, (await navigator.permissions.query({{ name: "notifications" }})).state],
    rtt: navigator.connection.rtt,
    graphics: graphics(),
  }};
}}
</script>"""
_FRAME: Final = (
    f"<script>{_DESCRIBE} describe().then(found => parent.postMessage(found, '*'))</script>"
)
_POPUP: Final = f"""<script>{_DESCRIBE}
describe().then(found => {{ new BroadcastChannel("popup").postMessage(found); close(); }})</script>"""
_WORKERS: Final = {
    "/worker.js": "fetch('/by-worker').then(describe).then(postMessage)",
    "/shared-worker.js": "onconnect = event => describe().then(found => event.ports[0].postMessage(found))",
    "/service-worker.js": (
        "onmessage = event => fetch('/by-service-worker').then(describe).then(found => event.ports[0].postMessage(found))"
    ),
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        # A browser may ask for an icon, now or later.
        if self.path != "/favicon.ico":
            self.server.site.headers[self.path] = {
                name: self.headers.get(name, "") for name in NOTED if name in self.headers
            }
        kind = "text/javascript" if self.path in _WORKERS else "text/html"
        text = {"/": _PAGE, "/frame": _FRAME, "/popup": _POPUP}.get(self.path, "")
        if self.path in _WORKERS:
            text = f"{_DESCRIBE}\n{_WORKERS[self.path]}"
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


class Probes(Served):
    """The site. `headers` has what the last request for each path said about the browser; `script` asks the page."""

    handler = _Handler

    def __init__(self) -> None:
        super().__init__()
        self.headers: dict[str, dict[str, str]] = {}

    @property
    def script(self) -> str:
        """A function that returns all that the page at `/` finds out; its frame is of another site."""
        return f"() => probe('{self.at(2)}/frame')"


__all__ = ["Probes"]
