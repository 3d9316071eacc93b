import { range, sum } from '../base/lists.js';
import { heaviestFirst, staticPlacement, type Steps, TIE } from './task.js';
import type { ArrangementProblem, HeadCosts, HeadShare, LayerPlacement } from './types.js';

/** [head][rank]: requests of a head that a rank serves, -1 where it doesn't hold the head. */
type Held = (readonly number[])[];

/** What a candidate costs in search steps. */
const TRY_STEPS = 4;

/** What a head costs a rank: each entry that is read for a request, and being there. */
interface Cost {
  readonly rank: number;
  readonly entry: number;
  readonly head: number;
}

const costsByRank = ({ secondsPerEntry, secondsPerHead }: HeadCosts): Cost[] =>
  secondsPerEntry.map((entry, rank) => ({ rank, entry, head: secondsPerHead[rank] ?? 0 }));

/** One layer's heads on ranks that differ in speed, where a head costs by its entries and by being there. */
interface Layer {
  readonly loads: readonly number[];
  /** By rank. */
  readonly costs: readonly Cost[];
  readonly requests: number;
  /** Shares are whole requests. */
  readonly whole: boolean;
  /** Copies beyond the first that there may be. */
  readonly copies: number;
}

/** Seconds that each rank takes for a layer's heads. @param requests that read a head's entries */
export function rankSeconds(
  loads: readonly number[],
  heads: LayerPlacement,
  costs: HeadCosts,
  requests: number,
): number[] {
  const onRank = ({ rank, entry, head: each }: Cost): number[] =>
    loads.flatMap((load, head) =>
      (heads[head] ?? [])
        .filter((copy) => copy.rank === rank)
        .map(({ share }) => each + load * share * requests * entry),
    );
  return costsByRank(costs).map((cost) => sum(onRank(cost)));
}

/** Bytes that each rank takes for heads of all layers: weights of every copy, and cache of its requests. */
export function rankBytes(
  loads: readonly (readonly number[])[],
  placement: readonly LayerPlacement[],
  { bytesPerHead = 0, bytesPerEntry = 0, secondsPerEntry }: HeadCosts,
  requests: number,
): number[] {
  const bytes = secondsPerEntry.map(() => 0);
  for (const [layer, row] of loads.entries()) {
    for (const [head, load] of row.entries()) {
      for (const { rank, share } of placement[layer]?.[head] ?? []) {
        bytes[rank]! += bytesPerHead + load * Math.ceil(share * requests - TIE) * bytesPerEntry;
      }
    }
  }
  return bytes;
}

/**
 * No placement of a layer is faster: what ranks can do at once, each head counted where it costs least; without copies, the head that
 * takes longest where that is fastest.
 */
function fastestLayer({ loads, costs, requests, copies }: Layer): number {
  const alone = loads.map((load) => Math.min(...costs.map((cost) => secondsAt(cost, load, requests))));
  const longest = copies > 0 ? Math.min(...costs.map(({ head }) => head)) : Math.max(...alone);
  if (costs.some(({ entry }) => entry <= 0)) return longest;
  const speed = sum(costs.map(({ entry }) => 1 / entry));
  const least = Math.min(...costs.map(({ head, entry }) => head / entry));
  return Math.max(longest, (sum(loads) * requests + loads.length * least) / speed);
}

/**
 * Placements of all layers whose slowest rank of each layer is fast: heads placed longest first, then one change after the other, the
 * best there is, until none helps: a head moved, two swapped, requests given to another copy, a copy made or left out.
 * @param copies beyond the first that a layer may have
 * @returns the placement, and a lower bound of the layers' slowest ranks together
 */
