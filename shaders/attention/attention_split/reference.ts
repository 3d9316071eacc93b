import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { CHUNK_TOKENS } from '../../cache/kv_cache.js';
import { attend, type AttentionCase, cacheHeadOf, firstSeen, rowEntries } from '../fixture.js';
import { chunkIndex } from '../share_fixture.js';

/** Partials of every chunk of this rank that holds keys of the row; chunks without keys are not compared (nothing is written there). */
export function attentionSplitReference(problem: AttentionCase, inputs: HostArrays): Expected {
  const { rows, heads, headDim, maxChunks, rowInfo } = problem;
  const partialO = new Array<number>(rows * heads * maxChunks * headDim);
  const partialMl = new Array<number>(rows * heads * maxChunks * 2);
  for (const [row, info] of rowInfo.entries()) {
    if (!info) continue;
    for (let head = 0; head < heads; head++) {
      const cacheHead = cacheHeadOf(problem, head);
      const entries = rowEntries(problem, info, cacheHead);
      for (let first = 0; first < entries; first += CHUNK_TOKENS) {
        const local = chunkIndex(problem, info[1], first / CHUNK_TOKENS, cacheHead);
        if (local === undefined) continue;
        const chunk = Array.from({ length: Math.min(CHUNK_TOKENS, entries - first) }, (_, i) => first + i);
        const tokens = chunk.filter((token) => token >= firstSeen(problem, entries));
        if (tokens.length === 0) continue;
        const { o, m, l } = attend(problem, inputs, row, head, tokens);
        const at = (row * heads + head) * maxChunks + local;
        for (let dim = 0; dim < headDim; dim++) partialO[at * headDim + dim] = o[dim]!;
        partialMl[at * 2] = m;
        partialMl[at * 2 + 1] = l;
      }
    }
  }
  return { partial_o: partialO, partial_ml: partialMl };
}
