import { MERGE_LANES } from '../base/kv_units.js';
import { nth, range, sum } from '../base/lists.js';
import { Random } from '../base/random.js';
import type { Profile } from './files.js';
import { laneEntries, laneLoads, shareLanes } from './lane_shares.js';
import { makespan, TIE, utilisation } from './task.js';
import type { LayerPlacement, Placement } from './types.js';

type Loads = readonly (readonly number[])[];

/** Layers of prompts that are drawn: their mean is then within some 0.01. */
const DRAWS = 512;

/** Entries of a head, on average, of a long prompt: merge lanes are about alike. */
const LONG = 2 ** 16;

/**
 * How much what heads keep varies from prompt to prompt: [layer][kv head], a standard deviation as a part of the mean. Undefined for a
 * profile that doesn't tell.
 */
export function promptDeviations({ share, share_std: deviations }: Profile): Loads | undefined {
  if (!share || !deviations) return undefined;
  return share.map((heads, layer) =>
    heads.map((mean, head) => (mean > 0 ? (deviations[layer]?.[head] ?? 0) / mean : 0)),
  );
}

/** What a layer's heads keep of a prompt: each varies by itself, lognormally. */
function drawLoads(random: Random, loads: readonly number[], deviations: readonly number[]): number[] {
  return loads.map((load, head) => {
    const variance = Math.log1p((deviations[head] ?? 0) ** 2);
    return load * Math.exp(Math.sqrt(variance) * random.normal() - variance / 2);
  });
}

/**
 * The utilisation of a prompt alone, on average. What its heads keep is not the mean of many prompts, and its ranks wait for the busiest:
 * this is lower than that of the mean, by which heads are arranged. Heads are taken to vary independently, lognormally.
 * @param ranks of a pipeline's stage
 * @param sharesLanes copies share the lanes of each prompt by what it keeps, if it is long (`shareLanes`)
 * @returns undefined for a profile that doesn't tell how much they vary
 */
export function promptUtilisation(
  profile: Profile,
  placement: Placement,
  ranks: number,
  sharesLanes = false,
): number | undefined {
  const { layers } = profile;
  const deviations = promptDeviations(profile);
  if (!deviations) return undefined;
  const random = new Random(1);
  const all = 1 + Math.max(...placement.flat(2).map(({ rank }) => rank));
  const draws = Math.ceil(DRAWS / layers.length);
  const drawn = range(0, draws).map(() => {
    const loads = layers.map((heads, layer) => drawLoads(random, heads, deviations[layer] ?? []));
    return utilisation(loads, ranks, sharesLanes ? laneMakespan(loads, placement) : makespan(loads, placement, all));
  });
  return sum(drawn) / draws;
}

/** As `makespan`, of copies that share lanes by these loads. */
function laneMakespan(loads: Loads, placement: Placement): number {
  const scale = longScale(loads);
  const peaks = loads.map((layer, at) => Math.max(...shared(layer, ranksOf(placement[at] ?? []), scale).read.values()));
  return sum(peaks) / scale;
}

/** Entries of a long prompt in a unit of loads. */
const longScale = (loads: Loads): number => (LONG * loads.flat().length) / sum(loads.flat());

/** The ranks that hold each head. */
const ranksOf = (heads: LayerPlacement): number[][] => heads.map((copies) => copies.map(({ rank }) => rank));

/** A layer's lanes, shared out by these loads, and what each rank then reads. */
function shared(loads: readonly number[], ranks: readonly (readonly number[])[], scale: number) {
  const heads = loads.map((load, head) => ({ ranks: ranks[head] ?? [], entries: Math.round(load * scale) }));
  const lanes = shareLanes(heads, new Map());
  return { heads, lanes, read: laneLoads(heads, lanes) };
}

/** Prompts that say where a copy helps. */
const VOTERS = 24;

/**
 * More copies of a layer's heads, for prompts whose loads aren't the mean ones: as copies share their lanes anew, each copy more lets a
 * busy rank be relieved. One after the other goes where it relieves the busiest ranks of drawn prompts most.
 * @param copies beyond the first, those that there are included
 * @param enough no more are added where single prompts keep ranks busy for this part of the time
 * @returns the placement itself where none is added
 */
