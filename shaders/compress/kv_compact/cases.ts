import type { Random } from '../../../src/base/random.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { attentionCase, attentionInputs } from '../../attention/fixture.js';
import { kvVectorBytes } from '../../cache/kv_cache.js';
import { compressInfo } from '../compress_info.js';
import { randomScores, strideOf } from '../score_fixture.js';
import { keptEntries } from '../selection.js';
import { kvCompact, type KvCompactProblem } from './index.js';
import { kvCompactReference } from './reference.js';

export interface KvCompactCase extends KvCompactProblem {
  readonly length: number;
  readonly slot: number;
  readonly window: number;
  /** Entries beside the window that each head keeps. */
  readonly caps: readonly number[];
}

type Shape = Pick<
  KvCompactCase,
  'kvHeads' | 'cacheKvHeads' | 'firstKvHead' | 'headDim' | 'kvType' | 'block' | 'length' | 'slot' | 'window' | 'caps'
>;

const fixture = (problem: Shape) =>
  attentionCase({ ...problem, heads: problem.kvHeads, perHead: true }, [[problem.length - 1, problem.slot]]);

function compactCase(name: string, shape: Shape, races = false): KernelCase<KvCompactCase> {
  const kept = shape.caps.reduce((sum, cap) => sum + cap + shape.window, 0);
  return {
    name,
    problem: { ...shape, tableStride: fixture(shape).tableStride, scoreStride: strideOf(shape.length) },
    seed: shape.length,
    tolerance: { absolute: 0, relative: 0 },
    flops: 0,
    bytes: 4 * kept * kvVectorBytes(shape.headDim, shape.kvType),
    races,
  };
}

const cases = [
  compactCase(
    'tiny',
    { kvHeads: 1, headDim: 8, kvType: 'f32', block: 16, length: 40, slot: 0, window: 2, caps: [5] },
    true,
  ),
  compactCase('tiles follow each other', {
    kvHeads: 2,
    headDim: 24,
    kvType: 'f16',
    block: 16,
    length: 400,
    slot: 1,
    window: 7,
    caps: [300, 60],
  }),
  compactCase('tiles follow each other, d80 q8', {
    kvHeads: 2,
    headDim: 80,
    kvType: 'q8',
    block: 16,
    length: 400,
    slot: 1,
    window: 7,
    caps: [300, 60],
  }),
  compactCase('everything stays', {
    kvHeads: 1,
    headDim: 16,
    kvType: 'f32',
    block: 64,
    length: 130,
    slot: 0,
    window: 32,
    caps: [98],
  }),
  compactCase('the window alone', {
    kvHeads: 2,
    headDim: 8,
    kvType: 'f16',
    block: 64,
    length: 300,
    slot: 2,
    window: 32,
    caps: [0, 0],
  }),
  compactCase('2 kv heads of 3, d80', {
    kvHeads: 2,
    cacheKvHeads: 3,
    firstKvHead: 1,
    headDim: 80,
    kvType: 'f32',
    block: 64,
    length: 200,
    slot: 0,
    window: 32,
    caps: [100, 7],
  }),
];

/** Caches, and kept entries by random scores. */
function inputs(problem: KvCompactCase, random: Random): HostArrays {
  const { kvHeads, length, window, scoreStride, slot, caps } = problem;
  const { k_cache: keys, v_cache: values, block_table: table } = attentionInputs(fixture(problem), random);
  const lists = { heads: kvHeads, length, window, scoreStride };
  const scores = randomScores(lists, random);
  const kept = new Uint32Array(kvHeads * scoreStride).fill(0xffffffff);
  const lengths = caps.map((cap, head) => {
    const own = keptEntries(scores.subarray(head * scoreStride, head * scoreStride + length - window), cap, window);
    kept.set(own, head * scoreStride);
    return own.length;
  });
  const comparable = (cache: HostArrays[string]) => {
    // NaN never equals itself: what isn't written must be seen to stay.
    if (cache instanceof Float32Array) for (const [i, x] of cache.entries()) if (Number.isNaN(x)) cache[i] = -77.25;
    return cache;
  };
  return {
    kept,
    kept_lengths: Uint32Array.from(lengths),
    compress_info: compressInfo({ firstRow: 0, length, slot, base: 0 }),
    block_table: table!,
    k_cache: comparable(keys!),
    v_cache: comparable(values!),
  };
}

export const suite: KernelSuite<typeof kvCompact.bindings, typeof kvCompact.params, KvCompactCase> = {
  kernel: kvCompact,
  cases,
  inputs,
  outputs: () => ({}),
  reference: kvCompactReference,
};
