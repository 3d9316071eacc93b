import { limitError, usageError } from '../../base/errors.js';
import { nth, range, sum } from '../../base/lists.js';
import { ceilDiv, formatBytes } from '../../base/math.js';
import { layerWindows } from '../../model/config/model_config.js';
import { modelSizes } from '../../model/model_sizes.js';
import {
  CHUNK_TOKENS,
  defaultPromptChunk,
  isKvOnly,
  keptWindow,
  type LayerSizes,
  localChunks,
  type MemoryOptions,
  MERGE_LANES,
  Owners,
  planMemory,
} from '../../placement/index.js';
import { exactWeights } from '../planning/budgets.js';
import { POOL_BYTES, POOL_LAYER_BYTES } from '../planning/context_length.js';
import { keptBlocksOf } from '../planning/plan_subject.js';
import type { ModelFacts } from './describe_model.js';
import { KV_BLOCK } from '../../base/kv_units.js';
import type { ServeOptions } from '../serving/api.js';

/** Of what a memory budget leaves beside the weights; activations need some too. */
const DEFAULT_SHARE = 0.8;
/** Whole turns of the merge lanes. */
const SAMPLE_TOKENS = 8 * CHUNK_TOKENS;

/**
 * KV blocks that the sequences share: as given, or as many as fit the memory given. Never more than all slots with whole contexts
 * can use.
 *
 * @param slots of all batches
 * @param budgets bytes that each rank may take in all, where that is limited
 * @throws SplitkvError `usage` for both, or one out of range; `limit` when not one block fits
 */
export function kvBlocksOf(
  facts: ModelFacts,
  slots: number,
  { kvBlocks, kvMemory }: Pick<ServeOptions, 'kvBlocks' | 'kvMemory'>,
  budgets: readonly number[] = [],
  batches = 1,
): number {
  const context = contextBlocks(facts);
  const most = slots * context;
  if (kvBlocks !== undefined) {
    if (kvMemory !== undefined) throw usageError('kvBlocks and kvMemory say the same: leave one of them out');
    if (!Number.isSafeInteger(kvBlocks) || kvBlocks < 1) {
      throw usageError(`kvBlocks ${kvBlocks}: expected an integer of at least 1`);
    }
    return Math.min(kvBlocks, most);
  }
  const { besides, tokenBytes, layerBytes, split } = bytesOnBusiestRank(facts, slots);
  const owners = new Owners(facts.plan, slots / batches, batches);
  const pools = poolSlots(owners);
  /** Of all pools, when one with so many slots has no more than these bytes of its rank. */
  const fitting = (bytes: number, perToken: number, own = Math.max(...pools)): number => {
    // Layers whose windows are all that they keep take no block of these.
    const ofSample = (localChunks(SAMPLE_TOKENS, split) * CHUNK_TOKENS) / SAMPLE_TOKENS;
    const held = perToken === 0 ? most : Math.max(0, Math.floor((bytes * ofSample) / (KV_BLOCK * perToken)));
    const chunkBlocks = CHUNK_TOKENS / KV_BLOCK;
    // A rank of several that split sequences has room for whole chunks.
    const inPool = split === 1 ? held : Math.floor(held / chunkBlocks) * chunkBlocks * split;
    return own === 0 ? Infinity : Math.floor((inPool * slots) / own);
  };
  if (kvMemory === undefined) {
    const weights = budgets.length === 0 ? [] : exactWeights(facts)(facts.plan);
    const held = weights.map((bytes, rank) => {
      const room = Math.min(POOL_BYTES, DEFAULT_SHARE * (nth(budgets, rank) - bytes));
      return fitting(room - besides, tokenBytes, owners.keptSlots(rank));
    });
    const sensible = Math.min(
      fitting(POOL_BYTES - besides, tokenBytes),
      fitting(POOL_LAYER_BYTES, layerBytes),
      ...held,
    );
    // Every pool holds a whole context, but a root's whose memory is limited. What they don't fit in is refused by who checks the
    // budgets, with advice.
    const followed = facts.plan.stages.some(({ shares }) => shares.some(isKvOnly));
    const whole = followed && budgets.length > 0 ? Math.max(...pools) : Math.min(...pools);
    return Math.min(most, Math.max(Math.ceil((context * slots) / whole), sensible));
  }
  if (!(kvMemory > 0)) throw usageError(`kvMemory ${kvMemory}: expected bytes above 0`);
  const blocks = kvMemory < besides ? 0 : fitting(kvMemory - besides, tokenBytes);
  if (blocks < 1) {
    throw limitError(
      `kvMemory ${formatBytes(kvMemory)}: a context of ${facts.contextLength} tokens takes ` +
        `${formatBytes(facts.contextLength * tokenBytes)} of each rank, and ${slots} slots need room` +
        `${besides > 0 ? `, ${formatBytes(besides)} for ${facts.compression ? 'whole prompts (prefixCaching)' : 'their windows'}` : ''}: give more, or fewer slots`,
    );
  }
  return Math.min(most, blocks);
}

