import type { Random } from '../../src/base/random.js';
import { alignUp, ceilDiv } from '../../src/base/math.js';
import type { Device, DeviceTraits } from '../../src/gpu/device.js';
import type { Bindings, ParamTypes, StepShape } from '../../src/gpu/kernel.js';
import type { HostArray, HostArrays, KernelSuite } from '../../src/gpu/testing/kernel_case.js';
import { prepareCase } from '../../src/gpu/testing/run_kernel.js';
import {
  type CacheHeads,
  CHUNK_TOKENS,
  INACTIVE_POSITION,
  kvCacheBytes,
  keyUnit,
  type KvShape,
  type KvType,
  storedUnits,
  valueUnit,
} from '../cache/kv_cache.js';
import { kvScale, readKvVector, type UnitAt, writeKvVector } from '../cache/kv_vector.js';
import { blockShape, HEAD_TABLE_LEAD, headTable, tableLead, type TableLayout } from '../cache/head_tables.js';
import { type QueryPieces, widestPiece } from './query_pieces.js';
import { ownInputs, type Sharing } from './share_fixture.js';
import { type Attended, queryElements } from './window.js';

/** EMPTY_M of softmax_state.wgsl. */
export const EMPTY_M = Math.fround(-3e38);

/** (position, slot) of a row; undefined for an inactive row. */
export type RowInfo = readonly [position: number, slot: number] | undefined;

/** What was evicted from a cache whose heads have tables of their own. */
export interface Eviction extends TableLayout {
  /** With perHead: entries evicted of each head of the cache, by slot; 0 where there is none. */
  readonly evicted?: readonly (readonly number[])[];
}

/** Entries that a row attends to in a head of the cache: its last is its own. */
export const rowEntries = (
  { perHead, evicted }: Eviction,
  [position, slot]: readonly [number, number],
  cacheHead: number,
): number => position + 1 - (perHead ? (evicted?.[slot]?.[cacheHead] ?? 0) : 0);

/** Where `runs` are: the end of each slot's; 0 where there is none. */
export interface RunEnds {
  readonly runEnds?: readonly number[];
  /** Where they are bounded, by position. */
  readonly bounds?: readonly (readonly [first: number, end: number])[];
}

/** Behind the last position that a row sees. */
export function seenEnd(
  { runs, runEnds, bounds, slidingWindow = Infinity }: Pick<Attended, 'runs' | 'slidingWindow'> & RunEnds,
  [position, slot]: readonly [number, number],
): number {
  if (runs?.bounded) return bounds![position]![1];
  const end = runEnds?.[slot] ?? 0;
  const inside = runs !== undefined && position < end && position >= end - runs.rows;
  return inside ? Math.min(end, position + slidingWindow) : position + 1;
}

/** The first entry that a row with so many entries sees. */
export const firstSeen = ({ slidingWindow = Infinity, runs, bounds }: Attended & RunEnds, entries: number): number =>
  runs?.bounded ? bounds![entries - 1]![0] : Math.max(0, entries - slidingWindow);

/** Rows behind those of the step that there is room for. */
export interface Idle {
  readonly idle?: number;
}

/** A step's rows, and those that there is room for besides. */
export const withIdle = (rowInfo: readonly RowInfo[], { idle = 0 }: Idle): RowInfo[] => [
  ...rowInfo,
  ...Array.from({ length: idle }, () => undefined),
];

/** First element of a head's query in a row; `width` elements per head. */
export function queryStart(
  { heads, rows, qStride, queryPieces = [heads] }: { heads: number; rows: number; qStride: number } & QueryPieces,
  row: number,
  head: number,
  width: number,
): number {
  let before = 0;
  let piece = 0;
  while (head - before >= queryPieces[piece]!) before += queryPieces[piece++]!;
  return (piece * rows + row) * qStride + (head - before) * width;
}

/** Element of the queries where a head's sink lies, behind the queries, keys and values of the heads of its piece. */
export function sinkStart(problem: AttentionCase, row: number, head: number): number {
  const { heads, kvHeads, headDim, queryPieces = [heads] } = problem;
  let before = 0;
  let piece = 0;
  while (head - before >= queryPieces[piece]!) before += queryPieces[piece++]!;
  const own = queryPieces[piece]!;
  return (piece * problem.rows + row) * problem.qStride + (own + 2 * own * (kvHeads / heads)) * headDim + head - before;
}

