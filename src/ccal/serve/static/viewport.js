// Where the map's plane lies on the screen: pan and zoom, kept within bounds.

const MIN = 0.6;
const MAX = 200;

export class Viewport {
  constructor() {
    this.width = this.height = 1;
    this.fit([0], [0]);
  }

  /** Remember where the points lie, and show them all. */
  fit(x, y) {
    const middle = (values) => (Math.min(...values) + Math.max(...values)) / 2;
    const half = (values) => Math.max(1e-6, (Math.max(...values) - Math.min(...values)) / 2);
    this.home = { cx: middle(x), cy: middle(y), halfX: half(x), halfY: half(y) };
    this.reset();
  }

  /** Everything in view. */
  reset() {
    Object.assign(this, { scale: 1, cx: this.home.cx, cy: this.home.cy });
  }

  get unit() {
    const { halfX, halfY } = this.home;
    return Math.min(this.width / 2 / halfX, this.height / 2 / halfY) * 0.9 * this.scale;
  }

  toScreen(x, y) {
    const { width, height, unit } = this;
    return [width / 2 + (x - this.cx) * unit, height / 2 - (y - this.cy) * unit];
  }

  toPlane(px, py) {
    const { width, height, unit } = this;
    return [this.cx + (px - width / 2) / unit, this.cy - (py - height / 2) / unit];
  }

  /** Move the plane by pixels. */
  pan(dx, dy) {
    this.cx -= dx / this.unit;
    this.cy += dy / this.unit;
    this.#bound();
  }

  /** Zoom by `factor`; what is at the pixel stays there. */
  zoom(factor, px = this.width / 2, py = this.height / 2) {
    const [x, y] = this.toPlane(px, py);
    this.scale = Math.min(MAX, Math.max(MIN, this.scale * factor));
    this.cx = x - (px - this.width / 2) / this.unit;
    this.cy = y + (py - this.height / 2) / this.unit;
    this.#bound();
  }

  /** Bring a point of the plane into view, if it is not. */
  show(x, y, margin = 40) {
    const [px, py] = this.toScreen(x, y);
    const dx = Math.max(0, margin - px) - Math.max(0, px - this.width + margin);
    const dy = Math.max(0, margin - py) - Math.max(0, py - this.height + margin);
    if (dx || dy) this.pan(dx, dy);
  }

  #bound() {
    const { cx, cy, halfX, halfY } = this.home;
    this.cx = Math.min(cx + 1.2 * halfX, Math.max(cx - 1.2 * halfX, this.cx));
    this.cy = Math.min(cy + 1.2 * halfY, Math.max(cy - 1.2 * halfY, this.cy));
  }
}
