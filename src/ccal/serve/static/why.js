// Why a result matches: which words of the query count, and towards what both lean.

import { Problem, dimensions } from "./api.js";
import { el, several } from "./dom.js";
import { lazyImage } from "./media.js";
import { nameOf } from "./names.js";
import { addressOf } from "./route.js";

const MOST = 4;

const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(3)}`;

/** The score of a result; before it a word for people, if the model knows how good such hits are. */
export function scoreOf({ score, match, chance }) {
  const number = el(
    "span",
    { class: match ? "score small" : "score", title: "Similarity: 1 is the most there can be" },
    el("span", { class: "hidden" }, "Score "),
    score.toFixed(3),
  );
  if (!match) return number;
  const share = chance < 0.01 ? "Less than 1%" : `About ${Math.floor(100 * chance)}%`;
  const title = `${share} of such hits are exactly the right one; cosine ${score.toFixed(3)}`;
  return el("span", { class: "judged" }, el("span", { class: `match ${match}`, title }, match), number);
}

/** A `<details>` with the score, a few bars at once, and the reasons when opened. */
export function why(result) {
  const parts = result.dimensions ?? [];
  if (parts.length === 0) return el("p", { class: "why" }, scoreOf(result));
  const look = lookOf(parts.map((part) => part.contribution));
  const small = parts.map((part) => el("i", look(part.contribution)));
  const spark = el("span", { class: "spark", "aria-hidden": "true" }, small);
  const panel = el("div", { class: "panel" });
  const open = (event) => {
    if (event.target.open && !panel.hasChildNodes()) fill(panel, result);
  };
  return el(
    "details",
    // One name: opening the reasons of one result closes those of another.
    { class: "why", name: "why", ontoggle: open },
    el("summary", {}, scoreOf(result), spark, el("span", { class: "label" }, "Why")),
    panel,
  );
}

/** The reasons: words of the query, then directions of the space with what lies there. */
function fill(panel, result) {
  const known = (result.words ?? []).filter((word) => word.known);
  const most = Math.max(0, ...known.map((word) => word.weight));
  const counts = known.filter((word) => word.weight > 0 && word.weight >= 0.05 * most);
  const words = counts.sort((a, b) => b.weight - a.weight).slice(0, 5);
  if (words.length) {
    const rows = bars(words.map((word) => [word.word, word.weight]));
    panel.append(el("h3", {}, "Words of the query, and what the score loses without them"), rows);
  }
  const strongest = Math.max(...result.dimensions.map((part) => Math.abs(part.contribution)));
  const matters = (part) => Math.abs(part.contribution) >= 0.1 * strongest;
  const together = result.dimensions.filter((part) => part.contribution > 0 && matters(part));
  const apart = result.dimensions.filter((part) => part.contribution < 0 && matters(part));
  const shown = [...together.slice(0, MOST), ...apart.slice(0, 1)];
  const ends = new Map(shown.map((part) => [part.end, el("div", { class: "end" }, "…")]));
  const list = (parts) =>
    el("ul", { class: "ends" }, parts.map((part) => reason(part, result, ends.get(part.end))));
  if (together.length) {
    panel.append(el("h3", {}, "Query and result both lean towards"), list(together.slice(0, MOST)));
  }
  if (apart.length) {
    panel.append(el("h3", {}, "Only the query leans towards"), list(apart.slice(0, 1)));
  }
  panel.append(el("p", { class: "note" }, remainder(result, shown)));
  describe(ends);
}

/** One direction: what lies there, where it comes from, and what it adds. */
function reason(part, result, end) {
  const kind = result.canonical ? "canonical dimension" : "dimension";
  const facts = [`${signed(part.contribution)} by ${kind} ${part.dimension}`];
  if (part.correlation !== null) facts.push(`correlation ${part.correlation.toFixed(2)}`);
  if (part.words?.length) facts.unshift(`from ${part.words.map((word) => `“${word}”`).join(", ")}`);
  const look = lookOf(result.dimensions.map((one) => one.contribution))(part.contribution);
  const bar = el("div", { class: "track", "aria-hidden": "true" }, el("i", look));
  return el("li", {}, end, bar, el("p", { class: "note" }, facts.join(" · ")));
}

function remainder(result, shown) {
  const left = result.dimensions.filter((part) => !shown.includes(part));
  const rest = left.reduce((sum, part) => sum + part.contribution, result.rest ?? 0);
  const number = left.length + (result.others ?? 0);
  const parts = number ? [`${several(number, "other dimension")}: ${signed(rest)}.`] : [];
  if (result.correction) {
    const what = "Correction for hubs (items that are close to almost every query)";
    parts.push(`${what}: ${signed(result.correction)}.`);
  }
  return parts.join(" ");
}

/** Fill each element of `ends` with the words and items at that end. */
async function describe(ends) {
  let found = [];
  try {
    found = (await dimensions([...ends.keys()])).ends;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
  }
  const about = new Map(found.map((one) => [one.end, one]));
  for (const [end, node] of ends) {
    const { terms = [], words = [], examples = [] } = about.get(end) ?? {};
    const name = named(words, terms);
    const items = examples.map(example);
    const nothing = name || items.length ? null : el("span", {}, "what cannot be put into words");
    const list = items.length ? el("div", { class: "examples" }, items) : null;
    node.replaceChildren(...[name, nothing, list].filter(Boolean));
  }
}

/** Words of the model with their correlations, else words of the texts at an end of a dimension. */
function named(words, terms) {
  if (!words.length) return terms.length ? el("strong", {}, terms.slice(0, 4).join(", ")) : null;
  const facts = words.map(([word, value]) => `${word} ${value.toFixed(2)}`).join(", ");
  const title = `Correlations of words with this dimension, in training: ${facts}`;
  return el("strong", { title }, words.slice(0, 4).map(([word]) => word).join(", "));
}

/** An item at the end of a dimension, as a link that searches with it. */
function example(item) {
  const name = nameOf(item);
  const href = addressOf({ query: { type: "item", id: item.id } });
  const link = { href, "data-item": item.id, title: name };
  if (!item.media?.thumbnail) return el("a", link, name);
  const image = lazyImage(item.media.thumbnail, "");
  return el("a", { ...link, class: "picture", "aria-label": `Search with ${name}` }, image);
}

/** Names and what they add, as bars. */
function bars(rows) {
  const look = lookOf(rows.map(([, value]) => value));
  return el(
    "dl",
    { class: "bars" },
    rows.flatMap(([name, value]) => [
      el("dt", {}, name),
      el("dd", { class: "track", "aria-hidden": "true" }, el("i", look(value))),
      el("dd", { class: "number" }, signed(value)),
    ]),
  );
}

/** How long and of which colour the bar of each value is. */
function lookOf(values) {
  const top = Math.max(...values.map(Math.abs), 1e-9);
  return (value) => ({ class: value < 0 ? "minus" : null, "--size": Math.abs(value) / top });
}

/** `text` with its words marked by weight; places in `words` count code points. */
export function weighed(text, words) {
  const top = Math.max(...words.map((word) => Math.abs(word.weight)), 1e-9);
  const letters = Array.from(text);
  const cut = (start, end) => letters.slice(start, end).join("");
  const nodes = [];
  let at = 0;
  for (const word of [...words].sort((a, b) => a.start - b.start)) {
    if (word.start < at) continue;
    nodes.push(cut(at, word.start));
    const shown = cut(word.start, word.end);
    const share = Math.max(0.06, word.weight / top);
    const title = `weight ${word.weight.toFixed(3)}`;
    nodes.push(
      word.known
        ? el("mark", { "--weight": share, title }, shown)
        : el("span", { class: "unknown", title: "The model does not know this word" }, shown),
    );
    at = word.end;
  }
  nodes.push(cut(at));
  return nodes;
}
