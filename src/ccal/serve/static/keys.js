// The keyboard: / to the box, arrows between results, Esc back a step.

import { $ } from "./dom.js";

const links = () => [...$("results").querySelectorAll("a.open")];
const typing = (node) => /^(INPUT|TEXTAREA|SELECT)$/.test(node.tagName) || node.isContentEditable;

/** The result next to `from` in the direction of an arrow key, by where they are on the screen. */
function neighbour(from, key) {
  const all = links();
  const at = all.indexOf(from);
  if (key === "ArrowLeft") return all[at - 1];
  if (key === "ArrowRight") return all[at + 1];
  if (key === "Home") return all[0];
  if (key === "End") return all.at(-1);
  const card = (link) => link.closest(".card").getBoundingClientRect();
  const here = card(from);
  const down = key === "ArrowDown";
  let best = null;
  for (const link of all) {
    const there = card(link);
    if (down ? there.top <= here.top + 4 : there.top >= here.top - 4) continue;
    const distance = Math.abs(there.top - here.top) * 4 + Math.abs(there.left - here.left);
    if (!best || distance < best.distance) best = { link, distance };
  }
  return best?.link ?? (down ? null : $("words"));
}

function focus(node) {
  node.focus({ preventScroll: true });
  (node.closest(".card") ?? node).scrollIntoView({ block: "nearest" });
}

/** `cancel` stops what runs and says whether there was anything. */
export function startKeys(cancel) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("token-dialog").open) return;
    const here = document.activeElement;
    if (event.key === "/" && !typing(here) && !$("view-search").hidden) {
      event.preventDefault();
      focus($("words"));
      $("words").select();
    } else if (event.key === "Escape") {
      escape(event, here, cancel);
    } else if (here === $("words") && event.key === "ArrowDown" && links().length) {
      event.preventDefault();
      focus(links()[0]);
    } else if (here.matches?.("#results a.open") && /^(Arrow|Home|End)/.test(event.key)) {
      const next = neighbour(here, event.key);
      if (!next) return;
      event.preventDefault();
      focus(next);
    }
  });
}

function escape(event, here, cancel) {
  if (cancel()) {
    event.preventDefault();
  } else if ($("results").contains(here)) {
    event.preventDefault();
    focus($("words"));
  } else if (here === $("words")) {
    $("words").value = "";
  }
}
