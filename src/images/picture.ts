/** Decoded: 8-bit red, green and blue of each pixel, row by row from the top. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array<ArrayBuffer>;
}

/** A rectangle of it, which must lie inside. */
export function crop({ width, data }: Picture, left: number, top: number, wide: number, high: number): Picture {
  const out = new Uint8Array(wide * high * 3);
  for (let y = 0; y < high; y++) {
    const from = ((top + y) * width + left) * 3;
    out.set(data.subarray(from, from + wide * 3), y * wide * 3);
  }
  return { width: wide, height: high, data: out };
}
