"""The pages of the lab, by path: each is a title and a body that `page()` puts into one frame."""

from __future__ import annotations

from html import escape

FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><link rel="icon" href="data:,"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - Lab</title>
<style>
:root {{ color-scheme: light; --ink: #1d2b3a; --sea: #1f6f8c; --line: #c9d6de; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; padding: 2rem; color: var(--ink); font: 16px/1.5 system-ui, sans-serif; background: #eef4f6; }}
main {{ max-width: 44rem; margin: 0 auto; padding: 1.6rem 2rem 2rem; background: #fff; border-radius: 14px;
  box-shadow: 0 10px 34px #1d2b3a1c; }}
h1 {{ margin: 0 0 .8rem; font-size: 1.5rem; }} label {{ display: block; margin: .6rem 0; }}
dd {{ overflow-wrap: anywhere; }}
input, select, textarea, button {{ font: inherit; padding: .4rem .7rem; border: 1px solid var(--line);
  border-radius: 8px; }}
button {{ background: var(--sea); color: #fff; border: 0; cursor: pointer; margin: .2rem .3rem .2rem 0; }}
output, [role=status] {{ display: block; min-height: 1.5em; margin-top: 1rem; padding: .5rem .8rem; background: #eef4f6;
  border-radius: 8px; white-space: pre-wrap; }}
iframe {{ width: 100%; height: 9rem; border: 1px solid var(--line); border-radius: 8px; }}
a {{ color: var(--sea); }} .box {{ display: inline-grid; place-items: center; width: 9rem; height: 5rem; margin: .4rem;
  border: 2px dashed var(--line); border-radius: 10px; }}
</style>
<script>const say = text => document.getElementById("said").textContent = text;</script>
</head>
<body><main><h1>{title}</h1>{body}</main></body>
</html>
"""

SAID = '<div id="said" role="status"></div>'

_COUNTRIES = "".join(f"<option>{name}</option>" for name in ("Norway", "Portugal", "Japan", "Peru"))

FORM = f"""<form method="post" action="/form">
<label>First name <input name="first" required></label><label>Last name <input name="last" required></label>
<label>Email <input name="email" type="email"></label><label>Password <input name="secret" type="password"></label>
<label>Age <input name="age" type="number" min="0" max="150"></label>
<label>Born <input name="born" type="date"></label><label>Level <input name="level" type="range" value="50"></label>
<label>Country <select name="country">{_COUNTRIES}</select></label>
<label>Sports
<select name="sports" multiple><option>Rowing</option><option>Sailing</option><option>Chess</option></select></label>
<fieldset><legend>Berth</legend><label><input type="radio" name="berth" value="inside"> Inside</label>
<label><input type="radio" name="berth" value="outside"> Outside</label></fieldset>
<label><input type="checkbox" name="news"> Send me news</label>
<label><input type="checkbox" name="terms" required> I accept the terms</label>
<label>Notes <textarea name="notes" rows="3"></textarea></label>
<div id="free" contenteditable="true" role="textbox" aria-label="Free text">free</div>
<button>Send</button><button type="reset">Reset</button></form>"""

UPLOAD = """<form method="post" action="/upload" enctype="multipart/form-data">
<label>Files <input type="file" name="files" multiple></label><button>Upload</button></form>"""

CHOOSER = f"""<button id="one">Choose a file</button><button id="many">Choose files</button>
<input id="hidden" type="file" hidden aria-label="hidden file">{SAID}
<input id="folder" type="file" webkitdirectory aria-label="Choose a folder">
<script>
const input = document.getElementById("hidden");
const choose = multiple => () => {{ input.multiple = multiple; input.click(); }};
document.getElementById("one").onclick = choose(false); document.getElementById("many").onclick = choose(true);
const said = files => say([...files].map(f => `${{f.webkitRelativePath || f.name}}: ${{f.size}} bytes`).join("\\n"));
for (const one of document.querySelectorAll("input")) one.onchange = () => said(one.files);
</script>"""

DOWNLOADS = """<p><a href="/file/small">Small file</a></p><p><a href="/file/slow?half=download">Slow file</a></p>
<p><a href="/file/late?gate=download">Late file</a></p>
<p><a href="/file/endless">Endless file</a></p><p><a href="/file/broken">Broken file</a></p>
<p><a id="blob" download="blob.txt">Blob</a></p>
<script>document.getElementById("blob").href = URL.createObjectURL(new Blob(["made by the page\\n"]));</script>"""

DIALOGS = f"""<button onclick="alert('Mind the gap'); say('alert closed')">Alert</button>
<button onclick="say('confirm: ' + confirm('Really?'))">Confirm</button>
<button onclick="say('prompt: ' + prompt('Your name?', 'nobody'))">Prompt</button>
<button onclick="setTimeout(() => {{ alert('Later'); say('later closed'); }}, 50)">Alert later</button>
<button onclick="window.addEventListener('beforeunload', event => event.preventDefault());
say('guarded')">Guard this page</button>
<button onclick="print(); say('printed')">Print</button>
<p><a href="/">Leave</a></p>{SAID}"""

IFRAMES = """<iframe title="near" src="/frame?name=near"></iframe><iframe title="far" src="{other}/frame?name=far"></iframe>
<iframe title="nested" src="/nest"></iframe>"""
FRAME_BODY = f"""<label>Word <input id="word"></label>
<button onclick="say('heard ' + document.getElementById('word').value)">Tell</button>{SAID}"""
NEST = """<iframe title="inner" src="/frame?name=inner"></iframe>"""

SHADOW = f"""<lab-card></lab-card>{SAID}<script>
customElements.define("lab-card", class extends HTMLElement {{ connectedCallback() {{
  const root = this.attachShadow({{mode: "open"}});
  root.innerHTML = '<label>Inside <input id="in"></label><button>Press inside</button><lab-leaf></lab-leaf>';
  root.querySelector("button").onclick = () => say("inside: " + root.getElementById("in").value); }} }});
customElements.define("lab-leaf", class extends HTMLElement {{ connectedCallback() {{
  const root = this.attachShadow({{mode: "open"}}); root.innerHTML = "<button>Press deeper</button>";
  root.querySelector("button").onclick = () => say("deeper"); }} }});
</script>"""

ROUTES = f"""<nav><a href="/routes/list">List</a> <a href="/routes/detail?id=7">Detail</a>
<a href="/routes/about">About</a></nav>
<button onclick="history.replaceState({{mark: 'replaced'}}, '', '/routes/replaced'); show()">Replace</button>
<p id="view"></p>{SAID}<script>
const show = () => {{ const view = location.pathname.split("/")[2] || "start"; document.title = view + " - Lab";
  document.getElementById("view").textContent = "View " + view + location.search;
  say("state " + JSON.stringify(history.state)); }};
document.querySelectorAll("nav a").forEach(a => a.onclick = event => {{ event.preventDefault();
  history.pushState({{from: location.pathname}}, "", a.href); show(); }});
onpopstate = show; show();
</script>"""

BOATS = {
    1: ("Amber", "a sloop of 9 metres"),
    2: ("Amsel", "a dinghy, with oars"),
    3: ("Brise", "a cutter of 14 metres"),
    4: ("Camber", "a ketch with a red hull"),
}

SEARCH = """<form role="search" action="/search"><label>Search boats <input name="q" type="search" value="{words}"
autocomplete="off"></label><button>Search</button></form><ul id="hints" role="listbox" aria-label="Suggestions"></ul>
{found}<script>
const box = document.querySelector("[name=q]"), hints = document.getElementById("hints");
box.oninput = async () => {{ const words = box.value, answer = await fetch("/api/suggest?q=" + encodeURIComponent(words));
  const names = await answer.json(); if (box.value !== words) return;
  hints.replaceChildren(...names.map(name => {{ const hint = document.createElement("li"); hint.role = "option";
    hint.textContent = name; hint.onclick = () => {{ box.value = name; box.form.submit(); }}; return hint; }})); }};
</script>"""

SCROLL = """<ol id="items"></ol><div id="end">more</div><script>
let next = 0, busy = false;
const more = async () => { if (busy || next >= 200) return; busy = true;
  const items = await (await fetch("/api/items?after=" + next)).json(); next += items.length;
  for (const item of items) { const li = document.createElement("li"); li.textContent = item; li.style.height = "2.4rem";
    document.getElementById("items").append(li); } busy = false; };
new IntersectionObserver(seen => seen.some(e => e.isIntersecting) && more()).observe(document.getElementById("end"));
</script>"""

POPUP = f"""<button onclick="window.open('/frame?name=popup'); say('opened')">Open popup</button>
<button onclick="window.open('/dialogs', '_blank', 'width=400,height=300')">Open small window</button>
<button onclick="window.other = window.open('/frame?name=closing');
setTimeout(() => other.close(), 100)">Open and close</button>
<p><a href="/frame?name=blank" target="_blank">New tab</a></p>{SAID}"""

ALERTS = f"""<button onclick="for (let n = 1; n <= 50; n++) alert('Alert ' + n); say('survived')">Alert storm</button>
<button onclick="for (let n = 1; ; n++) alert('Alert ' + n)">Endless alerts</button>{SAID}"""

ENDLESS = f"""<button onclick="for (;;);">Never return</button>
<button onclick="setTimeout(() => {{ for (;;); }}, 0)">Hang soon</button>
<button onclick="setInterval(() => document.getElementById('said').textContent = ++window.ticks, 20)">Tick for ever</button>
{SAID}<script>window.ticks = 0; onmessage = () => {{ for (;;); }};</script>"""

CONSOLE = f"""<button onclick="console.log('a log', {{a: 1}}); console.info('an info'); console.debug('a debug');
console.warn('a warning'); console.error('an error')">All levels</button>
<button onclick="throw new Error('thrown in a handler')">Throw</button>
<button onclick="Promise.reject(new Error('rejected and forgotten'))">Reject</button>
<button onclick="fetch('/status/500')">Failing request</button>
<button onclick="for (let n = 0; n < 1000; n++) console.log('line ' + n)">Flood</button>
{SAID}<script>console.log("loaded"); console.warn("old words");</script>"""

SLOW = f"""<button onclick="load('/api/slow?ms=200')">Fetch</button>
<button onclick="load('/api/slow?ms=100', '/api/slow?ms=100')">Fetch twice</button>
<button onclick="setTimeout(() => load('/api/slow?ms=10'), 30)">Fetch after a timer</button>
<button onclick="load('/api/gate/fetch')">Fetch for ever</button>
<button onclick="location.href = '/slow-page?ms=200'">Go slowly</button>
<button onclick="setTimeout(() => location.href = '/frame?name=arrived', 30)">Go after a timer</button>
<button onclick="setTimeout(() => say('drawn'), 60)">Draw later</button>{SAID}<script>
const load = async (...urls) => {{ say("loading"); let got = "";
  for (const url of urls) got += await (await fetch(url)).text(); say("loaded " + got); }};
</script>"""
SLOW_PAGE = """<p>The picture comes late.</p><img alt="late" src="/api/picture?ms={ms}">"""

EFFECTS = f"""<button onclick="">Nothing</button>
<button onclick="setTimeout(show, 50)">Timer of 50</button>
<button onclick="setTimeout(show, 150)">Timer of 150</button>
<button onclick="setTimeout(show, 400)">Timer of 400</button>
<button onclick="setTimeout('show()', 100)">Text</button>
<button onclick="setTimeout(() => setTimeout(() => setTimeout(show, 60), 60), 60)">Chain</button>
<button onclick="let n = 0; const id = setInterval(() => ++n < 5 || (clearInterval(id), show()), 30)">Interval</button>
<button onclick="setTimeout(() => location.href = '/frame?name=arrived', 100)">Go</button>
<button onclick="setTimeout(() => alert('The effect'), 100)">Alert</button>
<button onclick="let n = 0; const step = () => ++n < 9 ? requestAnimationFrame(step) : show(); step()">Frames</button>
<button onclick="box.ontransitionend = show; box.style.opacity = 0.2">Transition</button>
<button onclick="nest.setTimeout(() => nest.document.body.textContent = 'The effect', 100)">Frame</button>
<button onclick="worker.onmessage = show; worker.postMessage(1)">Worker</button>
<button onclick="socket.onmessage = show; socket.send(1)">Socket</button>
<button onclick="say('The effect'); setTimeout(() => say(''), 200)">Toast</button>
<button onclick="poll()">Poll</button>
<button onclick="turn()">Turn for ever</button>
<button onclick="load('/api/gate/fetch')">Fetch for ever</button>
<button onclick="load('/api/slow?ms=50').then(show)">Fetch</button>
<label>Search <input id="words"></label>
<p id="box" style="opacity: 1; transition: opacity 150ms">A box</p>
<iframe title="nest" name="nest" srcdoc="Nest"></iframe>{SAID}<script>
const show = () => say("The effect"), load = url => fetch(url).then(answer => answer.text());
const poll = () => setTimeout(poll, 50);
const turn = () => {{ document.getElementById("box").style.left = Math.random() + "px"; requestAnimationFrame(turn); }};
const socket = new WebSocket("ws://" + location.host + "/ws?ms=100");
const worker = new Worker(URL.createObjectURL(new Blob(["onmessage = () => setTimeout(() => postMessage(1), 100)"])));
let timer; document.getElementById("words").oninput = () => {{ clearTimeout(timer);
  timer = setTimeout(() => load("/api/slow?ms=50").then(show), 250); }};
</script>"""

TALK = f"""<button onclick="say('pressed')">Press</button>{SAID}<output></output><script>
const ask = async path => (await fetch(path)).text();
const ways = {{
  open: () => ask("/api/gate/talk"),
  xhr: () => {{ const x = new XMLHttpRequest(); x.open("GET", "/api/gate/talk"); x.send(); }},
  again: async () => {{ for (;;) await ask("/api/slow?ms=200"); }},
  cursor: async () => {{ for (let n = 0;; n++) await ask("/api/slow?ms=30&after=" + n); }},
  often: () => setInterval(() => ask("/api/slow?ms=10"), 50),
  shown: () => setInterval(async () => {{ await ask("/api/slow?ms=10");
    document.querySelector("output").textContent = performance.now(); }}, 50),
  socket: () => {{ const socket = new WebSocket("ws://" + location.host + "/ws");
    socket.onopen = socket.onmessage = () => socket.send("again"); }},
}};
ways[location.search.slice(1)]?.();
</script>"""

DRAG = f"""<div class="box" id="from" draggable="true" role="button" aria-label="Parcel">Parcel</div>
<div class="box" id="to" role="region" aria-label="Shelf">Shelf</div>{SAID}<script>
const from = document.getElementById("from"), to = document.getElementById("to");
from.ondragstart = event => event.dataTransfer.setData("text/plain", "parcel");
to.ondragover = event => event.preventDefault();
to.ondrop = event => {{ event.preventDefault(); const files = [...event.dataTransfer.files];
  say(files.length ? "files " + files.map(f => `${{f.name}}: ${{f.size}}`)
    : "dropped " + event.dataTransfer.getData("text/plain"));
}};
</script>"""

HOVER = """<style>.menu ul { display: none; } .menu:hover ul { display: block; }</style>
<div class="menu"><a href="#" role="button">Menu</a><ul><li><a href="/frame?name=first">First</a></li>
<li><a href="/frame?name=second">Second</a></li></ul></div>"""

LOGINS = """<p>Four ways to stay logged in.</p><label>Name <input id="name" value="ada"></label>
<button onclick="document.cookie = 'lab_login=' + who() + '; path=/'; show()">By cookie</button>
<button onclick="localStorage.setItem('login', who()); show()">By localStorage</button>
<button onclick="sessionStorage.setItem('login', who()); show()">By sessionStorage</button>
<button onclick="put(who()).then(show)">By IndexedDB</button>
<dl><dt>cookie</dt><dd id="cookie"></dd><dt>secret cookie</dt><dd id="secret">{secret}</dd>
<dt>localStorage</dt><dd id="local"></dd>
<dt>sessionStorage</dt><dd id="session"></dd><dt>IndexedDB</dt><dd id="indexed"></dd></dl>
<p><a href="/logins/enter?name=ada">By HttpOnly cookie</a></p><script>
const who = () => document.getElementById("name").value;
const set = (id, text) => document.getElementById(id).textContent = text || "nobody";
const open = () => new Promise(done => { const asked = indexedDB.open("lab", 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore("logins"); asked.onsuccess = () => done(asked.result); });
const put = async name => { const db = await open(); const work = db.transaction("logins", "readwrite");
  work.objectStore("logins").put({name, at: new Date(0), key: new Uint8Array([1, 2, 3])}, "me");
  await new Promise(done => work.oncomplete = done); db.close(); };
const got = async () => { const db = await open();
  const asked = db.transaction("logins").objectStore("logins").get("me");
  await new Promise(done => asked.onsuccess = done); db.close(); return asked.result && asked.result.name; };
const show = async () => { set("cookie", (document.cookie.match(/lab_login=(\\w+)/) || [])[1]);
  set("local", localStorage.getItem("login")); set("session", sessionStorage.getItem("login")); set("indexed", await got());
  document.body.dataset.shown = "yes"; };
show();
</script>"""

WORKER_JS = """addEventListener("install", () => skipWaiting());
addEventListener("activate", event => event.waitUntil(clients.claim()));
if (location.search === "?asking") setInterval(() => fetch("/counter"), 10);"""

PAD = f"""<div id="pad" class="box">Pad</div>{SAID}
<style>#pad {{ position: fixed; left: 20px; top: 240px; width: 300px; height: 200px; }}</style><script>
const pad = document.getElementById("pad");
for (const kind of ["mousedown", "mouseup", "click", "dblclick", "contextmenu", "wheel", "mousemove"])
  pad.addEventListener(kind, event => {{ if (kind == "mousemove" && !event.buttons) return;
    const before = document.getElementById("said").textContent;
    say(before + `${{kind}} ${{event.clientX}},${{event.clientY}} ${{event.button}}\\n`); }});
</script>"""

KEYS = f"""<label>Type <input id="typed"></label>{SAID}<script>
addEventListener("keydown", event => say(document.getElementById("said").textContent + event.key + " "));
</script>"""

MEDIA = f"""{SAID}<script>
const show = () => say(["(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)", "print"]
  .map(q => q + " " + matchMedia(q).matches).join("\\n") + `\\n${{innerWidth}}x${{innerHeight}}`);
for (const q of ["(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)", "print"]) matchMedia(q).onchange = show;
onresize = show; show();
</script>"""

COUNTER = f"""<button onclick="say(++window.count)">Increment</button><button onclick="this.remove()">Vanish</button>
<button onclick="document.getElementById('list').innerHTML = '<button>Fresh</button>'">Redraw</button>
<button disabled>Disabled</button><button style="position:fixed;left:-900px">Outside</button>
<div id="list"><button>Old</button></div>{SAID}<script>window.count = 0;</script>"""

PAGES = {
    "/form": ("Long form", FORM),
    "/upload": ("Upload", UPLOAD),
    "/chooser": ("File chooser", CHOOSER),
    "/downloads": ("Downloads", DOWNLOADS),
    "/dialogs": ("Dialogs", DIALOGS),
    "/iframes": ("Frames", IFRAMES),
    "/nest": ("Nest", NEST),
    "/shadow": ("Shadow DOM", SHADOW),
    "/scroll": ("Infinite scroll", SCROLL),
    "/popup": ("Popup", POPUP),
    "/alerts": ("Alert storm", ALERTS),
    "/endless": ("Endless script", ENDLESS),
    "/console": ("Console", CONSOLE),
    "/slow": ("Slow", SLOW),
    "/effects": ("Late effects", EFFECTS),
    "/talk": ("Talk", TALK),
    "/drag": ("Drag and drop", DRAG),
    "/hover": ("Hover menu", HOVER),
    "/logins": ("Logins", LOGINS),
    "/pad": ("Pad", PAD),
    "/keys": ("Keys", KEYS),
    "/media": ("Media", MEDIA),
    "/counter": ("Counter", COUNTER),
    "/routes": ("Routes", ROUTES),
}
"""Pages that are always the same, or have one value to fill in; see lab.py for the rest."""

LINKED = [
    *PAGES,
    "/search",
    "/many",
    "/huge",
    "/redirect",
    "/loop",
    "/status/404",
    "/status/500",
    "/slow-page",
]


def page(title: str, body: str) -> bytes:
    """A whole document."""
    return FRAME.format(title=escape(title), body=body).encode()


def index() -> bytes:
    """The list of all pages."""
    links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in LINKED)
    return page("Lab", f"<ul>{links}</ul>")


def found_boats(words: str) -> dict[int, tuple[str, str]]:
    """The boats with these words in their name, by number; none without words."""
    wanted = words.strip().lower()
    return {n: boat for n, boat in BOATS.items() if wanted and wanted in boat[0].lower()}


def search(words: str) -> bytes:
    """Return the search page for boats, with its results."""
    boats = found_boats(words)
    links = "".join(f'<li><a href="/boats/{n}">{boat[0]}</a></li>' for n, boat in boats.items())
    heading = f"<h2>{len(boats)} found</h2><ul>{links}</ul>" if words else ""
    return page("Search", SEARCH.format(words=escape(words, quote=True), found=heading))


def boat(number: int) -> bytes:
    name, what = BOATS[number]
    return page(name, f"<p>{name} is {what}.</p>")


def frame(name: str) -> bytes:
    """The small page that frames, popups and destinations show."""
    return page(f"Frame {name}", FRAME_BODY)


def many(refs: int) -> bytes:
    """A table whose rows hold links and buttons, `refs` of them in all."""
    rows = "".join(
        f'<tr><td>Row {n}</td><td><a href="/frame?name={n}">Open {n}</a></td><td><button>Buy {n}</button></td></tr>'
        for n in range(max(1, refs // 2))
    )
    return page("Many", f"<table><tbody>{rows}</tbody></table>")


def echoed(title: str, values: list[tuple[str, str]]) -> bytes:
    """Return the values that were sent, as a list."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in values)
    return page(title, f"<dl>{rows}</dl>")
