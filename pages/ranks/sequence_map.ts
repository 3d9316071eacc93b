import { CHUNK_TOKENS, MERGE_LANES, Owners, type Plan } from '../../src/placement/index.js';
import { count, range, showList, sum } from '../../src/base/lists.js';

/** What the sequence is at: its prompt is being computed, tokens are being added, or it has ended. */
export type SequencePhase = 'reading' | 'writing' | 'ended';

/** 256 consecutive tokens of the sequence, or room for them. */
export interface ChunkCell {
  readonly chunk: number;
  readonly lane: number;
  /** Ranks that hold its keys and values, each for its layers and heads; ascending. */
  readonly owners: readonly number[];
  /** Tokens in it, 0 to 256. */
  readonly tokens: number;
  /** The next token goes here, or the prompt's tokens are on their way to it. */
  readonly active: boolean;
}

export interface SequenceMap {
  readonly text: string;
  /** Whole turns of the 8 lanes, so that chunk i of the list is in lane i mod 8; fewer where the context ends. */
  readonly chunks: readonly ChunkCell[];
  /** By rank: tokens that it holds in each lane. */
  readonly lanes: readonly (readonly number[])[];
}

/**
 * Where the tokens of one sequence are.
 *
 * @param tokens of the sequence: those written, or those of the prompt that is being read
 * @param contextLength tokens that the sequence may have
 * @param offset of the sequence: chunk c is held by index (c + offset) mod split. A model without other sequences gives 0.
 */
export function sequenceMap(
  plan: Plan,
  tokens: number,
  phase: SequencePhase,
  contextLength: number,
  offset = 0,
): SequenceMap {
  const room = Math.ceil(contextLength / CHUNK_TOKENS);
  const next = Math.min(Math.floor(tokens / CHUNK_TOKENS), room - 1);
  const turns = Math.floor(next / MERGE_LANES) + 1;
  const byLane = laneOwners(plan, offset);
  const chunks = range(0, Math.min(turns * MERGE_LANES, room)).map((chunk): ChunkCell => {
    const reached = Math.min(Math.max(tokens - chunk * CHUNK_TOKENS, 0), CHUNK_TOKENS);
    return {
      chunk,
      lane: chunk % MERGE_LANES,
      owners: byLane[chunk % MERGE_LANES]!,
      tokens: phase === 'reading' ? 0 : reached,
      active: phase === 'reading' ? reached > 0 : phase === 'writing' && chunk === next,
    };
  });
  const lanes = range(0, plan.worldSize).map((rank) =>
    range(0, MERGE_LANES).map((lane) =>
      sum(chunks.map((cell) => (cell.lane === lane && cell.owners.includes(rank) ? cell.tokens : 0))),
    ),
  );
  return { text: describe(chunks, tokens, phase, next), chunks, lanes };
}

/** Ranks that hold anything of the chunks in each lane of a sequence; ascending. */
function laneOwners(plan: Plan, offset: number): number[][] {
  // The page's only sequence.
  const slot = 0;
  const owners = new Owners(plan, 1);
  owners.admit(slot, CHUNK_TOKENS, offset);
  return range(0, MERGE_LANES).map((chunk) =>
    range(0, plan.worldSize).filter((rank) =>
      plan.stages.some(({ shares }, stage) =>
        shares.some(
          (share) =>
            share.rank === rank && share.kvHeads.some((kvHead) => owners.holds(rank, { stage, kvHead, slot, chunk })),
        ),
      ),
    ),
  );
}

function describe(chunks: readonly ChunkCell[], tokens: number, phase: SequencePhase, next: number): string {
  const used = count(Math.ceil(tokens / CHUNK_TOKENS), 'chunk');
  if (phase === 'reading') return `Reading a prompt of ${count(tokens, 'token')} (${used} of ${CHUNK_TOKENS}).`;
  if (tokens === 0) return `No sequence yet. A chunk is ${CHUNK_TOKENS} tokens; chunk c goes to merge lane c mod 8.`;
  const all = `${count(tokens, 'token')} in ${used}`;
  const { chunk, lane, owners } = chunks[next]!;
  if (phase === 'ended') return `${all}, as the last answer left them.`;
  return `${all}; now writing chunk ${chunk} (lane ${lane}) on ${rankNames(owners)}.`;
}

/** "rank 1", "ranks 0-3". */
export const rankNames = (ranks: readonly number[]): string =>
  `${ranks.length === 1 ? 'rank' : 'ranks'} ${showList(ranks)}`;
