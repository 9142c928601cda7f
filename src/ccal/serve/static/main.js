// The page: asks the server what it holds, then follows the address.

import * as api from "./api.js";
import { fitBox, startBox } from "./box.js";
import { $, count, el } from "./dom.js";
import { showEvaluation } from "./evaluation.js";
import { startKeys } from "./keys.js";
import { buildMap } from "./map.js";
import { clearPreparing, showPreparing } from "./preparing.js";
import { clearProblem, showProblem } from "./problems.js";
import { cancelRecording } from "./recorder.js";
import { addressOf, currentRoute, go } from "./route.js";
import { cancelSearch, clearSearch, runSearch, showStart, shownIds } from "./search.js";
import { silence } from "./staff.js";
import { startTheme } from "./theme.js";

const VIEWS = ["search", "map", "evaluation"];
let info = null;
let asked = null;
let map = null;
let evaluated = false;

function visit(route, options = {}) {
  go(route);
  follow(options);
}

/** Show what the address says. */
function follow(options = {}) {
  const route = currentRoute();
  for (const view of VIEWS) $(`view-${view}`).hidden = view !== route.view;
  for (const link of document.querySelectorAll("nav [data-view]")) {
    if (link.dataset.view === route.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  silence();
  const about = route.query?.text ?? route.query?.id ?? route.query?.file?.name;
  const where = { search: about, map: "Map", evaluation: "Evaluation" }[route.view];
  document.title = [where, info?.title, "ccal"].filter(Boolean).join(" · ");
  if (!info) return;
  if (route.view === "search") followQuery(route, options);
  else build(route.view);
}

const clear = () => {
  visit({});
  $("words").value = "";
  $("words").focus();
};

function followQuery(route, options) {
  const address = asked && addressOf(asked) === addressOf(route);
  if (address && asked.query?.file === route.query?.file && !options.again) return;
  asked = route;
  $("start").replaceChildren();
  $("view-search").classList.toggle("asking", Boolean(route.query));
  $("words").value = route.query?.type === "text" ? route.query.text : "";
  if (!route.query) {
    clearSearch();
    showStart(info);
    return;
  }
  if (route.query.type !== "file") $("query").replaceChildren();
  runSearch(route.query, {
    info,
    to: route.to,
    choose: (to) => visit({ query: route.query, to }),
    clear,
    focusFirst: options.focusFirst,
  });
}

/** The map and the evaluation are built when they are first looked at. */
async function build(view) {
  const section = $(`view-${view}`);
  const where = el("div", { role: "alert" });
  if (!section.hasChildNodes()) section.textContent = "Loading …";
  try {
    if (view === "map") {
      map ??= await buildMap(info, (id) => visit({ query: { type: "item", id } }));
      map.mark(shownIds());
    } else if (!evaluated) {
      await showEvaluation();
      evaluated = true;
    }
    clearProblem();
  } catch (error) {
    if (!(error instanceof api.Problem)) throw error;
    section.replaceChildren(where);
    showProblem(error, () => build(view), where);
  }
}

async function start() {
  try {
    info = await api.info();
  } catch (error) {
    if (!(error instanceof api.Problem)) throw error;
    if (error.progress) {
      clearProblem();
      showPreparing(error, start);
    } else showProblem(error, start);
    return;
  }
  clearProblem();
  clearPreparing();
  $("collection-title").textContent = info.title;
  $("nav-map").hidden = !info.has.map;
  $("nav-evaluation").hidden = !info.has.evaluation;
  const held = info.modalities.filter((one) => one.count);
  const parts = held.map((one) => `${count(one.count)} ${one.name}`).join(", ");
  const items = `${count(info.count)} ${info.kind === "tunes" ? "tunes" : `items (${parts})`}`;
  $("about").textContent = `${items} · ccal ${info.version}`;
  fitBox(info);
  follow({ again: true });
}

startTheme();
startKeys(() => cancelRecording() || cancelSearch());
startBox({
  info: () => info,
  ask: (query) => info && visit({ query }, { again: true }),
  fail: (problem) => {
    if (currentRoute().view !== "search") visit(asked ?? {});
    showProblem(problem);
  },
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-view], a[data-item], a[data-text]");
  const elsewhere = event.button || event.ctrlKey || event.metaKey || event.shiftKey;
  if (!link || event.defaultPrevented || elsewhere) return;
  event.preventDefault();
  const { view, item, text } = link.dataset;
  // A click without a pointer comes from a key: its focus must not get lost.
  const focusFirst = event.detail === 0;
  if (item !== undefined) visit({ query: { type: "item", id: item } }, { focusFirst });
  else if (text !== undefined) visit({ query: { type: "text", text } });
  else if (view === "search" && asked?.query && !link.classList.contains("brand")) visit(asked);
  else visit({ view });
});
addEventListener("popstate", () => follow());
follow();
start();
