import { expect, test } from 'vitest';
import { Random } from '../../src/base/random.js';
import { flushesHalves } from '../../src/gpu/shader_module.js';
import { describeOnAdapters } from '../../src/gpu/testing/adapters.js';
import { outputBits } from '../../src/gpu/testing/test_kernel.js';
import { suite as embeddings } from '../embedding/embedding/cases.js';
import { floatFromHalf } from './float16.js';
import { packTiles, unpackTiles } from './pack.js';

/** All that are finite, a block of 32 each. */
const halves = Uint16Array.from({ length: 0x10000 }, (_, half) => half).filter((half) => (half & 0x7c00) !== 0x7c00);
const ROWS = 64;
const hidden = (halves.length / ROWS) * 32;

await describeOnAdapters('f16 scales', (device) => {
  test.each(['q8', 'q4'] as const)('%s: each f16 is what it is, unpacked or by integers', async (type) => {
    const { weight, scale } = packTiles(type, new Random(7).normals(ROWS * hidden), ROWS, hidden);
    new Uint16Array(scale!.buffer).set(halves);
    const expected = unpackTiles(type, { weight, scale }, ROWS, hidden);
    expect(expected.findLast((value) => Math.abs(value) === floatFromHalf(1))).toBeDefined();
    const tokens = Uint32Array.from({ length: ROWS }, (_, row) => row);
    const suite = {
      ...embeddings,
      inputs: () => ({ tokens, weight, scale: scale!, out: new Float32Array(ROWS * hidden) }),
      reference: () => ({ out: expected }),
    };
    const problem = { rows: ROWS, hidden, outStride: hidden, type, shardFirst: 0, shardRows: ROWS };
    const testCase = { name: type, problem, seed: 0, step: { rows: ROWS, chunks: 1 }, flops: 0, bytes: 0 };
    const ways = (await flushesHalves(device().gpu)) ? [true] : [true, false];
    for (const flushes of ways) {
      const [bits] = await outputBits(device(), suite, testCase, { ...device().traits, flushesHalves: flushes });
      const got = new Float32Array(bits!.buffer, bits!.byteOffset, bits!.length);
      // +: a zero has no sign.
      expect(
        got.findIndex((value, i) => value + 0 !== expected[i]! + 0),
        `${flushes}`,
      ).toBe(-1);
    }
  });
});
