import { alignUp } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { CHUNK_TOKENS } from '../../cache/kv_cache.js';
import { EMPTY_M, rowInfoArray } from '../fixture.js';
import { attentionMerge, type AttentionMergeProblem } from './index.js';
import { attentionMergeReference } from './reference.js';

export interface MergeCase extends AttentionMergeProblem {
  /** Of each row; undefined for an inactive row. */
  readonly positions: readonly (number | undefined)[];
  /** Partials i of every row for which this holds are empty. */
  readonly empty?: (partial: number) => boolean;
}

/** The position of a row with `count` partials. */
const withPartials = (count: number): number => count * CHUNK_TOKENS - 7;

function mergeCase(
  name: string,
  [heads, headDim, partials]: readonly [number, number, number],
  positions: MergeCase['positions'],
  options: { empty?: MergeCase['empty']; races?: boolean } = {},
): KernelCase<MergeCase> {
  const { empty, races = false } = options;
  const rows = positions.length;
  const outStride = alignUp(heads * headDim, 32);
  const merged = positions.reduce<number>(
    (sum, at) => sum + (at === undefined ? 0 : Math.min(partials, Math.floor(at / CHUNK_TOKENS) + 1)),
    0,
  );
  return {
    name,
    problem: { rows, heads, headDim, partials, outStride, positions, ...(empty ? { empty } : {}) },
    seed: 3 + rows,
    tolerance: { absolute: 2e-6, relative: 1e-5 },
    flops: merged * heads * headDim * 2,
    bytes: merged * heads * (headDim + 2) * 4 + rows * heads * headDim * 4,
    step: { rows, chunks: 1 },
    races,
  };
}

const cases = [
  mergeCase('tiny', [1, 8, 3], [withPartials(3)], { races: true }),
  mergeCase('tiny, every lane twice', [2, 16, 17], [withPartials(17), undefined, 0], { races: true }),
  // FlashAttention's grid of split counts.
  mergeCase('1 to 133 partials', [8, 32, 133], [1, 2, 3, 5, 8, 9, 17, 32, 55, 97, 133].map(withPartials)),
  mergeCase('of lanes after prefill', [14, 64, 8], [3000, undefined, 255, 256, 1791, 1792]),
  mergeCase('empty partials between', [9, 24, 20], [withPartials(20), withPartials(9), 0], {
    empty: (i) => i % 3 !== 1,
  }),
  mergeCase('nothing but empty partials', [2, 64, 4], [withPartials(4)], { empty: () => true }),
  mergeCase('d256', [2, 256, 3], [withPartials(3)]),
  mergeCase('d80', [3, 80, 2], [withPartials(2), 12]),
  mergeCase('71 heads d192', [71, 192, 2], [withPartials(2)]),
];

/** Partials of random sets of keys; those beyond a row's count are NaN and must not matter. */
function inputs({ rows, heads, headDim, partials, positions, empty }: MergeCase, random: Random): HostArrays {
  const o = new Float32Array(rows * heads * partials * headDim).fill(Number.NaN);
  const ml = new Float32Array(rows * heads * partials * 2).fill(Number.NaN);
  for (const [row, position] of positions.entries()) {
    if (position === undefined) continue;
    const count = Math.min(partials, Math.floor(position / CHUNK_TOKENS) + 1);
    for (let head = 0; head < heads; head++) {
      for (let i = 0; i < count; i++) {
        const at = (row * heads + head) * partials + i;
        const isEmpty = empty?.(i) ?? false;
        const l = isEmpty ? 0 : 1 + 200 * random.next();
        ml[at * 2] = isEmpty ? EMPTY_M : 4 * random.normal();
        ml[at * 2 + 1] = l;
        for (let dim = 0; dim < headDim; dim++) o[at * headDim + dim] = isEmpty ? 0 : l * random.normal();
      }
    }
  }
  return {
    partial_o: o,
    partial_ml: ml,
    row_info: rowInfoArray(positions.map((position) => (position === undefined ? undefined : [position, 0]))),
  };
}

export const suite: KernelSuite<typeof attentionMerge.bindings, typeof attentionMerge.params, MergeCase> = {
  kernel: attentionMerge,
  cases,
  inputs,
  outputs: ({ rows, outStride }) => ({ out: { type: 'f32', length: rows * outStride } }),
  reference: attentionMergeReference,
};
