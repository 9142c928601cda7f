// The server: JSON with the token, problems as readable errors, media that may need the token too.

let token = sessionStorage.getItem("ccal-token");

export const setToken = (value) => {
  token = value;
  if (value) sessionStorage.setItem("ccal-token", value);
  else sessionStorage.removeItem("ccal-token");
};
export const hasToken = () => Boolean(token);

/**
 * What went wrong, for people: a heading, a sentence, and the HTTP status (0: no answer).
 * `progress` says how far the server is if it only needs more time.
 */
export class Problem extends Error {
  constructor(title, detail, status, progress = null) {
    super(detail);
    this.title = title;
    this.status = status;
    this.progress = progress;
  }
}

async function ask(path, { signal, ...options } = {}) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const why = "It may have been stopped, or the network is down.";
    throw new Problem("The server does not answer", why, 0);
  }
  if (response.ok) return response;
  throw await problemOf(response);
}

async function problemOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // Not JSON: a proxy in between, perhaps. The status alone has to do.
  }
  const { status } = response;
  const other = status < 500 ? "This query cannot be answered" : "The server has a problem";
  const said = typeof body.detail === "string" ? body.detail : body.title;
  const progress = Number.isInteger(body.done) ? { done: body.done, total: body.total } : null;
  return new Problem(TITLES[status] ?? other, said ?? `HTTP status ${status}.`, status, progress);
}

const TITLES = {
  401: "A token is needed",
  403: "This is not allowed",
  404: "There is no such item",
  408: "It took too long",
  413: "This file is too large",
  415: "This kind of file cannot be searched with",
  429: "Too many queries at once",
  503: "The server is busy",
  504: "It took too long",
};

const json = async (path, options) => (await ask(path, options)).json();
const address = (path, values) => {
  const known = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return `${path}?${new URLSearchParams(known)}`;
};

export const info = () => json("api/info");
export const evaluation = () => json("api/evaluation");
export const map = () => json("api/map");
export const dimensions = (ends) => json(`api/dimensions?${ends.map((end) => `end=${end}`).join("&")}`);
export const items = ({ signal, ...values }) => json(address("api/items", values), { signal });
export const item = (id, signal) => json(address("api/item", { id }), { signal });
export const health = async () => (await fetch("health", { cache: "no-store" })).ok;

export const searchText = (text, { k, to, signal }) =>
  json("api/search", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ text, k, explain: true, ...(to ? { to } : {}) }),
    signal,
  });
export const searchFile = (file, { k, to, kind, signal }) =>
  json(address("api/search/file", { k, to, kind, explain: true }), {
    method: "POST",
    body: file,
    signal,
  });
export const searchItem = (id, { k, to, signal }) =>
  json(address("api/similar", { id, k, to, explain: true }), { signal });

/** An address that `<img>` and `<audio>` can load: itself, or with a token a copy in memory. */
export async function mediaAddress(path) {
  if (!token) return path;
  return URL.createObjectURL(await (await ask(path)).blob());
}