export function leastLatency(
  problem: ArrangementProblem & { readonly costs: HeadCosts },
  copies: number,
  steps: Steps,
): { readonly placement: LayerPlacement[]; readonly bound: number } {
  const { loads, ranks, costs, batch, mode } = problem;
  const layers = loads.map((own): Layer => ({
    loads: own,
    costs: costsByRank(costs),
    requests: batch ?? 1,
    whole: batch !== undefined,
    copies: Math.min(copies, own.length * (ranks - 1)),
  }));
  const share = Math.floor(steps.left / layers.length);
  const placement = layers.map((layer) => {
    if (mode === 'static') return staticPlacement(layer.loads.length, ranks);
    const own = { left: share };
    const starts = [longestFirst(layer), fromPlacement(layer, staticPlacement(layer.loads.length, ranks))];
    const found = starts.map((held) => improve(layer, held, own));
    const peak = (held: Held): number => peakOf(secondsOf(layer, held));
    return toPlacement(
      layer,
      found.reduce((best, next) => (peak(next) < peak(best) * (1 - TIE) ? next : best)),
    );
  });
  return { placement, bound: sum(layers.map(fastestLayer)) };
}

const peakOf = (seconds: readonly number[]): number => Math.max(...seconds);

const secondsOf = ({ loads, costs }: Layer, held: Held): number[] =>
  costs.map((cost) => sum(loads.map((load, head) => secondsAt(cost, load, at(held[head], cost.rank)))));

/** @param requests below 0 where the rank doesn't hold the head */
const secondsAt = ({ head, entry }: Cost, load: number, requests: number): number =>
  requests < 0 ? 0 : head + load * requests * entry;

const fromPlacement = ({ costs, requests }: Layer, heads: LayerPlacement): Held =>
  heads.map((copies) => {
    const shares = new Map(copies.map(({ rank, share }) => [rank, share * requests]));
    return costs.map(({ rank }) => shares.get(rank) ?? -1);
  });

const toPlacement = ({ requests }: Layer, held: Held): LayerPlacement =>
  held.map((own) => own.flatMap((count, rank): HeadShare[] => (count < 0 ? [] : [{ rank, share: count / requests }])));

/** Each head where the layer is then done soonest, the one with most entries first. */
function longestFirst({ loads, costs, requests }: Layer): Held {
  const held: Held = [];
  const ranks = costs.map((cost) => ({ ...cost, seconds: 0 }));
  for (const head of heaviestFirst(loads)) {
    const then = (rank: (typeof ranks)[number]): number => rank.seconds + secondsAt(rank, loads[head] ?? 0, requests);
    const chosen = ranks.reduce((best, next) => (then(next) < then(best) * (1 - TIE) ? next : best));
    chosen.seconds = then(chosen);
    held[head] = ranks.map((rank) => (rank === chosen ? requests : -1));
  }
  return held;
}

/** A change of some heads' holders. */
type Change = readonly (readonly [head: number, own: readonly number[]])[];

/** Changes that take something off the slowest rank, as long as one shortens it, or evens out the others. */
function improve(layer: Layer, start: Held, steps: Steps): Held {
  const { loads, costs } = layer;
  const held = [...start];
  for (;;) {
    const seconds = secondsOf(layer, held);
    let best: { readonly change: Change; readonly score: number } | undefined;
    const now = scoreOf(seconds);
    for (const change of changes(layer, held, seconds)) {
      steps.left -= TRY_STEPS;
      if (steps.left <= 0) return held;
      const after = costs.map((cost) =>
        change.reduce(
          (total, [head, own]) => {
            const secondsOn = (list: Held[number] | undefined): number =>
              secondsAt(cost, loads[head] ?? 0, at(list, cost.rank));
            return total + (secondsOn(own) - secondsOn(held[head]));
          },
          at(seconds, cost.rank),
        ),
      );
      const score = scoreOf(after);
      if (score < (best?.score ?? now) * (1 - TIE)) best = { change, score };
    }
    if (!best) return held;
    for (const [head, own] of best.change) held[head] = own;
  }
}

/** The slowest rank counts, and by how much less the others take: high powers of all times. */
function scoreOf(seconds: readonly number[]): number {
  const peak = peakOf(seconds);
  if (peak === 0) return 0;
  return peak * sum(seconds.map((own) => (own / peak) ** 16)) ** (1 / 16);
}

const at = (own: readonly number[] | undefined, rank: number): number => own?.[rank] ?? -1;

