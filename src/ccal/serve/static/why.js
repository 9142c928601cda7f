// Why a result matches: what each leading canonical dimension adds to the score, and which words.

import { el } from "./dom.js";

const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(3)}`;

export const scoreOf = (score) =>
  el(
    "span",
    { class: "score", title: "Similarity: 1 is the most there can be" },
    el("span", { class: "hidden" }, "Score "),
    score.toFixed(3),
  );

/** A `<details>` with the score, a few bars at once, and all of them when opened. */
export function why(result) {
  const parts = result.dimensions ?? [];
  if (parts.length === 0) return el("p", { class: "why" }, scoreOf(result.score));
  const look = lookOf(parts.map((part) => part.contribution));
  const small = parts.map((part) => el("i", look(part.contribution)));
  const spark = el("span", { class: "spark", "aria-hidden": "true" }, small);
  const sum = parts.reduce((total, part) => total + part.contribution, 0);
  const rest = result.rest ?? result.score - sum;
  const note = [`These ${parts.length} add ${signed(sum)}, all others ${signed(rest)}`];
  if (result.correction) note.push(`, the correction for hubs ${signed(result.correction)}`);
  const panel = el(
    "div",
    { class: "panel" },
    el("h3", {}, "What the strongest canonical dimensions add"),
    bars(parts.map((part) => [String(part.dimension), part.contribution])),
    el("p", { class: "note" }, ...note, "."),
  );
  const known = (result.words ?? []).filter((word) => word.known);
  const words = known.sort((a, b) => b.weight - a.weight).slice(0, 5);
  if (words.length) {
    const rows = bars(words.map((word) => [word.word, word.weight]));
    panel.append(el("h3", {}, "What the score loses without a word"), rows);
  }
  return el(
    "details",
    // One name: opening the reasons of one result closes those of another.
    { class: "why", name: "why" },
    el("summary", {}, scoreOf(result.score), spark, el("span", { class: "label" }, "Why")),
    panel,
  );
}

/** Names and what they add, as bars to the right (more) or to the left (less). */
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
