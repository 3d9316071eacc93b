import { gcd } from '../base/math.js';
import { SAMPLE_RATE } from './limits.js';

/** Zeros of the sinc on each side: what is above the new rate's half is damped by some 80 dB. */
const ZEROS = 24;
/** Where the filter begins to damp, of the lower rate's half. */
const EDGE = 0.94;

/** Samples of another rate as those of 16 kHz: band-limited, by a sinc within a Blackman window. */
export function resample(samples: Float32Array<ArrayBuffer>, rate: number): Float32Array<ArrayBuffer> {
  if (rate === SAMPLE_RATE) return samples;
  const common = gcd(rate, SAMPLE_RATE);
  // Sample n lies `step` * n parts behind the first, of which a given one has `parts`.
  const [parts, step] = [SAMPLE_RATE / common, rate / common];
  const cutoff = EDGE * Math.min(1, SAMPLE_RATE / rate);
  const reach = Math.ceil(ZEROS / cutoff);
  const phases: Float64Array[] = [];
  const out = new Float32Array(Math.ceil((samples.length * parts) / step));
  for (let n = 0; n < out.length; n++) {
    const [whole, part] = [Math.floor((n * step) / parts), (n * step) % parts];
    const taps = (phases[part] ??= tapsOf(part / parts, cutoff, reach));
    const first = whole - reach + 1;
    let sum = 0;
    const end = Math.min(taps.length, samples.length - first);
    for (let tap = Math.max(0, -first); tap < end; tap++) sum += taps[tap]! * samples[first + tap]!;
    out[n] = sum;
  }
  return out;
}

/** What samples weigh that lie from `reach` - 1 before to `reach` behind the one before a place; their sum is 1. */
function tapsOf(place: number, cutoff: number, reach: number): Float64Array {
  const taps = Float64Array.from({ length: 2 * reach }, (_, tap) => {
    const x = tap - reach + 1 - place;
    const across = Math.PI * (x / reach);
    const window = Math.abs(x) >= reach ? 0 : 0.42 + 0.5 * Math.cos(across) + 0.08 * Math.cos(2 * across);
    const angle = Math.PI * x * cutoff;
    return window * (angle === 0 ? 1 : Math.sin(angle) / angle);
  });
  const total = taps.reduce((sum, tap) => sum + tap, 0);
  return taps.map((tap) => tap / total);
}
