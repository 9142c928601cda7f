// What is missing for those who cannot see the page: names, labels, order, structure.
() => {
  const problems = [];
  const all = (selector) => [...document.querySelectorAll(selector)];
  const shown = (node) => node.checkVisibility({ visibilityProperty: true });
  const texts = (nodes) => nodes.map((node) => node?.textContent ?? "").join("").trim();
  const referred = (node, attribute) => (node.getAttribute(attribute) ?? "").split(" ").filter(Boolean);
  const name = (node) =>
    (node.getAttribute("aria-label") ?? "").trim() ||
    texts(referred(node, "aria-labelledby").map((id) => document.getElementById(id))) ||
    texts([...(node.labels ?? [])]) ||
    node.textContent.trim() ||
    [...node.querySelectorAll("img")].map((image) => image.alt).join("").trim();
  const named =
    "input, select, textarea, button, a[href], canvas[tabindex], audio, nav, dialog, summary, " +
    "[role=radiogroup], [role=progressbar], [role=group]";
  for (const node of all(named)) {
    if (shown(node) && !name(node)) problems.push(`no name: ${node.outerHTML}`);
  }
  for (const image of all("img")) {
    if (!image.hasAttribute("alt")) problems.push(`no alt: ${image.outerHTML}`);
  }
  const ids = all("[id]").map((node) => node.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) problems.push(`id twice: ${id}`);
  for (const attribute of ["aria-labelledby", "aria-describedby", "for"]) {
    for (const id of all(`[${attribute}]`).flatMap((node) => referred(node, attribute))) {
      if (!document.getElementById(id)) problems.push(`${attribute} of nothing: ${id}`);
    }
  }
  for (const node of all("a, button, summary")) {
    if (node.querySelector("a, button, input, [tabindex]")) problems.push(`one in another: ${node.outerHTML}`);
  }
  for (const node of all("ul > :not(li), ol > :not(li)")) problems.push(`no list item: ${node.outerHTML}`);
  for (const node of all("dl > :not(dt):not(dd)")) problems.push(`no term: ${node.outerHTML}`);
  for (const node of all("[tabindex]")) if (node.tabIndex > 0) problems.push(`own order: ${node.outerHTML}`);
  for (const node of all("*")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(node).overflowX);
    if (scrolls && node.scrollWidth > node.clientWidth + 1 && node.tabIndex < 0) {
      problems.push(`scrolls but takes no focus: ${node.outerHTML.slice(0, 200)}`);
    }
  }
  if (!document.documentElement.lang) problems.push("no language");
  if (!document.title) problems.push("no title");
  if (all("main").length !== 1) problems.push("not one main");
  if (!all("[aria-live=polite]").length || !all("[role=alert]").length) problems.push("no live region");
  return problems;
}
