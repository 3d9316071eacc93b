import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { CHUNK_TOKENS, MERGE_LANES } from '../../cache/kv_cache.js';
import { cacheHeadOf, rowEntries } from '../fixture.js';
import { localIndex } from '../share_fixture.js';
import { WHOLE } from '../share.js';
import type { MergeCase } from './cases.js';

/** A partial that the merge of a (row, head) reads: its lane, and its index in partial_ml. */
export interface Given {
  readonly lane: number;
  readonly at: number;
}

/** The partials that the merge of a head of a row at `position` reads, by who owns what; a row's slot is its number. */
export function givenPartials(problem: MergeCase, row: number, position: number, head: number): Given[] {
  const { rows, heads, partials, mode = 'all', share = WHOLE, perHead, offsets, evicted } = problem;
  const entries = perHead
    ? rowEntries(
        { perHead: true, ...(evicted && { evicted }) },
        [position, row],
        cacheHeadOf({ ...perHead, heads }, head),
      )
    : position + 1;
  const chunks = Math.ceil(entries / CHUNK_TOKENS);
  const given: Given[] = [];
  const byRow = (index: number) => (row * heads + head) * partials + index;
  if (mode === 'home') {
    for (let lane = 0; lane < Math.min(MERGE_LANES, chunks); lane++) {
      for (let index = 0; index < share.ranks; index++) {
        const local = localIndex({ share: { ...share, index }, ...(offsets && { offsets }) }, row, lane);
        if (local === undefined) continue;
        given.push({ lane, at: ((index * partials + local) * rows + row) * heads + head });
      }
    }
    return given;
  }
  for (let chunk = 0; chunk < chunks; chunk++) {
    const local = mode === 'all' ? chunk : localIndex(problem, row, chunk);
    if (local !== undefined && local < partials) given.push({ lane: chunk % MERGE_LANES, at: byRow(local) });
  }
  return given;
}

/** The union of a head's partials, without lanes: sum exp(m_i - m) o_i, m, sum exp(m_i - m) l_i. */
function union({ headDim }: MergeCase, inputs: HostArrays, at: readonly number[]) {
  const o = inputs['partial_o']!;
  const ml = inputs['partial_ml']!;
  const used = at.filter((index) => ml[index * 2 + 1]! > 0);
  const m = used.reduce((max, index) => Math.max(max, ml[index * 2]!), -Infinity);
  const weights = used.map((index) => Math.exp(ml[index * 2]! - m));
  const l = used.reduce((sum, index, i) => sum + weights[i]! * ml[index * 2 + 1]!, 0);
  const sums = Array.from({ length: headDim }, (_, dim) =>
    used.reduce((total, index, i) => total + weights[i]! * o[index * headDim + dim]!, 0),
  );
  return { o: sums, m, l };
}

/** o / l of all of a row's partials; 'lanes': (o, m, l) of each lane of the rank that has chunks. */
export function attentionMergeReference(problem: MergeCase, inputs: HostArrays): Expected {
  const { rows, heads, headDim, mode, share = WHOLE, outStride, positions } = problem;
  const states = (MERGE_LANES / share.ranks) * rows * heads;
  const out = new Array<number>(mode === 'lanes' ? states * headDim : rows * outStride);
  const outMl = new Array<number>(states * 2);
  for (const [row, position] of positions.entries()) {
    if (position === undefined) continue;
    for (let head = 0; head < heads; head++) {
      const given = givenPartials(problem, row, position, head);
      if (mode === 'lanes') {
        for (const lane of new Set(given.map((partial) => partial.lane))) {
          const own = given.filter((partial) => partial.lane === lane);
          const { o, m, l } = union(
            problem,
            inputs,
            own.map(({ at }) => at),
          );
          const to = (localIndex(problem, row, lane)! * rows + row) * heads + head;
          for (const [dim, value] of o.entries()) out[to * headDim + dim] = value;
          [outMl[to * 2], outMl[to * 2 + 1]] = [m, l];
        }
        continue;
      }
      const { o, l } = union(
        problem,
        inputs,
        given.map(({ at }) => at),
      );
      for (const [dim, value] of o.entries()) out[row * outStride + head * headDim + dim] = l === 0 ? 0 : value / l;
    }
  }
  return mode === 'lanes' ? { out, out_ml: outMl } : { out };
}