function* changes(layer: Layer, held: Held, seconds: readonly number[]): Generator<Change> {
  const slowest = layer.costs.reduce((a, b) => (at(seconds, b.rank) > at(seconds, a.rank) ? b : a));
  const extra = sum(held.map((own) => own.filter((count) => count >= 0).length - 1));
  for (const [head, own] of held.entries()) {
    const mine = at(own, slowest.rank);
    if (mine < 0) continue;
    for (const other of layer.costs) {
      if (other === slowest) continue;
      const theirs = at(own, other.rank);
      const changed = (left: number, given: number): Change[number] => [
        head,
        own.map((count, rank) => (rank === slowest.rank ? left : rank === other.rank ? given : count)),
      ];
      yield [changed(-1, Math.max(0, theirs) + mine)];
      if (theirs < 0) {
        for (const [back, its] of held.entries()) {
          const given = at(its, other.rank);
          if (given < 0 || at(its, slowest.rank) >= 0 || back === head) continue;
          const returned = its.map((count, rank) => (rank === other.rank ? -1 : rank === slowest.rank ? given : count));
          yield [changed(-1, mine), [back, returned]];
        }
        if (extra >= layer.copies) continue;
      }
      // As much as makes both alike.
      const gap = at(seconds, slowest.rank) - at(seconds, other.rank) - (theirs < 0 ? other.head : 0);
      for (const moved of movable(layer, gap, (layer.loads[head] ?? 0) * (slowest.entry + other.entry), mine)) {
        yield [changed(mine - moved, Math.max(0, theirs) + moved)];
      }
    }
  }
}

/** Requests whose move closes a gap; something stays, or the copy would have gone. @param per seconds of a request, on both ranks */
function movable({ whole, requests }: Layer, gap: number, per: number, mine: number): number[] {
  if (per <= 0) return [];
  const exact = gap / per;
  const least = whole ? 1 : requests / 4096;
  return (whole ? [Math.floor(exact), Math.ceil(exact)] : [exact]).filter(
    (moved) => moved >= least && mine - moved >= least,
  );
}

/**
 * Leaves room on every rank: from the fullest, in the layer where it costs least, a head goes to a rank with room, or a copy is left out,
 * until what each holds fits.
 * @returns undefined where nothing more can be taken off a rank that lacks room
 */
export function intoBytes(
  problem: ArrangementProblem & { readonly costs: HeadCosts },
  start: readonly LayerPlacement[],
  memoryBytes: readonly number[],
): LayerPlacement[] | undefined {
  const { loads, ranks, costs, batch = 1 } = problem;
  const placement = [...start];
  for (;;) {
    const used = rankBytes(loads, placement, costs, batch);
    const over = used.map((bytes, rank) => bytes - (memoryBytes[rank] ?? Infinity));
    const most = Math.max(...over);
    const fullest = over.indexOf(most);
    if (most <= 0) return placement;
    let best: { readonly layer: number; readonly heads: LayerPlacement; readonly price: number } | undefined;
    for (const [layer, heads] of placement.entries()) {
      const own = loads[layer] ?? [];
      const secondsOfLayer = (of: LayerPlacement): number => peakOf(rankSeconds(own, of, costs, batch));
      const before = secondsOfLayer(heads);
      const held = rankBytes([own], [heads], costs, batch);
      for (const [head, copies] of heads.entries()) {
        const mine = copies.find(({ rank }) => rank === fullest);
        if (!mine) continue;
        const others = copies.filter((copy) => copy !== mine);
        for (const rank of range(0, ranks)) {
          if (rank === fullest) continue;
          const there = others.find((copy) => copy.rank === rank);
          const moved = [...others.filter((copy) => copy !== there), { rank, share: mine.share + (there?.share ?? 0) }];
          const changed = heads.with(
            head,
            moved.toSorted((a, b) => a.rank - b.rank),
          );
          const bytes = rankBytes([own], [changed], costs, batch);
          const more = (at: number): number => (bytes[at] ?? 0) - (held[at] ?? 0);
          if ((over[rank] ?? 0) + more(rank) > 0) continue;
          const freed = -more(fullest);
          const price = (secondsOfLayer(changed) - before) / Math.max(freed, 1);
          if (freed > 0 && (!best || price < best.price)) best = { layer, heads: changed, price };
        }
      }
    }
    if (!best) return undefined;
    placement[best.layer] = best.heads;
  }
}
