import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { blockShape } from '../../cache/head_tables.js';
import { keyUnit, valueUnit } from '../../cache/kv_cache.js';
import { writeKvVector } from '../../cache/kv_vector.js';
import { normedHead, rotatedHead, type SpansCase, tableRows } from '../../rope/rope_append/reference.js';
import { attentionSplitReference } from '../attention_split/reference.js';
import { type AttentionCase, cacheHeadOf, cacheShape, sinkStart } from '../fixture.js';

export interface AppendCase extends AttentionCase, SpansCase {
  readonly qkvStride: number;
  readonly qkNorm: boolean;
  readonly valueNorm?: boolean | undefined;
  readonly eps: number;
  readonly rotary?: number;
  readonly queryRows?: boolean;
}

/** attention_split's partials, of queries that are rotated and caches that have the rows' keys and values. */
export function attentionAppendReference(problem: AppendCase, inputs: HostArrays): Expected {
  const { rotary = problem.headDim } = problem;
  const { rowInfo, heads, kvHeads, headDim, kvType, block, qkNorm, eps, qkvStride, qStride } = problem;
  const shape = blockShape(cacheShape(problem));
  const norm = (name: string) => (qkNorm ? { weight: inputs[name]!, eps } : undefined);
  const q = new Float64Array(rowInfo.length * qStride);
  const kCache = inputs['k_cache']!.slice();
  const vCache = inputs['v_cache']!.slice();
  for (const [row, info] of rowInfo.entries()) {
    if (!info) continue;
    const [position, slot] = info;
    const vector = (at: number): ArrayLike<number> => {
      const start = row * qkvStride + at * headDim;
      return inputs['qkv']!.subarray(start, start + headDim);
    };
    const rotated = (at: number, weight: string): Float64Array => {
      const rowOf = problem.queryRows ? 2 * position + (at < heads ? 1 : 0) : tableRows(problem, info);
      return rotatedHead(vector(at), norm(weight), { table: inputs['rope_table']!, rotary }, rowOf);
    };
    for (let head = 0; head < heads; head++) q.set(rotated(head, 'q_norm'), row * qStride + head * headDim);
    for (let head = 0; problem.sinks && head < heads; head++)
      q[sinkStart(problem, row, head)] = inputs['qkv']![row * qkvStride + (heads + 2 * kvHeads) * headDim + head]!;
    const physical = inputs['block_table']![slot * problem.tableStride + Math.floor(position / block)]!;
    for (let head = 0; head < kvHeads; head++) {
      const cacheHead = cacheHeadOf(problem, head * (heads / kvHeads));
      const place = (unitOf: typeof keyUnit) => (unit: number) =>
        unitOf(shape, physical, cacheHead, unit, position % block);
      writeKvVector(kvType, kCache, place(keyUnit), rotated(heads + head, 'k_norm'));
      const value = vector(heads + kvHeads + head);
      writeKvVector(kvType, vCache, place(valueUnit), problem.valueNorm ? normedHead(value, eps) : value);
    }
  }
  return attentionSplitReference(problem, {
    ...inputs,
    q: Float32Array.from(q),
    k_cache: kCache,
    v_cache: vCache,
  });
}
