// A map of the embedding space to wander in: drag, wheel, two fingers or keys; click to search.

import * as api from "./api.js";
import { RING, SIGNS, draw } from "./drawing.js";
import { $, count, el, iconButton, several, sign } from "./dom.js";
import { followPointers } from "./pointers.js";
import { onTheme } from "./theme.js";
import { Viewport } from "./viewport.js";

const REACH = 18;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/** Build the map in its section; `search` takes an id, and `mark` of what returns takes ids. */
export async function buildMap(info, search) {
  const plane = await api.map();
  const names = info.modalities.map((modality) => modality.name);
  const groups = plane.modalities.map((name) => Math.max(0, names.indexOf(name)));
  const points = { ...plane, groups };
  const view = new Viewport();
  view.fit(points.x, points.y);
  const canvas = el("canvas", {
    tabindex: "0",
    role: "application",
    "aria-label":
      `Map of ${several(points.ids.length, "item")}. Arrow keys go to the next item, ` +
      "shift and arrows move the map, plus and minus zoom, Enter searches with the item.",
  });
  const tip = el("div", { class: "tip", hidden: true });
  const spoken = el("p", { class: "hidden", role: "status", "aria-live": "polite" });
  const hits = new Set();
  const signs = names
    .map((name, group) => ({ name, group, node: sign(SIGNS[group % 2], `s${group % 2}`) }))
    .filter(({ group }) => points.groups.includes(group));
  const entries = signs.map(({ name, node }) => el("li", {}, node, name));
  const legend = el("ul", { class: "legend" }, entries);
  const ringed = el("li", { hidden: true }, sign(RING, "hit"), "results of the last search");
  legend.append(ringed);
  let selected = -1;

  const paint = () => {
    // Only elements know what light-dark() means at the moment.
    const colour = (node) => getComputedStyle(node).color;
    const colours = Object.fromEntries(signs.map(({ group, node }) => [group, colour(node)]));
    draw(canvas, view, points, { colours, ink: colour(canvas), hits, selected, picture });
  };
  let waiting = 0;
  const repaint = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(paint);
  };

  const picture = pictures(points, repaint);

  const nearest = (px, py, reach) => {
    let best = { at: -1, distance: reach * reach };
    for (let at = 0; at < points.x.length; at++) {
      const [x, y] = view.toScreen(points.x[at], points.y[at]);
      const distance = (x - px) ** 2 + (y - py) ** 2;
      if (distance < best.distance) best = { at, distance };
    }
    return best.at;
  };
  let tipTimer = 0;
  const addPicture = async (at) => {
    const image = await loadPicture(points.ids[at]).catch(() => null);
    if (!image || at !== selected) return;
    image.alt = "";
    tip.prepend(image);
    placeTip(tip, view, view.toScreen(points.x[at], points.y[at]));
  };
  const select = (at, { speak = false } = {}) => {
    const changed = at !== selected;
    selected = at;
    tip.hidden = at < 0;
    if (at >= 0) {
      if (changed) {
        fillTip(tip, points, at);
        clearTimeout(tipTimer);
        // A picture only where the reader stays, not for every point that is crossed.
        if (points.kinds[at] === "image") tipTimer = setTimeout(() => addPicture(at), 150);
      }
      placeTip(tip, view, view.toScreen(points.x[at], points.y[at]));
      if (speak) spoken.textContent = `${points.modalities[at]}: ${points.labels[at]}`;
    }
    if (changed) repaint();
  };
  const step = (dx, dy) => {
    const from = selected >= 0 ? [points.x[selected], points.y[selected]] : [view.cx, view.cy];
    let best = { at: -1, cost: Infinity };
    for (let at = 0; at < points.x.length; at++) {
      const ahead = (points.x[at] - from[0]) * dx + (points.y[at] - from[1]) * dy;
      const aside = Math.abs((points.x[at] - from[0]) * dy - (points.y[at] - from[1]) * dx);
      if (at === selected || ahead <= 1e-9 || aside > 2 * ahead) continue;
      if (ahead + 2 * aside < best.cost) best = { at, cost: ahead + 2 * aside };
    }
    if (best.at < 0) return;
    view.show(points.x[best.at], points.y[best.at]);
    select(best.at, { speak: true });
    repaint();
  };
  const moved = () => {
    if (selected >= 0) select(selected);
    repaint();
  };

  followPointers(canvas, {
    hover: (px, py) => {
      select(nearest(px, py, REACH));
      canvas.classList.toggle("over", selected >= 0);
    },
    leave: () => select(-1),
    pan: (dx, dy) => (view.pan(dx, dy), moved()),
    zoom: (factor, px, py) => (view.zoom(factor, px, py), moved()),
    click: (px, py, type) => {
      const at = nearest(px, py, type === "touch" ? 28 : REACH);
      // A finger cannot hover: the first tap shows the item, the second searches with it.
      if (at >= 0 && (type !== "touch" || at === selected)) search(points.ids[at]);
      else select(at, { speak: true });
    },
  });
  canvas.addEventListener("keydown", (event) => {
    const arrow = ARROWS[event.key];
    if (arrow && event.shiftKey) (view.pan(-60 * arrow[0], 60 * arrow[1]), moved());
    else if (arrow) step(...arrow);
    else if (event.key === "+" || event.key === "=") (view.zoom(1.4), moved());
    else if (event.key === "-") (view.zoom(1 / 1.4), moved());
    else if (event.key === "0") (view.reset(), moved());
    else if (event.key === "Enter" && selected >= 0) search(points.ids[selected]);
    else if (event.key === "Escape") select(-1);
    else return;
    event.preventDefault();
  });

  const button = (name, label, act) => iconButton(name, label, { onclick: () => (act(), moved()) });
  const zoom = el(
    "div",
    { class: "zoom" },
    button("plus", "Zoom in", () => view.zoom(1.5)),
    button("minus", "Zoom out", () => view.zoom(1 / 1.5)),
    button("whole", "The whole map", () => view.reset()),
  );
  const area = el("div", { class: "map" }, canvas, tip, zoom);
  new ResizeObserver(() => {
    if (!area.clientWidth) return;
    Object.assign(view, { width: area.clientWidth, height: area.clientHeight });
    moved();
  }).observe(area);
  onTheme(repaint);
  const note = el("p", { class: "note" }, about(plane));
  $("view-map").replaceChildren(el("h1", {}, "Map"), note, legend, area, spoken);
  return {
    mark(ids) {
      hits.clear();
      const wanted = new Set(ids);
      points.ids.forEach((id, at) => wanted.has(id) && hits.add(at));
      ringed.hidden = hits.size === 0;
      repaint();
    },
  };
}

