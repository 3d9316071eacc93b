import { formatError, limitError, unsupportedError } from '../base/errors.js';
import { SOUND_LIMITS } from './limits.js';

/** One channel, or the mean of several: -1 to 1. */
export interface Recording {
  /** Samples a second. */
  readonly rate: number;
  readonly samples: Float32Array<ArrayBuffer>;
}

interface Format {
  readonly channels: number;
  readonly rate: number;
  /** Of a sample of one channel. */
  readonly bits: number;
  readonly isFloat: boolean;
}

export const isWav = (bytes: Uint8Array): boolean => tagAt(bytes, 0) === 'RIFF' && tagAt(bytes, 8) === 'WAVE';

const tagAt = (bytes: Uint8Array, at: number): string => String.fromCharCode(...bytes.subarray(at, at + 4));

/**
 * A WAV file of PCM in 8, 16, 24 or 32 bits, or of floats in 32 or 64.
 * @throws SplitkvError `format` for a broken file, `unsupported` for another coding, `limit` for more seconds than are taken
 */
export function readWav(bytes: Uint8Array): Recording {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let format: Format | undefined;
  for (let at = 12; at + 8 <= bytes.length;) {
    const [tag, size] = [tagAt(bytes, at), view.getUint32(at + 4, true)];
    const body = at + 8;
    if (tag === 'fmt ') format = formatAt(view, body, Math.min(size, bytes.length - body));
    if (tag === 'data') {
      if (!format) throw formatError("a WAV file has its samples before its format ('fmt '): it is broken");
      // Who writes while recording knows no size: the rest is meant.
      const isOpen = size === 0xffffffff || size === 0;
      if (!isOpen && size > bytes.length - body)
        throw formatError(`a WAV file says ${size} bytes of samples and has ${bytes.length - body}: it is cut off`);
      return samplesOf(view, body, isOpen ? bytes.length - body : size, format);
    }
    // Chunks begin at even bytes.
    at = body + size + (size % 2);
  }
  throw formatError(`a WAV file without ${format ? "samples ('data')" : "a format ('fmt ')"}: it is broken`);
}

/** @param size bytes of the chunk that are there */
function formatAt(view: DataView, at: number, size: number): Format {
  if (size < 16) throw formatError(`a WAV file whose format has ${size} bytes; expected 16: it is broken`);
  let coding = view.getUint16(at, true);
  const [channels, rate] = [view.getUint16(at + 2, true), view.getUint32(at + 4, true)];
  const [block, bits] = [view.getUint16(at + 12, true), view.getUint16(at + 14, true)];
  // Extensible: the coding's first bytes are those of a plain one.
  if (coding === 0xfffe && size >= 26) coding = view.getUint16(at + 24, true);
  const isFloat = coding === 3;
  if (!isFloat && coding !== 1)
    throw unsupportedError(`a WAV file in coding ${coding}; expected PCM (1) or floats (3): convert it`);
  if (!(isFloat ? [32, 64] : [8, 16, 24, 32]).includes(bits))
    throw unsupportedError(`a WAV file of ${isFloat ? 'floats' : 'PCM'} in ${bits} bits: convert it to PCM in 16`);
  if (channels < 1 || channels > 64 || rate < 1000 || rate > 768_000 || block !== (channels * bits) / 8) {
    throw formatError(
      `a WAV file of ${channels} channels, ${rate} Hz and ${block} bytes for ${bits} bits of each: it is broken`,
    );
  }
  return { channels, rate, bits, isFloat };
}

function samplesOf(view: DataView, from: number, size: number, { channels, rate, bits, isFloat }: Format): Recording {
  const width = bits / 8;
  const count = Math.floor(size / (channels * width));
  checkSeconds(count / rate);
  const half = 2 ** (bits - 1);
  const read = (at: number): number => {
    if (isFloat) return bits === 32 ? view.getFloat32(at, true) : view.getFloat64(at, true);
    if (bits === 8) return (view.getUint8(at) - half) / half;
    if (bits === 16) return view.getInt16(at, true) / half;
    if (bits === 32) return view.getInt32(at, true) / half;
    return ((view.getInt8(at + 2) << 16) | view.getUint16(at, true)) / half;
  };
  const samples = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    let total = 0;
    for (let channel = 0; channel < channels; channel++) total += read(from + (i * channels + channel) * width);
    samples[i] = total / channels;
  }
  return { rate, samples };
}

/** @throws SplitkvError `limit` */
export function checkSeconds(seconds: number): void {
  const { seconds: most } = SOUND_LIMITS;
  // The last frame needs no more.
  if (seconds > most + 0.001)
    throw limitError(`a recording of ${seconds.toFixed(1)} s: at most ${most} s are heard at once; cut it into pieces`);
}
