// What has the focus, and whether an outline or a shadow shows it, on itself or around it.
() => {
  const shown = (node) => {
    const style = getComputedStyle(node);
    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 1;
    return outlined || style.boxShadow !== "none";
  };
  const node = document.activeElement;
  const around = [node, node.closest(".field"), node.closest(".card"), node.nextElementSibling];
  return [node.id || node.className || node.tagName, around.some((one) => one && shown(one))];
}
