// Elements from code. Texts enter as text and attributes as attributes: nothing is ever parsed.

export const $ = (id) => document.getElementById(id);

/** An element; `on…` are listeners, `--…` CSS variables; null and false leave one out. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** One of the icons at the top of index.html. */
export const icon = (name) =>
  svg("svg", { "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));

/** A button that is an icon, with a name for those who cannot see it. */
export function iconButton(name, label, attributes = {}) {
  const named = { "aria-label": label, title: label };
  return el("button", { class: "icon", type: "button", ...named, ...attributes }, icon(name));
}

/** A sign as an SVG path in a box of 16. */
export function sign(path, className) {
  const frame = { viewBox: "0 0 16 16", "aria-hidden": "true", class: className };
  return svg("svg", frame, svg("path", { d: path, fill: "currentColor" }));
}

/** Polygons of points (x, y), shares of the whole, over a picture of any size. */
export function outlines(polygons, className) {
  const frame = { viewBox: "0 0 1 1", preserveAspectRatio: "none", "aria-hidden": "true" };
  const shapes = polygons.map((points) => {
    const corners = points.map((point) => point.join(",")).join(" ");
    return svg("polygon", { points: corners, "vector-effect": "non-scaling-stroke" });
  });
  return svg("svg", { ...frame, class: `outlines ${className}` }, ...shapes);
}

export const count = (number) => Number(number).toLocaleString("en");

/** 1 photo, 2 photos. */
export const several = (number, one, many = `${one}s`) =>
  `${count(number)} ${number === 1 ? one : many}`;

/** Seconds as people write them: 75 -> 1:15. */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

/** Bytes as people write them: 20000000 -> 20 MB. */
export function bytes(number) {
  const units = ["bytes", "kB", "MB", "GB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, number)) / 3));
  return `${Number((number / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

/** Seconds as people say them: 120 -> 2 minutes, 90 -> 90 seconds. */
export function duration(seconds) {
  if (seconds < 120 || seconds % 60) return several(Number(seconds.toPrecision(3)), "second");
  return several(seconds / 60, "minute");
}

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