/** Rows of queries, [rows][qStride], as they lie in pieces. */
export function inPieces(
  q: HostArray,
  problem: { readonly rows: number; readonly heads: number; readonly qStride: number },
  width: number,
  queryPieces: readonly number[],
): Float32Array<ArrayBuffer> {
  const { rows, heads, qStride } = problem;
  const pieces = new Float32Array(queryPieces.length * rows * qStride).fill(Number.NaN);
  for (let row = 0; row < rows; row++) {
    for (let head = 0; head < heads; head++) {
      const from = queryStart(problem, row, head, width);
      pieces.set(q.subarray(from, from + width), queryStart({ ...problem, queryPieces }, row, head, width));
    }
  }
  return pieces;
}

/** The kv head of the cache that a query head attends to. */
export const cacheHeadOf = (
  { heads, kvHeads, firstKvHead = 0 }: { heads: number; kvHeads: number } & CacheHeads,
  head: number,
): number => firstKvHead + Math.floor(head / (heads / kvHeads));

/** What attention problems have in common, with the rows that a case runs. */
export interface AttentionCase extends KvShape, CacheHeads, Sharing, Eviction, QueryPieces, Attended, RunEnds, Idle {
  readonly rows: number;
  readonly heads: number;
  /** attention_split: of this rank's local chunks. */
  readonly maxChunks: number;
  readonly tableStride: number;
  readonly qStride: number;
  readonly scale: number;
  readonly rowInfo: readonly RowInfo[];
}

export type Shape = Pick<AttentionCase, 'heads' | 'kvHeads' | 'headDim' | 'kvType' | 'block'> &
  CacheHeads &
  Sharing &
  Eviction &
  QueryPieces &
  Attended &
  RunEnds &
  Idle;

/** The layout of a cache that may hold more kv heads than the problem has. */
export const cacheShape = (problem: KvShape & CacheHeads): KvShape => ({
  ...problem,
  kvHeads: problem.cacheKvHeads ?? problem.kvHeads,
});

/** The problem of a shape and rows; strides as small as they may be, so that neighbours would show in an overrun. */
export function attentionCase(shape: Shape, rowInfo: readonly RowInfo[]): AttentionCase {
  const longest = Math.max(1, ...rowInfo.map((info) => (info ? info[0] + 1 : 0)));
  const maxChunks = ceilDiv(longest, CHUNK_TOKENS) + 1;
  const rows = withIdle(rowInfo, shape);
  return {
    ...shape,
    rows: rows.length,
    maxChunks,
    tableStride: (maxChunks * CHUNK_TOKENS) / shape.block + tableLead(shape),
    qStride: alignUp(queryElements(shape, widestPiece(shape), shape.heads / shape.kvHeads), 32),
    scale: shape.headDim ** -0.5,
    rowInfo: rows,
  };
}

/** The grid of a case: only as many chunks as its longest row has. */
export const caseStep = ({ rowInfo, idle = 0 }: AttentionCase): StepShape => ({
  rows: rowInfo.length - idle,
  chunks: Math.max(1, ...rowInfo.map((info) => (info ? ceilDiv(info[0] + 1, CHUNK_TOKENS) : 0))),
});

/** Tokens attended to, over all rows and before any eviction. */
export const attendedTokens = (rowInfo: readonly RowInfo[]): number =>
  rowInfo.reduce((sum, info) => sum + (info ? info[0] + 1 : 0), 0);

/** Bits of an f16 for a number that f16 holds exactly as a normal number, or zero. */
export function halfBits(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const magnitude = Math.abs(value);
  if (magnitude === 0) return sign;
  const exponent = Math.floor(Math.log2(magnitude));
  const mantissa = (magnitude / 2 ** exponent - 1) * 1024;
  if (!Number.isInteger(mantissa) || exponent < -14 || exponent > 15) throw new Error(`${value} is not a normal f16`);
  return sign | ((exponent + 15) << 10) | mantissa;
}

/** Normal numbers that f16 holds exactly: multiples of 1/256 in [-4, 4]. */
export const halfNormal = (random: Random): number =>
  Math.max(-4, Math.min(4, Math.round(random.normal() * 256) / 256)) || 0;

