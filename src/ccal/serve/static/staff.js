// A line of sheet music: the matching place marked, played from there, a cursor that follows.

import { mediaAddress } from "./api.js";
import { clock, el, icon, iconButton, reducedMotion } from "./dom.js";
import { lazyImage } from "./media.js";

let playing = null;

/** The staff of `result` in a strip that scrolls by itself to the place that matches. */
export function staffStrip(result, label) {
  const place = result.place ?? {};
  const [first, last] = place.columns ?? [0, 0];
  const image = lazyImage(result.media.staff, label, { "--columns": place.width ?? 0 });
  const sheet = el("div", { class: "sheet" });
  // An item that nothing was compared with has no place to mark.
  const marked = Number.isFinite(result.score) && place.columns && place.width && last > first;
  if (marked) {
    const share = (column) => `${(100 * column) / place.width}%`;
    const where = { "--from": share(first), "--wide": share(last - first) };
    sheet.append(el("div", { class: "mark", ...where }));
  }
  sheet.append(image);
  const strip = el(
    "div",
    // What scrolls has to be reachable by keyboard.
    { class: "strip", tabindex: "0", role: "group", "aria-label": `${label}, scrolls sideways` },
    el("div", { class: "staff" }, sheet),
  );
  image.addEventListener("load", () => {
    if (!marked) return;
    const middle = (((first + last) / 2) * image.clientWidth) / place.width;
    strip.scrollLeft = middle - strip.clientWidth / 2 + 14;
  });
  return { strip, sheet, image };
}

/** Column of the staff at `second` of the sound: at a note's head when the note begins. */
function columnAt(second, place) {
  const onsets = [...(place.onsets ?? []), [place.duration, place.width]];
  const next = onsets.findIndex(([at]) => at > second);
  if (next < 0) return place.width;
  const [s1, c1] = onsets[next];
  const [s0, c0] = next > 0 ? onsets[next - 1] : [0, 0];
  return c0 + ((c1 - c0) * (second - s0)) / (s1 - s0);
}

/** Play and pause from the matching place, and from the start. */
export function playButtons(result, name, { strip, sheet, image }) {
  const place = result.place ?? {};
  const start = Number.isFinite(result.score) ? (place.seconds?.[0] ?? 0) : 0;
  const play = iconButton("play", `Play ${name}`, { class: "play" });
  const begin = iconButton("start", `Play ${name} from the start`);
  const time = el("span", { class: "place" });
  const head = el("div", { class: "head", hidden: true });
  sheet.append(head);
  let audio = null;
  let goal = null;

  const show = (state) => {
    play.replaceChildren(icon(state === "playing" ? "pause" : "play"));
    play.title = `${state === "playing" ? "Pause" : "Play"} ${name}`;
    play.setAttribute("aria-label", play.title);
  };
  const follow = () => {
    if (!audio || playing !== audio || !play.isConnected) return;
    const whole = audio.duration || place.duration || 0;
    time.textContent = `${clock(audio.currentTime)} / ${clock(whole)}`;
    if (place.width) {
      const share = columnAt(audio.currentTime, place) / place.width;
      head.hidden = false;
      head.style.setProperty("--at", `${100 * share}%`);
      const at = share * image.clientWidth - strip.scrollLeft;
      const left = share * image.clientWidth - strip.clientWidth / 4;
      const away = at < 0 || at > strip.clientWidth * 0.85;
      // Asked again in every frame, a smooth scroll would never get there.
      if (away && !(goal !== null && Math.abs(left - goal) < strip.clientWidth / 2)) {
        goal = left;
        strip.scrollTo({ left, behavior: reducedMotion() ? "auto" : "smooth" });
      }
    }
    if (!audio.paused) requestAnimationFrame(follow);
  };
  const ready = async () => {
    if (audio) return;
    audio = new Audio();
    audio.preload = "auto";
    audio.addEventListener("play", () => { show("playing"); requestAnimationFrame(follow); });
    for (const event of ["pause", "ended"]) audio.addEventListener(event, () => show("paused"));
    audio.addEventListener("error", () => { time.textContent = "The sound cannot be played."; });
    audio.src = await mediaAddress(result.media.audio);
  };
  const startAt = async (second) => {
    try {
      await ready();
      if (playing !== audio) playing?.pause();
      playing = audio;
      if (second !== null) audio.currentTime = second;
      await audio.play();
    } catch (error) {
      if (error.name !== "AbortError") time.textContent = "The sound cannot be played.";
    }
  };
  play.addEventListener("click", () => {
    if (audio && !audio.paused) audio.pause();
    else startAt(audio && !audio.ended ? null : start);
  });
  begin.addEventListener("click", () => startAt(0));
  return { play, begin: start > 0 ? begin : null, time };
}

/** Stop what plays, because its result leaves the page. */
export function silence() {
  playing?.pause();
  playing = null;
}
