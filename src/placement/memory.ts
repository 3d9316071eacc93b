import { limitError } from '../base/errors.js';
import { alignUp, formatBytes } from '../base/math.js';
import { chunkRoom } from './sequences/copies.js';
import { KV_BLOCK } from '../base/kv_units.js';
import { nth, sum } from '../base/lists.js';
import { CHUNK_TOKENS, localChunks } from './owner.js';
import { type Plan, type RankShare, type VocabShare, isKvOnly, planName } from './plan.js';
import { Owners } from './owners.js';
import { CachePools, type KeptWindow, type PoolKind, keptWindow, windowBlocks } from './pools.js';
import { sequenceRanges } from './sequences/sequence_ranges.js';
import { type StageTopology, planTopology, shardsSequences } from './topology.js';

interface Seats {
  /** Of a batch. */
  readonly slots: number;
  readonly batches?: number;
  /** Cache blocks that all sequences share, and sequences whose windows there is room for: as `CachePools` takes them. */
  readonly kvBlocks?: number | undefined;
  readonly windows?: number | undefined;
}

export interface MemoryOptions {
  /** Tokens that a sequence may have. */
  readonly contextLength: number;
  /** Sequences held at once, with whole contexts. */
  readonly slots: number;
  /** Sequences whose windows there is room for, where they share room for fewer whole contexts; default `slots`. */
  readonly windows?: number;
  /** What ranks are set up for, where that is known: then their pools and states are counted as they are laid out, not in proportion. */
  readonly seats?: Seats;
  /** Prompt rows of a step, at most: layers with windows have room for them besides. Default: such layers keep all tokens. */
  readonly prefillChunk?: number;
  /** Tokens of a cache block, which divides a chunk; default a chunk. */
  readonly block?: number;
  /** Prompts are compressed: what a copy of a head takes isn't known beforehand, so each has room for all sequences. */
  readonly compressed?: boolean;
  /** What the working buffers of each rank take besides; default 0. */
  readonly activationBytes?: readonly number[];
  /** Weights of each rank where they are known more exactly than by ModelSizes: padding depends on how a matrix is cut. */
  readonly weightBytes?: readonly number[];
}

export interface RankMemory {
  readonly rank: number;
  readonly weightBytes: number;
  readonly kvBytes: number;
  /** Of `kvBytes`, those of recurrent layers: a state for each sequence whose rows it runs. */
  readonly stateBytes: number;
  readonly activationBytes: number;
  readonly totalBytes: number;
}

export function planMemory(plan: Plan, sizes: ModelSizes, options: MemoryOptions): RankMemory[] {
  const { ranks, stages: views, places: sharded } = planTopology(plan);
  const { contextLength, prefillChunk = Infinity, compressed = false, seats } = options;
  const windows = sizes.layers.map((layer) => layer.window);
  const window = keptWindow(plan, windows, { contextLength, prefillChunk, compressed });
  const lanes = Math.max(...views.map(({ split }) => split));
  const owners = seats && new Owners(plan, seats.slots, seats.batches);
  const pools =
    owners && !compressed && plan.sharing === undefined
      ? new CachePools(owners, contextLength, seats.kvBlocks, window, seats.windows)
      : undefined;
  return ranks.map(({ rank, stages, ownPlace }) => {
    let weightBytes = vocabularyBytes(plan, sizes, rank);
    let kvBytes = 0;
    let stateBytes = 0;
    const rowPlaces = ownPlace === undefined ? (sharded?.length ?? 1) : 1;
    for (const own of stages) {
      if (!own) continue;
      const [first, end] = own.stage.layers;
      const layers = sizes.layers.slice(first, end);
      const { length: heads } = own.share.kvHeads;
      const inPool = (kind: PoolKind): number => heads * pools!.ofRank(rank, kind).numBlocks * KV_BLOCK;
      const whole = pools ? inPool('all') : cachedTokens(own, plan.sharing, options);
      const part =
        window && (pools ? inPool('window') : Math.min(whole, windowTokens(own, options, { window, lanes })));
      const kept = heads * (sizes.keptBlocks ?? 0) * KV_BLOCK;
      const tokensOf = ({ window: sees = Infinity }: LayerSizes): number =>
        sees < contextLength ? (part ?? whole) : whole;
      for (const layer of layers) {
        weightBytes += layerBytes(layer, own.share);
        kvBytes += (kept + tokensOf(layer)) * layer.kvToken;
      }
      const runs = ownPlace === undefined ? options.slots : sequencesOn(own, options.slots);
      const states = Math.max(1, owners ? owners.rowSlotsOf(rank).length : Math.ceil(runs));
      stateBytes +=
        (states + (sizes.keptStates ?? 0) * rowPlaces) * sum(layers.map((layer) => layerState(layer, own.share)));
    }
    weightBytes = options.weightBytes?.[rank] ?? weightBytes;
    const besides = rank === 0 ? (sizes.draftBytes ?? 0) : 0;
    const activationBytes = (options.activationBytes?.[rank] ?? 0) + besides;
    kvBytes += stateBytes;
    const totalBytes = weightBytes + kvBytes + activationBytes;
    return { rank, weightBytes, kvBytes, stateBytes, activationBytes, totalBytes };
  });
}

