import { alignUp, ceilDiv } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { type RowInfo, rowInfoArray } from '../../attention/fixture.js';
import { type MlaShape, poisonedLatent, shuffledBlocks } from '../../attention/mla_fixture.js';
import { NO_BLOCK } from '../../cache/kv_cache.js';
import { latentTokenBytes, latentWidth } from '../../cache/latent_cache.js';
import { mlaRopeAppend } from './index.js';
import { type MlaRopeAppendCase, mlaRopeAppendReference } from './reference.js';

type Shape = MlaShape & { readonly qkNopeHeadDim: number };

/** q and kv_a side by side in rows of one width; hostile around them. */
export function appendCase(
  name: string,
  shape: Shape,
  rowInfo: readonly RowInfo[],
  { races = false, ...more }: { races?: boolean } & Pick<MlaRopeAppendCase, 'elsewhere' | 'latents'> = {},
): KernelCase<MlaRopeAppendCase> {
  const { heads, qkNopeHeadDim, qkRopeHeadDim, kvLoraRank, block } = shape;
  const qWidth = heads * (qkNopeHeadDim + qkRopeHeadDim);
  const stride = alignUp(qWidth + latentWidth(shape) + 4, 32);
  const longest = Math.max(...rowInfo.map((info) => (info ? info[0] + 1 : 1)));
  return {
    name,
    problem: {
      ...shape,
      rows: rowInfo.length,
      eps: 1e-6,
      tableStride: ceilDiv(longest, block) + 1,
      qStride: stride,
      qOffset: 4,
      kvStride: stride,
      kvOffset: 4 + qWidth,
      qAbsStride: alignUp((heads + (more.latents === 'kept' ? 1 : 0)) * latentWidth(shape), 32),
      rowInfo,
      ...more,
    },
    seed: 3,
    tolerance: { absolute: 1e-5, relative: 1e-5 },
    flops: rowInfo.length * (4 * kvLoraRank + 3 * (heads + 1) * qkRopeHeadDim),
    bytes: rowInfo.length * (4 * stride + latentTokenBytes(shape)),
    step: { rows: rowInfo.length, chunks: 1 },
    races,
  };
}

/** The cache and q_abs start as NaN: what isn't this row's must stay so (the property test looks). */
function inputs(problem: MlaRopeAppendCase, random: Random): HostArrays {
  const { rowInfo, block, tableStride, qkRopeHeadDim, rows, qStride, elsewhere = [] } = problem;
  const slots = 1 + Math.max(0, ...rowInfo.map((info) => info?.[1] ?? 0));
  const here = rowInfo.filter((info) => info && !elsewhere.includes(info[1]));
  const used = new Set(here.map((info) => info![1] * tableStride + Math.floor(info![0] / block)));
  const free = shuffledBlocks(used.size + 2, random);
  const table = new Uint32Array(slots * tableStride).fill(NO_BLOCK);
  for (const entry of used) table[entry] = free.pop()!;
  const positions = 1 + Math.max(0, ...rowInfo.map((info) => info?.[0] ?? 0));
  const ropeTable = new Float32Array(positions * qkRopeHeadDim);
  for (let i = 0; i < ropeTable.length; i += 2) {
    const angle = random.next() * 6.28;
    ropeTable.set([Math.cos(angle), Math.sin(angle)], i);
  }
  const both = new Float32Array(rows * qStride).fill(Number.NaN);
  for (const [row, info] of rowInfo.entries()) if (info) both.set(random.normals(qStride, 3), row * qStride);
  return {
    q: both,
    kv_a: both,
    norm_weight: random.normals(problem.kvLoraRank),
    rope_table: ropeTable,
    row_info: rowInfoArray(rowInfo),
    block_table: table,
    latent_cache: poisonedLatent(problem, used.size + 2),
  };
}

export const suite: KernelSuite<typeof mlaRopeAppend.bindings, typeof mlaRopeAppend.params, MlaRopeAppendCase> = {
  kernel: mlaRopeAppend,
  cases: [
    appendCase(
      'tiny',
      { heads: 3, qkNopeHeadDim: 12, kvLoraRank: 40, qkRopeHeadDim: 8, kvType: 'f32', block: 16 },
      [[19, 0], undefined, [0, 1]],
      { races: true },
    ),
    appendCase(
      '8 heads, 64 + 16, prompt rows',
      { heads: 8, qkNopeHeadDim: 32, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'f32', block: 16 },
      [...Array.from({ length: 20 }, (_, i): RowInfo => [7 + i, 1]), undefined, [3, 0]],
    ),
    appendCase(
      '16 heads, 512 + 64',
      { heads: 16, qkNopeHeadDim: 128, kvLoraRank: 512, qkRopeHeadDim: 64, kvType: 'f32', block: 16 },
      [[40, 0]],
    ),
    appendCase(
      '40 heads, 1024 + 32, f16',
      { heads: 40, qkNopeHeadDim: 64, kvLoraRank: 1024, qkRopeHeadDim: 32, kvType: 'f16', block: 16 },
      [
        [5, 0],
        [300, 1],
      ],
    ),
    appendCase(
      'a slot of another rank',
      { heads: 3, qkNopeHeadDim: 12, kvLoraRank: 40, qkRopeHeadDim: 8, kvType: 'f32', block: 16 },
      [[4, 1], [19, 0], undefined, [5, 1], [0, 2]],
      { elsewhere: [1] },
    ),
    appendCase(
      'latents for a rank that keeps caches, some appended here',
      { heads: 3, qkNopeHeadDim: 12, kvLoraRank: 40, qkRopeHeadDim: 8, kvType: 'f32', block: 16 },
      [[4, 1], [19, 0], undefined, [5, 1]],
      { elsewhere: [1], latents: 'kept', races: true },
    ),
    appendCase(
      'latents that are ready',
      { heads: 3, qkNopeHeadDim: 12, kvLoraRank: 40, qkRopeHeadDim: 8, kvType: 'f32', block: 16 },
      [[4, 1], [19, 0], undefined, [20, 0]],
      { elsewhere: [1], latents: 'ready', races: true },
    ),
    appendCase(
      'tiny q8, no latent of whole blocks',
      { heads: 3, qkNopeHeadDim: 12, kvLoraRank: 40, qkRopeHeadDim: 8, kvType: 'q8', block: 16 },
      [[19, 0], undefined, [0, 1]],
      { races: true },
    ),
    appendCase(
      '16 heads, 512 + 64, q8',
      { heads: 16, qkNopeHeadDim: 128, kvLoraRank: 512, qkRopeHeadDim: 64, kvType: 'q8', block: 16 },
      [[40, 0], undefined, [17, 1]],
    ),
    appendCase(
      'latents for a rank that keeps caches, q8, some appended here',
      { heads: 3, qkNopeHeadDim: 12, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'q8', block: 16 },
      [[4, 1], [19, 0], undefined, [5, 1]],
      { elsewhere: [1], latents: 'kept', races: true },
    ),
    appendCase(
      'latents that are ready, q8',
      { heads: 3, qkNopeHeadDim: 12, kvLoraRank: 64, qkRopeHeadDim: 16, kvType: 'q8', block: 16 },
      [[4, 1], [19, 0], undefined, [20, 0]],
      { elsewhere: [1], latents: 'ready', races: true },
    ),
  ],
  inputs,
  outputs: ({ rows, qAbsStride }) => ({ q_abs: { type: 'f32', length: rows * qAbsStride } }),
  reference: mlaRopeAppendReference,
};
