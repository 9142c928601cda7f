// Pictures that load when they come near the screen, with the token where one is needed.

import { hasToken, mediaAddress } from "./api.js";
import { el } from "./dom.js";

const waiting = new WeakMap();
const near = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      load(target, waiting.get(target));
    }
  },
  { rootMargin: "400px" },
);

async function load(image, path) {
  try {
    const address = await mediaAddress(path);
    image.addEventListener("load", () => URL.revokeObjectURL(address), { once: true });
    image.src = address;
  } catch {
    image.dispatchEvent(new Event("error"));
  }
}

/** An `<img>` of the server's `path` that loads lazily. */
export function lazyImage(path, alt, attributes = {}) {
  const image = el("img", { alt, decoding: "async", ...attributes });
  if (hasToken()) {
    waiting.set(image, path);
    near.observe(image);
  } else {
    image.loading = "lazy";
    image.src = path;
  }
  return image;
}

/** A framed photo; one that cannot be loaded says so, and one of few pixels stays sharp. */
export function photo(result, alt) {
  const image = lazyImage(result.media.thumbnail ?? result.media.image, alt);
  const frame = el("div", { class: "frame" }, image);
  image.addEventListener("error", () => frame.classList.add("broken"));
  image.addEventListener("load", () => image.classList.toggle("small", image.naturalWidth < 64));
  return frame;
}
