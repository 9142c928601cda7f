// A recording from the microphone, with its level and time on the page while it runs.

import { $, clock } from "./dom.js";
import { toWav } from "./wav.js";

let current = null;

export const canRecord = () =>
  Boolean(navigator.mediaDevices?.getUserMedia) && typeof MediaRecorder === "function";

/** What went wrong, in words for people. */
export class RecordingProblem extends Error {}

/** Record until stopped, or `seconds` long; resolves to a WAV file, or null if cancelled. */
export async function record(seconds) {
  if (current) return null;
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      // What makes speech clear makes music poor.
      audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
  } catch (error) {
    throw new RecordingProblem(
      error.name === "NotFoundError"
        ? "No microphone was found. Connect one, or choose a sound file."
        : "The browser did not allow the microphone. Allow it, or choose a sound file.",
    );
  }
  const parts = [];
  const recorder = new MediaRecorder(stream);
  const meter = showLevel(stream, seconds, () => recorder.state === "recording" && recorder.stop());
  recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
  const done = new Promise((resolve) => recorder.addEventListener("stop", resolve, { once: true }));
  current = { recorder, cancelled: false };
  $("recording").hidden = false;
  recorder.start();
  $("record-stop").focus();
  await done;
  const { cancelled } = current;
  current = null;
  meter.stop();
  stream.getTracks().forEach((track) => track.stop());
  $("recording").hidden = true;
  if (cancelled) return null;
  return finish(new Blob(parts, { type: recorder.mimeType }), seconds);
}

export function stopRecording() {
  if (current?.recorder.state === "recording") current.recorder.stop();
}

/** Throw the recording away; false if there was none. */
export function cancelRecording() {
  if (!current) return false;
  current.cancelled = true;
  stopRecording();
  return true;
}

async function finish(blob, seconds) {
  let sound;
  try {
    sound = await toWav(blob, { seconds });
  } catch {
    throw new RecordingProblem("The recording was too short. Record for a few seconds.");
  }
  if (sound.peak < 1e-3) {
    throw new RecordingProblem("The recording is silent. Is the right microphone on?");
  }
  return new File([sound.wav], "recording.wav", { type: "audio/wav" });
}

function showLevel(stream, seconds, stop) {
  const context = new AudioContext();
  const analyser = new AnalyserNode(context, { fftSize: 1024 });
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const canvas = $("level");
  const pen = canvas.getContext("2d");
  const levels = [];
  const started = performance.now();
  const timer = setInterval(() => {
    const elapsed = (performance.now() - started) / 1000;
    $("recording-time").textContent = `${clock(elapsed)} of ${clock(seconds)}`;
    analyser.getFloatTimeDomainData(samples);
    levels.push(Math.sqrt(samples.reduce((sum, x) => sum + x * x, 0) / samples.length));
    if (levels.length > canvas.width / 4) levels.shift();
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.fillStyle = getComputedStyle(canvas).color;
    levels.forEach((level, i) => {
      const height = Math.max(2, Math.min(1, level * 3) * canvas.height);
      pen.fillRect(4 * i, (canvas.height - height) / 2, 3, height);
    });
    if (elapsed >= seconds) stop();
  }, 60);
  return {
    stop() {
      clearInterval(timer);
      context.close();
    },
  };
}
