// Pages of music that were searched with, each line that was found outlined.

import { el, outlines } from "./dom.js";

/** Where on the pages a tune stands: "Lines 1 to 4", "Line 2 of page 3". */
export function whereOf(lines, pages) {
  const [first, last] = [lines[0], lines.at(-1)];
  const of = (line) => (pages > 1 ? ` of page ${line.page + 1}` : "");
  if (lines.length === 1) return `Line ${first.number + 1}${of(first)}`;
  if (first.page === last.page) return `Lines ${first.number + 1} to ${last.number + 1}${of(first)}`;
  return `Line ${first.number + 1}${of(first)} to line ${last.number + 1}${of(last)}`;
}

/** The pages of `sheet` in a row; where there are several tunes, their lines have their numbers. */
export function pageRow({ pages, tunes }, name) {
  const figures = pages.map((data, page) => {
    const alt = pages.length > 1 ? `Page ${page + 1} of ${name}` : `Your picture ${name}`;
    const parts = [el("img", { src: `data:image/jpeg;base64,${data}`, alt })];
    tunes.forEach(({ lines, results }, number) => {
      const here = lines.filter((line) => line.page === page);
      if (!here.length) return;
      const doubt = results[0]?.match === "weak" ? "doubt" : "";
      parts.push(outlines(here.map((line) => line.outline), `tune-${number % 2} ${doubt}`));
      if (tunes.length < 2) return;
      const [x, y] = here[0].outline[0];
      const at = { "--x": `${100 * x}%`, "--y": `${100 * y}%` };
      parts.push(el("span", { class: `badge tune-${number % 2}`, ...at }, String(number + 1)));
    });
    return el("figure", {}, parts);
  });
  const label = `${name} with the lines that were found, scrolls sideways`;
  const many = pages.length > 1 ? { tabindex: "0", role: "group", "aria-label": label } : {};
  return el("div", { class: "pages", ...many }, figures);
}
