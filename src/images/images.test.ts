import { deflateSync } from 'node:zlib';
import sharp from 'sharp';
import { describe, expect, test } from 'vitest';
import { decodeImage } from './decode.js';
import { dataUrlBytes } from './given_bytes.js';
import { readHeader } from './header.js';
import { cutPicture, cutSettings, type CutShape } from './cuts.js';
import { idefics3Text, idefics3Tiles } from './idefics3.js';
import type { Picture } from './picture.js';
import { qwenSize } from './sizes.js';
import { type Filter, resize } from './resize.js';
import { noise, pngOf } from './testing/noise.js';

const sharpOf = ({ width, height, data }: Picture) => sharp(data, { raw: { width, height, channels: 3 } });

/** Pillow's ImagingResample in whole numbers, a pixel at a time: Resample.c's precompute_coeffs and ImagingResampleHorizontal_8bpc. */
function pillow(picture: Picture, width: number, height: number, filter: Filter): number[] {
  // Image.resize (Image.py) takes a tall picture in two steps, columns first.
  if (picture.height > 100 * picture.width && height < picture.height && width !== picture.width) {
    const low = Uint8Array.from(pillow(picture, picture.width, height, filter));
    return pillow({ width: picture.width, height, data: low }, width, height, filter);
  }
  const support = { lanczos: 3, bilinear: 1, bicubic: 2 }[filter];
  const sinc = (x: number): number => (x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI));
  const weigh = (signed: number): number => {
    const x = Math.abs(signed);
    if (filter === 'lanczos') return signed >= -3 && signed < 3 ? sinc(signed) * sinc(signed / 3) : 0;
    if (filter === 'bilinear') return x < 1 ? 1 - x : 0;
    const a = -0.5;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
  };
  const line = (pixels: readonly number[], out: number): number[] => {
    if (pixels.length === out) return [...pixels];
    const scale = pixels.length / out;
    const filterScale = Math.max(scale, 1);
    return Array.from({ length: out }, (_, xx) => {
      const center = (xx + 0.5) * scale;
      const xmin = Math.max(0, Math.trunc(center - support * filterScale + 0.5));
      const xmax = Math.min(pixels.length, Math.trunc(center + support * filterScale + 0.5));
      const raw: number[] = [];
      for (let x = xmin; x < xmax; x++) raw.push(weigh((x - center + 0.5) / filterScale));
      const total = raw.reduce((a, b) => a + b, 0);
      let sum = 1n << 21n;
      for (const [i, w] of raw.entries()) {
        const fixed = (w / total) * 2 ** 22;
        sum += BigInt(pixels[xmin + i]!) * BigInt(Math.trunc(fixed < 0 ? fixed - 0.5 : fixed + 0.5));
      }
      const byte = sum >> 22n;
      return byte < 0n ? 0 : byte > 255n ? 255 : Number(byte);
    });
  };
  const at = (data: ArrayLike<number>, wide: number, x: number, y: number, c: number): number =>
    data[(y * wide + x) * 3 + c]!;
  const middle: number[] = new Array<number>(width * picture.height * 3);
  for (let y = 0; y < picture.height; y++) {
    for (let c = 0; c < 3; c++) {
      const row = Array.from({ length: picture.width }, (_, x) => at(picture.data, picture.width, x, y, c));
      for (const [x, value] of line(row, width).entries()) middle[(y * width + x) * 3 + c] = value;
    }
  }
  const out: number[] = new Array<number>(width * height * 3);
  for (let x = 0; x < width; x++) {
    for (let c = 0; c < 3; c++) {
      const column = Array.from({ length: picture.height }, (_, y) => at(middle, width, x, y, c));
      for (const [y, value] of line(column, height).entries()) out[(y * width + x) * 3 + c] = value;
    }
  }
  return out;
}

