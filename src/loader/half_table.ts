let table: Uint32Array<ArrayBuffer> | undefined;

/** The f32 bits of every f16: 256 KiB, which stays in cache and beats shifting by a factor of two. */
export function halfTable(): Uint32Array<ArrayBuffer> {
  if (table) return table;
  table = new Uint32Array(65536);
  const value = new Float32Array(1);
  const bits = new Uint32Array(value.buffer);
  for (let half = 0; half < 65536; half++) {
    const sign = (half & 0x8000) << 16;
    const exponent = (half >> 10) & 31;
    const fraction = half & 0x3ff;
    if (exponent === 31) table[half] = sign | 0x7f800000 | (fraction << 13);
    else if (exponent > 0) table[half] = sign | ((exponent + 112) << 23) | (fraction << 13);
    else {
      value[0] = fraction * 2 ** -24; // subnormal halves are normal floats
      table[half] = sign | bits[0]!;
    }
  }
  return table;
}

/** The same table as numbers. */
export const halfValues = (): Float32Array<ArrayBuffer> => new Float32Array(halfTable().buffer);
