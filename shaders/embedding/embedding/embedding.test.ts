import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { Recorder } from '../../../src/gpu/recorder.js';
import { packTiles, roundWeights, type WeightType } from '../../linear/pack.js';
import { reduceSegments } from '../../linear/reduce_segments/index.js';
import { rowBits, runOnce } from '../../linear/testing/run.js';
import { suite } from './cases.js';
import { embedding } from './index.js';

await testKernel(suite);

await describeOnAdapters('embedding', (device) => {
  test('shards together give what one whole table gives', async () => {
    const [vocab, hidden, rows] = [200, 64, 40];
    const random = new Random(8);
    const table = random.normals(vocab * hidden);
    const tokens = Uint32Array.from({ length: rows }, () => random.integer(vocab));
    const gpu = device();
    const held = [gpu.createBuffer('tokens', rows * 4), gpu.createBuffer('out', rows * hidden * 4)] as const;
    gpu.write(held[0], 0, tokens);
    const recorder = new Recorder(gpu, 'shards');
    const shards = [];
    for (const [first, count] of [
      [0, 96],
      [96, 64],
      [160, 40],
    ] as const) {
      const packed = packTiles('q8', table.slice(first * hidden, (first + count) * hidden), count, hidden);
      const weight = gpu.createBuffer('weight', packed.weight.byteLength);
      const scale = gpu.createBuffer('scale', packed.scale!.byteLength);
      gpu.write(weight, 0, packed.weight);
      gpu.write(scale, 0, packed.scale!);
      shards.push(weight, scale);
      const problem = { rows, hidden, outStride: hidden, type: 'q8', shardFirst: first, shardRows: count } as const;
      recorder.dispatch(embedding, problem, { tokens: held[0], weight, scale, out: held[1] });
    }
    const program = recorder.finish();
    await gpu.checked('shards', () => {
      const encoder = gpu.gpu.createCommandEncoder();
      const pass = encoder.beginComputePass();
      program.encode(pass, { rows: [rows], chunks: 1 });
      pass.end();
      gpu.gpu.queue.submit([encoder.finish()]);
    });
    const got = new Float32Array(await gpu.read(held[1]));
    const rounded = roundWeights('q8', table, vocab, hidden);
    tokens.forEach((token, r) => {
      const wrong = got
        .subarray(r * hidden, (r + 1) * hidden)
        .findIndex((value, k) => value !== rounded[token * hidden + k]);
      expect(wrong, `row ${r}, token ${token}`).toBe(-1);
    });
    program.dispose();
    for (const buffer of [...held, ...shards]) buffer.dispose();
  });
});

await describeOnAdapters('a vocabulary over ranks', (device) => {
  test("ranks' rows, added up, are the rows of one whole table bit for bit", async () => {
    const [vocab, hidden, rows] = [200, 45, 40];
    const outStride = 64;
    const random = new Random(9);
    const table = random.normals(vocab * hidden);
    for (let i = 0; i < table.length; i += 7) table[i] = -0;
    // Tokens of every rank, and of none: a padding row may hold anything.
    const tokens = Uint32Array.from({ length: rows }, (_, r) => (r === 5 ? 0xffffffff : random.integer(vocab)));
    const embed = (type: WeightType, first: number, count: number, zeroOthers: boolean): Promise<Uint32Array> => {
      const packed = packTiles(type, table.slice(first * hidden, (first + count) * hidden), count, hidden);
      const problem = { rows, hidden, outStride, type, shardFirst: first, shardRows: count, scaleBy: 12, zeroOthers };
      const inputs = { tokens, weight: packed.weight, ...(packed.scale ? { scale: packed.scale } : {}) };
      return runOnce(device(), embedding, problem, inputs, rows * outStride, device().traits.software);
    };
    for (const type of ['f32', 'f16', 'q8', 'q4'] as const) {
      const expected = await embed(type, 0, vocab, false);
      const parts = [
        [0, 96],
        [96, 64],
        [160, 40],
      ] as const;
      const segments = new Uint32Array(parts.length * rows * outStride);
      for (const [i, [first, count]] of parts.entries()) {
        segments.set(await embed(type, first, count, true), i * rows * outStride);
      }
      const sum = await runOnce(
        device(),
        reduceSegments,
        {
          rows,
          segmentCount: parts.length,
          outFeatures: hidden,
          inStride: outStride,
          outStride,
          bias: false,
          epilogue: 'none',
        },
        { segments },
        rows * outStride,
        device().traits.software,
      );
      // A zero of q4 has the sign that the adapter's fma gives it.
      if (type !== 'q4') expect(expected.some((word) => word === 0x80000000)).toBe(type !== 'q8');
      for (let r = 0; r < rows; r++) {
        const own = rowBits(sum, r, outStride, hidden);
        if (tokens[r] === 0xffffffff) expect(own.every((word) => word === 0x80000000)).toBe(true);
        else expect(own, `${type}, row ${r}, token ${tokens[r]}`).toEqual(rowBits(expected, r, outStride, hidden));
      }
    }
  });
});

test('refuses shapes that do not fit', () => {
  const problem = { rows: 1, hidden: 64, outStride: 64, type: 'f32', shardFirst: 0, shardRows: 10 } as const;
  expect(() => embedding.plan({ ...problem, outStride: 62 }, BASELINE_TRAITS)).toThrow('outStride 62');
  expect(() => embedding.plan({ ...problem, rows: 70000 }, BASELINE_TRAITS)).toThrow('70000 rows');
});
