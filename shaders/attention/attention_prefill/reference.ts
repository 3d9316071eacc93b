import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { CHUNK_TOKENS, MERGE_LANES } from '../../cache/kv_cache.js';
import { attend, cacheHeadOf, EMPTY_M, firstSeen, rowEntries, seenEnd } from '../fixture.js';
import { localIndex, partialIndex } from '../share_fixture.js';
import type { PrefillCase } from './cases.js';

/**
 * The state of each merge lane of this rank that holds keys of any row; empty where a lane has no key for the row. Lanes of a head that
 * lie elsewhere are empty too, or left out of bundles.
 */
export function attentionPrefillReference(problem: PrefillCase, inputs: HostArrays): Expected {
  const { rows, heads, headDim, lanes, rowInfo, partialLayout = 'row' } = problem;
  const partialO = new Array<number>(rows * heads * lanes * headDim);
  const partialMl = new Array<number>(rows * heads * lanes * 2);
  const longest = Math.max(...rowInfo.map((info) => (info ? info[0] + 1 : 0)));
  const longestOf = (slot: number, cacheHead: number): number =>
    Math.max(...rowInfo.map((info) => (info?.[1] === slot ? rowEntries(problem, info, cacheHead) : 0)));
  for (const [row, info] of rowInfo.entries()) {
    if (!info) continue;
    // Lanes without a key of any row aren't dispatched.
    for (let lane = 0; lane < Math.min(MERGE_LANES, Math.ceil(longest / CHUNK_TOKENS)); lane++) {
      for (let head = 0; head < heads; head++) {
        const cacheHead = cacheHeadOf(problem, head);
        const own = localIndex(problem, info[1], lane, cacheHead);
        const local = problem.masks && partialLayout === 'row' ? lane : own;
        if (local === undefined) continue;
        // No row of the slot has keys there, and its table no blocks.
        if (problem.masks && partialLayout !== 'row' && lane * CHUNK_TOKENS >= longestOf(info[1], cacheHead)) continue;
        const entries = own === undefined ? 0 : rowEntries(problem, info, cacheHead);
        const tokens: number[] = [];
        const end = seenEnd(problem, info) - (info[0] + 1 - entries);
        for (let t = firstSeen(problem, entries); own !== undefined && t < end; t++)
          if (Math.floor(t / CHUNK_TOKENS) % MERGE_LANES === lane) tokens.push(t);
        const { o, m, l } = attend(problem, inputs, row, head, tokens);
        const at = partialIndex(problem, lanes, [row, head, local]);
        for (let dim = 0; dim < headDim; dim++) partialO[at * headDim + dim] = o[dim]!;
        partialMl[at * 2] = tokens.length === 0 ? EMPTY_M : m;
        partialMl[at * 2 + 1] = l;
      }
    }
  }
  return { partial_o: partialO, partial_ml: partialMl };
}