/** A cache's buffer of so many bytes, in which whatever is read is NaN. */
export const poisonedCache = (kvType: KvType, bytes: number): Float32Array<ArrayBuffer> | Uint32Array<ArrayBuffer> =>
  kvType === 'f32' ? new Float32Array(bytes / 4).fill(Number.NaN) : new Uint32Array(bytes / 4).fill(0x7e007e00);

/**
 * What is wrong with a q8 vector that should hold `want`: a scale that is none of those that are tried for a block (within f32's
 * rounding), or misses more than another of them; a byte of -128, an element off by more than half a step.
 */
export function q8Faults(cache: HostArray, at: UnitAt, want: ArrayLike<number>): string[] {
  const faults: string[] = [];
  const got = readKvVector('q8', cache, at, want.length);
  for (const [i, value] of got.entries()) {
    const scale = kvScale(cache, at, want.length, i);
    const block = Array.from(want).slice(i - (i % 32), i - (i % 32) + 32);
    const least = Math.max(...block.map(Math.abs)) / 127;
    if (scale < least * (1 - 1e-5)) faults.push(`element ${i}: scale ${scale} is below ${least}`);
    // Halves of a normal number are 2^-11 to 2^-10 of it apart.
    if (scale > least * (1 + 1e-5) * (1 + 57 * 2 ** -10) + 57 * 2 ** -24)
      faults.push(`element ${i}: scale ${scale} for ${least}`);
    if (Math.abs(value) > 127 * scale) faults.push(`element ${i}: ${value} of scale ${scale}`);
    if (!(Math.abs(value - want[i]!) <= 0.501 * scale + 1e-6))
      faults.push(`element ${i}: ${value}, expected ${want[i]}`);
  }
  // As the host does it, in float64; scales of nearly equal error may change places.
  const own = new Uint32Array(storedUnits(want.length, 'q8'));
  writeKvVector('q8', own, (unit) => unit, want);
  const best = readKvVector('q8', own, (unit) => unit, want.length);
  for (let start = 0; start < want.length; start += 32) {
    const missed = (values: Float64Array): number =>
      values.slice(start, start + 32).reduce((sum, value, i) => sum + (value - want[start + i]!) ** 2, 0);
    if (missed(got) > missed(best) * (1 + 1e-3) + 1e-12)
      faults.push(`block at ${start}: ${missed(got)} over ${missed(best)}`);
  }
  return faults;
}

/**
 * Inputs of an attention kernel: each slot's keys and values up to its last row's position, in blocks shuffled over the
 * cache. Everything else that must not matter is hostile: NaN in the cache, 0xffffffff in the block table.
 */
export function attentionInputs(problem: AttentionCase, random: Random): HostArrays {
  const { rowInfo, headDim, block } = problem;
  const tableStride = problem.tableStride - tableLead(problem);
  const shape = cacheShape(problem);
  const { kvHeads } = shape;
  const lengths: number[] = [];
  for (const info of rowInfo) if (info) lengths[info[1]] = Math.max(lengths[info[1]] ?? 0, info[0] + 1);
  // What no row sees was freed.
  const seen = (slot: number): number =>
    Math.min(...rowInfo.map((info) => (info?.[1] === slot ? firstSeen(problem, info[0] + 1) : Infinity)));
  const slots = lengths.length;
  const used = lengths.reduce((sum, length) => sum + ceilDiv(length, block), 0);
  const free = Array.from({ length: used + 2 }, (_, i) => i);
  for (let i = free.length - 1; i > 0; i--) {
    const j = random.integer(i + 1);
    [free[i], free[j]] = [free[j]!, free[i]!];
  }
  const keys = poisonedCache(shape.kvType, kvCacheBytes(shape, used + 2));
  const values = poisonedCache(shape.kvType, kvCacheBytes(shape, used + 2));
  const table = new Uint32Array(Math.max(1, slots) * tableStride).fill(0xffffffff);
  for (let slot = 0; slot < slots; slot++) {
    const first = seen(slot);
    for (let token = first; token < (lengths[slot] ?? 0); token++) {
      if (token % block === 0 || token === first) table[slot * tableStride + Math.floor(token / block)] = free.pop()!;
      const physical = table[slot * tableStride + Math.floor(token / block)]!;
      for (let head = 0; head < kvHeads; head++) {
        const drawn = Array.from({ length: headDim }, () => [halfNormal(random), halfNormal(random)] as const);
        const put = (cache: HostArray, unitOf: typeof keyUnit, which: 0 | 1): void => {
          const at = (unit: number): number => unitOf(shape, physical, head, unit, token % block);
          writeKvVector(
            shape.kvType,
            cache,
            at,
            drawn.map((pair) => pair[which]),
          );
        };
        put(keys, keyUnit, 0);
        put(values, valueUnit, 1);
      }
    }
  }
  const q = random.normals((problem.queryPieces?.length ?? 1) * rowInfo.length * problem.qStride, 2);
  if (problem.sinks) putSinks(problem, q, (row, head) => sinkStart(problem, row, head));
  const inputs = {
    q,
    k_cache: keys,
    v_cache: values,
    row_info: rowInfoArray(rowInfo),
    block_table: problem.perHead ? ownTables(problem, table, lengths) : table,
  };
  return withRunEnds(problem, problem.share || problem.masks ? ownAttentionInputs(problem, inputs) : inputs);
}

