/** IEEE 754 half precision on the host (Node 20 and older browsers have no Float16Array). */

/**
 * The half nearest to the f32 whose bits are given, ties to even, as 16 bits.
 * Overflow gives infinity (0x7c00), NaN a quiet NaN: callers decide whether that is an error.
 */
export function halfFromFloatBits(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  // From 65520 up everything rounds to infinity.
  if (magnitude >= 0x477ff000) return sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00);
  if (magnitude >= 0x38800000) {
    // Normal: drop 13 bits; the carry of the rounding may run into the exponent, which is right.
    const rounded = magnitude + 0xfff + ((magnitude >>> 13) & 1);
    return sign | ((rounded - 0x38000000) >>> 13);
  }
  // Below 2^-25 (and exactly 2^-25, a tie with an even zero) rounds to zero.
  if (magnitude <= 0x33000000) return sign;
  // Subnormal: the significand with its hidden bit, in units of 2^-24.
  const shift = 126 - (magnitude >>> 23);
  const significand = (magnitude & 0x7fffff) | 0x800000;
  const kept = significand >>> shift;
  const rest = significand & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  return sign | (kept + (rest > half || (rest === half && (kept & 1) === 1) ? 1 : 0));
}

const scratch = new Float32Array(1);
const scratchBits = new Uint32Array(scratch.buffer);

export function halfFromFloat(value: number): number {
  scratch[0] = value;
  return halfFromFloatBits(scratchBits[0]!);
}

/** The value of a half given as 16 bits. */
export function floatFromHalf(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >>> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
