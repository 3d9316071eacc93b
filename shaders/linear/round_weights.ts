import type { MatrixType } from './pack.js';

/**
 * The values that `rows` (n x inFeatures) take when stored as `type`, by the formulas alone: no packing, no bit tricks. An
 * independent check of `packTiles`, and the weights of float64 references.
 */
export function roundWeights(
  type: MatrixType,
  rows: Float32Array,
  n: number,
  inFeatures: number,
): Float32Array<ArrayBuffer> {
  const out = new Float32Array(n * inFeatures);
  for (let row = 0; row < n; row++) {
    for (let start = 0; start < inFeatures; start += 32) {
      const from = row * inFeatures + start;
      const block = Array.from(rows.subarray(from, from + Math.min(32, inFeatures - start)));
      out.set(roundBlock(type, block), from);
    }
  }
  return out;
}

function roundBlock(type: MatrixType, block: number[]): number[] {
  if (type === 'f32') return block;
  if (type === 'f16') return block.map(roundToHalf);
  const extreme = block.reduce((best, x) => (Math.abs(x) > Math.abs(best) ? x : best), 0);
  if (extreme === 0) return block.map(() => 0);
  if (type === 'mxfp4') {
    const unit = 2 ** Math.max(-127, Math.floor(Math.log2(Math.abs(extreme))) - 2);
    return block.map((x) => Math.sign(x) * roundToE2m1(Math.abs(x) / unit) * unit);
  }
  const f32 = Math.fround;
  const d = f32(type === 'q8' ? Math.abs(extreme) / 127 : extreme / -8);
  const stored = roundToHalf(d);
  if (stored === 0) return block.map(() => 0);
  const id = f32(1 / d);
  return block.map((x) => {
    const scaled = f32(x * id);
    const q =
      type === 'q8'
        ? Math.sign(scaled) * Math.round(Math.abs(scaled))
        : Math.min(15, Math.trunc(f32(scaled + 8.5))) - 8;
    return q * stored;
  });
}

/** The nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, halfway the one with an even last place. */
function roundToE2m1(x: number): number {
  const step = x < 2 ? 0.5 : x < 4 ? 1 : 2;
  const [below, rest] = [Math.floor(x / step), (x / step) % 1];
  return Math.min(6, (rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below) * step);
}

/** The nearest half to x, ties to even: x in units of its half's last place, rounded. */
export function roundToHalf(x: number): number {
  if (x === 0 || !Number.isFinite(x)) return x;
  const exponent = Math.max(Math.floor(Math.log2(Math.abs(x))), -14);
  const unit = 2 ** (exponent - 10);
  const scaled = x / unit;
  const below = Math.floor(scaled);
  const rest = scaled - below;
  const rounded = rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
  const value = rounded * unit;
  return Math.abs(value) >= 65536 ? Math.sign(x) * Number.POSITIVE_INFINITY : value;
}