/** The ends of runs behind chunk_offsets, which are hostile where there are none. */
export function withRunEnds(
  { runs, runEnds = [], bounds = [] }: Pick<Attended, 'runs'> & RunEnds,
  inputs: HostArrays,
): HostArrays {
  if (!runs) return inputs;
  const offsets = new Uint32Array(runs.ends + runEnds.length + 2 * bounds.length).fill(0xfffffff8);
  offsets.set(inputs['chunk_offsets'] ?? []);
  offsets.set([...runEnds, ...bounds.flat()], runs.ends);
  return { ...inputs, chunk_offsets: offsets };
}

/** Of each row's heads, sinks above all scores, below all of them, and among them. */
export function putSinks(
  { rowInfo, heads }: Pick<AttentionCase, 'rowInfo' | 'heads'>,
  queries: HostArray,
  at: (row: number, head: number) => number,
): void {
  for (const row of rowInfo.keys()) {
    for (let head = 0; head < heads; head++) {
      const kind = (row + head) % 4;
      if (kind < 2) queries[at(row, head)] = kind === 0 ? 300 : -300;
    }
  }
}

/**
 * A table for each head over a cache whose blocks hold all heads: a head's part of a block is a block of one head. Entries beyond
 * a head's have no block.
 */
export function ownTables(
  problem: Pick<AttentionCase, 'block' | 'tableStride' | 'kvHeads'> & CacheHeads & Eviction,
  table: Uint32Array,
  lengths: readonly (number | undefined)[],
): Uint32Array {
  const { block, tableStride, cacheKvHeads: heads = problem.kvHeads } = problem;
  const blocks = tableStride - HEAD_TABLE_LEAD;
  const slots = table.length / blocks;
  const tables = new Uint32Array(slots * heads * tableStride).fill(0xffffffff);
  for (let slot = 0; slot < slots; slot++) {
    for (let head = 0; head < heads; head++) {
      const at = headTable(problem, slot, head);
      const length = lengths[slot] ?? 0;
      const evicted = length === 0 ? 0 : length - rowEntries(problem, [length - 1, slot], head);
      tables[at] = evicted;
      for (let i = 0; i < ceilDiv(length - evicted, block); i++) {
        tables[at + HEAD_TABLE_LEAD + i] = table[slot * blocks + i]! * heads + head;
      }
    }
  }
  return tables;
}

/** What a rank of `problem.share` has of these inputs. */
export function ownAttentionInputs(problem: AttentionCase, inputs: HostArrays): HostArrays {
  const blockWords = kvCacheBytes(blockShape(problem), 1) / 4;
  return ownInputs(problem, inputs, { k_cache: blockWords, v_cache: blockWords });
}

/** row_info as the kernels read it; the slot of an inactive row is hostile. */
export const rowInfoArray = (rowInfo: readonly RowInfo[]): Uint32Array =>
  Uint32Array.from(rowInfo.flatMap((info) => (info ? [info[0], info[1]] : [INACTIVE_POSITION, 0xffffffff])));

