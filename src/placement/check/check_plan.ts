/**
 * Room: what is refused, with the reason. checkPlan holds a plan to a model; capabilities.ts is the one table of what
 * goes together, plans, models and options. Read that next.
 */

import { type SplitkvError, usageError } from '../../base/errors.js';
import { misfit, modelFeatures } from './capabilities.js';
import { checkArranged, checkDataWeights, checkVocabulary, checkWeights } from './check_weights.js';
import { checkCache, checkOwnSequences, checkSequences } from './check_cache.js';
import { count, range, sameList, showList } from '../../base/lists.js';
import { MERGE_LANES } from '../owner.js';
import { isKvOnly, type ModelShape, type Plan, planName, type Stage } from '../plan.js';
import type { Refuse } from './refuse.js';
import { dataPlaces, type Place, placeWeights, sequencePlaces } from '../sequences/sequence_ranges.js';
import { planTopology } from '../topology.js';
import { checkKind } from '../plan/stage_kind.js';

/**
 * Refuses a plan that doesn't place this model: every layer once and in order, every attention segment, MLP segment, expert,
 * vocabulary row and (kv head, lane) of the cache where the runtime expects it.
 *
 * - Ranks of a stage form weight groups: two ranks hold the same heads and MLP segments (replicas) or none in common, and every
 *   group has as many replicas. A group's heads and MLP segments are contiguous.
 * - The cache of a stage is cut along the sequence into S residue classes of lanes. Either each rank keeps the kv heads of
 *   its own weights, and its group's replicas have the S classes, or every rank keeps all kv heads, and the stage's ranks have
 *   them. MLA's latent is always the latter.
 * - Or heads are arranged freely (kind 'arranged'): each rank keeps the whole cache of its own heads, MLP segments are cut, and a head
 *   that several ranks hold is listed in the copies of each, with shares that add up to 1.
 * - Where sequences are sharded (kind 'token'), ranks without weights each follow one root. Every rank keeps all lanes of its own,
 *   or 2 to 8 neighbours split them: all alike, but a root that keeps none.
 * - Where ranks run the rows of their own sequences (kind 'adp'), each of them, or each of several groups of neighbours that are
 *   alike, holds all heads, lanes and rows of the vocabulary as a stage of weight groups does. MLP segments are cut so in each
 *   group, too, or each is on one rank of all.
 * - Experts are held by one rank each (of all, or of each such group), a rank's contiguous, or all by every rank.
 *
 * A rank may be in several stages.
 * @throws SplitkvError `usage` with the first fault and what to do about it.
 */
export function checkPlan(plan: Plan, shape: ModelShape): void {
  const refuse = (what: string): SplitkvError => usageError(`${planName(plan)}: ${what}`);
  checkRanks(plan, refuse);
  checkLayers(plan, shape, refuse);
  for (const stage of plan.stages) checkKind(stage, (what) => refuse(`${layersName(stage)}: ${what}`));
  const why = misfit(modelFeatures(shape), plan);
  if (why !== undefined) throw refuse(why);
  for (const stage of plan.stages) {
    const refuseHere = (what: string): SplitkvError => refuse(`${layersName(stage)}: ${what}`);
    if (stage.kind === 'adp') {
      checkOwnSequences(stage, refuseHere);
      checkDataWeights(stage, shape, refuseHere);
      checkCache({ ...stage, shares: dataPlaces(stage.shares)[0]! }, shape, refuseHere);
      continue;
    }
    if (stage.kind === 'token') {
      checkSequences(stage, refuseHere);
      // Ranks that keep sequences only follow their root; what it holds is checked as ever, and that its place has all lanes.
      const shares = stage.shares.filter((share) => !isKvOnly(share));
      const roots = { ...stage, shares: shares.map((root) => ({ ...root, lanes: range(0, MERGE_LANES) })) };
      checkWeights(roots, shape, refuseHere);
      checkCache(roots, shape, refuseHere);
      continue;
    }
    if (stage.kind === 'arranged') {
      checkArranged(stage, plan.sharing, shape, refuseHere);
      continue;
    }
    checkWeights(stage, shape, refuseHere);
    checkCache(stage, shape, refuseHere);
  }
  checkShards(plan, refuse);
  checkOwnPlaces(plan, refuse);
  checkVocabulary(plan, shape, refuse);
  checkSplits(plan, refuse);
}

