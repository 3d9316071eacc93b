import { SAMPLE_RATE } from './limits.js';

/** A WAV file of these samples, from -1 to 1, of one channel: PCM in 16 bits. @param rate samples a second */
export function wavFile(samples: Float32Array, rate = SAMPLE_RATE): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(44 + 2 * samples.length);
  const view = new DataView(bytes.buffer);
  const tag = (at: number, text: string): void => bytes.set(new TextEncoder().encode(text), at);
  tag(0, 'RIFF');
  view.setUint32(4, bytes.length - 8, true);
  tag(8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  // PCM, one channel; then bytes a second, and of a sample.
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  tag(36, 'data');
  view.setUint32(40, 2 * samples.length, true);
  for (const [i, value] of samples.entries())
    view.setInt16(44 + 2 * i, Math.max(-32_768, Math.min(32_767, Math.round(value * 32_768))), true);
  return bytes;
}
