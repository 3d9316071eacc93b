import { SplitkvError } from '../../base/errors.js';
import { openDevice } from '../../gpu/index.js';
import { type CatalogModel, MODELS } from '../../loader/hub/catalog.js';
import type { LoadOptions } from '../contracts/api.js';
import { memoryBudgets } from './budgets.js';
import { defaultContext, poolRoom } from './context_length.js';
import { cacheType, rankAdapters, rankCount } from './rank_adapters.js';

/** What a model of the catalog would take here, about: from the catalog, without asking a server. */
export interface CatalogFit {
  readonly model: CatalogModel;
  /**
   * The widest type of those that fit, no wider than was asked for; the narrowest where none does. 'auto': as they are stored, which those
   * of a GGUF file are unless another type was asked for.
   */
  readonly weights: 'auto' | (typeof TYPES)[number];
  /** GPU memory of weights and cache, of all ranks together. */
  readonly bytes: number;
  /** Bytes that are missing: 0 where it fits; undefined where so much wasn't tried. */
  readonly missing: number | undefined;
}

const TYPES = ['f16', 'q8', 'q4'] as const;
/** Activations and staging: a little, of models of this size. */
const BESIDE_BYTES = 96 * 2 ** 20;
/** Memory that is tried for: all of the small models, and no more than a desktop can spare for a moment. */
const MOST_BYTES = 6 * 2 ** 30;
const PIECE_BYTES = 256 * 2 ** 20;
/** Of the memory of a machine whose CPU stands in for a GPU. */
const CPU_SHARE = 0.5;

type Options = Pick<
  LoadOptions,
  'weights' | 'kv' | 'contextLength' | 'ranks' | 'memory' | 'virtualRanks' | 'variants' | 'powerPreference' | 'adapter'
>;

/**
 * Which models of the catalog that answer fit this machine's adapters, by their free memory: it is taken for a moment. With `memory`: the budgets.
 * @throws SplitkvError as `openDevice`, `usage` for impossible options
 */
export async function catalogFit(options: Options = {}): Promise<readonly CatalogFit[]> {
  const { weights = 'auto', contextLength } = options;
  const count = rankCount(options);
  const kv = await cacheType(options);
  const asked = TYPES.filter((type) => weights === 'auto' || type === weights);
  const types = asked.length > 0 ? asked : TYPES.slice(0, 1);
  const room = { bytes: 0, isAll: true };
  const need = (model: CatalogModel, type: CatalogFit['weights']): number => {
    const token = model.kvBytesPerToken * { f32: 1, f16: 0.5, q8: 0.28 }[kv];
    const { stored = 0, ...ofTypes } = model.weightBytes;
    const bytes = type === 'auto' ? stored : ofTypes[type];
    const pool = poolRoom(room.bytes - bytes);
    const tokens = Math.min(
      model.contextLength,
      contextLength ?? defaultContext(model.contextLength, (of) => of * token <= pool),
    );
    return bytes + tokens * token + BESIDE_BYTES * count;
  };
  const budgets = memoryBudgets(options.memory, count);
  for (const [rank, adapter] of (await rankAdapters(options, count)).entries()) {
    const budget = budgets[rank];
    const own = budget === undefined ? await freeMemory(adapter, rank) : { bytes: budget, isAll: true };
    if (budget === undefined && options.virtualRanks && rank > 0) break;
    room.bytes += own.bytes;
    room.isAll &&= own.isAll;
  }
  return MODELS.filter(({ use }) => use === undefined).map((model) => {
    const own = weights === 'auto' && model.weightBytes.stored !== undefined ? (['auto'] as const) : types;
    const type = own.find((each) => need(model, each) <= room.bytes) ?? own.at(-1)!;
    const bytes = need(model, type);
    const missing = Math.max(0, bytes - room.bytes);
    return { model, weights: type, bytes, missing: missing > 0 && !room.isAll ? undefined : missing };
  });
}

/** Bytes that can be had now; `isAll`: there is no more. It is given back. */
async function freeMemory(
  adapter: Parameters<typeof openDevice>[0],
  instance: number,
): Promise<{ readonly bytes: number; readonly isAll: boolean }> {
  const device = await openDevice({ ...adapter, instance });
  try {
    if (device.adapter.software) {
      const { deviceMemory: gib = 4 } = globalThis.navigator as { readonly deviceMemory?: number };
      return { bytes: gib * CPU_SHARE * 2 ** 30, isAll: true };
    }
    const piece = Math.min(PIECE_BYTES, device.traits.limits.maxStorageBufferBindingSize);
    for (let bytes = 0; ; bytes += piece) {
      if (bytes >= MOST_BYTES) return { bytes, isAll: false };
      try {
        await device.checked('free memory', () => device.createBuffer('trial', piece));
      } catch (error) {
        if (error instanceof SplitkvError && error.code === 'limit') return { bytes, isAll: true };
        throw error;
      }
    }
  } finally {
    device.dispose();
  }
}