/** Ranks of one place keep the same sequences, whatever their root and stage. */
function checkShards({ stages }: Plan, refuse: Refuse): void {
  const shards = stages.flatMap((stage) => {
    if (stage.kind !== 'token') return [];
    const roots = stage.shares.filter((share) => !isKvOnly(share));
    return roots.map((root) => {
      const members = sequencePlaces(root, stage.shares).flat();
      const weights = members.map(({ sequences }) => sequences!);
      return { root: root.rank, weights, lanes: members.map(({ lanes }) => lanes.join(' ')).join(', ') };
    });
  });
  const [first] = shards;
  if (!first) return;
  const split = shards.find(({ lanes }) => lanes !== first.lanes);
  if (split) {
    throw refuse(
      `rank ${first.root} and those that follow it split sequences by lanes ${first.lanes}, rank ${split.root} and its own by ` +
        `${split.lanes}: a sequence has its place in every stage, so give them the same lanes`,
    );
  }
  const other = shards.find(({ weights }) => !sameList(weights, first.weights));
  if (!other) return;
  throw refuse(
    `sequences are sharded ${showList(first.weights)} over rank ${first.root} and those that follow it, but ` +
      `${showList(other.weights)} over rank ${other.root} and its own: a sequence has its place in every stage, so give them the same weights`,
  );
}

/** Where ranks run rows of their own they do in every stage, and a sequence has one place in all of them. */
function checkOwnPlaces({ stages }: Plan, refuse: Refuse): void {
  const own = stages.find(({ kind }) => kind === 'adp');
  if (!own) return;
  const other = stages.find(({ kind }) => kind !== 'adp');
  if (other) {
    throw refuse(
      `${layersName(own)} are of kind 'adp', ${layersName(other)} of kind '${other.kind}': a request's rows are on one rank, or group of ` +
        'ranks, from stage to stage, so make all stages adp, or none',
    );
  }
  const weights = placeWeights(dataPlaces(own.shares));
  const placeOf = new Map<number, number>();
  for (const stage of stages) {
    const places: readonly Place[] = dataPlaces(stage.shares);
    if (!sameList(placeWeights(places), weights)) {
      throw refuse(
        `sequences are sharded ${showList(weights)} in ${layersName(own)}, but ${showList(placeWeights(places))} in ${layersName(stage)}: ` +
          'a sequence has its place in every stage, so give them the same weights',
      );
    }
    for (const [place, ranks] of places.entries()) {
      const moved = ranks.find(({ rank }) => (placeOf.get(rank) ?? place) !== place);
      if (moved)
        throw refuse(
          `rank ${moved.rank} keeps other sequences in ${layersName(stage)} than in stages before; list ranks in one order`,
        );
      for (const { rank } of ranks) placeOf.set(rank, place);
    }
  }
}

/** A sequence's blocks are handed out for the stage that splits it most; those of the others are whole numbers of these. */
function checkSplits(plan: Plan, refuse: Refuse): void {
  const splits = planTopology(plan).stages.map(({ split }) => split);
  const most = Math.max(...splits);
  const at = splits.findIndex((split) => most % split !== 0);
  if (at < 0) return;
  throw refuse(
    `${layersName(plan.stages[at]!)}: ${splits[at]} ranks split a sequence, in other layers ${most} do: one number must divide the other`,
  );
}

/** "layers 0-11". */
export const layersName = ({ layers: [first, end] }: Stage): string =>
  `${end === first + 1 ? 'layer' : 'layers'} ${showList(range(first, end))}`;

function checkRanks({ worldSize, stages }: Plan, refuse: Refuse): void {
  if (!Number.isInteger(worldSize) || worldSize < 1) throw refuse(`worldSize is ${worldSize}; give 1 rank or more`);
  const used = new Set<number>();
  for (const stage of stages) {
    const seen = new Set<number>();
    for (const { rank } of stage.shares) {
      if (!Number.isInteger(rank) || rank < 0 || rank >= worldSize) {
        throw refuse(
          `${layersName(stage)}: rank ${rank} is not among the plan's ${count(worldSize, 'rank')} (from 0 on)`,
        );
      }
      if (seen.has(rank)) throw refuse(`${layersName(stage)}: rank ${rank} is listed twice; give it one share`);
      seen.add(rank);
      used.add(rank);
    }
    if (seen.size === 0) throw refuse(`${layersName(stage)}: no rank holds them; give the stage shares`);
  }
  const idle = range(0, worldSize).find((rank) => !used.has(rank));
  if (idle !== undefined) throw refuse(`rank ${idle} holds nothing; give it a share or lower worldSize`);
}

function checkLayers({ stages }: Plan, { numLayers }: ModelShape, refuse: Refuse): void {
  let next = 0;
  for (const [index, { layers }] of stages.entries()) {
    const [first, end] = layers;
    if (first !== next || !Number.isInteger(end) || end <= first) {
      throw refuse(`stages[${index}].layers is [${first}, ${end}]; expected [${next}, end] with end above ${next}`);
    }
    next = end;
  }
  if (next !== numLayers) {
    throw refuse(`its stages cover ${count(next, 'layer')}; this model has ${numLayers}`);
  }
}
