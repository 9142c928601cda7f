// A query from the box to the results: one at a time, the newest wins.

import * as api from "./api.js";
import { kindsOf } from "./box.js";
import { $, count, el, iconButton, several } from "./dom.js";
import { findNames } from "./names.js";
import { clearProblem, showProblem } from "./problems.js";
import { pageRow, whereOf } from "./pages.js";
import { itemPanel, showGroups, showResults } from "./results.js";
import { addressOf } from "./route.js";
import { weighed } from "./why.js";

const PAGE = 24;
// Tunes on a page have a list each.
const FEW = 3;
const PLURALS = { audio: "recordings", sheet: "scores", text: "texts" };
const plural = (name) => PLURALS[name] ?? (name.endsWith("s") ? name : `${name}s`);

let running = null;
let shown = [];
let preview = "";

/** Ids of the results on the page, best first. */
export const shownIds = () => shown;

/** Stop the query that runs; false if none does. */
export function cancelSearch() {
  if (!running) return false;
  running.abort();
  finish();
  $("status").textContent = "Stopped.";
  return true;
}

/** Forget query and results. */
export function clearSearch() {
  running?.abort();
  finish();
  clearProblem();
  shown = [];
  $("query").replaceChildren();
  $("status").textContent = "";
  showResults([]);
  $("within").hidden = $("more").hidden = true;
}

function finish() {
  running = null;
  $("progress").hidden = true;
  $("results").removeAttribute("aria-busy");
}

/** Run `query` and show what comes back; `choose` is called with another modality to search in. */
export async function runSearch(query, options) {
  const { info, to, k = firstOf(query), choose, clear, focusFirst = false } = options;
  running?.abort();
  const mine = (running = new AbortController());
  clearProblem();
  $("results").setAttribute("aria-busy", "true");
  $("status").textContent = "Searching …";
  if (query.type === "file") showFile(query, clear);
  // A bar that flashes for a moment is worse than none.
  const patience = setTimeout(() => mine === running && ($("progress").hidden = false), 120);
  try {
    const most = Math.min(k, info.limits.k);
    const answer = await ask(query, info, { to, k: most, signal: mine.signal });
    if (mine !== running) return;
    finish();
    showAnswer(query, answer, { info, choose, clear });
    const more = answer.results.length === k && k < info.limits.k;
    $("more").hidden = !more;
    $("more").onclick = () => runSearch(query, { info, to, k: k + firstOf(query), choose, clear });
    if (focusFirst) $("results").querySelector("a.open")?.focus();
  } catch (error) {
    if (error.name === "AbortError" || mine !== running) return;
    finish();
    fail(error, () => runSearch(query, { info, to, k, choose, clear }), query, clear);
  } finally {
    clearTimeout(patience);
  }
}

const firstOf = (query) => (query.kind === "sheet" ? FEW : PAGE);

function ask(query, info, options) {
  if (query.type === "file") return api.searchFile(query.file, { ...options, kind: query.kind });
  if (query.type === "item") return api.searchItem(query.id, options);
  if (kindsOf(info).has("text")) return api.searchText(query.text, options);
  return byName(query.text, info, options);
}

/** Where words are no query of their own they look for names. */
async function byName(text, info, { k, signal }) {
  const found = await findNames(text, info, signal);
  const within = info.modalities[0].name;
  return { query: { kind: "name", text }, within, results: found.slice(0, k), total: found.length };
}

function fail(error, again, query, clear) {
  shown = [];
  showResults([]);
  $("status").textContent = "";
  $("more").hidden = $("within").hidden = true;
  if (query.type !== "file") $("query").replaceChildren();
  if (!(error instanceof api.Problem)) throw error;
  showProblem(error, [0, 401, 408, 429, 500, 503, 504].includes(error.status) ? again : null);
}

function showAnswer(query, answer, { info, choose, clear }) {
  shown = answer.results.map((result) => result.id);
  showResults(answer.results);
  if (answer.sheet) showSheet(query, answer, clear);
  if (query.type === "item" && answer.query.item) showItem(answer.query.item, clear);
  else if (query.type === "text") showWords(answer.query);
  showWithin(query, answer, info, choose);
  const number = answer.results.length;
  const what = info.kind === "tunes" ? "tunes" : plural(answer.within);
  if (number === 0) {
    const advice = "Try other words or another file.";
    const nothing = el("li", { class: "empty" }, el("strong", {}, "Nothing was found"), advice);
    $("results").replaceChildren(nothing);
  }
  const some = answer.total > number ? `${count(number)} of ${count(answer.total)}` : count(number);
  const best = answer.query.kind === "name" ? some : `The best ${some}`;
  if (answer.sheet?.tunes.length > 1) return;
  if (info.kind === "tunes" && answer.results[0]?.match === "weak") {
    const said = "This is probably none of these tunes. The nearest were found";
    $("status").textContent = `${said}${time(answer)}`;
    return;
  }
  $("status").textContent = number ? `${best} ${what}${time(answer)}` : `No ${what} were found.`;
}

