// Errors for people: what happened, what to do. A server that is gone is looked for.

import { hasToken, health, setToken } from "./api.js";
import { $, el } from "./dom.js";

let looking = 0;

export function clearProblem() {
  clearTimeout(looking);
  $("problem").replaceChildren();
}

/** Show `problem` in `where`; `again` is called by the button, and with a new token or server. */
export function showProblem(problem, again = null, where = $("problem")) {
  clearProblem();
  const parts = [el("strong", {}, problem.title), el("p", {}, problem.message)];
  const buttons = [];
  const button = (name, onclick) => buttons.push(el("button", { type: "button", onclick }, name));
  if (problem.status === 401) button("Enter the token", () => askForToken(again));
  else if (again) button("Try again", again);
  if (problem.status === 0 && again) {
    const soon = "This page goes on by itself as soon as the server is back.";
    parts.push(el("p", { class: "note" }, soon));
    lookFor(again);
  }
  if (buttons.length) parts.push(el("p", { class: "buttons" }, buttons));
  where.replaceChildren(el("div", { class: "problem" }, parts));
  where.scrollIntoView({ block: "nearest" });
  if (problem.status === 401) askForToken(again);
}

function lookFor(again) {
  clearTimeout(looking);
  looking = setTimeout(async () => {
    const back = await health().catch(() => false);
    if (back) again();
    else lookFor(again);
  }, 1500);
}

function askForToken(again) {
  const dialog = $("token-dialog");
  if (dialog.open) return;
  $("token-why").textContent = hasToken()
    ? "The token was not accepted. Check it and try again."
    : "Whoever started it with a token can tell you.";
  $("token").value = "";
  $("token-form").onsubmit = (event) => {
    event.preventDefault();
    const value = $("token").value.trim();
    if (!value) return;
    setToken(value);
    dialog.close();
    again?.();
  };
  $("token-cancel").onclick = () => dialog.close();
  dialog.showModal();
}
