// What the page shows, as its address: words and items can be shared, files live in this tab only.

const files = new Map();

/** `{view, query, to}`; `query` is null or `{type: "text"|"item"|"file", …}`. */
export function currentRoute() {
  const values = new URLSearchParams(location.search);
  const to = values.get("to");
  const view = ["map", "evaluation"].includes(values.get("view")) ? values.get("view") : "search";
  if (values.get("q")) return { view, to, query: { type: "text", text: values.get("q") } };
  if (values.get("item")) return { view, to, query: { type: "item", id: values.get("item") } };
  const file = files.get(history.state?.file);
  return { view, to, query: file ? { type: "file", ...file } : null };
}

export function addressOf({ view = "search", query = null, to = null }) {
  const values = new URLSearchParams();
  if (view !== "search") values.set("view", view);
  if (query?.type === "text") values.set("q", query.text);
  if (query?.type === "item") values.set("item", query.id);
  if (query && to) values.set("to", to);
  const text = values.toString();
  return text ? `./?${text}` : "./";
}

/** Go to `route` as a new step of the history; the same address again is no new step. */
export function go(route) {
  let state = null;
  if (route.query?.type === "file") {
    state = { file: files.size + 1 };
    files.set(state.file, { file: route.query.file, kind: route.query.kind });
  }
  const address = addressOf(route);
  const same = new URL(address, location.href).href === location.href && !state && !history.state;
  history[same ? "replaceState" : "pushState"](state, "", address);
}
