import { describe, expect, test } from 'vitest';
import { Random } from '../../src/base/random.js';
import { q8Faults } from '../attention/fixture.js';
import { KV_TYPES, kvCacheBytes, keyUnit, type KvShape, kvVectorBytes, valueUnit } from './kv_cache.js';
import { readKvVector, writeKvVector } from './kv_vector.js';

const shapeOf = (kvType: KvShape['kvType'], headDim: number): KvShape => ({ kvHeads: 3, headDim, kvType, block: 16 });
const bufferOf = (shape: KvShape) =>
  shape.kvType === 'f32'
    ? new Float32Array(kvCacheBytes(shape, 2) / 4)
    : new Uint32Array(kvCacheBytes(shape, 2) / 4).fill(0x12345678);

describe('vectors of the cache on the host', () => {
  test.each(KV_TYPES.flatMap((kvType) => [8, 48, 80, 256].map((headDim) => ({ kvType, headDim }))))(
    '$kvType, head_dim $headDim: neighbours don’t touch each other, and all of the buffer is used',
    ({ kvType, headDim }) => {
      const shape = shapeOf(kvType, headDim);
      const random = new Random(headDim);
      for (const unitOf of [keyUnit, valueUnit]) {
        const cache = bufferOf(shape);
        const given = new Map<string, { at: (unit: number) => number; values: Float32Array }>();
        for (let i = 0; i < 2 * 3 * 16; i++) {
          const [block, head, offset] = [i % 2, Math.floor(i / 2) % 3, Math.floor(i / 6)];
          const at = (unit: number): number => unitOf(shape, block, head, unit, offset);
          const values = random.normals(headDim, 10 ** (i % 7) / 1000);
          given.set(`${block} ${head} ${offset}`, { at, values });
          writeKvVector(kvType, cache, at, values);
        }
        for (const [name, { at, values }] of given) {
          const got = readKvVector(kvType, cache, at, headDim);
          if (kvType === 'q8') expect(q8Faults(cache, at, values), name).toEqual([]);
          const step = (x: number): number =>
            ({ f32: 0, f16: Math.abs(x) * 2 ** -11 + 2 ** -25, q8: Infinity })[kvType];
          const off = values.findIndex((x, i) => !(Math.abs(got[i]! - x) <= step(x)));
          expect(off, `${name}: first element that is off`).toBe(-1);
        }
        if (kvType !== 'f32') expect((cache as Uint32Array).includes(0x12345678)).toBe(false);
      }
    },
  );

  test('bytes of a vector, with its scales', () => {
    expect(KV_TYPES.map((kvType) => kvVectorBytes(128, kvType))).toEqual([512, 256, 136]);
    expect([8, 32, 64, 80, 96, 128].map((headDim) => kvVectorBytes(headDim, 'q8'))).toEqual([12, 36, 68, 88, 104, 136]);
  });

  test('what a type can’t hold is clamped', () => {
    const written = (kvType: 'f16' | 'q8', values: number[]): number[] => {
      const cache = new Uint32Array(8);
      writeKvVector(kvType, cache, (unit) => unit, values);
      return Array.from(readKvVector(kvType, cache, (unit) => unit, values.length));
    };
    expect(written('f16', [1e6, -Infinity, 65504, -1])).toEqual([65504, -65504, 65504, -1]);
    expect(written('q8', [1e9, -1e9, 0, 65504])).toEqual([127 * 65504, -127 * 65504, 0, 65504]);
    expect(written('q8', [0, 0, 0, 0])).toEqual([0, 0, 0, 0]);
    // A subnormal scale, and one that f16 can't tell from 0.
    expect(written('q8', [1e-5, -1e-5, 0, 5e-6]).map((x) => x.toFixed(7))).toEqual([
      '0.0000100',
      '-0.0000100',
      '0.0000000',
      '0.0000050',
    ]);
  });
});
