/**
 * Room: heads arranged by seconds instead of entries, for ranks of unequal speed, with what a head costs by being there and the bytes
 * that it takes. arrange.ts calls it for the objective `latency`.
 */

import { range, sum } from '../../base/lists.js';
import { staticPlacement } from '../static.js';
import { TIE } from '../task.js';
import type { ArrangementProblem, HeadCosts, HeadShare, LayerPlacement } from '../types.js';
import type { Steps } from '../solvers/assign.js';

/** [head][rank]: requests of a head that a rank serves, -1 where it doesn't hold the head. */
type Held = number[][];

/** What a candidate costs in search steps. */
const TRY_STEPS = 4;

/** One layer's heads on ranks that differ in speed, where a head costs by its entries and by being there. */
interface Layer {
  readonly loads: readonly number[];
  readonly costs: HeadCosts;
  readonly ranks: number;
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
  { secondsPerEntry, secondsPerHead }: HeadCosts,
  requests: number,
): number[] {
  const seconds = secondsPerEntry.map(() => 0);
  for (const [head, copies] of heads.entries()) {
    for (const { rank, share } of copies) {
      seconds[rank]! += secondsPerHead[rank]! + loads[head]! * share * requests * secondsPerEntry[rank]!;
    }
  }
  return seconds;
}

/** Bytes that each rank takes for heads of all layers: weights of every copy, and cache of its requests. */
export function rankBytes(
  loads: readonly (readonly number[])[],
  placement: readonly LayerPlacement[],
  { bytesPerHead = 0, bytesPerEntry = 0, secondsPerEntry }: HeadCosts,
  requests: number,
): number[] {
  const bytes = secondsPerEntry.map(() => 0);
  for (const [layer, heads] of placement.entries()) {
    for (const [head, copies] of heads.entries()) {
      for (const { rank, share } of copies) {
        bytes[rank]! += bytesPerHead + loads[layer]![head]! * Math.ceil(share * requests - TIE) * bytesPerEntry;
      }
    }
  }
  return bytes;
}

/**
 * No placement of a layer is faster: what ranks can do at once, each head counted where it costs least; without copies, the head that
 * takes longest where that is fastest.
 */
function fastestLayer({ loads, costs, ranks, requests, copies }: Layer): number {
  const { secondsPerEntry: entry, secondsPerHead: head } = costs;
  const all = range(0, ranks);
  const alone = loads.map((load) => Math.min(...all.map((rank) => head[rank]! + load * requests * entry[rank]!)));
  const longest = copies > 0 ? Math.min(...head) : Math.max(...alone);
  if (entry.some((seconds) => seconds <= 0)) return longest;
  const speed = sum(entry.map((seconds) => 1 / seconds));
  const least = Math.min(...all.map((rank) => head[rank]! / entry[rank]!));
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
    costs,
    ranks,
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
    const peaks = found.map((held) => peakOf(secondsOf(layer, held)));
    return toPlacement(layer, found[peaks[1]! < peaks[0]! * (1 - TIE) ? 1 : 0]!);
  });
  return { placement, bound: sum(layers.map(fastestLayer)) };
}

const peakOf = (seconds: readonly number[]): number => Math.max(...seconds);

function secondsOf({ loads, costs, ranks }: Layer, held: Held): number[] {
  return range(0, ranks).map((rank) => sum(held.map((own, head) => secondsAt(costs, loads[head]!, own[rank]!, rank))));
}

const secondsAt = (
  { secondsPerEntry, secondsPerHead }: HeadCosts,
  load: number,
  requests: number,
  rank: number,
): number => (requests < 0 ? 0 : secondsPerHead[rank]! + load * requests * secondsPerEntry[rank]!);

function fromPlacement({ ranks, requests }: Layer, heads: LayerPlacement): Held {
  return heads.map((copies) => {
    const own = range(0, ranks).map(() => -1);
    for (const { rank, share } of copies) own[rank] = share * requests;
    return own;
  });
}

const toPlacement = ({ requests }: Layer, held: Held): LayerPlacement =>
  held.map((own) => own.flatMap((count, rank): HeadShare[] => (count < 0 ? [] : [{ rank, share: count / requests }])));

/** Each head where the layer is then done soonest, the one with most entries first. */
function longestFirst({ loads, costs, ranks, requests }: Layer): Held {
  const held = loads.map(() => range(0, ranks).map(() => -1));
  const seconds = range(0, ranks).map(() => 0);
  for (const head of [...loads.keys()].toSorted((a, b) => loads[b]! - loads[a]! || a - b)) {
    const then = (rank: number): number => seconds[rank]! + secondsAt(costs, loads[head]!, requests, rank);
    const rank = range(1, ranks).reduce((best, next) => (then(next) < then(best) * (1 - TIE) ? next : best), 0);
    seconds[rank] = then(rank);
    held[head]![rank] = requests;
  }
  return held;
}

