// Light or dark: what the reader's system says, until the button says otherwise.

import { $ } from "./dom.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

const chosen = () => localStorage.getItem("ccal-theme");
export const isDark = () => (chosen() ?? (system.matches ? "dark" : "light")) === "dark";

/** Call `listener` whenever the colours change. */
export const onTheme = (listener) => listeners.add(listener);

function apply() {
  const root = document.documentElement;
  if (chosen()) root.dataset.theme = chosen();
  else delete root.dataset.theme;
  root.dataset.shown = isDark() ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", String(isDark()));
  for (const listener of listeners) listener();
}

export function startTheme() {
  $("theme").addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    // Back to the system's own choice where the two agree, so that it goes on following it.
    if ((next === "dark") === system.matches) localStorage.removeItem("ccal-theme");
    else localStorage.setItem("ccal-theme", next);
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