function time({ took_ms: took }) {
  if (took === undefined) return "";
  if (took >= 1000) return ` in ${(took / 1000).toFixed(1)} seconds`;
  return ` in ${took < 10 ? took.toFixed(1) : Math.round(took)} ms`;
}

function showWords(asked) {
  $("query").replaceChildren();
  if (!asked.words?.some((word) => word.known)) return;
  const lead = el("span", { class: "lead" }, "What counted:");
  $("query").append(el("p", { class: "weighed" }, lead, weighed(asked.text, asked.words)));
}

function panel(clear, className, ...content) {
  const close = iconButton("close", "Clear this query", { onclick: clear });
  $("query").replaceChildren(el("div", { class: `asked ${className}` }, ...content, close));
}

function showItem(item, clear) {
  panel(clear, item.media?.staff ? "stave" : "", ...itemPanel(item));
}

function showFile({ file, kind }, clear) {
  URL.revokeObjectURL(preview);
  const address = (preview = URL.createObjectURL(file));
  const facts = el("p", { class: "kind" }, "Searched with");
  const what = el("div", { class: "what" }, facts, el("p", {}, file.name));
  if (kind === "audio") {
    const label = `Your sound ${file.name}`;
    what.append(el("audio", { controls: true, src: address, "aria-label": label }));
    panel(clear, "", what);
  } else {
    const alt = `Your picture ${file.name}`;
    const image = el("img", { class: "photo", src: address, alt });
    // Browsers do not show all that can be searched with, such as PDF and TIFF.
    image.addEventListener("error", () => image.remove());
    panel(clear, "", image, what);
  }
}

const CALLED = { strong: "very likely", fair: "probably", weak: "probably none of these tunes" };

/** The pages in place of the picture; a list for each tune if there are several. */
function showSheet({ file }, answer, clear) {
  const { pages, tunes } = answer.sheet;
  const lines = tunes.flatMap((tune) => tune.lines);
  const found = several(lines.length, "line");
  const on = pages.length > 1 ? ` on ${several(pages.length, "page")}` : "";
  const facts = el("p", { class: "kind" }, `Searched with ${found}${on}`);
  const what = el("div", { class: "what" }, facts, el("p", {}, file.name));
  panel(clear, "music", what, pageRow(answer.sheet, file.name));
  if (tunes.length < 2) return;
  shown = tunes.flatMap((tune) => tune.results.map((result) => result.id));
  const groups = tunes.map((tune, number) => {
    const best = tune.results[0];
    const title = best.match === "weak" ? "" : ` ${best.title}`;
    const badge = el("span", { class: `badge tune-${number % 2}` }, String(number + 1));
    const said = `${whereOf(tune.lines, pages.length)}: ${CALLED[best.match]}${title}`;
    return { heading: el("h2", {}, badge, " ", said), results: tune.results };
  });
  showGroups(groups);
  const where = pages.length > 1 ? "these pages" : "this page";
  $("status").textContent = `${count(tunes.length)} tunes on ${where}${time(answer)}`;
}

function showWithin(query, answer, info, choose) {
  const held = info.modalities.filter((one) => one.count > 0).map((one) => one.name);
  const reached = info.queries.find((one) => one.kind === answer.query.kind)?.to ?? [];
  const names = query.type === "item" ? held : reached.filter((name) => held.includes(name));
  $("within").hidden = names.length < 2 || info.kind === "tunes" || answer.query.kind === "name";
  const choice = (name) => {
    const state = { checked: name === answer.within, onchange: () => choose(name) };
    const input = el("input", { type: "radio", name: "within", value: name, ...state });
    return el("label", {}, input, el("span", {}, plural(name)));
  };
  $("within").replaceChildren(...names.map(choice));
}

/** A caption as a suggestion: without the full stop, and not longer than a line. */
function brief(text) {
  const plain = text.replace(/[\s.]+$/, "");
  return plain.length > 60 ? `${plain.slice(0, 59).trimEnd()}…` : plain;
}

/** A few things to begin with. */
export async function showStart(info) {
  const texts = (info.examples?.texts ?? []).slice(0, 5);
  const ids = (info.examples?.items ?? []).slice(0, 8);
  $("start").replaceChildren();
  const chip = (text) => {
    const href = addressOf({ query: { type: "text", text } });
    return el("li", {}, el("a", { href, "data-text": text }, brief(text)));
  };
  if (texts.length) {
    const chips = el("ul", { class: "chips" }, texts.map(chip));
    $("start").append(el("p", { class: "lead-in" }, "Try"), chips);
  }
  if (!ids.length) return;
  const mine = (running = new AbortController());
  const found = await Promise.allSettled(ids.map((id) => api.item(id, mine.signal)));
  if (mine !== running) return;
  finish();
  const items = found.filter((one) => one.status === "fulfilled").map((one) => one.value);
  if (!items.length) return;
  const what =
    info.kind === "tunes"
      ? "Listen to one, or click its name to find tunes like it"
      : "Or click one of these to search with it";
  $("start").append(el("p", { class: "lead-in" }, what));
  showResults(items);
}
