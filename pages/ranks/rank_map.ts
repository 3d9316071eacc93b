import { grouped } from '../../src/base/math.js';
import type { ModelInfo } from '../../src/index.js';
import {
  MERGE_LANES,
  type ModelShape,
  type Plan,
  type RankShare,
  type Stage,
  type VocabShare,
  planTopology,
} from '../../src/placement/index.js';
import { count, range, sameList, showList, sum } from '../../src/base/lists.js';

/** One piece of a model, or a run of them; `size` is its share of the whole strip. */
export interface Tile {
  readonly size: number;
  readonly held: boolean;
}

/** All pieces of one kind, side by side, those that a rank holds marked. */
export interface Strip {
  readonly name: string;
  /** What the tiles show, in words. */
  readonly text: string;
  readonly tiles: readonly Tile[];
  /** The tiles are the merge lanes, in order. */
  readonly lanes?: true;
}

/** What one rank holds of the model: layers and the pieces of them, a group for each stage it works in; then the vocabulary. */
export interface RankHoldings {
  readonly rank: number;
  readonly adapter: string;
  readonly weightBytes: number;
  readonly kvBytes: number;
  /** It draws the next token. */
  readonly samples: boolean;
  /** The first rank on the same GPU, where that is another one: this one is virtual. */
  readonly sharesWith: number | undefined;
  readonly groups: readonly (readonly Strip[])[];
}

/** More tiles than this are joined to runs: they would be too narrow to be told apart. */
const MAX_TILES = 32;

/** A plan as a map of each rank, in order of ranks. */
export function rankMap({ plan, shape, ranks }: Pick<ModelInfo, 'plan' | 'shape' | 'ranks'>): RankHoldings[] {
  return range(0, plan.worldSize).map((rank) => ({
    rank,
    adapter: ranks[rank]!.adapter,
    weightBytes: ranks[rank]!.weightBytes,
    kvBytes: ranks[rank]!.kvBytes,
    sharesWith: firstOn(ranks, rank),
    samples: planTopology(plan).ranks[rank]!.root === rank,
    groups: [
      ...(plan.stages.length > 1 && isArranged(plan) ? [arrangedStrips(plan, rank, shape)] : []),
      ...stagesShown(plan).flatMap((stage) => {
        const share = stage.shares.find((candidate) => candidate.rank === rank);
        return share ? [stageStrips(stage, share, shape)] : [];
      }),
      [rowStrip('Embedding', plan.embedding, rank, shape), rowStrip('Output head', plan.head, rank, shape)],
    ],
  }));
}

/** Browsers tell GPUs apart by no more than their names. */
function firstOn(ranks: ModelInfo['ranks'], rank: number): number | undefined {
  const first = ranks.findIndex(({ adapter }) => adapter === ranks[rank]!.adapter);
  return first < rank ? first : undefined;
}

/** Arranged heads differ from layer to layer: they are added up, and drawn layer by layer elsewhere. */
const stagesShown = (plan: Plan): readonly Stage[] => (plan.stages.length > 1 && isArranged(plan) ? [] : plan.stages);

const isArranged = ({ stages }: Plan): boolean => stages.some(({ kind }) => kind === 'arranged');

function arrangedStrips({ stages }: Plan, rank: number, shape: ModelShape): Strip[] {
  const shares = stages.flatMap(({ layers: [first, end], shares: all }) => {
    const share = all.find((candidate) => candidate.rank === rank);
    return share ? range(first, end).map(() => share) : [];
  });
  const held = sum(shares.map(({ heads }) => heads.length));
  const copies = sum(shares.map(({ copies: own = [] }) => own.length));
  const total = shape.numLayers * shape.kvHeads;
  const mlp = shares[0]?.mlp ?? [];
  const columns = sum(shape.mlpSegments);
  const text =
    `${held} kv heads of all layers' ${grouped(total)}` +
    (copies > 0 ? `, ${copies} of them shared with other ranks` : '');
  return [
    {
      name: 'Attention',
      text,
      tiles: [
        { size: held, held: true },
        { size: Math.max(0, total - held), held: false },
      ].filter(({ size }) => size > 0),
    },
    strip('MLP', `${part(sum(mlp.map((item) => shape.mlpSegments[item]!)), columns)} columns`, mlp, shape.mlpSegments),
  ];
}