/** Blocks of the pool that one whole context takes: as many of every rank that splits it as any of them may need. */
function contextBlocks({ plan, contextLength }: ModelFacts): number {
  const { split } = new Owners(plan, 1);
  const blocks = ceilDiv(contextLength, KV_BLOCK);
  if (MERGE_LANES % split === 0) return blocks;
  return Math.max(blocks, split * localChunks(contextLength, split) * (CHUNK_TOKENS / KV_BLOCK));
}

/** Slots of each KV pool: ranks that keep whole sequences have one each, in proportion to their slots. */
function poolSlots(owners: Owners): readonly number[] {
  const slots = range(0, owners.batches).map((batch) => owners.ranges(batch).map(([first, end]) => end - first));
  const pools = nth(slots, 0).map((_, pool) => sum(slots.map((of) => nth(of, pool))));
  return pools.filter((count) => count > 0);
}

/**
 * Of one token's cache: what the rank with most of it holds, in all layers that keep all tokens and in one of them; and what the windows
 * of the others take, or whole prompts beside compressed ones (`besides`).
 */
function bytesOnBusiestRank(
  facts: ModelFacts,
  slots: number,
): Readonly<Record<'besides' | 'tokenBytes' | 'layerBytes' | 'split', number>> {
  const { config, type, kvType, plan, contextLength, compression, prefillChunk = defaultPromptChunk(plan) } = facts;
  const sizes = modelSizes(config, type, kvType);
  const compressed = compression !== undefined;
  const windows = layerWindows(config);
  const options = { contextLength, prefillChunk, compressed };
  const keepsWindow = keptWindow(plan, windows, options) !== undefined;
  const isWindowed = windows.map((window = Infinity) => keepsWindow && window < contextLength);
  type TokenBytes = (layer: LayerSizes, index: number) => number;
  const most = (of: TokenBytes, how: MemoryOptions): number => {
    const layers = sizes.layers.map((layer, index) => ({ ...layer, kvToken: of(layer, index) }));
    const memory = planMemory(plan, { ...sizes, layers }, how);
    return Math.max(...memory.map(({ kvBytes, stateBytes }) => kvBytes - stateBytes));
  };
  const ofToken = (of: TokenBytes): number =>
    most(of, { contextLength: SAMPLE_TOKENS, slots: 1, block: KV_BLOCK, compressed }) / SAMPLE_TOKENS;
  const keepsAll: TokenBytes = ({ kvToken }, index) => (isWindowed[index] ? 0 : kvToken);
  const perToken = ofToken(keepsAll);
  const first = sizes.layers.map(keepsAll).find((bytes) => bytes > 0) ?? 0;
  const alone = plan.stages.map(({ layers: [at] }) => ofToken((_, index) => (index === at ? first : 0)));
  return {
    besides: keepsWindow
      ? most(({ kvToken }, index) => (isWindowed[index] ? kvToken : 0), { ...options, slots, block: KV_BLOCK })
      : keptBlocksOf(facts) * KV_BLOCK * perToken,
    tokenBytes: perToken,
    layerBytes: Math.max(...alone),
    split: new Owners(plan, 1).split,
  };
}
