// The search box: words, a file that is chosen, dropped or pasted, or a recording.

import { Problem } from "./api.js";
import { $, bytes, duration } from "./dom.js";
import { RecordingProblem, canRecord, cancelRecording, record, stopRecording } from "./recorder.js";

/** The kinds of query the collection takes. */
export const kindsOf = (info) => new Set(info.queries.map((query) => query.kind));

const RECORDING_SECONDS = 20;
const SOUNDS = [
  ".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".m4a", ".aac", ".mp4", ".3gp", ".webm", ".amr",
];

/** What a file is asked as ("image", "sheet" or "audio"); throws a Problem if it cannot be. */
function kindOfFile(file, info) {
  const kinds = kindsOf(info);
  const name = file.name.toLowerCase();
  const notation = /\.(abc|musicxml|mxl|xml|midi?)$/i.test(file.name);
  // Telephones and browsers write their recordings as videos without pictures, too.
  const sound =
    !notation &&
    (/^(audio|video)\//.test(file.type) || SOUNDS.some((suffix) => name.endsWith(suffix)));
  const picture = file.type.startsWith("image/");
  const pdf = file.type === "application/pdf" || name.endsWith(".pdf");
  if (file.size > info.limits.upload_bytes) {
    const [size, limit] = [bytes(file.size), bytes(info.limits.upload_bytes)];
    const said = `${file.name} has ${size}; at most ${limit} can be sent. Choose a smaller one.`;
    throw new Problem("This file is too large", said, 413);
  }
  if (file.size === 0) throw new Problem("This file is empty", `${file.name} has no content.`, 422);
  if (sound && kinds.has("audio")) return "audio";
  if (picture && kinds.has("image")) return "image";
  if ((picture || pdf) && kinds.has("sheet")) return "sheet";
  if (notation && info.kind === "tunes") {
    const said = `${file.name} is notation. To search among its tunes: ccal serve ${file.name}`;
    throw new Problem("This is a tune book", said, 415);
  }
  throw new Problem(
    "This kind of file cannot be searched with",
    `${file.name} is ${file.type || "of an unknown kind"}. This collection takes ${wanted(info)}.`,
    415,
  );
}

const NAMES = {
  text: "words",
  image: "a picture",
  sheet: "a page of music (picture or PDF)",
  audio: "a sound file",
};

/** What can be asked with, as people say it. */
export function wanted(info, { recording = false } = {}) {
  const kinds = kindsOf(info);
  const names = Object.keys(NAMES).filter((kind) => kinds.has(kind)).map((kind) => NAMES[kind]);
  if (recording && kinds.has("audio") && canRecord()) names.push("a recording");
  if (names.length < 2) return names[0] ?? "items of its own";
  return `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}

/** Wire the box. `ask` takes a query, `fail` a problem; `info` gives what the server said. */
export function startBox({ info, ask, fail }) {
  const askFile = (file) => {
    if (!file) return;
    try {
      ask({ type: "file", file, kind: kindOfFile(file, info()) });
    } catch (problem) {
      fail(problem);
    }
  };
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("words").value.trim();
    if (text) ask({ type: "text", text });
    else $("words").focus();
  });
  $("choose").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => {
    askFile($("file").files[0]);
    $("file").value = "";
  });
  $("record").addEventListener("click", async () => {
    $("record").disabled = true;
    try {
      const limit = Math.min(RECORDING_SECONDS, info().limits.seconds);
      const file = await record(limit);
      if (file) askFile(file);
    } catch (error) {
      if (!(error instanceof RecordingProblem)) throw error;
      fail(new Problem("There is no recording", error.message, 422));
    } finally {
      $("record").disabled = false;
    }
  });
  $("record-stop").addEventListener("click", stopRecording);
  $("record-cancel").addEventListener("click", () => {
    cancelRecording();
    $("record").disabled = false;
    $("words").focus();
  });
  document.addEventListener("paste", (event) => {
    const file = event.clipboardData?.files[0];
    if (!file) return;
    event.preventDefault();
    askFile(file);
  });
  startDrop(askFile);
}

function startDrop(askFile) {
  const carriesFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  let depth = 0;
  const show = (on) => ($("drop").hidden = !on);
  document.addEventListener("dragenter", (event) => {
    if (carriesFile(event)) show(++depth > 0);
  });
  document.addEventListener("dragleave", (event) => {
    if (carriesFile(event)) show(--depth > 0);
  });
  document.addEventListener("dragover", (event) => carriesFile(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!carriesFile(event)) return;
    event.preventDefault();
    depth = 0;
    show(false);
    askFile(event.dataTransfer.files[0]);
  });
}

/** Fit the box to what the collection takes. */
export function fitBox(info) {
  const kinds = kindsOf(info);
  const files = kinds.has("image") || kinds.has("sheet") || kinds.has("audio");
  $("choose").hidden = !files;
  $("record").hidden = !(kinds.has("audio") && canRecord());
  const accepted = Object.values(info.accepts ?? {}).flat();
  if (kinds.has("audio")) accepted.push(...SOUNDS);
  $("file").accept = [...new Set(accepted)].join(",");
  $("words").maxLength = info.limits.text ?? 2000;
  $("words").placeholder = kinds.has("text") ? "Search with words" : "Find by name";
  const start = kinds.has("text") ? "Search with" : "Or search with";
  $("hint").textContent = `${start} ${wanted(info, { recording: true })}.`;
  if (!files) return;
  const long = kinds.has("audio") ? ` and ${duration(info.limits.seconds)}` : "";
  const most = bytes(info.limits.upload_bytes) + long;
  $("hint").append(` Drop or paste files anywhere; at most ${most}.`);
}
