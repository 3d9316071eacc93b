import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { joinsLanes } from '../../../src/base/kv_units.js';
import { CHUNK_TOKENS, MERGE_LANES } from '../../cache/kv_cache.js';
import { cacheHeadOf, EMPTY_M, firstSeen, rowEntries, seenEnd } from '../fixture.js';
import { chunkIndex, localIndex, partialIndex } from '../share_fixture.js';
import { localLanes, WHOLE } from '../share.js';
import type { MergeCase } from './cases.js';

/** A partial that the merge of a (row, head) reads: its lane, and its index in partial_ml. */
export interface Given {
  readonly lane: number;
  /** -1: before the row's window, and not read. */
  readonly at: number;
}

/** Lanes that 'lanes' has room for, or what they come to. */
export const lanesOf = ({ lanes, share = WHOLE }: MergeCase): number =>
  lanes ?? (joinsLanes(share.ranks) ? 1 : localLanes(MERGE_LANES, share));

/** Chunks of a row's head of the cache; a row's slot is its number. */
export const chunksOf = (
  { perHead, evicted, runs, runEnds }: MergeCase,
  row: number,
  position: number,
  cacheHead: number,
): number =>
  Math.ceil(
    rowEntries(
      { perHead: perHead !== undefined, ...(evicted && { evicted }) },
      [seenEnd({ ...(runs && { runs }), ...(runEnds && { runEnds }) }, [position, row]) - 1, row],
      cacheHead,
    ) / CHUNK_TOKENS,
  );

const cacheHead = ({ perHead, heads }: MergeCase, head: number): number =>
  perHead ? cacheHeadOf({ ...perHead, heads }, head) : 0;

/** The partials that the merge of a head of a row at `position` reads, by who has what. */
export function givenPartials(problem: MergeCase, row: number, position: number, head: number): Given[] {
  const { rows, heads, partials, mode = 'all', offsets, contributors, bundleHeads = heads } = problem;
  const { sharers = MERGE_LANES } = problem;
  const own = cacheHead(problem, head);
  const chunks = chunksOf(problem, row, position, own);
  const given: Given[] = [];
  if (mode === 'home') {
    const taken = new Map<number, number>();
    // Of ranks that join theirs, a state each.
    const states = joinsLanes(sharers) ? sharers : MERGE_LANES;
    for (let lane = 0; lane < Math.min(states, chunks); lane++) {
      const slot = (lane + (offsets?.[row] ?? 0)) % sharers;
      const { base } = contributors![Math.floor(head / bundleHeads)]!.find(({ slots }) => slots.includes(slot))!;
      // The rank's lanes so far.
      const local = taken.get(base) ?? 0;
      taken.set(base, local + 1);
      given.push({ lane, at: base + (local * rows + row) * bundleHeads + (head % bundleHeads) });
    }
    return given;
  }
  for (let chunk = 0; chunk < chunks; chunk++) {
    const before = firstSeen(problem, position + 1) >= (chunk + 1) * CHUNK_TOKENS;
    // A lane that has no other is empty.
    if (before && mode === 'all') continue;
    const local = mode === 'all' ? chunk : chunkIndex(problem, row, chunk, own);
    if (local === undefined || local >= partials) continue;
    given.push({ lane: chunk % MERGE_LANES, at: before ? -1 : (row * heads + head) * partials + local });
  }
  return given;
}

/** The union of a head's partials, without lanes: sum exp(m_i - m) o_i, m, sum exp(m_i - m) l_i. */
function union({ headDim }: MergeCase, inputs: HostArrays, at: readonly number[]) {
  const o = inputs['partial_o']!;
  const ml = inputs['partial_ml']!;
  const used = at.filter((index) => index >= 0 && ml[index * 2 + 1]! > 0);
  const m = used.reduce((max, index) => Math.max(max, ml[index * 2]!), EMPTY_M);
  const weights = used.map((index) => Math.exp(ml[index * 2]! - m));
  const l = used.reduce((sum, index, i) => sum + weights[i]! * ml[index * 2 + 1]!, 0);
  const sums = Array.from({ length: headDim }, (_, dim) =>
    used.reduce((total, index, i) => total + weights[i]! * o[index * headDim + dim]!, 0),
  );
  return { o: sums, m, l };
}

/** o / l of all of a row's partials; 'lanes': (o, m, l) of each lane that the rank holds and that has chunks. */
export function attentionMergeReference(problem: MergeCase, inputs: HostArrays): Expected {
  const { rows, heads, headDim, mode, outStride, positions, bundleHeads = heads, outPieces = [heads] } = problem;
  const lanes = lanesOf(problem);
  const states = lanes * rows * heads;
  const out = new Array<number>(mode === 'lanes' ? states * headDim : outPieces.length * rows * outStride);
  const outMl = new Array<number>(states * 2);
  for (const [row, position] of positions.entries()) {
    if (position === undefined) continue;
    for (let head = 0; head < heads; head++) {
      const given = givenPartials(problem, row, position, head);
      if (mode === 'lanes') {
        const joins = joinsLanes(problem.share?.ranks ?? 1);
        for (const lane of new Set(given.map((partial) => (joins ? 0 : partial.lane)))) {
          const own = joins ? given : given.filter((partial) => partial.lane === lane);
          const { o, m, l } = union(
            problem,
            inputs,
            own.map(({ at }) => at),
          );
          const local = joins ? 0 : localIndex(problem, row, lane, cacheHead(problem, head))!;
          const to = partialIndex({ rows, heads, partialLayout: { bundleHeads } }, lanes, [row, head, local]);
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
      const ends = outPieces.map((_, piece) => outPieces.slice(0, piece + 1).reduce((sum, count) => sum + count, 0));
      const piece = ends.findIndex((end) => head < end);
      const first = (piece * rows + row) * outStride + (head - ends[piece]! + outPieces[piece]!) * headDim;
      for (const [dim, value] of o.entries()) out[first + dim] = l === 0 ? 0 : value / l;
    }
  }
  return mode === 'lanes' ? { out, out_ml: outMl } : { out };
}
