// Results in a grid that suits what they are: photos, texts, or tunes to see and hear.

import { lazyImage, photo } from "./media.js";
import { $, clock, count, el } from "./dom.js";
import { mediaAddress } from "./api.js";
import { nameOf } from "./names.js";
import { addressOf } from "./route.js";
import { playButtons, silence, staffStrip } from "./staff.js";
import { scoreOf, why } from "./why.js";

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

/** Items that `result` belongs to, and how many there are beyond them. */
function counterpartsOf(result) {
  const shown = result.counterparts ?? [];
  return { shown, more: Math.max(0, (result.counterparts_total ?? 0) - shown.length) };
}

/** A counterpart in words, as a link that searches with it. */
const captionOf = (item) =>
  openLink(item, { class: "caption", title: "Search with this text" }, nameOf(item));

/** The captions of a photo: the first one, and the others when opened; its file name if none. */
function captions(result) {
  const name = nameOf(result);
  const { shown, more } = counterpartsOf(result);
  if (!shown.length) {
    return [el("p", { class: result.text ? "name" : "name file", title: name }, name)];
  }
  const [first, ...others] = shown.map(captionOf);
  const nodes = [el("p", { class: "name" }, first)];
  if (others.length) {
    const items = others.map((other) => el("li", {}, other));
    if (more) items.push(el("li", { class: "note" }, `and ${count(more)} more`));
    const summary = el("summary", {}, `${count(others.length + more)} more`);
    nodes.push(el("details", { class: "captions" }, summary, el("ul", {}, items)));
  }
  return nodes;
}

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
    ...captions(result),
    whyOf(result),
  );
}

/** The pictures that a text belongs to, as links that search with them. */
function pictures(result) {
  const shown = counterpartsOf(result).shown.filter(hasPicture);
  if (!shown.length) return null;
  const links = shown.slice(0, 3).map((item, index) => {
    const label = `Search with picture ${index + 1} of this text`;
    const image = lazyImage(item.media.thumbnail ?? item.media.image, "");
    return openLink(item, { class: "beside", "aria-label": label, title: label }, image);
  });
  return el("div", { class: "pictures" }, links);
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
    pictures(result),
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

const LIKELY = { strong: "very likely", fair: "probably", weak: "unlikely" };

/** How sure it is that a tune is the right one, in words; its score where that is not known. */
function likelihood(result) {
  if (!result.match) return scoreOf(result);
  const title = `The chance is ${Math.round(100 * result.chance)}%`;
  return el("span", { class: `match ${result.match}`, title }, LIKELY[result.match]);
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
      result.score !== null && !result.why ? likelihood(result) : null,
    ),
    staff.strip,
    result.why ? whyOf(result) : null,
  );
}

/** "photos", "texts" or "tunes": how a list of results is laid out. */
function layoutOf(results) {
  if (results.some((result) => result.media?.staff)) return "tunes";
  const isPhoto = (result) => result.kind === "image" && hasPicture(result);
  return results.some(isPhoto) ? "photos" : "texts";
}

const CARDS = { photos: photoCard, texts: textCard, tunes: tuneCard };

/** Replace what the grid shows by several lists, each below its heading. */
export function showGroups(groups) {
  silence();
  $("results").className = "tunes";
  const nodes = groups.map(({ heading, results }) => [
    el("li", { class: "group" }, heading),
    ...results.map((result, index) => tuneCard(result, index + 1)),
  ]);
  $("results").replaceChildren(...nodes.flat());
}

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
  const seen = [result, ...counterpartsOf(result).shown].find(hasPicture);
  const picture = seen?.media.thumbnail ?? seen?.media.image;
  return [
    picture ? lazyImage(picture, seen === result ? name : "", { class: "photo" }) : null,
    el("div", { class: "what" }, label, el("p", { class: "quote" }, name)),
  ];
}