export const layerBytes = (layer: LayerSizes, share: RankShare): number =>
  isKvOnly(share)
    ? 0
    : layer.attentionShared +
      sum(share.heads.map((segment) => nth(layer.attentionSegments, segment))) +
      layer.mlpShared +
      sum(share.mlp.map((segment) => nth(layer.mlpSegments, segment))) +
      share.experts.length * layer.expert;

function layerState({ stateSegments = [], stateShared = 0 }: LayerSizes, { heads }: RankShare): number {
  const cut = sum(heads.map((segment) => stateSegments[segment] ?? 0));
  return cut === 0 ? 0 : cut + stateShared;
}

/** Tokens that a layer's cache has room for on a rank, of each kv head. */
function cachedTokens(own: StageTopology, sharing: Plan['sharing'], options: MemoryOptions): number {
  const { contextLength, block = CHUNK_TOKENS } = options;
  const { share, stage } = own;
  const { kvHeads, copies = [] } = share;
  const slots = sequencesOn(own, options.slots);
  // Whatever offsets the sequences get, a rank needs room for as many of their chunks as any index may own.
  const whole = alignUp(contextLength, block);
  const tokens = Math.min(localChunks(contextLength, own.sequence.ranks) * CHUNK_TOKENS, whole);
  const parts = options.compressed ? [] : copies;
  const copied = parts.map(({ head }) => {
    const chunks = chunkRoom(stage, sharing, { rank: share.rank, head }, { slots, tokens: contextLength });
    return Math.min(chunks * CHUNK_TOKENS, Math.ceil(slots) * whole);
  });
  return (kvHeads.length - copied.length) * slots * tokens + sum(copied);
}

/** As `cachedTokens`, of a layer with a window (`CachePools`). `lanes`: of the pools, which the rank may have several of. */
function windowTokens(
  own: StageTopology,
  { slots, windows = slots }: MemoryOptions,
  { window, lanes }: { readonly window: KeptWindow; readonly lanes: number },
): number {
  const tokens = (windowBlocks(window, lanes) * KV_BLOCK * lanes) / own.sequence.ranks;
  return own.share.kvHeads.length * sequencesOn(own, windows) * tokens;
}

/** Sequences that the rank keeps. A pool of blocks may have room for a part of one: each rank has its share of that. */
function sequencesOn(own: StageTopology, slots: number): number {
  if (!shardsSequences(own)) return slots;
  const { weights, place } = own;
  if (!Number.isInteger(slots)) return (slots * nth(weights, place)) / sum(weights);
  const [first, end] = nth(sequenceRanges(weights, slots), place);
  return end - first;
}

function vocabularyBytes(plan: Plan, sizes: ModelSizes, rank: number): number {
  const embedding = rowsOf(plan.embedding, rank);
  const head = rowsOf(plan.head, rank);
  const shared = sizes.tied ? Math.max(0, Math.min(embedding[1], head[1]) - Math.max(embedding[0], head[0])) : 0;
  return (
    (embedding[1] - embedding[0]) * sizes.embeddingRow +
    (head[1] - head[0] - shared) * sizes.headRow +
    (head[1] > head[0] ? sizes.finalNorm : 0)
  );
}

const rowsOf = (shares: readonly VocabShare[], rank: number): VocabShare['rows'] =>
  shares.find((share) => share.rank === rank)?.rows ?? [0, 0];

/**
 * Refuses a plan that some rank has no room for.
 *
 * @param budgets bytes that each rank may take, in order of ranks; undefined where unknown
 * @throws SplitkvError `limit` naming the rank, what it needs and has, and what would help.
 */
