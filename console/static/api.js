// Requests to the JSON API of the server, and its events.

const BASE = "/api/v1";
let csrf = "";
// The login of a view in a frame, which no cookie holds.
let secret = "";

export class ApiError extends Error {
  constructor(status, body) {
    super(body.message || `The server answered ${status}.`);
    this.status = status;
    this.code = body.code || "";
    this.recovery = body.recovery || "";
  }

  // Whether a person has no control after it. Others pass, such as those while the session moves to another process, and
  // control outlives a login.
  get endsControl() {
    return this.code === "control_refused" || [403, 404].includes(this.status);
  }
}

async function request(method, path, body, options = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET") headers["X-CSRF-Token"] = csrf;
  if (secret) headers.Authorization = `Bearer ${secret}`;
  let response;
  try {
    response = await fetch(BASE + path, {
      method, headers, credentials: secret ? "omit" : "same-origin", body: body === undefined ? undefined : JSON.stringify(body), ...options,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "unreachable", message: "The server does not answer." });
  }
  if (response.ok) return response;
  let failure = {};
  try {
    failure = await response.json();
  } catch {
    // A proxy answered.
  }
  if (response.status === 401 && failure.code !== "login_failed") window.dispatchEvent(new Event("statehold-logout"));
  throw new ApiError(response.status, failure);
}

export const get = async (path, options) => (await request("GET", path, undefined, options)).json();
export const post = async (path, body = {}, options = {}) => (await request("POST", path, body, options)).json();
export const remove = async path => (await request("DELETE", path)).json();
export const stream = (path, options) => request("GET", path, undefined, options);

export async function login(secret) {
  const user = await post("/login", secret);
  if (!user.session_id || !csrf) csrf = user.csrf;
  return user;
}

export const look = code => post("/login", { code, look: true });

// Returns the id of the session that a view in a frame shows. Other codes stay as they are.
export async function embed(code) {
  if ((await look(code)).rights !== "embed") throw new ApiError(403, { message: "This link is not one for a frame." });
  const user = await post("/login", { code });
  secret = user.secret;
  return user.session_id;
}

export const loginWays = () => get("/login");

export async function whoAmI() {
  const user = await get("/me");
  csrf = user.csrf;
  return user;
}

export async function logout(everywhere = false) {
  await post("/logout", { everywhere });
  csrf = "";
}

export const act = (id, action, body) => post(`/sessions/${encodeURIComponent(id)}/actions/${action}`, body);

// Calls `onSession` with each summary that changed, `onNotices` with all notices, and `onState` with "live" or "lost". Returns a
// function that ends it.
export function events(onSession, onNotices, onState) {
  const source = new EventSource(`${BASE}/events`);
  source.addEventListener("session", event => onSession(JSON.parse(event.data)));
  source.addEventListener("notices", event => onNotices(JSON.parse(event.data).notices));
  source.addEventListener("open", () => onState("live"));
  source.addEventListener("error", () => onState("lost"));
  return () => source.close();
}