describe('resizing', () => {
  test.each(['lanczos', 'bilinear', 'bicubic'] as const)('%s: as Pillow does it, byte for byte', (filter) => {
    const sizes: [from: [number, number], to: [number, number]][] = [
      [
        [37, 23],
        [64, 64],
      ],
      [
        [64, 48],
        [13, 17],
      ],
      [
        [5, 90],
        [5, 31],
      ],
      [
        [90, 3],
        [200, 3],
      ],
      [
        [1, 1],
        [7, 5],
      ],
      [
        [2, 201],
        [13, 20],
      ],
      [
        [2, 200],
        [13, 20],
      ],
    ];
    for (const [from, to] of sizes) {
      const picture = noise(...from);
      const made = resize(picture, ...to, filter);
      expect([made.width, made.height]).toEqual(to);
      expect([...made.data]).toEqual(pillow(picture, ...to, filter));
    }
  });

  test('by hand: four pixels to two, and two to four', () => {
    const row = (...values: number[]): Picture => ({
      width: values.length,
      height: 1,
      data: Uint8Array.from(values.flatMap((value) => [value, value, value])),
    });
    const first = (picture: Picture): number[] => [...picture.data].filter((_, i) => i % 3 === 0);
    // Weights 3, 3, 1 of 7, and mirrored.
    expect(first(resize(row(0, 70, 140, 210), 2, 1, 'bilinear'))).toEqual([50, 160]);
    // 3/4 and 1/4 between, the ends alone.
    expect(first(resize(row(0, 100), 4, 1, 'bilinear'))).toEqual([0, 25, 75, 100]);
  });
});

