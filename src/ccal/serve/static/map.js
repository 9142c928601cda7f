// A map of the embedding space to wander in: drag, wheel, two fingers or keys; click to search.

import * as api from "./api.js";
import { RING, SIGNS, draw, withRoom } from "./drawing.js";
import { $, count, el, iconButton, reducedMotion, several, sign } from "./dom.js";
import { followPointers } from "./pointers.js";
import { onTheme } from "./theme.js";
import { Viewport } from "./viewport.js";

const REACH = 18;
const LOADING = 6;
const KEPT = 600;
const PICTURE = 192;
const ASK_AGAIN = 2000;
const MOVING = 800;
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
  let roomy = { unit: 0, at: new Set() };
  let shown = new Map();

  const paint = () => {
    // Only elements know what light-dark() means at the moment.
    const colour = (node) => getComputedStyle(node).color;
    const colours = Object.fromEntries(signs.map(({ group, node }) => [group, colour(node)]));
    const paper = getComputedStyle(area).backgroundColor;
    if (roomy.unit !== view.unit) roomy = { unit: view.unit, at: withRoom(view, points) };
    const look = { colours, paper, ink: colour(canvas), hits, selected, roomy: roomy.at };
    const drawn = draw(canvas, view, points, { ...look, picture: pictures.get });
    shown = drawn.shown;
    pictures.want(drawn.missing);
  };
  let waiting = 0;
  const repaint = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(paint);
  };

  const pictures = loadedPictures(points, repaint);

  const nearest = (px, py, reach) => {
    for (const [at, [left, top, right, bottom]] of [...shown].reverse()) {
      if (px >= left && px <= right && py >= top && py <= bottom) return at;
    }
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
  const place = (x, y) => {
    Object.assign(points, { x, y });
    roomy.unit = 0;
    view.fit(x, y);
    moved();
  };
  // The first map is a quick one; a better one may follow.
  const improve = async () => {
    const better = await api.map().catch(() => null);
    if (!better) return;
    if (better.pending) return void setTimeout(improve, ASK_AGAIN);
    note.textContent = about(better);
    points.regions = [];
    await glide(points, better, place);
    points.regions = better.regions;
    repaint();
  };
  if (plane.pending) setTimeout(improve, ASK_AGAIN);
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

/** Move all points to where `better` has them. */
async function glide(points, better, place) {
  const [x, y] = [points.x, points.y];
  const same = better.ids.length === x.length && better.ids.every((id, at) => id === points.ids[at]);
  if (!same) return;
  const between = (from, to, share) => from.map((value, at) => value + share * (to[at] - value));
  const began = performance.now();
  const frame = () => new Promise(requestAnimationFrame);
  for (let share = reducedMotion() ? 1 : 0; share < 1; ) {
    await frame();
    share = Math.min(1, (performance.now() - began) / MOVING);
    const eased = share * share * (3 - 2 * share);
    place(between(x, better.x, eased), between(y, better.y, eased));
  }
  place(better.x, better.y);
}

const PROJECTIONS = { pacmap: "PaCMAP", umap: "UMAP", pca: "PCA" };

function about(plane) {
  const some = plane.ids.length < plane.total ? `${count(plane.ids.length)} of ` : "";
  const name = PROJECTIONS[plane.projection] ?? plane.projection;
  const parts = [`${some}${several(plane.total, "item")}, each where the model puts it.`];
  if (plane.projection !== "pca") {
    parts.push(`${name} keeps neighbours together; what lies far apart differs, however far.`);
  } else {
    const share = Math.round(100 * plane.explained.reduce((sum, one) => sum + one, 0));
    parts.push(`PCA: the two main directions, with ${share}% of the spread.`);
    parts.push(
      plane.pending
        ? `${PROJECTIONS[plane.pending]} is at work on a map that keeps neighbours together.`
        : "Install pacmap for a map that keeps neighbours together.",
    );
  }
  parts.push("Click an item to search with it.");
  return parts.join(" ");
}

function fillTip(tip, points, at) {
  const kind = el("p", { class: "kind" }, points.modalities[at]);
  tip.replaceChildren(kind, el("p", {}, points.labels[at]));
}

/** Small pictures by position: loaded a few at a time, those last wanted first. */
function loadedPictures(points, loaded) {
  const known = new Map();
  let wanted = [];
  let running = 0;
  const load = async (at) => {
    known.set(at, null);
    running++;
    try {
      const image = await loadPicture(points.ids[at]);
      const scale = Math.min(1, PICTURE / Math.max(image.naturalWidth, image.naturalHeight));
      const [width, height] = [image.naturalWidth * scale, image.naturalHeight * scale];
      const size = { resizeWidth: Math.ceil(width), resizeHeight: Math.ceil(height) };
      known.set(at, await createImageBitmap(image, { ...size, resizeQuality: "medium" }));
    } catch {
      // It stays a point.
    }
    running--;
    loaded();
    next();
  };
  const next = () => {
    while (running < LOADING && wanted.length) load(wanted.shift());
  };
  return {
    /** The picture at a position, null where there is none, undefined if nobody has asked yet. */
    get: (at) => known.get(at),
    want(positions) {
      wanted = positions.filter((at) => !known.has(at));
      // The oldest ones make room.
      for (const at of [...known.keys()].slice(0, Math.max(0, known.size - KEPT))) known.delete(at);
      next();
    },
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
