import type { Owners } from '../../placement/index.js';

/** Tokens [start, start + tokens.length) of one slot, to be run in one call. */
export interface SlotTokens {
  readonly slot: number;
  readonly tokens: Uint32Array;
  readonly start: number;
}

/** The items by call, each call with one at most for each place: side by side where places run their own rows, otherwise one by one. */
export function roundsOf<Item extends SlotTokens>(owners: Owners, items: readonly Item[]): Item[][] {
  const { rowRanks } = owners;
  if (!rowRanks) return items.map((item) => [item]);
  const rounds: Item[][] = [];
  const taken = rowRanks.map(() => 0);
  for (const item of items) {
    const place = owners.placeOf(item.slot);
    (rounds[taken[place]!++] ??= []).push(item);
  }
  return rounds;
}

/** What a rank runs of a round, and how many rows each place has there; a rank that has none is given no tokens. */
export function shareOf<Item extends SlotTokens>(
  owners: Owners,
  round: readonly Item[],
  rank: number,
): { readonly item: Item | undefined; readonly rows: readonly number[] | undefined } {
  const { rowRanks } = owners;
  if (!rowRanks) return { item: round[0], rows: undefined };
  const rows = rowRanks.map(() => 0);
  for (const { slot, tokens } of round) rows[owners.placeOf(slot)] = tokens.length;
  return { item: round.find(({ slot }) => rowRanks[owners.placeOf(slot)]!.includes(rank)), rows };
}
