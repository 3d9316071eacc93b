import { unsupportedError, usageError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import { sum } from '../base/lists.js';
import { idefics3Text, idefics3Tiles, type Idefics3Settings, type Tiles } from './idefics3.js';
import { type Lfm2Settings, lfm2Text, lfm2Tiles } from './lfm2.js';
import type { Picture } from './picture.js';
import { RESAMPLE, resize } from './resize.js';
import { gemma4Size, qwenSize } from './sizes.js';

/** What an encoder takes: the side of its largest square and of a patch in pixels, and patches of a side that become a row. */
export interface CutShape extends Readonly<Record<'image' | 'patch' | 'merge', number>> {
  readonly kind: CutKind;
}

/** How pictures are cut, and scaled. */
export interface CutSettings extends Idefics3Settings, Lfm2Settings {
  readonly mean: readonly number[];
  readonly deviation: readonly number[];
}

interface Cutter {
  /** Of preprocessor_config.json, where that doesn't say. */
  readonly resample: number;
  /** Its key for the side of a tile. */
  readonly tile?: string;
  /** Its keys for how many rows a picture has, at least and at most or just so, and what they are otherwise. */
  readonly rows?: Readonly<Record<string, number>>;
  /** @param unit pixels of a row's side */
  readonly cut: (
    picture: Picture,
    settings: CutSettings,
    unit: number,
  ) => Tiles | readonly [width: number, height: number];
  /** @param counts rows of each tile */
  readonly text: (cut: Tiles, counts: readonly number[]) => string;
}

const CUTTERS = {
  tiles: { resample: 1, tile: 'max_image_size', cut: idefics3Tiles, text: idefics3Text },
  whole: {
    resample: 2,
    tile: 'size',
    cut: (_picture, { tile }) => [tile, tile],
    // As transformers' Gemma3Processor writes it.
    text: (_cut, [count = 0]) => `\n\n<start_of_image>${'<image_soft_token>'.repeat(count)}<end_of_image>\n\n`,
  },
  'any size': {
    resample: 3,
    cut: (picture, { pixels }, unit) => qwenSize(picture, unit, pixels),
    // What is about it stands there already.
    text: (_cut, [count = 0]) => '<|image_pad|>'.repeat(count),
  },
  'tiles or any size': {
    resample: 2,
    tile: 'tile_size',
    rows: { min_image_tokens: 64, max_image_tokens: 256 },
    cut: lfm2Tiles,
    text: lfm2Text,
  },
  'all rows': {
    resample: 3,
    rows: { max_soft_tokens: 280 },
    cut: (picture, { pixels }, unit) => gemma4Size(picture, unit, pixels[1] / unit ** 2),
    text: (_cut, [count = 0]) => `<|image>${'<|image|>'.repeat(count)}<image|>`,
  },
} as const satisfies Record<string, Cutter>;

export type CutKind = keyof typeof CUTTERS;

/**
 * What the encoder is given of a picture: its tiles, which become `count` rows, of `grid` lines and columns where those have positions of
 * their own; and what stands for it in a prompt. @throws SplitkvError `usage` for one that the encoder has no room for
 */
export function cutPicture(picture: Picture, { kind, image, patch, merge }: CutShape, settings: CutSettings) {
  const { cut, text }: Cutter = CUTTERS[kind];
  const unit = patch * merge;
  const made = cut(picture, settings, unit);
  const parts: Tiles = 'tiles' in made ? made : { tiles: [], whole: made, rows: 0, columns: 0 };
  const patchesOf = (width: number, height: number): number => Math.floor(width / patch) * Math.floor(height / patch);
  const most = patchesOf(image, image);
  const [wide, high] = parts.whole ?? [0, 0];
  if (patchesOf(wide, high) > most) {
    const became = `an image of ${picture.width} x ${picture.height} pixels becomes one of ${wide} x ${high}`;
    throw usageError(`${became}; the encoder takes ${most} patches of ${patch} x ${patch}: cut it`);
  }
  const tiles = parts.whole ? [...parts.tiles, resize(picture, wide, high, settings.filter)] : parts.tiles;
  const counts = tiles.map(({ width, height }) => patchesOf(width, height) / merge ** 2);
  const [{ width, height }] = tiles as readonly [Picture];
  const grid = kind === 'any size' ? ([height / unit, width / unit] as const) : undefined;
  return { tiles, count: sum(counts), grid, text: text(parts, counts) };
}

/**
 * What a processor's file says, by its class's defaults.
 * @param name of the file
 * @throws SplitkvError `unsupported`
 */
export function cutSettings(
  file: Readonly<Record<string, unknown>>,
  { kind, image, patch, merge }: CutShape,
  name = 'preprocessor_config.json',
): CutSettings {
  const checked = (key: string, value: unknown, fits: boolean, expected: string): never => {
    if (fits) return value as never;
    throw unsupportedError(`${name}: ${key} ${show(value)}; expected ${expected}`);
  };
  const count = (key: string, what: string, value: unknown): number =>
    checked(key, value, Number.isInteger(value) && Number(value) >= 1, `a number of ${what}`);
  const edge = (key: string, otherwise: number): number => {
    const value = file[key];
    const longest = isObject(value) ? (value['longest_edge'] ?? value['height']) : value;
    return Number.isInteger(longest) && Number(longest) >= 1 ? Number(longest) : otherwise;
  };
  const three = (key: string): number[] => {
    // Of 0 to 1, which the encoder normalises itself.
    const value = (kind === 'all rows' ? undefined : file[key]) ?? [0.5, 0.5, 0.5];
    const fits = Array.isArray(value) && value.length === 3 && value.every((each) => typeof each === 'number');
    return checked(key, value, fits, 'three numbers');
  };
  const { tile: key, rows, resample: usual }: Cutter = CUTTERS[kind];
  const { resample = usual, do_pan_and_scan: pans, size: sides } = file;
  const filter = RESAMPLE[Number(resample)];
  checked('do_pan_and_scan', pans, pans !== true, 'false: images are taken whole');
  const { do_rescale: scales, rescale_factor: factor, do_normalize: normalises } = file;
  checked('do_rescale', scales, scales !== false, 'true');
  checked('rescale_factor', factor, factor === undefined || Math.abs(Number(factor) * 255 - 1) < 1e-4, '1/255');
  checked('do_normalize', normalises, normalises !== false || kind === 'all rows', 'true');
  const unit = patch * merge;
  /** Of numbers of pixels, which older files have beside `size`. */
  const pixels = (own: string, older: string, otherwise: number): number => {
    const value = (isObject(sides) ? sides[own] : undefined) ?? file[older] ?? otherwise;
    return Math.min(count(`size.${own}`, 'pixels', value), image ** 2);
  };
  const [least = 0, most = least] = rows
    ? Object.entries(rows).map(([own, otherwise]) => count(own, 'rows', file[own] ?? otherwise) * unit ** 2)
    : [pixels('shortest_edge', 'min_pixels', 2 ** 16), pixels('longest_edge', 'max_pixels', 2 ** 24)];
  if (most > image ** 2)
    throw unsupportedError(`${name}: pictures of up to ${most} pixels; the encoder takes ${image ** 2}`);
  const tile = key === undefined ? image : edge(key, image);
  if (rows ? tile > image || tile % unit !== 0 : tile !== image)
    throw unsupportedError(`${name}: tiles of ${tile} pixels; the encoder's are of ${image}`);
  return {
    pixels: [Math.min(least, most), most],
    tile,
    longestEdge: edge('size', 4 * tile),
    splits: file['do_image_splitting'] !== false,
    thumbnail: file['use_thumbnail'] !== false,
    tiles: [count('min_tiles', 'tiles', file['min_tiles'] ?? 2), count('max_tiles', 'tiles', file['max_tiles'] ?? 10)],
    tolerance: count('max_pixels_tolerance', 'times', file['max_pixels_tolerance'] ?? 2),
    filter: checked('resample', filter ?? resample, filter !== undefined, '1, 2 or 3'),
    mean: three('image_mean'),
    deviation: three('image_std'),
  };
}
