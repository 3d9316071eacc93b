import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { CHUNK_TOKENS, MERGE_LANES } from '../../cache/kv_cache.js';
import { EMPTY_M } from '../fixture.js';
import type { MergeCopiesCase } from './cases.js';

export const chunksOf = ({ evicted }: MergeCopiesCase, row: number, position: number, kvHead: number): number =>
  Math.floor((position - (evicted?.[row]?.[kvHead] ?? 0)) / CHUNK_TOKENS) + 1;

/** By lane of a (row, head): the partials that make it, by their index; undefined for a lane that isn't reached. */
export function lanePartials(problem: MergeCopiesCase, row: number, position: number, head: number): number[][] {
  const { rows, heads, kvHeads, lanes, partials, mode, guests, holds } = problem;
  const group = heads / kvHeads;
  const kvHead = Math.floor(head / group);
  const chunks = chunksOf(problem, row, position, kvHead);
  return Array.from({ length: Math.min(chunks, lanes) }, (_, lane) => {
    if (mode === 'home') {
      const [first, count] = guests![kvHead]!;
      const of = (item: number): number => ((item * group + (head % group)) * lanes + lane) * rows + row;
      return [of(kvHead), ...Array.from({ length: count }, (_, i) => of(first + i))];
    }
    if (!holds(row, kvHead, lane)) return [];
    const own: number[] = [];
    for (let chunk = lane; chunk < chunks; chunk += MERGE_LANES) own.push((row * heads + head) * partials + chunk);
    return own;
  });
}

/** sum exp(m_i - m) o_i, m, sum exp(m_i - m) l_i of states with keys. */
function union({ headDim }: MergeCopiesCase, inputs: HostArrays, at: readonly number[]) {
  const o = inputs['partial_o']!;
  const ml = inputs['partial_ml']!;
  const used = at.filter((index) => ml[index * 2 + 1]! > 0);
  if (used.length === 0) return { o: Array.from({ length: headDim }, () => 0), m: EMPTY_M, l: 0 };
  const m = Math.max(...used.map((index) => ml[index * 2]!));
  const weights = used.map((index) => Math.exp(ml[index * 2]! - m));
  const total = (of: (index: number) => number): number =>
    used.reduce((sum, index, i) => sum + weights[i]! * of(index), 0);
  return {
    o: Array.from({ length: headDim }, (_, dim) => total((index) => o[index * headDim + dim]!)),
    m,
    l: total((index) => ml[index * 2 + 1]!),
  };
}

/** 'lanes': (o, m, l) of every lane that a row reaches, empty where it lies elsewhere; 'home': o / l of all of them. */
export function mergeCopiesReference(problem: MergeCopiesCase, inputs: HostArrays): Expected {
  const { rows, heads, headDim, lanes, mode, outStride, positions } = problem;
  const out = new Array<number>(mode === 'lanes' ? heads * lanes * rows * headDim : rows * outStride);
  const outMl = new Array<number>(heads * lanes * rows * 2);
  for (const [row, position] of positions.entries()) {
    if (position === undefined) continue;
    for (let head = 0; head < heads; head++) {
      const given = lanePartials(problem, row, position, head);
      if (mode === 'home') {
        const { o, l } = union(problem, inputs, given.flat());
        for (const [dim, value] of o.entries()) out[row * outStride + head * headDim + dim] = l === 0 ? 0 : value / l;
        continue;
      }
      for (const [lane, own] of given.entries()) {
        const { o, m, l } = union(problem, inputs, own);
        const to = (head * lanes + lane) * rows + row;
        for (const [dim, value] of o.entries()) out[to * headDim + dim] = value;
        [outMl[to * 2], outMl[to * 2 + 1]] = [m, l];
      }
    }
  }
  return mode === 'lanes' ? { out, out_ml: outMl } : { out };
}
