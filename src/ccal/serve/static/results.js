// Results in a grid that suits what they are: photos, texts, or tunes to see and hear.

import { lazyImage, photo } from "./media.js";
import { $, clock, el } from "./dom.js";
import { mediaAddress } from "./api.js";
import { addressOf } from "./route.js";
import { playButtons, silence, staffStrip } from "./staff.js";
import { scoreOf, why } from "./why.js";

export const nameOf = (result) => result.text ?? result.title ?? result.id;

const openLink = (result, attributes, ...children) =>
  el(
    "a",
    {
      class: "open",
      href: addressOf({ query: { type: "item", id: result.id } }),
      "data-item": result.id,
      ...attributes,
    },
    ...children,
  );

const whyOf = (result) =>
  result.score === null || result.score === undefined
    ? null
    : why({ ...result, ...(result.why ?? {}) });

function rankOf(result, rank) {
  if (!Number.isFinite(result.score)) return null;
  return el("span", { class: "rank", "aria-hidden": "true" }, String(rank));
}

const hasPicture = (result) => Boolean(result.media?.thumbnail ?? result.media?.image);

function photoCard(result, rank) {
  const name = nameOf(result);
  return el(
    "li",
    { class: "card" },
    openLink(
      result,
      { "aria-label": `Search with picture ${rank}: ${name}`, title: "Search the other way" },
      photo(result, name),
    ),
    el("p", { class: result.text ? "name" : "name file", title: name }, name),
    whyOf(result),
  );
}

function textCard(result, rank) {
  const card = el(
    "li",
    { class: "card" },
    openLink(
      result,
      { title: "Search the other way" },
      el(
        "div",
        { class: "line" },
        rankOf(result, rank),
        el("p", { class: "words" }, nameOf(result)),
      ),
    ),
    whyOf(result) ?? el("p", { class: "why" }),
  );
  if (result.media?.audio) card.insertBefore(player(result), card.lastChild);
  return card;
}

function player(result) {
  const label = `Sound of ${nameOf(result)}`;
  const audio = el("audio", { controls: true, preload: "none", "aria-label": label });
  mediaAddress(result.media.audio).then((address) => (audio.src = address), () => audio.remove());
  return audio;
}

function tuneCard(result, rank) {
  const name = nameOf(result);
  const staff = staffStrip(result, `Score of ${name}`);
  const buttons = result.media.audio ? playButtons(result, name, staff) : null;
  const seconds = Number.isFinite(result.score) ? result.place?.seconds : null;
  return el(
    "li",
    { class: "card" },
    el(
      "div",
      { class: "tune-head" },
      buttons?.play,
      rankOf(result, rank),
      openLink(result, { title: "Search with this tune" }, name),
      el(
        "div",
        { class: "when" },
        buttons?.time,
        seconds ? el("span", {}, `match ${clock(seconds[0])}–${clock(seconds[1])}`) : null,
        buttons?.begin,
      ),
      result.score !== null && !result.why ? scoreOf(result) : null,
    ),
    staff.strip,
    result.why ? whyOf(result) : null,
  );
}

/** "photos", "texts" or "tunes": how a list of results is laid out. */
export function layoutOf(results) {
  if (results.some((result) => result.media?.staff)) return "tunes";
  const isPhoto = (result) => result.kind === "image" && hasPicture(result);
  return results.some(isPhoto) ? "photos" : "texts";
}

const CARDS = { photos: photoCard, texts: textCard, tunes: tuneCard };

/** Replace what the grid shows. */
export function showResults(results) {
  silence();
  const layout = layoutOf(results);
  $("results").className = layout;
  $("results").replaceChildren(...results.map((result, index) => CARDS[layout](result, index + 1)));
}

/** The item that was searched with, small, above its results. */
export function itemPanel(result) {
  const name = nameOf(result);
  const label = el("p", { class: "kind" }, "Searched with");
  if (result.media?.staff) {
    const staff = staffStrip(result, `Score of ${name}`);
    const buttons = result.media.audio ? playButtons(result, name, staff) : null;
    const what = el("div", { class: "what" }, label, el("strong", {}, name), staff.strip);
    return [buttons?.play, what];
  }
  return [
    result.kind === "image" && hasPicture(result)
      ? lazyImage(result.media.thumbnail ?? result.media.image, name, { class: "photo" })
      : null,
    el("div", { class: "what" }, label, el("p", { class: "quote" }, name)),
  ];
}
