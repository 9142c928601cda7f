// The points of the map on a canvas: a colour and a shape for each modality, rings for results.

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

const CLOSE = 60;

/** Draw all points; `hits` is a set of positions with rings, `selected` a position or -1. */
export function draw(canvas, view, points, { colours, ink, hits, selected, picture }) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(view.width * ratio);
  canvas.height = Math.round(view.height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const seen = visible(view, points);
  const crowded = 55 / Math.sqrt(points.x.length + 80);
  const radius = Math.min(7, 1 + Math.sqrt(view.scale) * 0.9 + crowded);
  const sizes = Map.groupBy(seen, ({ at }) => points.groups[at]);
  // The larger group below, so that it does not hide the smaller one.
  for (const [group, members] of [...sizes].sort((a, b) => b[1].length - a[1].length)) {
    pen.fillStyle = colours[group];
    pen.globalAlpha = seen.length > 1000 ? 0.55 : 0.8;
    pen.beginPath();
    for (const { px, py } of members) {
      pen.moveTo(px + radius, py);
      SHAPES[group % SHAPES.length](pen, px, py, radius);
    }
    pen.fill();
  }
  pen.globalAlpha = 1;
  if (seen.length <= CLOSE) describe(pen, seen, points, { ink, radius, picture });
  pen.strokeStyle = ink;
  for (const { at, px, py } of seen) {
    if (hits.has(at)) ring(pen, px, py, radius + 3, 1.6);
    if (at === selected) ring(pen, px, py, radius + 5, 3);
  }
}

function visible(view, points) {
  const seen = [];
  for (let at = 0; at < points.x.length; at++) {
    const [px, py] = view.toScreen(points.x[at], points.y[at]);
    const inside = px > -9 && py > -9 && px < view.width + 9 && py < view.height + 9;
    if (inside) seen.push({ at, px, py });
  }
  return seen;
}

/** From close by, pictures and words stand beside their points, where there is room. */
function describe(pen, seen, points, { ink, radius, picture }) {
  const taken = [];
  const overlap = (a, b) => a[0] < b[2] && a[1] < b[3] && a[2] > b[0] && a[3] > b[1];
  const free = (box) => !taken.some((other) => overlap(box, other));
  pen.fillStyle = ink;
  pen.font = `13px ${getComputedStyle(pen.canvas).fontFamily}`;
  pen.textBaseline = "middle";
  for (const { at, px, py } of seen) {
    const image = picture(at);
    if (image) {
      const scale = 64 / Math.max(image.naturalWidth, image.naturalHeight);
      const [width, height] = [image.naturalWidth * scale, image.naturalHeight * scale];
      const box = [px - width / 2, py + radius + 3, px + width / 2, py + radius + 3 + height];
      if (!free(box)) continue;
      taken.push(box);
      pen.drawImage(image, box[0], box[1], width, height);
    } else if (image === null) {
      const label = points.labels[at].replace(/^(.{33}).{2,}$/u, "$1…");
      const box = [px + radius + 4, py - 9, px + radius + 4 + pen.measureText(label).width, py + 9];
      if (!free(box)) continue;
      taken.push(box);
      pen.fillText(label, box[0], py);
    }
  }
}

function ring(pen, px, py, radius, width) {
  pen.lineWidth = width;
  pen.beginPath();
  pen.arc(px, py, radius, 0, TAU);
  pen.stroke();
}