export function copiesForPrompts(
  heads: LayerPlacement,
  { loads, deviations }: { readonly loads: readonly number[]; readonly deviations: readonly number[] },
  { ranks, copies, enough }: { readonly ranks: number; readonly copies: number; readonly enough: number },
): LayerPlacement {
  if (sum(loads) === 0) return heads;
  const scale = longScale([loads]);
  const random = new Random(1);
  const prompts = range(0, VOTERS).map(() => drawLoads(random, loads, deviations));
  const held = ranksOf(heads);
  let left = copies - (held.flat().length - heads.length);
  for (; left > 0; left--) {
    const found = bestCopy(held, prompts, ranks, scale);
    if (!found || found.busy >= enough) break;
    const own = nth(held, found.head);
    own.push(found.rank);
    own.sort((a, b) => a - b);
  }
  return held.flat().length === heads.flat().length ? heads : byLanes(held, loads, scale);
}

/** Where another copy relieves most, and how busy ranks are without it; undefined where none does. */
function bestCopy(held: readonly (readonly number[])[], prompts: Loads, ranks: number, scale: number) {
  const votes = new Map<string, { readonly head: number; readonly rank: number; relief: number }>();
  let busy = 0;
  for (const prompt of prompts) {
    const { heads, lanes, read } = shared(prompt, held, scale);
    const mean = sum(heads.map(({ entries }) => entries)) / ranks;
    const of = (rank: number): number => read.get(rank) ?? 0;
    const busiest = range(0, ranks).reduce((most, rank) => (of(rank) > of(most) ? rank : most));
    busy += mean / of(busiest) / prompts.length;
    for (const [head, { entries }] of heads.entries()) {
      const own = nth(held, head);
      const there = sum(laneEntries(entries).filter((_, lane) => nth(lanes, head)[lane] === busiest));
      if (own.length === MERGE_LANES) continue;
      for (const rank of range(0, ranks).filter((other) => !own.includes(other))) {
        const relief = Math.min(of(busiest) - mean, there, mean - of(rank)) / mean;
        if (relief <= 0) continue;
        const vote = votes.get(`${head} ${rank}`) ?? { head, rank, relief: 0 };
        vote.relief += relief;
        votes.set(`${head} ${rank}`, vote);
      }
    }
  }
  const [first, ...rest] = votes.values();
  return first && { ...rest.reduce((best, vote) => (vote.relief > best.relief ? vote : best), first), busy };
}

/** Shares in lanes, by the mean loads: each copy has one at least. */
function byLanes(held: readonly (readonly number[])[], loads: readonly number[], scale: number): LayerPlacement {
  const { lanes } = shared(loads, held, scale);
  const parts = held.flatMap((ranks, head) =>
    ranks.map((rank) => {
      const own = nth(lanes, head).filter((lane) => lane === rank).length;
      return { head, rank, lanes: Math.max(1, own), size: nth(loads, head) / MERGE_LANES };
    }),
  );
  const read = (rank: number): number => sum(parts.map((part) => (part.rank === rank ? part.lanes * part.size : 0)));
  for (const head of held.keys()) {
    const own = parts.filter((part) => part.head === head);
    while (sum(own.map((part) => part.lanes)) > MERGE_LANES)
      own.reduce((most, part) => (part.lanes > most.lanes ? part : most)).lanes--;
  }
  const ranks = [...new Set(held.flat())];
  /** A lane from the busiest rank to another that it doesn't make as busy, the least busy one. */
  const relieve = (): boolean => {
    const busiest = ranks.reduce((most, rank) => (read(rank) > read(most) ? rank : most));
    const most = read(busiest) * (1 - TIE);
    const givers = parts.filter(({ rank, lanes: own, size }) => rank === busiest && own > 1 && size > 0);
    const moves = givers.flatMap((from) =>
      parts
        .filter((to) => to !== from && to.head === from.head)
        .map((to) => ({ from, to, peak: read(to.rank) + from.size })),
    );
    const best = moves.toSorted((one, other) => one.peak - other.peak)[0];
    if (!best || best.peak >= most) return false;
    best.from.lanes--;
    best.to.lanes++;
    return true;
  };
  while (relieve());
  return held.map((_, head) =>
    parts.flatMap((part) => (part.head === head ? [{ rank: part.rank, share: part.lanes / MERGE_LANES }] : [])),
  );
}
