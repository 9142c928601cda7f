// A collection that is still being made: how far it is, until it is there.

import { $, el } from "./dom.js";

let looking = 0;

/** Show how far it is, and call `again` in a second; `problem` is the server's answer so far. */
export function showPreparing(problem, again) {
  const { done, total } = problem.progress;
  let box = $("start").querySelector(".preparing");
  if (!box) {
    const about = "The first time, this takes some minutes; then the search opens by itself.";
    box = el(
      "div",
      { class: "preparing" },
      el("p", { class: "far" }),
      el("progress", { "aria-label": "Getting ready" }),
      el("p", { class: "note", role: "status" }, about),
    );
    $("start").replaceChildren(box);
  }
  const bar = box.querySelector("progress");
  // Without a value the bar says that something happens, not how far it is.
  if (total) Object.assign(bar, { max: total, value: done });
  else bar.removeAttribute("value");
  box.querySelector(".far").textContent = problem.message;
  clearTimeout(looking);
  looking = setTimeout(again, 1000);
}

/** The collection is there. */
export function clearPreparing() {
  $("start").querySelector(".preparing")?.remove();
}
