/**
 * Room: which rank keeps a sequence's cache, and when one moves: by attention and by blocks. Pure. place_sequence.ts
 * and choose_move.ts are the two decisions.
 */

import type { Sequence } from '../sequence.js';
import { type Client, nextInTurn } from '../priority.js';
import type { RankState, WorkList } from '../rank_state.js';
import type { ContextPolicy } from '../routing.js';
import type { WaitingQueue } from '../waiting_queue.js';
import { chooseMove } from './choose_move.js';
import { placeSequence } from './place_sequence.js';

/**
 * Pools that only keep caches (token parallelism): the same ranks compute all rows. A sequence is placed when it can start, where
 * attention is least for the pool's share; running ones are moved where the balance would otherwise be bad.
 */
export class KvPolicy implements ContextPolicy {
  /** `moves`: false where caches can't be copied block by block: heads have blocks of their own, or several ranks parts of a sequence. */
  constructor(
    private readonly handover: boolean,
    private readonly moves = true,
  ) {}

  route(waiting: WaitingQueue, ranks: readonly RankState[]): void {
    // Whoever hasn't started is placed anew: another pool may have room by now.
    for (const rank of ranks) for (const sequence of rank.unbindPending()) waiting.insert(sequence);
    const placed = ranks.map(() => ({ blocks: [] as number[], sequences: 0, tokens: 0 }));
    const ready = ({ outstanding, handed, computedHere }: Sequence): boolean =>
      outstanding === 0 && (handed || computedHere || !this.handover);
    const given = new Map<Client, number>();
    for (;;) {
      const next = nextInTurn(waiting.firsts(ready), given);
      if (!next) return;
      const pools = ranks.flatMap((rank, index) => {
        const { blocks, sequences, tokens } = placed[index]!;
        const room =
          rank.numFreeSlots > sequences && rank.canEverHold(next) && rank.wouldAdmit(next, blocks, sequences);
        if (!room) return [];
        const { limits } = rank;
        return { index, weight: limits.numBlocks, attended: rank.attended + tokens, cached: rank.cachedTokens(next) };
      });
      const index = placeSequence(pools, next.target);
      // None overtakes the first.
      if (index === undefined) return;
      const taken = placed[index]!;
      for (const [lane, count] of ranks[index]!.demand(next).fresh.entries()) {
        taken.blocks[lane] = (taken.blocks[lane] ?? 0) + count;
      }
      taken.sequences++;
      taken.tokens += next.target;
      waiting.remove(next);
      given.set(next.client, (given.get(next.client) ?? 0) + 1);
      ranks[index]!.bind(next);
    }
  }

  opens(): boolean {
    return true;
  }

  observe(): void {}

  /**
   * Begins a move where one helps; runs it as soon as nothing of its sequence is in flight. One at a time.
   * @param work of each rank, in which nothing is planned yet
   */
  move(ranks: readonly RankState[], work: readonly WorkList[]): void {
    const leaving = ranks.flatMap((rank) => rank.running.find(({ leavingFor }) => leavingFor >= 0) ?? [])[0];
    const sequence = leaving ?? (this.moves ? this.#begin(ranks) : undefined);
    if (!sequence || sequence.outstanding > 0) return;
    const target = ranks[sequence.leavingFor]!;
    sequence.leavingFor = -1;
    if (target.canTakeIn(sequence)) target.takeIn(sequence, ranks[sequence.rank]!, work[target.index]!);
    // The room is gone: it goes on where it is, and its row is made again.
    else work[sequence.rank]!.tables.push(sequence);
  }

  #begin(ranks: readonly RankState[]): Sequence | undefined {
    const pools = ranks.map((rank) => ({
      weight: rank.limits.numBlocks,
      attended: rank.attended,
      blocks: rank.limits.numBlocks,
      freeBlocks: rank.pool.numFree,
      freeSlots: rank.numFreeSlots,
      growing: rank.numDecoding,
    }));
    const movable = ranks.flatMap((rank, pool) =>
      rank.running.flatMap((sequence) => {
        const remaining = sequence.maxTokens - sequence.sampled;
        if (sequence.status !== 'decode' || remaining <= 0 || sequence.shiftsTo >= 0) return [];
        const blocks = sequence.blocks.length;
        return { sequence, pool, tokens: sequence.computed, blocks, most: rank.mostBlocks(sequence), remaining };
      }),
    );
    const move = chooseMove(pools, movable);
    if (!move) return undefined;
    const { sequence } = move.sequence;
    sequence.leavingFor = move.to;
    return sequence;
  }
}
