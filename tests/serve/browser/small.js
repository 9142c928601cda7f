// What is tapped but too small for a finger.
() =>
  [...document.querySelectorAll("button, summary, nav a, input:not([type=radio]):not(.hidden)")]
    .filter((node) => node.offsetParent && Math.min(node.offsetWidth, node.offsetHeight) < 24)
    .map((node) => node.outerHTML)
