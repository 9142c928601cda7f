// Any sound the browser can decode, as a WAV file: one channel of 16-bit samples.

/** `blob` in one channel at `rate`, of at most `seconds`: a WAV blob, and its loudest sample. */
export async function toWav(blob, { rate = 22050, seconds = Infinity } = {}) {
  const offline = new OfflineAudioContext(1, 1, rate);
  const sound = await offline.decodeAudioData(await blob.arrayBuffer());
  const length = Math.min(sound.length, Math.floor(seconds * rate));
  const mono = new Float32Array(length);
  for (let channel = 0; channel < sound.numberOfChannels; channel++) {
    const samples = sound.getChannelData(channel);
    for (let i = 0; i < length; i++) mono[i] += samples[i] / sound.numberOfChannels;
  }
  const peak = mono.reduce((top, x) => Math.max(top, Math.abs(x)), 0);
  return { wav: encodeWav(mono, rate), peak };
}

function encodeWav(samples, rate) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const ascii = (at, text) => [...text].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  ascii(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  ascii(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  ascii(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((x, i) => view.setInt16(44 + 2 * i, Math.max(-1, Math.min(1, x)) * 32767, true));
  return new Blob([view], { type: "audio/wav" });
}
