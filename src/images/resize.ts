import type { Picture } from './picture.js';

const sinc = (x: number): number => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));

/** (a + 2)|x|^3 - (a + 3)x^2 + 1, then a|x|^3 - 5a x^2 + 8a|x| - 4a, with a = -0.5. */
const cubic = (x: number): number =>
  x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;

/** By name: how far a filter reaches, in pixels of the smaller of the two sizes, and its weight at a distance. */
const FILTERS = {
  lanczos: { reach: 3, weight: (x: number) => (x < 3 ? sinc(x) * sinc(x / 3) : 0) },
  bilinear: { reach: 1, weight: (x: number) => Math.max(0, 1 - x) },
  bicubic: { reach: 2, weight: cubic },
} as const;

export type Filter = keyof typeof FILTERS;

/** What preprocessor_config.json calls them (`resample`). */
export const RESAMPLE: Readonly<Record<number, Filter>> = { 1: 'lanczos', 2: 'bilinear', 3: 'bicubic' };

/** Fractional bits of the weights. */
const BITS = 22;
const HALF = 2 ** (BITS - 1);

/** Of each pixel of a line of `out` pixels: the first of the line of `size` that it is made of, and their weights times 2^BITS. */
function weightsOf(size: number, out: number, { reach, weight }: (typeof FILTERS)[Filter]) {
  const scale = size / out;
  const stretch = Math.max(scale, 1);
  return Array.from({ length: out }, (_, pixel) => {
    const centre = (pixel + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach * stretch + 0.5));
    const end = Math.min(size, Math.trunc(centre + reach * stretch + 0.5));
    const raw = Array.from({ length: end - first }, (__, at) =>
      weight(Math.abs((first + at - centre + 0.5) / stretch)),
    );
    const total = raw.reduce((sum, each) => sum + each, 0);
    const whole = raw.map((each) => {
      const scaled = (each / total) * 2 ** BITS;
      return Math.trunc(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    });
    return { first, weights: Int32Array.from(whole) };
  });
}

/**
 * One pass: `lines` lines of pixels become lines of `out` pixels. `across`: bytes from pixel to pixel of a line, `along` from line to
 * line; of what is read, then of what is written. Memory is walked through in order, as a large picture takes seconds otherwise.
 */
function pass(
  data: Uint8Array,
  lines: number,
  made: ReturnType<typeof weightsOf>,
  [across, along]: readonly [number, number],
  [toAcross, toAlong]: readonly [number, number],
): Uint8Array<ArrayBuffer> {
  const to = new Uint8Array(lines * made.length * 3);
  const one = (line: number, pixel: number): void => {
    const { first, weights } = made[pixel]!;
    // No sum leaves 32 bits.
    let [red, green, blue] = [HALF, HALF, HALF];
    for (let tap = 0, at = line * along + first * across; tap < weights.length; tap++, at += across) {
      const weight = weights[tap]!;
      red = (red + Math.imul(data[at]!, weight)) | 0;
      green = (green + Math.imul(data[at + 1]!, weight)) | 0;
      blue = (blue + Math.imul(data[at + 2]!, weight)) | 0;
    }
    const out = line * toAlong + pixel * toAcross;
    to[out] = Math.min(255, Math.max(0, red >> BITS));
    to[out + 1] = Math.min(255, Math.max(0, green >> BITS));
    to[out + 2] = Math.min(255, Math.max(0, blue >> BITS));
  };
  if (across < along) {
    for (let line = 0; line < lines; line++) for (let pixel = 0; pixel < made.length; pixel++) one(line, pixel);
  } else {
    for (let pixel = 0; pixel < made.length; pixel++) for (let line = 0; line < lines; line++) one(line, pixel);
  }
  return to;
}

/**
 * Another size by Pillow's `Image.resize`, byte for byte: antialiased, weights as integers, rows first (columns where a picture is far
 * higher than wide and shrinks), rounded to 8 bits between the passes; a pass is left out where the size stays.
 */
export function resize(picture: Picture, width: number, height: number, filter: Filter): Picture {
  const of = FILTERS[filter];
  const across = ({ data, ...from }: Picture): Picture => {
    if (width === from.width) return { ...from, data };
    const strides = [3, from.width * 3] as const;
    return { ...from, width, data: pass(data, from.height, weightsOf(from.width, width, of), strides, [3, width * 3]) };
  };
  const down = ({ data, ...from }: Picture): Picture => {
    if (height === from.height) return { ...from, data };
    const strides = [from.width * 3, 3] as const;
    return { ...from, height, data: pass(data, from.width, weightsOf(from.height, height, of), strides, strides) };
  };
  const isTall = picture.height > 100 * picture.width && height < picture.height;
  return isTall ? across(down(picture)) : down(across(picture));
}
