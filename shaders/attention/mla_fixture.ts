import { alignUp, ceilDiv } from '../../src/base/math.js';
import type { Random } from '../../src/base/random.js';
import type { StepShape } from '../../src/gpu/kernel.js';
import type { Expected, HostArray, HostArrays, KernelCase } from '../../src/gpu/testing/kernel_case.js';
import { CHUNK_TOKENS } from '../cache/kv_cache.js';
import { readLatent, writeLatent } from '../cache/kv_vector.js';
import { latentCacheBytes, type LatentShape, latentTokenBytes, latentWidth } from '../cache/latent_cache.js';
import {
  attendedTokens,
  halfNormal,
  type Idle,
  poisonedCache,
  queryStart,
  type RowInfo,
  rowInfoArray,
  withIdle,
} from './fixture.js';
import { type QueryPieces, widestPiece } from './query_pieces.js';
import { type Finish, localLanes, type PartialLayout, WHOLE } from './share.js';
import { localIndex, ownInputs, partialIndex, type Sharing } from './share_fixture.js';

/** What problems of attention over the latent have in common, with the rows that a case runs. */
export interface MlaCase extends LatentShape, Sharing, QueryPieces, Idle, Finish {
  readonly rows: number;
  readonly heads: number;
  /** mla_split: of this rank's local chunks. */
  readonly maxChunks: number;
  readonly lanes: number;
  readonly partialLayout?: PartialLayout;
  readonly tableStride: number;
  readonly qStride: number;
  readonly scale: number;
  readonly rowInfo: readonly RowInfo[];
}

export type MlaShape = Pick<MlaCase, 'heads' | 'kvLoraRank' | 'qkRopeHeadDim' | 'kvType' | 'block'> &
  Sharing &
  QueryPieces &
  Idle &
  Pick<MlaCase, 'partialLayout'>;

/** The problem of a shape and rows; strides as small as they may be, so that neighbours would show in an overrun. */
export function mlaCase(shape: MlaShape, rowInfo: readonly RowInfo[]): MlaCase {
  const longest = Math.max(1, ...rowInfo.map((info) => (info ? info[0] + 1 : 0)));
  const maxChunks = ceilDiv(longest, CHUNK_TOKENS) + 1;
  const rows = withIdle(rowInfo, shape);
  return {
    ...shape,
    rows: rows.length,
    maxChunks,
    lanes: localLanes(maxChunks, shape.share ?? WHOLE),
    tableStride: (maxChunks * CHUNK_TOKENS) / shape.block,
    qStride: alignUp(widestPiece(shape) * latentWidth(shape), 32),
    scale: latentWidth(shape) ** -0.5,
    rowInfo: rows,
  };
}

/** The grid of a case: only as many chunks as its longest row has. */
export const mlaStep = ({ rowInfo, idle = 0 }: MlaCase): StepShape => ({
  rows: rowInfo.length - idle,
  chunks: Math.max(1, ...rowInfo.map((info) => (info ? ceilDiv(info[0] + 1, CHUNK_TOKENS) : 0))),
});

export function mlaKernelCase(
  name: string,
  shape: MlaShape,
  rowInfo: readonly RowInfo[],
  races = false,
): KernelCase<MlaCase> {
  const problem = mlaCase(shape, rowInfo);
  const tokens = attendedTokens(rowInfo);
  const width = latentWidth(shape);
  return {
    name,
    problem,
    seed: 11 + rowInfo.length,
    // o is a sum of up to 256 values of weight up to 1 in a chunk; exp may be off by 3 + 2|x| ulp.
    tolerance: { absolute: 2e-4, relative: 3e-5 },
    flops: 2 * shape.heads * (width + shape.kvLoraRank) * tokens,
    bytes: latentTokenBytes(shape) * tokens,
    step: mlaStep(problem),
    races,
  };
}

/** A latent buffer of `blocks` physical blocks, all NaN. */
export const poisonedLatent = (shape: LatentShape, blocks: number): ReturnType<typeof poisonedCache> =>
  poisonedCache(shape.kvType, latentCacheBytes(shape, blocks));

/** Block numbers 0 .. count - 1 in random order. */
export function shuffledBlocks(count: number, random: Random): number[] {
  const free = Array.from({ length: count }, (_, i) => i);
  for (let i = free.length - 1; i > 0; i--) {
    const j = random.integer(i + 1);
    [free[i], free[j]] = [free[j]!, free[i]!];
  }
  return free;
}

/**
 * Inputs of a kernel: each slot's tokens up to its last row's position, in blocks shuffled over the cache. Everything else that
 * must not matter is hostile: NaN in the cache, 0xffffffff in the block table, NaN in the q of inactive rows.
 */
