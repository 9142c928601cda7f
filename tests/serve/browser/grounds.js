// Every text that is shown, with its colour and the colour of the ground it stands on.
() => {
  const hex = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    const pair = (x) => Math.round(x).toString(16).padStart(2, "0");
    return a < 1 ? null : `#${[r, g, b].map(pair).join("")}`;
  };
  const groundOf = (node) => {
    for (let up = node; up; up = up.parentElement) {
      const colour = hex(getComputedStyle(up).backgroundColor);
      if (colour) return colour;
    }
    return "#ffffff";
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].filter((one) => one.nodeType === Node.TEXT_NODE);
    const text = own.map((one) => one.data.trim()).join("");
    // Words are marked with a gradient, which is checked by its colours.
    const apart = node.closest(".hidden, .skip, .drop, symbol, mark");
    if (!text || apart || !node.checkVisibility({ visibilityProperty: true })) continue;
    found.push([text.slice(0, 40), hex(getComputedStyle(node).color), groundOf(node)]);
  }
  return found;
}
