import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { converter, loadDecoder } from '../../../src/loader/convert.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import type { BlockType } from '../../../src/loader/dtype.js';
import {
  blockElements,
  emptyTiles,
  isCodebook,
  KEPT_TYPES,
  type KeptType,
  packedLayout,
  type PackedTiles,
} from '../pack.js';
import { packBlocks } from '../pack_blocks.js';
import { keptPlanes } from './kept.js';
import { keptTiles, randomRows, tileValues } from '../testing/kept_tiles.js';

/** Where blocks have f16s; NVFP4 has none, and IQ1_M's lies in four parts. */
const halvesOf = (type: KeptType): readonly number[] =>
  type === 'iq1_m' ? [48] : keptPlanes(type).factors.map(([at]) => at);

function putHalf(type: KeptType, view: DataView, at: number, half: number): void {
  if (type !== 'iq1_m') view.setUint16(at, half, true);
  else
    for (let part = 0; part < 4; part++) {
      const byte = at + 1 + part * 2;
      view.setUint8(byte, (view.getUint8(byte) & 15) | (((half >> (4 * part)) & 15) << 4));
    }
}

await Promise.all(KEPT_TYPES.map((type) => loadDecoder(type.toUpperCase() as BlockType)));

describe.each(KEPT_TYPES)('%s', (type) => {
  test('has the values that its blocks have in a file, exactly', () => {
    const [n, width] = [70, 768];
    const bytes = randomRows(type, new Random(3), n, width, 0.02).slice();
    const expected = new Float32Array(n * width);
    converter(type.toUpperCase() as BlockType, bytes)(0, expected.length, expected, 0);
    expect(expected.filter((value) => value !== 0).length).toBeGreaterThan(expected.length / 2);
    const got = tileValues(type, keptTiles(type, bytes, n, width), n, width);
    // +: a zero has no sign.
    expect(got.findIndex((value, i) => value + 0 !== expected[i]! + 0)).toBe(-1);
  });

  test('every f16 is what it is as a scale, subnormal ones and both signs too', () => {
    const [blockBytes, width] = [keptPlanes(type).bytes, blockElements(type)];
    const bytes = new Uint8Array(64 * blockBytes).map((_, i) => (i * 7919) >> 3);
    const view = new DataView(bytes.buffer);
    const firsts = Array.from({ length: 0x400 }, (_, i) => 64 * i);
    // 64 a step; subnormal ones of both signs each time.
    const signed = [0, 0x8000];
    const some = [
      ...signed,
      ...drawn(
        firsts.filter((first) => !signed.includes(first)),
        isCodebook(type) ? 20 : 80,
        `halves ${type}`,
      ),
    ];
    for (const first of some) {
      if ((first & 0x7c00) === 0x7c00) continue;
      for (let row = 0; row < 64; row++) {
        for (const [i, at] of halvesOf(type).entries())
          putHalf(type, view, row * blockBytes + at, (first ^ (i * 0x8000)) + row);
      }
      const expected = new Float32Array(64 * width);
      converter(type.toUpperCase() as BlockType, bytes)(0, expected.length, expected, 0);
      const got = tileValues(type, keptTiles(type, bytes, 64, width), 64, width);
      expect(
        got.findIndex((value, i) => value + 0 !== expected[i]! + 0),
        `f16 ${first}`,
      ).toBe(-1);
    }
  });

  test('takes at most 1.05 times the bytes of its blocks', () => {
    const { weightBytes, scaleBytes } = packedLayout(type, 64, 1024);
    const blocks = (64 * 1024) / blockElements(type);
    expect((weightBytes + scaleBytes) / (blocks * keptPlanes(type).bytes)).toBeLessThan(1.05);
  });

  test('refuses a scale that is not finite', () => {
    for (const at of halvesOf(type)) {
      const bytes = new Uint8Array(keptPlanes(type).bytes);
      putHalf(type, new DataView(bytes.buffer), at, 0x7c00);
      expect(() => keptTiles(type, bytes, 1, blockElements(type))).toThrow('not finite');
    }
  });
});

test("NVFP4's values are multiplied by the factor of the tensor", () => {
  const [n, width, factor] = [40, 192, Math.fround(0.0137)];
  const bytes = randomRows('nvfp4', new Random(4), n, width, 1).slice();
  const expected = new Float32Array(n * width);
  converter('NVFP4', bytes)(0, expected.length, expected, 0);
  const tiles = emptyTiles('nvfp4', n, width) as Required<PackedTiles>;
  packBlocks('nvfp4', tiles, 0, { blocks: 'NVFP4', bytes, rowBytes: bytes.length / n, factor }, n, width);
  const got = tileValues('nvfp4', tiles, n, width);
  const wrong = got.findIndex((value, i) => !(Math.abs(value - expected[i]! * factor) <= 1e-6 * Math.abs(value)));
  expect(wrong).toBe(-1);
  expect(got.some((value) => value !== 0)).toBe(true);
});

test("NVFP4's tensors of one matrix have factors of their own, where rows don't share one", () => {
  const [n, width] = [8, 128];
  const bytes = randomRows('nvfp4', new Random(6), n, width, 1).slice();
  const tiles = emptyTiles('nvfp4', 4 * n, width) as Required<PackedTiles>;
  const put = (row: number, factor: number, rows = n): void =>
    packBlocks('nvfp4', tiles, row, { blocks: 'NVFP4', bytes, rowBytes: bytes.length / n, factor }, rows, width);
  for (const [group, factor] of [1, 2, 4].entries()) put(n * group, factor);
  const got = tileValues('nvfp4', tiles, 4 * n, width);
  const first = got.slice(0, n * width);
  const of = (group: number): Float32Array => got.slice(group * n * width, (group + 1) * n * width);
  expect(first.filter((value) => value !== 0).length).toBeGreaterThan(first.length / 2);
  expect(of(1)).toEqual(first.map((value) => 2 * value));
  expect(of(2)).toEqual(first.map((value) => 4 * value));
  put(3 * n, 1, 4);
  expect(() => put(3 * n + 4, 2, 4)).toThrow('share a factor');
});

test("MXFP4's blocks have the values that they have in a file, whatever their scale", () => {
  const [n, width] = [40, 64];
  const random = new Random(7);
  const bytes = Uint8Array.from({ length: n * 2 * 17 }, (_, at) =>
    at % 17 === 0 ? (at / 17) * 3 : random.integer(256),
  );
  const blocks = { blocks: 'MXFP4', bytes, rowBytes: 34 };
  const expected = new Float32Array(n * width);
  converter('MXFP4', bytes)(0, expected.length, expected, 0);
  const tiles = emptyTiles('mxfp4', n, width);
  packBlocks('mxfp4', tiles, 0, blocks, n, width);
  const got = tileValues('mxfp4', tiles, n, width);
  expect(got.findIndex((value, i) => value + 0 !== expected[i]! + 0)).toBe(-1);
  bytes[17] = 255;
  expect(() => packBlocks('mxfp4', emptyTiles('mxfp4', n, width), 0, blocks, n, width)).toThrow('not finite');
});
