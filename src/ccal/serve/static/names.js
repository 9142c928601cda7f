// Names of items, and finding items by name where words are no query of their own: all names are read once.

import { items } from "./api.js";

const MOST = 5000;

/** What people call an item: its text, that of its first counterpart, or its title. */
export function nameOf(item) {
  const other = item.counterparts?.find((one) => one.text);
  return item.text ?? other?.text ?? item.title ?? item.id;
}

let known = null;

async function readAll(info, signal) {
  const [{ name: modality }] = info.modalities;
  const limit = info.limits.k;
  const first = await items({ modality, offset: 0, limit, signal });
  const offsets = [];
  for (let at = limit; at < Math.min(first.total, MOST); at += limit) offsets.push(at);
  const others = offsets.map((offset) => items({ modality, offset, limit, signal }));
  return [first, ...(await Promise.all(others))].flatMap((page) => page.items);
}

/** Items whose name has all the words of `text`, those that begin with it first. */
export async function findNames(text, info, signal) {
  known ??= await readAll(info, signal);
  const plain = (words) => words.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const words = plain(text).split(/\s+/u).filter(Boolean);
  const name = (item) => plain(nameOf(item));
  const found = known.filter((item) => words.every((word) => name(item).includes(word)));
  const begins = (item) => name(item).startsWith(words.join(" "));
  return [...found.filter(begins), ...found.filter((item) => !begins(item))];
}
