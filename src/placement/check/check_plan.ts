/**
 * Room: what is refused, with the reason. checkPlan holds a plan to a model; capabilities.ts is the one table of what
 * goes together, plans, models and options. Read that next.
 */

import { type SplitkvError, usageError } from '../../base/errors.js';
import { misfit, modelFeatures } from './capabilities.js';
import { checkArranged, checkList, checkVocabulary, checkWeights, type Refuse } from './check_weights.js';
import { count, nth, range, sameList, showList } from '../../base/lists.js';
import { lanesOf, MERGE_LANES } from '../owner.js';
import { isKvOnly, type ModelShape, type Plan, planName, type RankShare, type Stage } from '../plan.js';
import { dataPlaces, type Place, placeWeights, sequencePlaces } from '../sequences/sequence_ranges.js';
import { planTopology, shardsSequences } from '../topology.js';
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
    if (stage.kind === 'arranged') {
      checkArranged(stage, plan.sharing, shape, refuseHere);
      continue;
    }
    checkSequences(stage, refuseHere);
    // Ranks that keep sequences only follow their root; what it holds is checked as ever, and that its place has all lanes.
    const roots = stage.shares.filter((share) => !isKvOnly(share));
    const whole = roots.map((root) => ({ ...root, lanes: range(0, MERGE_LANES) }));
    const held = stage.kind === 'token' ? { ...stage, shares: whole } : stage;
    checkWeights(held, shape, refuseHere);
    checkCache(held, shape, refuseHere);
  }
  checkShards(plan, refuse);
  checkVocabulary(plan, shape, refuse);
  checkSplits(plan, refuse);
}

/** Refuses a stage whose cache isn't placed as `checkPlan` says. The stage's weights are checked already. */
function checkCache(stage: Stage, shape: ModelShape, refuse: Refuse): void {
  const shares = stage.kind === 'adp' ? nth(dataPlaces(stage.shares), 0) : stage.shares;
  for (const share of shares) {
    checkList(share.kvHeads, shape.kvHeads, `rank ${share.rank}: kvHeads`, refuse);
    checkList(share.lanes, Math.max(MERGE_LANES, shares.length), `rank ${share.rank}: lanes`, refuse);
  }
  checkHeads(shares, shape, refuse);
  // Each sequence of a latent that several roots share is held by one rank, whatever the head.
  const alone = stage.kind === 'token' && shape.latent;
  for (const share of shares) checkLanes(alone ? [share] : holdersOf(shares, share), refuse);
}

/** Ranks that keep the same heads' cache, and split every sequence. */
const holdersOf = (shares: readonly RankShare[], { kvHeads }: RankShare): RankShare[] =>
  shares.filter((other) => sameList(other.kvHeads, kvHeads)).toSorted((a, b) => (a.lanes[0] ?? 0) - (b.lanes[0] ?? 0));

function checkLanes(holders: readonly RankShare[], refuse: Refuse): void {
  const split = holders.length;
  for (const [index, { rank, lanes }] of holders.entries()) {
    const wanted = lanesOf(split, index);
    if (sameList(lanes, wanted)) continue;
    const who = split === 1 ? 'alone' : `with ranks ${showList(holders.map((holder) => holder.rank))}`;
    throw refuse(
      `rank ${rank}: lanes ${showList(lanes)}; it keeps the cache of its heads ${who}, and ${split === 1 ? 'has all lanes' : `each has every ${split}th lane`}: ` +
        `write ${showList(wanted)}`,
    );
  }
}

/** Every rank keeps its own heads' cache, or every rank keeps all. */
function checkHeads(shares: readonly RankShare[], { latent, kvHeads }: ModelShape, refuse: Refuse): void {
  const all = range(0, kvHeads);
  const wanted = latent ? 'the latent has no heads: write [0]' : "keep the rank's own heads, or all";
  const isOwn = (share: RankShare): boolean => !latent && sameList(share.kvHeads, share.heads);
  const isAll = (share: RankShare): boolean => sameList(share.kvHeads, all);
  for (const share of shares) {
    if (!isOwn(share) && !isAll(share)) {
      throw refuse(`rank ${share.rank}: kvHeads ${showList(share.kvHeads)}: ${wanted}`);
    }
  }
  const partial = shares.find((share) => !isAll(share));
  const whole = shares.find((share) => !isOwn(share));
  if (partial && whole) {
    throw refuse(
      `rank ${partial.rank} keeps the cache of its own heads, rank ${whole.rank} of all heads; choose one for the stage`,
    );
  }
}

/** Refuses a stage whose weights of sequences aren't those of its places, as `RankShare.sequences` says. */
function checkSequences({ kind, shares }: Stage, refuse: Refuse): void {
  if (!shardsSequences({ kind })) return;
  const silent = shares.find(({ sequences }) => sequences === undefined);
  if (silent) throw refuse(`rank ${silent.rank} has no sequences, others have: give every rank a weight, 0 for none`);
  if (kind === 'adp') {
    const places = dataPlaces(shares);
    for (const place of places) checkOneWeight(place, 'run', refuse);
    if (placeWeights(places).some((weight) => weight > 0)) return;
    throw refuse('the ranks keep no sequences: give one of them a weight above 0');
  }
  const roots = shares.filter((share) => !isKvOnly(share));
  if (roots.length === 0) throw refuse('no rank holds weights: give one heads and MLP segments');
  for (const share of shares) {
    const { rank, mlp, experts, kvHeads } = share;
    if (share.heads.length > 0) continue;
    if (mlp.length + experts.length > 0) {
      throw refuse(
        `rank ${rank} has no heads, but MLP segments or experts: a rank that keeps sequences holds no weights`,
      );
    }
    if (!roots.some((root) => sameList(root.kvHeads, kvHeads))) {
      throw refuse(`rank ${rank}: kvHeads ${showList(kvHeads)} are those of no rank with weights; write its root's`);
    }
  }
  for (const root of roots) {
    const places = sequencePlaces(root, shares);
    checkPlaces(places, refuse);
    if (placeWeights(places).every((weight) => weight === 0)) {
      throw refuse(`rank ${root.rank} and those that follow it keep no sequences: give one of them a weight above 0`);
    }
  }
}

