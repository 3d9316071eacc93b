import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { KEPT_TYPES, type MatrixType, packedLayout } from '../../linear/pack.js';
import { randomTiles, tileValues } from '../../linear/testing/kept_tiles.js';
import { embedding, type EmbeddingProblem } from './index.js';
import { embeddingReference } from './reference.js';

function embeddingCase(
  name: string,
  type: MatrixType,
  problem: Partial<EmbeddingProblem>,
  more: Partial<KernelCase<EmbeddingProblem>> = {},
): KernelCase<EmbeddingProblem> {
  const { rows = 4, hidden = 96, shardFirst = 0, shardRows = 70 } = problem;
  const whole = { rows, hidden, outStride: alignUp(hidden, 32), type, shardFirst, shardRows, ...problem };
  const { tileWeightBytes, tileScaleBytes } = packedLayout(type, 32, hidden);
  return {
    name: `${type} ${name}`,
    problem: whole,
    seed: 29,
    step: { rows, chunks: 1 },
    flops: rows * hidden,
    bytes: rows * (hidden * 4 + (tileWeightBytes + tileScaleBytes) / 32),
    // A gather: the stored value, exactly, times a power of two (or 1).
    tolerance: { absolute: 0, relative: 0 },
    ...more,
  };
}

const types: readonly MatrixType[] = ['f32', 'f16', 'q8', 'q4', 'mxfp4'];

export const suite: KernelSuite<typeof embedding.bindings, typeof embedding.params, EmbeddingProblem> = {
  kernel: embedding,
  cases: [
    ...types.map((type) => embeddingCase('control', type, {}, { races: true })),
    ...types.map((type) =>
      embeddingCase('hidden of no multiple of 4', type, { rows: 3, hidden: 45, outStride: 96, scaleBy: 8 }),
    ),
    ...types.map((type) =>
      embeddingCase('tokens on both sides of a shard', type, { rows: 60, shardFirst: 64, shardRows: 33 }),
    ),
    ...types.map((type) =>
      embeddingCase('zeros outside a shard', type, { rows: 60, shardFirst: 64, shardRows: 33, zeroOthers: true }),
    ),
    embeddingCase('scaled', 'q4', { scaleBy: 45.254833 }, { tolerance: { absolute: 0, relative: 2e-7 } }),
    ...KEPT_TYPES.flatMap((type) => [
      embeddingCase('tokens on both sides of a shard', type, { rows: 60, hidden: 768, shardFirst: 64, shardRows: 33 }),
      embeddingCase('races', type, { rows: 2, hidden: 256, shardRows: 3 }, { races: true }),
    ]),
    embeddingCase('added, by a part of every second number', 'f32', {
      rows: 9,
      hidden: 45,
      adds: true,
      index: { stride: 2, shift: 8, mask: 0x1f, first: 2 },
    }),
    embeddingCase('one element', 'f32', { rows: 1, hidden: 1, shardRows: 1 }),
    embeddingCase('decode 2048', 'q4', { rows: 1, hidden: 2048, shardRows: 512 }),
    embeddingCase('prompt 128 x 2048', 'f16', { rows: 128, hidden: 2048, shardRows: 512 }),
  ],
  inputs: ({ rows, hidden, outStride, type, shardFirst, shardRows, zeroOthers = false, index }, random) => {
    const packed = randomTiles(type, random, shardRows, hidden, 0.1);
    if (index) {
      const tokens = Uint32Array.from({ length: rows * index.stride }, () => random.integer(2 ** 31));
      return { tokens, weight: packed.weight, out: random.normals(rows * outStride) };
    }
    const tokens = new Uint32Array(rows);
    // A whole vocabulary: every token of it. A shard: tokens just before it, in it, and beyond it.
    const [from, span] = shardFirst === 0 ? [0, shardRows] : [shardFirst - 10, shardRows + 20];
    for (let r = 0; r < rows; r++) tokens[r] = from + random.integer(span);
    tokens[0] = shardFirst + shardRows - 1;
    if (rows > 1) tokens[1] = shardFirst;
    if (shardFirst > 0) tokens.set([shardFirst - 1, shardFirst + shardRows, 0xffffffff, 0], 2);
    const out = new Float32Array(rows * outStride);
    for (let r = 0; r < rows; r++) {
      const gathered = zeroOthers || (tokens[r]! >= shardFirst && tokens[r]! < shardFirst + shardRows);
      out.fill(gathered ? Number.NaN : r + 1, r * outStride, r * outStride + hidden);
    }
    return { tokens, weight: packed.weight, ...(packed.scale ? { scale: packed.scale } : {}), out };
  },
  outputs: () => ({}),
  reference: (problem, { tokens, weight, scale, out }) => {
    const { type, shardRows, hidden } = problem;
    const table = tileValues(
      type,
      { weight: weight as Uint32Array<ArrayBuffer>, scale: scale as Uint32Array<ArrayBuffer> | undefined },
      shardRows,
      hidden,
    );
    return { out: embeddingReference(problem, tokens!, table, out!) };
  },
};