export function mlaInputs(problem: MlaCase, random: Random): HostArrays {
  const { rowInfo, block, tableStride, qStride, heads, queryPieces = [heads] } = problem;
  const width = latentWidth(problem);
  const lengths: number[] = [];
  for (const info of rowInfo) if (info) lengths[info[1]] = Math.max(lengths[info[1]] ?? 0, info[0] + 1);
  const used = lengths.reduce((sum, length) => sum + ceilDiv(length, block), 0);
  const free = shuffledBlocks(used + 2, random);
  const cache = poisonedLatent(problem, used + 2);
  const table = new Uint32Array(Math.max(1, lengths.length) * tableStride).fill(0xffffffff);
  for (let slot = 0; slot < lengths.length; slot++) {
    for (let token = 0; token < (lengths[slot] ?? 0); token++) {
      if (token % block === 0) table[slot * tableStride + token / block] = free.pop()!;
      const physical = table[slot * tableStride + Math.floor(token / block)]!;
      const values = Array.from({ length: width }, () => halfNormal(random));
      writeLatent(problem, cache, physical, token % block, values);
    }
  }
  const q = new Float32Array(queryPieces.length * rowInfo.length * qStride).fill(Number.NaN);
  for (const [row, info] of rowInfo.entries()) {
    for (let head = 0; info && head < heads; head++)
      q.set(random.normals(width, 2), queryStart(problem, row, head, width));
  }
  const inputs = { q_abs: q, latent_cache: cache, row_info: rowInfoArray(rowInfo), block_table: table };
  return problem.share ? ownMlaInputs(problem, inputs) : inputs;
}

/** What a rank of `problem.share` has of these inputs. */
export const ownMlaInputs = (problem: MlaCase, inputs: HostArrays): HostArrays =>
  ownInputs(problem, inputs, { latent_cache: latentCacheBytes(problem, 1) / 4 });

/** Float64 attention straight from its definition, in the absorbed space: (o, m, l) of a row's head over the given tokens. */
export function attendLatent(
  problem: MlaCase,
  inputs: HostArrays,
  row: number,
  head: number,
  tokens: readonly number[],
): { o: Float64Array; m: number; l: number } {
  const { kvLoraRank, block, tableStride } = problem;
  const width = latentWidth(problem);
  const slot = problem.rowInfo[row]![1];
  const start = queryStart(problem, row, head, width);
  const q = inputs['q_abs']!.subarray(start, start + width);
  const scale = Math.fround(problem.scale);
  const latents = tokens.map((token) => tokenLatent(problem, inputs, slot, token, tableStride, block));
  const scores = latents.map((latent) => scale * latent.reduce((sum, c, i) => sum + c * q[i]!, 0));
  const m = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const o = new Float64Array(kvLoraRank);
  let l = 0;
  for (const [t, latent] of latents.entries()) {
    const weight = Math.exp(scores[t]! - m);
    l += weight;
    for (let i = 0; i < kvLoraRank; i++) o[i]! += weight * latent[i]!;
  }
  return { o, m, l };
}

const latentCache = new WeakMap<HostArray, Map<number, Float64Array>>();

/** A token's latent as float64; remembered, because every head and row reads it. */
function tokenLatent(
  problem: MlaCase,
  inputs: HostArrays,
  slot: number,
  token: number,
  tableStride: number,
  block: number,
): Float64Array {
  const cache = inputs['latent_cache']!;
  let known = latentCache.get(cache);
  if (!known) latentCache.set(cache, (known = new Map()));
  const at = inputs['block_table']![slot * tableStride + Math.floor(token / block)]! * block + (token % block);
  let latent = known.get(at);
  if (!latent) {
    latent = readLatent(problem, cache, Math.floor(at / block), at % block);
    known.set(at, latent);
  }
  return latent;
}

/**
 * Expected partials of the tokens of a row, grouped by `key` of their chunk: those groups whose key, as a chunk or a merge lane, is
 * this rank's own. `partials` is the number that a (row, head) has room for.
 */
export function expectedPartials(
  problem: MlaCase,
  inputs: HostArrays,
  partials: number,
  key: (chunk: number) => number,
): Expected {
  const { rows, heads, kvLoraRank } = problem;
  const partialO = new Array<number>(rows * heads * partials * kvLoraRank);
  const partialMl = new Array<number>(rows * heads * partials * 2);
  for (const [row, info] of problem.rowInfo.entries()) {
    if (!info) continue;
    for (const [chunkOrLane, tokens] of tokensBy(info[0], key)) {
      const local = localIndex(problem, info[1], chunkOrLane);
      if (local === undefined) continue;
      for (let head = 0; head < heads; head++) {
        const { o, m, l } = attendLatent(problem, inputs, row, head, tokens);
        const at = partialIndex(problem, partials, [row, head, local]);
        for (let i = 0; i < kvLoraRank; i++) partialO[at * kvLoraRank + i] = o[i]!;
        partialMl[at * 2] = m;
        partialMl[at * 2 + 1] = l;
      }
    }
  }
  return { partial_o: partialO, partial_ml: partialMl };
}

/** Tokens 0 .. position, grouped by `key` of their chunk. */
function tokensBy(position: number, key: (chunk: number) => number): Map<number, number[]> {
  const sets = new Map<number, number[]>();
  for (let token = 0; token <= position; token++) {
    const index = key(Math.floor(token / CHUNK_TOKENS));
    const set = sets.get(index);
    if (set) set.push(token);
    else sets.set(index, [token]);
  }
  return sets;
}