/** A change of some heads' holders. */
type Change = readonly (readonly [head: number, own: readonly number[]])[];

/** Changes that take something off the slowest rank, as long as one shortens it, or evens out the others. */
function improve(layer: Layer, start: Held, steps: Steps): Held {
  const held = start.map((own) => [...own]);
  for (;;) {
    const seconds = secondsOf(layer, held);
    const busiest = seconds.indexOf(peakOf(seconds));
    let best: { readonly change: Change; readonly score: number } | undefined;
    const now = scoreOf(seconds);
    for (const change of changes(layer, held, seconds, busiest)) {
      steps.left -= TRY_STEPS;
      if (steps.left <= 0) return held;
      const after = [...seconds];
      for (const [head, own] of change) {
        for (const rank of after.keys()) {
          const load = layer.loads[head]!;
          after[rank]! +=
            secondsAt(layer.costs, load, own[rank]!, rank) - secondsAt(layer.costs, load, held[head]![rank]!, rank);
        }
      }
      const score = scoreOf(after);
      if (score < (best?.score ?? now) * (1 - TIE)) best = { change, score };
    }
    if (!best) return held;
    for (const [head, own] of best.change) held[head] = [...own];
  }
}

/** The slowest rank counts, and by how much less the others take: high powers of all times. */
function scoreOf(seconds: readonly number[]): number {
  const peak = peakOf(seconds);
  if (peak === 0) return 0;
  return peak * sum(seconds.map((own) => (own / peak) ** 16)) ** (1 / 16);
}

function* changes(layer: Layer, held: Held, seconds: readonly number[], busiest: number): Generator<Change> {
  const { loads, costs, ranks, requests, whole, copies } = layer;
  const extra = sum(held.map((own) => own.filter((count) => count >= 0).length - 1));
  const replaced = (head: number, entries: Readonly<Record<number, number>>): readonly [number, readonly number[]] => [
    head,
    held[head]!.map((count, rank) => entries[rank] ?? count),
  ];
  for (const head of loads.keys()) {
    const mine = held[head]![busiest]!;
    if (mine < 0) continue;
    for (const other of range(0, ranks)) {
      if (other === busiest) continue;
      const theirs = held[head]![other]!;
      if (theirs >= 0) {
        // All of it to the other copy, or as much as makes both alike.
        yield [replaced(head, { [busiest]: -1, [other]: theirs + mine })];
      } else {
        yield [replaced(head, { [busiest]: -1, [other]: mine })];
        for (const back of loads.keys()) {
          const given = held[back]![other]!;
          if (given < 0 || held[back]![busiest]! >= 0 || back === head) continue;
          yield [replaced(head, { [busiest]: -1, [other]: mine }), replaced(back, { [other]: -1, [busiest]: given })];
        }
        if (extra >= copies) continue;
      }
      const per = loads[head]! * (costs.secondsPerEntry[busiest]! + costs.secondsPerEntry[other]!);
      if (per <= 0) continue;
      const gap = seconds[busiest]! - seconds[other]! - (theirs < 0 ? costs.secondsPerHead[other]! : 0);
      const exact = gap / per;
      const least = whole ? 1 : requests / 4096;
      for (const moved of whole ? [Math.floor(exact), Math.ceil(exact)] : [exact]) {
        // Something stays, or the copy would have gone.
        if (moved < least || mine - moved < least) continue;
        yield [replaced(head, { [busiest]: mine - moved, [other]: Math.max(0, theirs) + moved })];
      }
    }
  }
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
    const over = used.map((bytes, rank) => bytes - memoryBytes[rank]!);
    const fullest = over.indexOf(Math.max(...over));
    if (over[fullest]! <= 0) return placement;
    let best: { readonly layer: number; readonly heads: LayerPlacement; readonly price: number } | undefined;
    for (const [layer, heads] of placement.entries()) {
      const before = peakOf(rankSeconds(loads[layer]!, heads, costs, batch));
      const held = rankBytes([loads[layer]!], [heads], costs, batch);
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
          const bytes = rankBytes([loads[layer]!], [changed], costs, batch);
          if (over[rank]! + bytes[rank]! - held[rank]! > 0) continue;
          const freed = held[fullest]! - bytes[fullest]!;
          const price = (peakOf(rankSeconds(loads[layer]!, changed, costs, batch)) - before) / Math.max(freed, 1);
          if (freed > 0 && (!best || price < best.price)) best = { layer, heads: changed, price };
        }
      }
    }
    if (!best) return undefined;
    placement[best.layer] = best.heads;
  }
}
