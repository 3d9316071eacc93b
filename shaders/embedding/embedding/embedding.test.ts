import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { Recorder } from '../../../src/gpu/recorder.js';
import { packTiles, roundWeights } from '../../linear/pack.js';
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
      program.encode(pass, { rows, chunks: 1 });
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

test('refuses shapes that do not fit', () => {
  const problem = { rows: 1, hidden: 64, outStride: 64, type: 'f32', shardFirst: 0, shardRows: 10 } as const;
  expect(() => embedding.plan({ ...problem, outStride: 62 }, BASELINE_TRAITS)).toThrow('outStride 62');
  expect(() => embedding.plan({ ...problem, rows: 70000 }, BASELINE_TRAITS)).toThrow('70000 rows');
});