function about(plane) {
  const some = plane.ids.length < plane.total ? `${count(plane.ids.length)} of ` : "";
  const [first, second] = plane.explained ?? [0, 0];
  const share = Math.round(100 * (first + second));
  return (
    `${some}${several(plane.total, "item")}. What lies close together is alike for the model. ` +
    `Only the two main directions of the space are shown, which hold ${share}% of its spread. ` +
    "Click an item to search with it."
  );
}

function fillTip(tip, points, at) {
  const kind = el("p", { class: "kind" }, points.modalities[at]);
  tip.replaceChildren(kind, el("p", {}, points.labels[at]));
}

/** The picture at a position: an image, undefined while it loads, or null where there is none. */
function pictures(points, loaded) {
  const known = new Map();
  return (at) => {
    if (points.kinds[at] !== "image") return null;
    if (!known.has(at)) {
      known.set(at, undefined);
      loadPicture(points.ids[at]).then(
        (image) => (known.set(at, image), loaded()),
        () => known.set(at, null),
      );
    }
    return known.get(at);
  };
}

async function loadPicture(id) {
  const image = new Image();
  image.src = await api.mediaAddress(`media/thumbnail?${new URLSearchParams({ id })}`);
  await image.decode();
  URL.revokeObjectURL(image.src);
  return image;
}

function placeTip(tip, view, [px, py]) {
  const left = px + 14 + 256 > view.width ? Math.max(4, px - 14 - tip.offsetWidth) : px + 14;
  const top = Math.min(Math.max(4, py + 12), Math.max(4, view.height - tip.offsetHeight - 4));
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}