export function checkMemory(
  plan: Plan,
  sizes: ModelSizes,
  options: MemoryOptions,
  budgets: readonly (number | undefined)[],
): void {
  const tight = tightestRank(planMemory(plan, sizes, options), budgets);
  if (!tight) return;
  const { memory, budget } = tight;
  // As many contexts, whose blocks are then fewer.
  const { seats: _, ...proportional } = options;
  const fits = (contextLength: number): boolean =>
    !tightestRank(planMemory(plan, sizes, { ...proportional, contextLength }), budgets);
  const context = longest(options.contextLength, fits);
  const advice =
    context > 0
      ? `a context of ${context} tokens fits; a narrower --kv, narrower --weights or more ranks leave room for more`
      : 'use narrower --weights, or a plan that cuts the weights over more ranks';
  const { draftBytes = 0 } = sizes;
  const draft = memory.rank === 0 && draftBytes > 0 ? `, of which drafts take ${formatBytes(draftBytes)}` : '';
  throw limitError(
    `${planName(plan)}: rank ${memory.rank} needs ${formatBytes(memory.totalBytes)} ` +
      `(weights ${formatBytes(memory.weightBytes)}, cache ${formatBytes(memory.kvBytes)}, ` +
      `activations ${formatBytes(memory.activationBytes)}${draft}), but has ${formatBytes(budget)}: ${advice}`,
  );
}

function tightestRank(
  memories: readonly RankMemory[],
  budgets: readonly (number | undefined)[],
): { readonly memory: RankMemory; readonly budget: number } | undefined {
  const tight = memories
    .map((memory) => ({ memory, budget: budgets[memory.rank] ?? Infinity }))
    .filter(({ memory, budget }) => memory.totalBytes > budget);
  const lack = ({ memory, budget }: (typeof tight)[number]): number => memory.totalBytes - budget;
  return tight.toSorted((a, b) => lack(b) - lack(a))[0];
}

/** The largest number of whole chunks below `length` that fits, in tokens; 0 when none does. Fewer always fit where more do. */
function longest(length: number, fits: (length: number) => boolean): number {
  let low = 0;
  let high = Math.ceil(length / CHUNK_TOKENS);
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (fits(middle * CHUNK_TOKENS)) low = middle;
    else high = middle;
  }
  return low * CHUNK_TOKENS;
}

/** Bytes of one layer's weights as a device holds them (in their type, padded and packed), and of its cache. */
export interface LayerSizes {
  /** Of each attention segment: q, k, v and o (MLA: q or q_b, kv_b, o). */
  readonly attentionSegments: readonly number[];
  /** What every rank of the layer holds besides: norms, biases; MLA's q_a and kv_a. */
  readonly attentionShared: number;
  /** Of each MLP segment: gate, up and down, those of shared experts in an expert layer. */
  readonly mlpSegments: readonly number[];
  /** What every rank of the layer holds besides: norm, router. */
  readonly mlpShared: number;
  /** Of one routed expert; 0 in a dense layer. */
  readonly expert: number;
  /** Of a recurrent layer, which has no cache that grows: bytes of a sequence's state, by attention segment. */
  readonly stateSegments?: readonly number[];
  /** Of it, what each rank with any segment has besides; default 0. */
  readonly stateShared?: number;
  /**
   * Of one token in the cache of an attention segment's kv heads, K and V (MLA: the latent and the rotary key); 0 in a recurrent layer.
   */
  readonly kvToken: number;
  /** Keys that a row of its attention sees; undefined: all before it. */
  readonly window?: number | undefined;
}

/** Bytes of a model as placement adds them up. */
export interface ModelSizes {
  /** Copies of recurrent layers' states that ranks keep, for each place that sequences are dealt out to; default 0. */
  readonly keptStates?: number;
  /** Cache blocks of each head that ranks keep whole prompts in, beside compressed ones; default 0. */
  readonly keptBlocks?: number;
  /** What a draft model, or the model's own head, takes on the first rank, counted as activations; default 0. */
  readonly draftBytes?: number;
  readonly layers: readonly LayerSizes[];
  readonly embeddingRow: number;
  readonly headRow: number;
  /** The head's rows are the embedding's: a rank that holds a row for both holds it once. */
  readonly tied: boolean;
  readonly finalNorm: number;
}
