import { unsupportedError, usageError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import { sum } from '../base/lists.js';
import { gemma3Text } from './gemma3.js';
import { gemma4Size, gemma4Text } from './gemma4.js';
import { idefics3Text, idefics3Tiles, type Idefics3Settings } from './idefics3.js';
import { type Lfm2Settings, lfm2Text, lfm2Tiles } from './lfm2.js';
import type { Picture } from './picture.js';
import { type PixelRange, qwenSize, qwenText } from './qwen.js';
import { RESAMPLE, resize } from './resize.js';

/** What an encoder takes: the side of its largest square and of a patch in pixels, and patches of a side that become a row. */
export interface CutShape {
  readonly kind: CutKind;
  readonly image: number;
  readonly patch: number;
  readonly merge: number;
}

/** How pictures are cut, and scaled. */
export interface CutSettings extends Idefics3Settings, Lfm2Settings {
  /** Of pictures of any size. */
  readonly pixels: PixelRange;
  readonly mean: readonly number[];
  readonly deviation: readonly number[];
}

/** What the encoder is given of a picture, and what announces it. */
export interface Cut {
  readonly tiles: readonly Picture[];
  /** Rows. */
  readonly count: number;
  /** Lines and columns of rows that have positions of their own. */
  readonly grid?: readonly [lines: number, columns: number];
  /** What stands for it in a prompt. */
  readonly text: string;
}

type Cutter = (picture: Picture, unit: number, settings: CutSettings, rowsOf: (tile: Picture) => number) => Cut;

const CUTTERS = {
  tiles(picture, _unit, settings, rowsOf) {
    const { tiles, ...cut } = idefics3Tiles(picture, settings);
    const each = rowsOf(tiles[0]!);
    return { tiles, count: tiles.length * each, text: idefics3Text(cut, each) };
  },
  whole(picture, _unit, { tile, filter }, rowsOf) {
    const sized = resize(picture, tile, tile, filter);
    return { tiles: [sized], count: rowsOf(sized), text: gemma3Text(rowsOf(sized)) };
  },
  'any size'(picture, unit, { pixels, filter }, rowsOf) {
    const [width, height] = qwenSize(picture, unit, pixels);
    const sized = resize(picture, width, height, filter);
    const count = rowsOf(sized);
    return { tiles: [sized], count, grid: [height / unit, width / unit], text: qwenText(count) };
  },
  'tiles or any size'(picture, unit, settings, rowsOf) {
    const { tiles, ...cut } = lfm2Tiles(picture, unit, settings);
    const counts = tiles.map(rowsOf);
    return { tiles, count: sum(counts), text: lfm2Text(cut, counts) };
  },
  'all rows'(picture, unit, { pixels, filter }, rowsOf) {
    const sized = resize(picture, ...gemma4Size(picture, unit, pixels[1] / unit ** 2), filter);
    return { tiles: [sized], count: rowsOf(sized), text: gemma4Text(rowsOf(sized)) };
  },
} as const satisfies Record<string, Cutter>;

export type CutKind = keyof typeof CUTTERS;

/** @throws SplitkvError `usage` for a picture that the encoder has no room for */
export function cutPicture(picture: Picture, { kind, image, patch, merge }: CutShape, settings: CutSettings): Cut {
  const sideOf = (pixels: number): number => Math.floor(pixels / patch);
  const cutter: Cutter = CUTTERS[kind];
  const cut = cutter(
    picture,
    patch * merge,
    settings,
    ({ width, height }) => (sideOf(width) * sideOf(height)) / merge ** 2,
  );
  const large = cut.tiles.find(({ width, height }) => sideOf(width) * sideOf(height) > sideOf(image) ** 2);
  if (!large) return cut;
  throw usageError(
    `an image of ${picture.width} x ${picture.height} pixels becomes one of ${large.width} x ${large.height}; the encoder takes ${sideOf(image) ** 2} patches of ${patch} x ${patch}: cut it`,
  );
}

/** What their processors resample by, where files don't say. */
const RESAMPLED: Readonly<Record<CutKind, number>> = {
  tiles: 1,
  whole: 2,
  'any size': 3,
  'tiles or any size': 2,
  'all rows': 3,
};

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
  const edge = (key: string, otherwise: number): number => {
    const value = file[key];
    const longest = isObject(value) ? (value['longest_edge'] ?? value['height']) : value;
    return Number.isInteger(longest) && Number(longest) >= 1 && Number(longest) <= 4096 ? Number(longest) : otherwise;
  };
  const filter = RESAMPLE[Number(file['resample'] ?? RESAMPLED[kind])];
  if (!filter) throw unsupportedError(`${name}: resample ${show(file['resample'])}; expected 1, 2 or 3`);
  if (file['do_pan_and_scan'] === true) throw unsupportedError(`${name}: do_pan_and_scan true; images are taken whole`);
  const halves = [0.5, 0.5, 0.5];
  const three = (key: string): number[] => {
    const value = file[key] ?? halves;
    if (Array.isArray(value) && value.length === 3 && value.every((each) => typeof each === 'number'))
      return value as number[];
    throw unsupportedError(`${name}: ${key} ${show(value)}; expected three numbers`);
  };
  const positive = (key: string, value: unknown, what: string): number => {
    if (Number.isInteger(value) && Number(value) >= 1) return Number(value);
    throw unsupportedError(`${name}: ${key} ${show(value)}; expected a number of ${what}`);
  };
  const numberOf = (key: string, otherwise: number, what: string): number =>
    positive(key, file[key] ?? otherwise, what);
  /** Of numbers of pixels, which older files have beside `size`. */
  const pixels = (key: string, older: string, otherwise: number): number => {
    const size = isObject(file['size']) ? file['size'][key] : undefined;
    return Math.min(positive(`size.${key}`, size ?? file[older] ?? otherwise, 'pixels'), image ** 2);
  };
  const tiled = kind === 'tiles or any size';
  const rows = (key: string, otherwise: number): number => numberOf(key, otherwise, 'rows') * (patch * merge) ** 2;
  const most = tiled
    ? rows('max_image_tokens', 256)
    : kind === 'all rows'
      ? rows('max_soft_tokens', 280)
      : pixels('longest_edge', 'max_pixels', 2 ** 24);
  const least = tiled ? rows('min_image_tokens', 64) : pixels('shortest_edge', 'min_pixels', 2 ** 16);
  const tiles = {
    tiles: edge('max_image_size', image),
    whole: edge('size', image),
    'any size': image,
    'tiles or any size': numberOf('tile_size', 512, 'pixels'),
    'all rows': image,
  };
  const tile = tiles[kind];
  if (most > image ** 2)
    throw unsupportedError(`${name}: pictures of up to ${most} pixels; the encoder takes ${image ** 2}`);
  if (tiled ? tile > image || tile % (patch * merge) !== 0 : tile !== image)
    throw unsupportedError(`${name}: tiles of ${tile} pixels; the encoder's are of ${image}`);
  const tolerance = file['max_pixels_tolerance'] ?? 2;
  if (typeof tolerance !== 'number')
    throw unsupportedError(`${name}: max_pixels_tolerance ${show(tolerance)}; expected a number`);
  return {
    pixels: [Math.min(most, least), most],
    tile,
    longestEdge: edge('size', 4 * tile),
    splits: file['do_image_splitting'] !== false,
    thumbnail: file['use_thumbnail'] !== false,
    tiles: [numberOf('min_tiles', 2, 'tiles'), numberOf('max_tiles', 10, 'tiles')],
    tolerance,
    filter,
    // Where all rows are wanted the encoder takes pixels of 0 to 1, and normalises them itself.
    mean: kind === 'all rows' ? halves : three('image_mean'),
    deviation: kind === 'all rows' ? halves : three('image_std'),
  };
}
