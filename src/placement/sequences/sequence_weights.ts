import { sum } from '../../base/lists.js';
import { isKvOnly, type Plan, type RankShare, type Stage } from '../plan.js';
import { planTopology } from '../topology.js';
import { type Place, sequencePlaces } from './sequence_ranges.js';

/** What a rank has for the sequences that a token plan gives it. */
export interface SequenceRoom {
  /** Bytes for their caches; undefined: no limit is known. */
  readonly bytes?: number | undefined;
  /** How fast it attends, in any unit that all ranks share; undefined where it wasn't measured. */
  readonly speed?: number | undefined;
  /** It computes everything else besides. */
  readonly root: boolean;
}

/** A root's share of the sequences beside 1 of a rank that does nothing else, where nothing of its work is known. */
const ROOT_SHARE = 0.5;
/** Of one that is to keep none: it takes what no other rank has room for. */
const LEAST_SHARE = 0.001;
/** Those that the planner tries: a root that projects all the time keeps none, one that hardly does as many as the others. */
const ROOT_SHARES = [ROOT_SHARE, 0, 0.25, 0.75, 1];

/**
 * Shares of the sequences, the largest being 1: each rank attends for as many as its speed makes equal time, a root for `rootShare` of
 * that, as far as its memory goes; what doesn't fit goes to the others in the same way. Where not even all memory holds what is wanted,
 * memory alone says who keeps how much.
 *
 * @param wanted bytes of cache that all ranks together should hold
 * @param sequence bytes of a whole sequence, where `wanted` is whole ones: then none is given a rank that has room for a part of it only,
 *   if the ranks have room for all of them so; default 0
 */
export function sequenceWeights(
  ranks: readonly SequenceRoom[],
  wanted: number,
  rootShare = ROOT_SHARE,
  sequence = 0,
): number[] {
  const measured = ranks.every(({ speed = 0 }) => speed > 0);
  const vessels = ranks.map(({ bytes = Infinity, speed = 1, root }): Vessel => ({
    room: Math.max(0, bytes),
    speed: (measured ? speed : 1) * (root ? Math.max(rootShare, LEAST_SHARE) : 1),
  }));
  const all = sum(vessels.map(({ room }) => room));
  if (all === 0) return scaled(vessels.map(({ speed }) => speed));
  const whole = vessels.map(({ room, speed }) => ({
    room: sequence > 0 && room < Infinity ? Math.floor(room / sequence) * sequence : room,
    speed,
  }));
  if (sequence > 0 && sum(whole.map(({ room }) => room)) >= wanted) return scaled(filled(whole, wanted), 1e6);
  return scaled(all <= wanted ? vessels.map(({ room }) => room) : filled(vessels, wanted));
}

interface Vessel {
  readonly room: number;
  readonly speed: number;
}

/** Bytes of each rank when water of so many bytes stands equally high in vessels as wide as their speeds and as large as their rooms. */
function filled(vessels: readonly Vessel[], wanted: number): number[] {
  const held = new Map<Vessel, number>();
  let open = vessels.filter(({ room }) => room > 0);
  let left = wanted;
  while (open.length > 0) {
    const level = left / sum(open.map(({ speed }) => speed));
    const full = open.filter(({ room, speed }) => room <= level * speed);
    for (const vessel of full.length > 0 ? full : open) {
      const bytes = Math.min(vessel.room, level * vessel.speed);
      held.set(vessel, bytes);
      left -= bytes;
    }
    if (full.length === 0) break;
    open = open.filter((vessel) => !full.includes(vessel));
  }
  return vessels.map((vessel) => held.get(vessel) ?? 0);
}

/** Of the largest, to three decimals: they are read by people. Counts of sequences take more to be what they were. */
const scaled = (values: readonly number[], steps = 1000): number[] => {
  const most = Math.max(...values);
  return values.map((value) => Math.round((value / most) * steps) / steps);
};

/**
 * A token plan's room, by place among those that sequences are sharded over: ranks of one place, in every group and stage, keep the
 * same sequences, or equal parts of them, so the tightest counts.
 */
export function roomByPlace(plan: Plan, rooms: readonly Omit<SequenceRoom, 'root'>[]): SequenceRoom[] {
  const groups = plan.stages.flatMap(({ shares }) => placesOf(shares));
  const [first = []] = groups;
  const split = Math.max(...first.map(({ length }) => length));
  const least = (values: readonly (number | undefined)[]): number | undefined =>
    values.reduce((a, b) => (a === undefined ? b : b === undefined ? a : Math.min(a, b)), undefined);
  return first.map(({ length }, place) => {
    const members = groups.flatMap((places) => places[place] ?? []);
    const own = members.map(({ rank }) => rooms[rank] ?? {});
    const together = (value: number | undefined): number | undefined => value && value * length;
    return {
      root: members.some((share) => !isKvOnly(share)),
      // Beside ranks that split sequences a root keeps none.
      bytes: length < split ? 0 : together(least(own.map(({ bytes }) => bytes))),
      speed: own.some(({ speed }) => speed === undefined) ? undefined : together(least(own.map(({ speed }) => speed))),
    };
  });
}

/** The places of each root. */
const placesOf = (shares: readonly RankShare[]): Place[][] =>
  shares.filter((share) => !isKvOnly(share)).map((root) => sequencePlaces(root, shares));

/** A token plan whose places keep other shares of the sequences, in order of the places. */
export function withSequenceWeights(plan: Plan, weights: readonly number[]): Plan {
  const stages = plan.stages.map((stage): Stage => {
    const places = placesOf(stage.shares);
    const shares = stage.shares.map((share) => {
      const at = Math.max(...places.map((own) => own.findIndex((place) => place.includes(share))));
      return { ...share, sequences: weights[at] };
    });
    return { ...stage, shares };
  });
  return { ...plan, stages };
}

/** A place's share of the sequences is a root's. */
const rootPlaces = (plan: Plan): boolean[] => roomByPlace(plan, []).map(({ root }) => root);

/** A root's share beside that of the ranks that only attend; undefined where there are none of either that keep sequences. */
export function rootShareOf(plan: Plan): number | undefined {
  const weights = planTopology(plan).places ?? [];
  const roots = rootPlaces(plan);
  const most = Math.max(0, ...weights.filter((_, place) => !roots[place]));
  const own = weights.find((_, place) => roots[place]);
  return most === 0 || own === undefined ? undefined : own / most;
}

/** A token plan as made, and with other shares for its roots. */
export function withRootShares(plan: Plan): Plan[] {
  if (!rootShareOf(plan)) return [plan];
  const roots = rootPlaces(plan);
  const weighed = ROOT_SHARES.map((share) => roots.map((root) => (root ? share : 1)));
  return weighed.map((weights) => withSequenceWeights(plan, weights));
}