/** Physical blocks of entries that a row's head attends to. */
function blocksOf(problem: AttentionCase, inputs: HostArrays, row: number, head: number, entries: readonly number[]) {
  const first = headTable(problem, problem.rowInfo[row]![1], cacheHeadOf(problem, head));
  const table = first + tableLead(problem);
  return entries.map((entry) => inputs['block_table']![table + Math.floor(entry / problem.block)]!);
}

/** scale * q . k of a row's head and each of the given entries, in float64. */
export function scoresOf(
  problem: AttentionCase,
  inputs: HostArrays,
  row: number,
  head: number,
  entries: readonly number[],
): number[] {
  const { headDim, block } = problem;
  const shape = blockShape(problem);
  const kvHead = problem.perHead ? 0 : cacheHeadOf(problem, head);
  const start = queryStart(problem, row, head, headDim);
  const q = inputs['q']!.subarray(start, start + headDim);
  const scale = Math.fround(problem.scale);
  const blocks = blocksOf(problem, inputs, row, head, entries);
  return entries.map((entry, i) => {
    const at = (unit: number): number => keyUnit(shape, blocks[i]!, kvHead, unit, entry % block);
    const key = readKvVector(shape.kvType, inputs['k_cache']!, at, headDim);
    const score = scale * key.reduce((sum, k, dim) => sum + q[dim]! * k, 0);
    const cap = Math.fround(problem.softcap ?? 0);
    return cap > 0 ? cap * Math.tanh(score / cap) : score;
  });
}

/** (m, l) of scores. */
export function softmaxStats(scores: readonly number[]): { m: number; l: number } {
  const m = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  return { m, l: scores.reduce((sum, score) => sum + Math.exp(score - m), 0) };
}

/**
 * Float64 attention straight from its definition: (o, m, l) of a row's head over the given entries, and its sink where the row's own
 * is among them.
 */
export function attend(
  problem: AttentionCase,
  inputs: HostArrays,
  row: number,
  head: number,
  entries: readonly number[],
): { o: Float64Array; m: number; l: number } {
  const { headDim, block } = problem;
  const shape = blockShape(problem);
  const kvHead = problem.perHead ? 0 : cacheHeadOf(problem, head);
  const blocks = blocksOf(problem, inputs, row, head, entries);
  const scores = scoresOf(problem, inputs, row, head, entries);
  const own = rowEntries(problem, problem.rowInfo[row]!, cacheHeadOf(problem, head)) - 1;
  const sinks = problem.sinks && entries.includes(own) ? [inputs['q']![sinkStart(problem, row, head)]!] : [];
  const { m, l } = softmaxStats([...scores, ...sinks]);
  const o = new Float64Array(headDim);
  for (const [i, entry] of entries.entries()) {
    const weight = Math.exp(scores[i]! - m);
    const at = (unit: number): number => valueUnit(shape, blocks[i]!, kvHead, unit, entry % block);
    const value = readKvVector(shape.kvType, inputs['v_cache']!, at, headDim);
    for (const [dim, v] of value.entries()) o[dim]! += weight * v;
  }
  return { o, m, l };
}

/** Runs a kernel once on inputs made elsewhere and returns the bindings asked for: by default the outputs named by the suite. */
export async function runOn<B extends Bindings, P extends ParamTypes, Problem>(
  device: Device,
  suite: KernelSuite<B, P, Problem>,
  problem: Problem,
  inputs: HostArrays,
  step: StepShape,
  traits: DeviceTraits = device.traits,
  bindings = Object.keys(suite.outputs(problem)),
): Promise<Record<string, HostArray>> {
  const decided = { ...suite.kernel, plan: (p: Problem) => suite.kernel.plan(p, traits) };
  const given = { ...suite, kernel: decided, inputs: () => inputs };
  const testCase = { name: 'given', problem, seed: 0, flops: 0, bytes: 0, step };
  const prepared = await device.checked(suite.kernel.name, () => prepareCase(device, given, testCase));
  await device.checked(suite.kernel.name, () => {
    prepared.reset();
    prepared.run();
  });
  const outputs = await prepared.readOutputs(bindings);
  prepared.dispose();
  return outputs;
}

/** The bits of `length` f32 from `start`, for exact comparison. */
export const bits = (array: HostArray, start: number, length: number): Uint32Array =>
  new Uint32Array(array.buffer, array.byteOffset + start * 4, length).slice();
