// Mouse, pen and fingers on a canvas, as hover, pan, zoom and click.

const SLACK = 5;

/** Call `hover`, `leave`, `pan`, `zoom` and `click` with pixels of `canvas`. */
export function followPointers(canvas, { hover, leave, pan, zoom, click }) {
  const down = new Map();
  let travelled = 0;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [[ax, ay], [bx, by]] = [...down.values()];
    return { distance: Math.hypot(ax - bx, ay - by), middle: [(ax + bx) / 2, (ay + by) / 2] };
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (down.size === 0) travelled = 0;
    down.set(event.pointerId, at(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = at(event);
    if (!down.has(event.pointerId)) {
      if (event.pointerType !== "touch") hover(...here);
      return;
    }
    const before = down.size === 2 ? spread() : null;
    const [x, y] = down.get(event.pointerId);
    down.set(event.pointerId, here);
    travelled += Math.hypot(here[0] - x, here[1] - y);
    if (travelled < SLACK) return;
    canvas.classList.add("dragging");
    if (before && down.size === 2) {
      const after = spread();
      pan(after.middle[0] - before.middle[0], after.middle[1] - before.middle[1]);
      zoom(after.distance / Math.max(1, before.distance), ...after.middle);
    } else if (down.size === 1) {
      pan(here[0] - x, here[1] - y);
    }
  });
  const up = (event, clicked) => {
    if (!down.delete(event.pointerId)) return;
    canvas.classList.remove("dragging");
    if (clicked && travelled < SLACK && down.size === 0) click(...at(event), event.pointerType);
    if (down.size) travelled = SLACK;
  };
  canvas.addEventListener("pointerup", (event) => up(event, true));
  canvas.addEventListener("pointercancel", (event) => up(event, false));
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch" && down.size === 0) leave();
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      zoom(Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) * 0.004), ...at(event));
    },
    { passive: false },
  );
}