function checkOneWeight(place: Place, what: 'run' | 'split', refuse: Refuse): void {
  const [first] = place;
  const other = place.find(({ sequences }) => sequences !== first?.sequences);
  if (!first || !other) return;
  throw refuse(
    `ranks ${first.rank} and ${other.rank} ${what} the same sequences, but their weights are ${first.sequences} and ${other.sequences}; ` +
      'give them one',
  );
}

/** Every rank keeps all lanes, or ranks side by side split them: as many everywhere, but a root that keeps no sequence. */
function checkPlaces(places: readonly Place[], refuse: Refuse): void {
  const split = Math.max(...places.map(({ length }) => length));
  for (const place of places) {
    for (const [index, { rank, lanes }] of place.entries()) {
      const wanted = place.length === split ? lanesOf(split, index) : lanesOf(1, 0);
      if (!sameList(lanes, wanted)) {
        throw refuse(
          `rank ${rank}: lanes ${showList(lanes)}; ` +
            (split === 1
              ? `a rank that keeps whole sequences has all ${MERGE_LANES}`
              : `write ${showList(wanted)}: ranks side by side split all ${MERGE_LANES}, and as many split those of every sequence`),
        );
      }
    }
    checkOneWeight(place, 'split', refuse);
    const [first] = place;
    if (first && place.length < split && (isKvOnly(first) || first.sequences !== 0)) {
      throw refuse(
        `rank ${first.rank} keeps whole sequences, others split theirs over ${split}: split all alike, and give a root beside them weight 0`,
      );
    }
  }
}

/**
 * A sequence has its place in every stage: ranks of one place keep the same sequences, whatever their root and stage. Where ranks run rows
 * of their own they do in every stage, in the same place.
 */
function checkShards({ stages }: Plan, refuse: Refuse): void {
  const own = stages.find(({ kind }) => kind === 'adp');
  const other = own && stages.find(({ kind }) => kind !== 'adp');
  if (other) {
    throw refuse(
      `${layersName(own)} are of kind 'adp', ${layersName(other)} of kind '${other.kind}': a request's rows are on one rank, or group of ` +
        'ranks, from stage to stage, so make all stages adp, or none',
    );
  }
  const shards = stages.flatMap((stage) => {
    const { kind, shares } = stage;
    if (kind === 'adp')
      return [{ where: `in ${layersName(stage)}`, weights: placeWeights(dataPlaces(shares)), lanes: '' }];
    const roots = kind === 'token' ? shares.filter((share) => !isKvOnly(share)) : [];
    return roots.map((root) => {
      const members = sequencePlaces(root, shares).flat();
      const lanes = members.map((member) => member.lanes.join(' ')).join(', ');
      const weights = members.map(({ sequences = 0 }) => sequences);
      return { where: `over rank ${root.rank} and those that follow it`, weights, lanes };
    });
  });
  const [first, ...rest] = shards;
  const odd = first && rest.find(({ weights, lanes }) => lanes !== first.lanes || !sameList(weights, first.weights));
  if (odd) {
    const differ = odd.lanes === first.lanes ? 'weights' : 'lanes';
    const show = ({ lanes, weights }: typeof odd): string =>
      differ === 'lanes' ? `by lanes ${lanes}` : showList(weights);
    throw refuse(
      `sequences are sharded ${show(first)} ${first.where}, but ${show(odd)} ${odd.where}: a sequence has its place in every stage, so ` +
        `give them the same ${differ}`,
    );
  }
  const placeOf = new Map<number, number>();
  for (const stage of own ? stages : []) {
    for (const [place, ranks] of dataPlaces(stage.shares).entries()) {
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
    `${layersName(nth(plan.stages, at))}: ${splits[at]} ranks split a sequence, in other layers ${most} do: one number must divide the other`,
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

function checkLayers({ stages }: Plan, { numLayers, wholeFrom = numLayers }: ModelShape, refuse: Refuse): void {
  let next = 0;
  for (const [index, { layers }] of stages.entries()) {
    const [first, end] = layers;
    if (first !== next || !Number.isInteger(end) || end <= first) {
      throw refuse(`stages[${index}].layers is [${first}, ${end}]; expected [${next}, end] with end above ${next}`);
    }
    if (first > wholeFrom)
      throw refuse(
        `stages[${index}] begins at layer ${first}; those from ${wholeFrom} on share keys and values or inputs, so one stage has them`,
      );
    next = end;
  }
  if (next !== numLayers) {
    throw refuse(`its stages cover ${count(next, 'layer')}; this model has ${numLayers}`);
  }
}
