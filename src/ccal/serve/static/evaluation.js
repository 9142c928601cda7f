// The run's measures and plots.

import * as api from "./api.js";
import { $, count, el, several } from "./dom.js";
import { lazyImage } from "./media.js";
import { isDark, onTheme } from "./theme.js";

const MEASURES = [
  ["r1", "R@1", "counterpart first, in %"],
  ["r5", "R@5", "among the first five, in %"],
  ["r10", "R@10", "among the first ten, in %"],
  ["mr", "MR", "median rank"],
  ["mrr", "MRR", "mean reciprocal rank, in %"],
];
const arrow = (name) => name.replace(" -> ", " → ");
const figure = (value, key) => {
  if (!Number.isFinite(value)) return "–";
  return key === "mr" ? String(Number(value.toFixed(1))) : value.toFixed(1);
};
const PARTS = { valid: "validation pairs", test: "test pairs", train: "training pairs" };

export async function showEvaluation() {
  const report = await api.evaluation();
  const nodes = [el("h1", {}, "Evaluation")];
  for (const text of report.warnings ?? []) nodes.push(el("p", { class: "problem" }, text));
  nodes.push(...report.directions.map(sentence), table(report), ...sameScale(report));
  nodes.push(...reliability(report.reliability ?? []));
  const facts = Object.entries(report.facts ?? {});
  if (facts.length) {
    const row = ([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))];
    nodes.push(el("h2", {}, "About this run"), el("dl", { class: "facts" }, facts.flatMap(row)));
  }
  nodes.push(...correlations(report.correlations));
  const figures = el("div", {});
  const draw = () => figures.replaceChildren(...(report.plots ?? []).map(plot));
  if (report.plots?.length) nodes.push(el("h2", {}, "Plots"), figures);
  draw();
  onTheme(draw);
  // A link cannot carry the token.
  if (report.report && !api.hasToken()) {
    const link = el("a", { href: report.report, target: "_blank" }, "The whole report");
    nodes.push(el("p", {}, link, " of this run, in a new tab."));
  }
  $("view-evaluation").replaceChildren(...nodes);
}

function sentence(way) {
  const { r1, r10 } = way.measures;
  return el(
    "p",
    {},
    el("strong", {}, arrow(way.name)),
    `: of ${count(way.queries)} queries, `,
    el("strong", {}, `${r1.toFixed(1)}%`),
    ` find their counterpart first among ${count(way.candidates)} candidates, `,
    `and ${r10.toFixed(1)}% among the first ten.`,
  );
}

/** One row a measure: two directions fit on any screen. */
function table(report) {
  const ways = report.directions;
  const rows = MEASURES.filter(([key]) => ways.some((way) => Number.isFinite(way.measures[key])));
  const cell = (way, key) => {
    const interval = way.intervals?.[key];
    const range = interval ? el("small", {}, interval.map((end) => figure(end, key)).join("–")) : null;
    return el("td", {}, figure(way.measures[key], key), range);
  };
  const intervals = ways.some((way) => Object.keys(way.intervals ?? {}).length);
  const part = PARTS[report.part] ?? `${report.part} pairs`;
  const column = (...name) => el("th", { scope: "col" }, ...name);
  const headed = (way) => column(arrow(way.name), el("small", {}, among(way)));
  const head = el("tr", {}, column("measure"), ways.map(headed));
  const body = rows.map(([key, name, about]) => {
    const label = el("th", { scope: "row" }, name, el("small", {}, about));
    return el("tr", {}, label, ways.map((way) => cell(way, key)));
  });
  const caption = `Measured on the ${part}.${intervals ? " Small: 95% intervals." : ""}`;
  return el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, body));
}

const among = ({ queries, candidates }) =>
  `${several(queries, "query", "queries")}, ${several(candidates, "candidate")} each`;

/** MRR of validation and test pairs, one below the other on one scale. */
function sameScale(report) {
  const ways = report.directions.filter((way) => way.validation && Number.isFinite(way.measures.mrr));
  if (!ways.length || report.part === "valid") return [];
  const row = (name, about, value) => [
    el("dt", {}, name, el("small", {}, among(about))),
    el("dd", { class: "track", "aria-hidden": "true" }, el("i", { "--size": value / 100 })),
    el("dd", { class: "number" }, `${value.toFixed(1)}%`),
  ];
  const rows = ways.flatMap((way) => [
    ...row(`${arrow(way.name)}, validation`, way.validation, way.validation.mrr),
    ...row(`${arrow(way.name)}, ${report.part}`, way, way.measures.mrr),
  ]);
  const ticks = [0, 25, 50, 75, 100].map((tick) => el("span", {}, `${tick}%`));
  const axis = [el("dt", {}), el("dd", { class: "ticks", "aria-hidden": "true" }, ticks), el("dd")];
  const differ = ways.some((way) => way.validation.candidates !== way.candidates);
  const note = differ
    ? "The numbers of candidates differ: among more candidates, the same model has a lower MRR."
    : "Both among as many candidates, so that they can be compared.";
  const about = "MRR of the pairs that settings were chosen by, and of those that were only measured.";
  return [
    el("h2", {}, `Validation and ${report.part}`),
    el("p", { class: "note" }, `${about} ${note}`),
    el("dl", { class: "scale" }, rows, axis),
  ];
}

/** How often hits of each word were right. */
function reliability(ways) {
  if (!ways.length) return [];
  const words = ["strong", "fair", "weak"];
  const cell = ({ right, hits } = { right: 0, hits: 0 }) => {
    if (!hits) return el("td", {}, "–", el("small", {}, "no hits"));
    const share = `${Math.round((100 * right) / hits)}%`;
    return el("td", {}, share, el("small", {}, `${count(right)} of ${count(hits)}`));
  };
  const column = (name) => el("th", { scope: "col" }, name);
  const head = el("tr", {}, column("hits called"), ways.map((way) => column(arrow(way.name))));
  const rows = words.map((word) =>
    el("tr", {}, el("th", { scope: "row" }, word), ways.map((way) => cell(way[word]))),
  );
  const about = "How many of the first ten hits of each query of the test were right.";
  const caption = el("caption", {}, about);
  return [
    el("h2", {}, "Strong, fair and weak hits"),
    el("table", {}, caption, el("thead", {}, head), el("tbody", {}, rows)),
  ];
}

function correlations(facts) {
  if (!facts || !Number.isFinite(facts.mean)) return [];
  const { dimensions, mean, held_out_mean: heldOut, chance } = facts;
  const whose = `Mean canonical correlation of ${several(dimensions, "dimension")}`;
  const parts = [`${whose}: ${mean.toFixed(2)}`];
  if (Number.isFinite(heldOut)) parts.push(`${heldOut.toFixed(2)} on held-out pairs`);
  if (Number.isFinite(chance)) parts.push(`${chance.toFixed(2)} by chance`);
  return [el("p", { class: "note" }, `${parts.join(", ")}.`)];
}

/** A plot as wide as the page; a click opens it by itself, as large as one likes. */
function plot({ name, svg, alt, caption }) {
  const look = new URLSearchParams({ theme: isDark() ? "dark" : "light" });
  const address = `${svg}${svg.includes("?") ? "&" : "?"}${look}`;
  const image = lazyImage(address, alt ?? caption ?? name);
  const title = "Open this plot by itself, in a new tab";
  // A link cannot carry the token.
  const shown = api.hasToken() ? image : el("a", { href: address, target: "_blank", title }, image);
  return el("figure", { class: "plot" }, shown, el("figcaption", {}, caption ?? name));
}
