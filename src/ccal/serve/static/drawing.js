// The map on a canvas: a colour and a shape for each modality, pictures from close by, rings for
// results, and the names of regions.

const TAU = 2 * Math.PI;

const SHAPES = [
  (pen, x, y, r) => pen.arc(x, y, r, 0, TAU),
  (pen, x, y, r) => {
    pen.moveTo(x, y - 1.25 * r);
    pen.lineTo(x + 1.25 * r, y);
    pen.lineTo(x, y + 1.25 * r);
    pen.lineTo(x - 1.25 * r, y);
    pen.closePath();
  },
];

/** The signs of the legend, as SVG paths in a box of 16; the same shapes. */
export const SIGNS = ["M8 3a5 5 0 1 0 0 10A5 5 0 1 0 8 3z", "M8 2l6 6-6 6-6-6z"];
export const RING =
  "M8 1a7 7 0 1 0 0 14A7 7 0 1 0 8 1zm0 2.2a4.8 4.8 0 1 1 0 9.6 4.8 4.8 0 1 1 0-9.6z";

// So few points get their words beside them.
const CLOSE = 60;
// Pictures take the place of points where this share of them has room, or from this scale on.
const ROOM = 0.35;
const NEAR = 2.5;
// Names of large regions up to this scale, of smaller ones up to the next.
const SCALES = [2.2, 7];

const overlap = (a, b) => a[0] < b[2] && a[1] < b[3] && a[2] > b[0] && a[3] > b[1];

const pictureSize = (scale) => Math.min(112, Math.max(44, 40 + 14 * Math.log2(scale)));

/**
 * Positions of pictures that do not overlap at the scale of `view`, or none if too few have room.
 * They do not depend on the part of the map that is in view: nothing flickers while it moves.
 */
export function withRoom(view, points) {
  const size = pictureSize(view.scale) + 4;
  const cells = new Map();
  const cell = (column, row) => column * 2 ** 20 + row;
  const chosen = new Set();
  let all = 0;
  for (let at = 0; at < points.x.length; at++) {
    if (points.kinds[at] !== "image") continue;
    all++;
    const [px, py] = [points.x[at] * view.unit, points.y[at] * view.unit];
    const [column, row] = [Math.floor(px / size), Math.floor(py / size)];
    let free = true;
    for (let i = -1; free && i <= 1; i++) {
      for (let j = -1; free && j <= 1; j++) {
        const other = cells.get(cell(column + i, row + j));
        free = !other || Math.abs(other[0] - px) >= size || Math.abs(other[1] - py) >= size;
      }
    }
    if (!free) continue;
    cells.set(cell(column, row), [px, py]);
    chosen.add(at);
  }
  return view.scale >= NEAR || chosen.size >= ROOM * all ? chosen : new Set();
}

/**
 * Draw the map. `look` has colours by group, `ink`, `paper`, `hits` (positions with rings),
 * `selected` (a position or -1), `roomy` (positions for pictures) and `picture`, which gives the
 * one at a position once it is loaded. Returns the boxes of pictures by position, and positions in
 * view whose pictures are not there yet.
 */
export function draw(canvas, view, points, look) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(view.width * ratio);
  canvas.height = Math.round(view.height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const size = pictureSize(view.scale);
  const seen = visible(view, points, size / 2);
  const shown = new Map();
  const missing = [];
  for (const { at, px, py } of seen) {
    if (!look.roomy.has(at)) continue;
    const image = look.picture(at);
    if (image) shown.set(at, boxOf(image, px, py, size));
    else if (image === undefined) missing.push(at);
  }
  const crowded = 55 / Math.sqrt(points.x.length + 80);
  const radius = Math.min(7, 1 + Math.sqrt(view.scale) * 0.9 + crowded);
  const dots = seen.filter(({ at }) => !shown.has(at));
  drawDots(pen, dots, points, radius, look.colours);
  pen.strokeStyle = look.ink;
  for (const { at, px, py } of dots) {
    if (look.hits.has(at)) ring(pen, px, py, radius + 3, 1.6);
    if (at === look.selected) ring(pen, px, py, radius + 5, 3);
  }
  for (const [at, box] of shown) drawPicture(pen, look.picture(at), box, at, points, look);
  const taken = [...shown.values()];
  if (seen.length <= CLOSE) drawWords(pen, dots, points, { ...look, radius, taken });
  drawRegions(pen, view, points.regions ?? [], look);
  return { shown, missing };
}