describe('what files say of themselves', () => {
  const formats = ['png', 'jpeg', 'webp', 'gif'] as const;

  test.each(formats)('%s', async (format) => {
    const bytes = new Uint8Array(await sharpOf(noise(33, 21)).toFormat(format).toBuffer());
    expect(readHeader(bytes)).toEqual({ format, width: 33, height: 21 });
    if (format === 'gif') return;
    expect(() => readHeader(bytes.subarray(0, bytes.length - 20))).toThrow(/isn't whole/);
    expect(() => readHeader(bytes.subarray(0, 14))).toThrow(/isn't whole/);
  });

  test('webp without loss, and with alpha', async () => {
    const lossless = new Uint8Array(await sharpOf(noise(300, 7)).webp({ lossless: true }).toBuffer());
    expect(readHeader(lossless)).toEqual({ format: 'webp', width: 300, height: 7 });
    const alpha = new Uint8Array(await sharpOf(noise(70, 9)).ensureAlpha(0.5).webp().toBuffer());
    expect(readHeader(alpha)).toEqual({ format: 'webp', width: 70, height: 9 });
  });

  test('a PNG of 100,000 x 100,000 is refused before it is decoded', () => {
    const chunk = (kind: string, data: Uint8Array): Uint8Array => {
      const out = new Uint8Array(data.length + 12);
      new DataView(out.buffer).setUint32(0, data.length);
      out.set(new TextEncoder().encode(kind), 4);
      out.set(data, 8);
      return out;
    };
    const header = new Uint8Array(13);
    new DataView(header.buffer).setUint32(0, 100_000);
    new DataView(header.buffer).setUint32(4, 100_000);
    header.set([8, 2], 8);
    const parts = [
      Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a),
      chunk('IHDR', header),
      chunk('IDAT', deflateSync(new Uint8Array(1000))),
      chunk('IEND', new Uint8Array()),
    ];
    const bytes = Uint8Array.from(parts.flatMap((part) => [...part]));
    expect(() => readHeader(bytes)).toThrow('100,000 x 100,000 pixels: at most 67,108,864');
  });

  test('what is no picture', () => {
    const text = (given: string): Uint8Array => new TextEncoder().encode(given);
    expect(() => readHeader(text('<?xml version="1.0"?><svg/>'))).toThrow(/SVG or XML/);
    expect(() => readHeader(text('\n <svg xmlns="http://www.w3.org/2000/svg"/>'))).toThrow(/SVG or XML/);
    expect(() => readHeader(text('....ftypavif........'))).toThrow(/AVIF, HEIC/);
    expect(() => readHeader(text('%PDF-1.7'))).toThrow(/no image that is read here/);
    expect(() => readHeader(new Uint8Array())).toThrow(/0 bytes/);
    expect(() => readHeader(new Uint8Array(64 * 2 ** 20 + 1))).toThrow(/at most 64 MiB/);
  });
});

describe('decoding in Node', () => {
  test.each(['png', 'webp', 'gif'] as const)('%s gives the pixels that went in', async (format) => {
    // Of few colours, as a GIF has.
    const picture = noise(20, 12);
    const few = { ...picture, data: picture.data.map((value) => (value < 128 ? 0 : 255)) };
    const file = await sharpOf(few).toFormat(format, { lossless: true, dither: 0 }).toBuffer();
    expect(await decodeImage(new Uint8Array(file))).toEqual(few);
    expect(await decodeImage(new Blob([new Uint8Array(file)]))).toEqual(few);
    expect(await decodeImage(`data:image/${format};base64,${file.toString('base64')}`)).toEqual(few);
  });

  test('a JPEG is turned as its EXIF says', async () => {
    // The left half is white.
    const half = { width: 32, height: 16, data: new Uint8Array(32 * 16 * 3) };
    for (let at = 0; at < half.data.length; at++) half.data[at] = Math.floor(at / 3) % 32 < 16 ? 255 : 0;
    const turned = await sharpOf(half).jpeg({ quality: 100 }).withMetadata({ orientation: 6 }).toBuffer();
    const { width, height, data } = await decodeImage(new Uint8Array(turned));
    expect([width, height]).toEqual([16, 32]);
    expect(data[0]).toBeGreaterThan(250); // now the upper half
    expect(data.at(-1)).toBeLessThan(5);
  });

  test('alpha is dropped, grey has three channels', async () => {
    const clear = sharp({
      create: { width: 3, height: 2, channels: 4, background: { r: 10, g: 20, b: 30, alpha: 0.5 } },
    });
    const { data } = await decodeImage(new Uint8Array(await clear.png().toBuffer()));
    expect([...data.subarray(0, 3)]).toEqual([10, 20, 30]);
    const grey = await sharpOf(noise(4, 4)).greyscale().png().toBuffer();
    const { data: made } = await decodeImage(new Uint8Array(grey));
    expect(made.length).toBe(48);
    expect(made[0]).toBe(made[2]);
  });

  test('inks become colours without a profile, as in Pillow', async () => {
    // Pillow 12.3: Image.new('CMYK', (8, 8), (200, 40, 10, 60)), quality 90; as RGB (42, 164, 187).
    const file =
      '/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwADAgIDAgIDAwMDBAMDBAUIBQUEBAUKBwcGCAwKDAwLCgsLDQ4SEA0OEQ4LCxAWEBETFBUVFQwPFxgWFBgSFBUU/8AAFAgACAAI' +
      'BEMRAE0RAFkRAEsRAP/EABUAAQEAAAAAAAAAAAAAAAAAAAgJ/8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAA4EQwBNAFkASwAAPwAeHQpwWb//2Q==';
    const { width, height, data } = await decodeImage(`data:image/jpeg;base64,${file}`);
    expect([width, height, data.length]).toEqual([8, 8, 192]);
    for (const [at, value] of data.entries()) expect(Math.abs(value - [42, 164, 187][at % 3]!)).toBeLessThanOrEqual(1);
  });

  test('broken files and addresses elsewhere', async () => {
    const png = await pngOf(noise(20, 20));
    png.fill(0x55, 60, png.length - 20);
    await expect(decodeImage(png)).rejects.toMatchObject({ code: 'format' });
    await expect(decodeImage('https://example.org/a.png')).rejects.toThrow(/only data: URLs are read/);
    await expect(decodeImage(5 as never)).rejects.toThrow(/an image is given as/);
    expect(() => dataUrlBytes('data:image/png,abc')).toThrow(/base64/);
    expect(() => dataUrlBytes('data:image/png;base64,a')).toThrow(/base64/);
  });
});

test.each([
  // [width, height], and what becomes of them: near multiples, halves to the even one, more, and less.
  [1024, 768, 1024, 768],
  [528, 1008, 512, 1024],
  [300, 200, 320, 224],
  [10, 10, 256, 256],
  [4000, 3000, 1152, 864],
  [3000, 20, 3008, 32],
])('a picture of %d x %d for Qwen: %d x %d', (width, height, wide, high) => {
  expect(qwenSize({ width, height }, 32, [65536, 1048576])).toEqual([wide, high]);
});

describe('tiles of Idefics 3', () => {
  const settings = { tile: 16, longestEdge: 64, splits: true, filter: 'bilinear' } as const;

  test('rows, columns and the whole', () => {
    const shapes: [number, number, number, number][] = [
      [192, 108, 3, 4],
      [108, 192, 4, 3],
      [8, 8, 4, 4],
      [200, 3, 1, 4],
      [64, 64, 4, 4],
    ];
    for (const [width, height, rows, columns] of shapes) {
      const made = idefics3Tiles(noise(width, height), settings);
      expect([made.rows, made.columns, made.tiles.length]).toEqual([rows, columns, rows * columns + 1]);
      expect(made.tiles.every((tile) => tile.width === 16 && tile.height === 16)).toBe(true);
    }
    const alone = idefics3Tiles(noise(192, 108), { ...settings, splits: false });
    expect([alone.rows, alone.columns, alone.tiles.length]).toEqual([0, 0, 1]);
    expect(idefics3Tiles(noise(9, 9), { ...settings, longestEdge: 16 }).tiles).toHaveLength(1);
  });

  test('a tile is its part of the picture', () => {
    // As large as the tiles together: nothing is resized but the whole.
    const picture = noise(64, 32);
    const { tiles } = idefics3Tiles(picture, settings);
    const at = (3 * 64 * 16 + 3 * 32) * 1; // row 16, column 32: the first pixel of row 1, column 2
    expect([...tiles[4 + 2]!.data.subarray(0, 9)]).toEqual([...picture.data.subarray(at, at + 9)]);
    expect(tiles.at(-1)).toEqual(resize(picture, 16, 16, 'bilinear'));
  });

  test('what stands in the prompt', () => {
    const [fake, i] = ['<fake_token_around_image>', '<image><image>'];
    expect(idefics3Text({ rows: 0, columns: 0 }, [2])).toBe(`${fake}<global-img>${i}${fake}`);
    expect(idefics3Text({ rows: 2, columns: 1 }, [2, 2, 2])).toBe(
      `${fake}<row_1_col_1>${i}\n${fake}<row_2_col_1>${i}\n\n${fake}<global-img>${i}${fake}`,
    );
  });
});

describe("LFM2-VL's pictures", () => {
  const shape: CutShape = { kind: 'tiles or any size', image: 512, patch: 16, merge: 2 };
  const cut = (width: number, height: number, file: Record<string, unknown> = {}) =>
    cutPicture(noise(width, height, 1), shape, cutSettings(file, shape));
  const sizesOf = (...of: Parameters<typeof cut>) => cut(...of).tiles.map(({ width, height }) => [width, height]);

  test('sizes are those of the processor', () => {
    expect(sizesOf(300, 300)).toEqual([[288, 288]]);
    expect(sizesOf(64, 64)).toEqual([[256, 256]]);
    expect(sizesOf(400, 720)).toEqual([[352, 672]]);
    // Halves to the even one: 12.5 and 18.5.
    expect(sizesOf(400, 592)).toEqual([[384, 576]]);
    const tile = [512, 512];
    expect(sizesOf(1024, 768)).toEqual([...new Array<number[]>(6).fill(tile), [576, 416]]);
    expect(sizesOf(1920, 1080)).toEqual([...new Array<number[]>(8).fill(tile), [672, 384]]);
    // As near to 2 x 2 as to 3 x 3, and so large; then not.
    expect(sizesOf(1100, 1100)).toHaveLength(10);
    expect(sizesOf(1080, 1080)).toHaveLength(5);
    expect(sizesOf(1080, 1080, { use_thumbnail: false })).toHaveLength(4);
    expect(sizesOf(1080, 1080, { do_image_splitting: false })).toEqual([[512, 512]]);
    expect(sizesOf(1080, 1080, { max_pixels_tolerance: 5 })).toHaveLength(1);
    expect(sizesOf(1100, 1100, { max_tiles: 8, tile_size: 256 })[3]).toEqual([256, 256]);
    expect(sizesOf(3000, 16)).toEqual([[3008, 32]]);
    // Qwen's are refused so long, these aren't.
    expect(sizesOf(3000, 7)).toEqual([[3008, 32]]);
  });

  test('tiles row by row, each of the picture as it is given', () => {
    const picture = noise(1024, 768, 1);
    const { tiles, text, count } = cut(1024, 768);
    const whole = resize(picture, 1536, 1024, 'bilinear');
    expect(tiles[4]!.data.subarray(0, 30)).toEqual(whole.data.subarray((512 * 1536 + 512) * 3).subarray(0, 30));
    expect(Buffer.compare(tiles[6]!.data, resize(picture, 576, 416, 'bilinear').data)).toBe(0);
    expect(count).toBe(6 * 256 + 18 * 13);
    const rows = (of: number): string => '<image>'.repeat(of);
    expect(text.replaceAll('<image>', '')).toBe(
      '<|image_start|><|img_row_1_col_1|><|img_row_1_col_2|><|img_row_1_col_3|>' +
        '<|img_row_2_col_1|><|img_row_2_col_2|><|img_row_2_col_3|><|img_thumbnail|><|image_end|>',
    );
    expect(text).toContain(`<|img_row_2_col_2|>${rows(256)}<|img_row_2_col_3|>`);
    expect(text).toContain(`<|img_thumbnail|>${rows(234)}<|image_end|>`);
    expect(cut(300, 300).text).toBe(`<|image_start|>${rows(81)}<|image_end|>`);
  });

  test('what is refused', () => {
    expect(() => cut(100_000, 2)).toThrow(/the encoder takes 1024 patches of 16 x 16: cut it/);
    expect(() => cut(20, 30, { min_image_tokens: 256 })).toThrow(
      /an image of 20 x 30 pixels becomes one of 448 x 640; the encoder takes 1024 patches of 16 x 16: cut it/,
    );
    expect(() => cut(20, 20, { max_image_tokens: 400 })).toThrow(/up to 409600 pixels; the encoder takes 262144/);
    expect(() => cut(20, 20, { tile_size: 1024 })).toThrow(/tiles of 1024 pixels; the encoder's are of 512/);
    expect(() => cut(20, 20, { tile_size: 500 })).toThrow(/tiles of 500 pixels/);
    expect(() => cut(20, 20, { do_rescale: false })).toThrow(/do_rescale false; expected true/);
    expect(() => cut(20, 20, { do_normalize: false })).toThrow(/do_normalize false; expected true/);
    expect(() => cut(20, 20, { rescale_factor: 1 / 127.5 })).toThrow(/rescale_factor 0.00784.*expected 1\/255/);
    expect(sizesOf(64, 64, { rescale_factor: 0.003_921_57, do_rescale: true })).toHaveLength(1);
    expect(() => cut(20, 20, { max_tiles: 'ten' })).toThrow(/max_tiles "ten"; expected a number of tiles/);
    expect(() => cut(20, 20, { max_image_tokens: 0 })).toThrow(/max_image_tokens 0; expected a number of rows/);
    expect(() => cut(20, 20, { max_pixels_tolerance: '2' })).toThrow(
      /max_pixels_tolerance "2"; expected a number of times/,
    );
  });
});