/** Lanes, and where more ranks split a sequence, a number each. */
const laneSlots = ({ shares }: Stage): number =>
  Math.max(MERGE_LANES, ...shares.flatMap(({ lanes }) => lanes.map((lane) => lane + 1)));

function stageStrips(stage: Stage, share: RankShare, shape: ModelShape): Strip[] {
  const { layers } = stage;
  const { numLayers, segmentHeads, mlpSegments, numExperts, latent } = shape;
  const held = (list: readonly number[], sizes: readonly number[]): number => sum(list.map((item) => sizes[item]!));
  const queryHeads = `${part(held(share.heads, segmentHeads), sum(segmentHeads))} query heads`;
  const columns = sum(mlpSegments);
  const strips: (Strip | false)[] = [
    strip('Layers', items(range(...layers), numLayers), range(...layers), ones(numLayers)),
    strip(
      'Attention',
      latent ? queryHeads : `${items(share.heads, segmentHeads.length, 'kv head')}, ${queryHeads}`,
      share.heads,
      segmentHeads,
    ),
    columns > 0 && strip('MLP', `${part(held(share.mlp, mlpSegments), columns)} columns`, share.mlp, mlpSegments),
    numExperts > 0 && strip('Experts', items(share.experts, numExperts), share.experts, ones(numExperts)),
    { ...strip('KV cache', cacheText(share, shape), share.lanes, ones(laneSlots(stage))), lanes: true },
  ];
  return strips.filter((entry) => entry !== false);
}

function cacheText({ kvHeads, lanes, sequences }: RankShare, shape: ModelShape): string {
  if (kvHeads.length === 0 || lanes.length === 0 || sequences === 0) return 'none';
  const what = shape.latent ? 'the latent' : items(kvHeads, shape.kvHeads, 'kv head');
  return `${what}, ${lanes.length === MERGE_LANES ? 'every lane' : `lanes ${lanes.join(' ')}`}`;
}

function rowStrip(name: string, shares: readonly VocabShare[], rank: number, { vocabSize }: ModelShape): Strip {
  const [first, end] = shares.find((share) => share.rank === rank)?.rows ?? [0, 0];
  const tiles = [
    { size: first, held: false },
    { size: end - first, held: true },
    { size: vocabSize - end, held: false },
  ].filter(({ size }) => size > 0);
  const some = end === first ? 'none' : `rows ${grouped(first)}-${grouped(end - 1)} of ${grouped(vocabSize)}`;
  return { name, text: end - first === vocabSize ? `all ${grouped(vocabSize)} rows` : some, tiles };
}

const ones = (length: number): number[] => range(0, length).map(() => 1);

function strip(name: string, text: string, held: readonly number[], sizes: readonly number[]): Strip {
  const tiles = sizes.map((size, index) => ({ size, held: held.includes(index) })).filter(({ size }) => size > 0);
  return { name, text, tiles: tiles.length > MAX_TILES ? joined(tiles) : tiles };
}

/** Neighbours that are held alike as one tile. */
function joined(tiles: readonly Tile[]): Tile[] {
  const runs: Tile[] = [];
  for (const tile of tiles) {
    const last = runs.at(-1);
    if (last?.held === tile.held) runs[runs.length - 1] = { held: tile.held, size: last.size + tile.size };
    else runs.push(tile);
  }
  return runs;
}

const part = (held: number, total: number): string =>
  held === total ? `all ${grouped(total)}` : held === 0 ? 'no' : `${grouped(held)} of ${grouped(total)}`;

/** "kv heads 0-1 of 4", "all 4 kv heads", "none of 4 kv heads"; without a noun "0-1 of 4". */
function items(held: readonly number[], total: number, noun = ''): string {
  const all = noun === '' ? String(total) : count(total, noun);
  if (sameList(held, range(0, total))) return total === 1 ? all : `all ${all}`;
  if (held.length === 0) return `none of ${all}`;
  const named = noun === '' ? '' : `${noun}${held.length === 1 ? '' : 's'} `;
  return `${named}${showList(held)} of ${total}`;
}