function visible(view, points, margin) {
  const seen = [];
  for (let at = 0; at < points.x.length; at++) {
    const [px, py] = view.toScreen(points.x[at], points.y[at]);
    const across = px > -margin && px < view.width + margin;
    if (across && py > -margin && py < view.height + margin) seen.push({ at, px, py });
  }
  return seen;
}

function boxOf(image, px, py, size) {
  const scale = size / Math.max(image.width, image.height);
  const [width, height] = [image.width * scale, image.height * scale];
  return [px - width / 2, py - height / 2, px + width / 2, py + height / 2];
}

function drawDots(pen, dots, points, radius, colours) {
  const sizes = Map.groupBy(dots, ({ at }) => points.groups[at]);
  // The larger group below, so that it does not hide the smaller one.
  for (const [group, members] of [...sizes].sort((a, b) => b[1].length - a[1].length)) {
    pen.fillStyle = colours[group];
    pen.globalAlpha = dots.length > 1000 ? 0.55 : 0.8;
    pen.beginPath();
    for (const { px, py } of members) {
      pen.moveTo(px + radius, py);
      SHAPES[group % SHAPES.length](pen, px, py, radius);
    }
    pen.fill();
  }
  pen.globalAlpha = 1;
}

/** A picture in a frame of its group's colour; results and the selected one have a thicker one. */
function drawPicture(pen, image, [left, top, right, bottom], at, points, look) {
  const marked = at === look.selected || look.hits.has(at);
  const width = at === look.selected ? 4 : marked ? 3 : 1.5;
  pen.fillStyle = marked ? look.ink : look.colours[points.groups[at]];
  pen.fillRect(left - width, top - width, right - left + 2 * width, bottom - top + 2 * width);
  pen.drawImage(image, left, top, right - left, bottom - top);
}

/** From close by, words stand beside their points, where there is room. */
function drawWords(pen, dots, points, { ink, radius, taken }) {
  pen.fillStyle = ink;
  pen.font = `13px ${getComputedStyle(pen.canvas).fontFamily}`;
  pen.textBaseline = "middle";
  for (const { at, px, py } of dots) {
    if (points.kinds[at] === "image") continue;
    const label = points.labels[at].replace(/^(.{33}).{2,}$/u, "$1…");
    const box = [px + radius + 4, py - 9, px + radius + 4 + pen.measureText(label).width, py + 9];
    if (taken.some((other) => overlap(box, other))) continue;
    taken.push(box);
    pen.fillText(label, box[0], py);
  }
}

/** Names of the regions in view, the larger regions first; none over another, all within the map. */
function drawRegions(pen, view, regions, { ink, paper }) {
  const finer = regions.some((region) => region.level === 1);
  const level = view.scale < SCALES[0] || !finer ? 0 : 1;
  if (view.scale > SCALES[finer ? 1 : 0]) return;
  pen.font = `600 ${level ? 13 : 15}px ${getComputedStyle(pen.canvas).fontFamily}`;
  pen.textBaseline = "middle";
  const taken = [];
  for (const region of regions) {
    if (region.level !== level) continue;
    const [px, py] = view.toScreen(region.x, region.y);
    if (px < 0 || py < 0 || px > view.width || py > view.height) continue;
    const words = region.terms.slice(0, view.width < 500 ? 2 : 3).join(", ");
    const half = pen.measureText(words).width / 2 + 6;
    const x = Math.min(view.width - half - 2, Math.max(half + 2, px));
    const y = Math.min(view.height - 14, Math.max(14, py - 16));
    const box = [x - half, y - 12, x + half, y + 12];
    if (taken.some((other) => overlap(box, other))) continue;
    taken.push(box);
    pen.globalAlpha = 0.85;
    pen.fillStyle = paper;
    pen.beginPath();
    pen.roundRect(box[0], box[1], 2 * half, 24, 6);
    pen.fill();
    pen.globalAlpha = 1;
    pen.fillStyle = ink;
    pen.fillText(words, box[0] + 6, y);
  }
}

function ring(pen, px, py, radius, width) {
  pen.lineWidth = width;
  pen.beginPath();
  pen.arc(px, py, radius, 0, TAU);
  pen.stroke();
}
