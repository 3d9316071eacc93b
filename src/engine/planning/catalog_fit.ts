import { limitError, SplitkvError, usageError } from '../../base/errors.js';
import { formatBytes } from '../../base/math.js';
import { openDevice } from '../../gpu/index.js';
import { type CatalogModel, MODELS } from '../../loader/hub/catalog.js';
import type { LoadOptions } from '../contracts/api.js';
import { memoryBudgets } from './budgets.js';
import { defaultContext, poolRoom } from './context_length.js';
import { measureAdapters } from '../measure/basics.js';
import { MATVEC_SIZE } from '../measure/matvec_size.js';
import { defaultStore, measured } from '../measure/stores/store.js';
import { cacheType, rankAdapters, rankCount } from './rank_adapters.js';

/** What a model of the catalog would take here, about: from the catalog, without asking a server. */
export interface CatalogFit {
  readonly model: CatalogModel;
  /** GPU memory of the weights. */
  readonly weightBytes: number;
  /** GPU memory of weights and cache, of all ranks together. */
  readonly bytes: number;
  /** Bytes that are missing: 0 where it fits; undefined where so much wasn't tried. */
  readonly missing: number | undefined;
}

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
  const room = { bytes: 0, isAll: true };
  const budgets = memoryBudgets(options.memory, count);
  for (const [rank, adapter] of (await rankAdapters(options, count)).entries()) {
    const budget = budgets[rank];
    const own = budget === undefined ? await freeMemory(adapter, rank) : { bytes: budget, isAll: true };
    if (budget === undefined && options.virtualRanks && rank > 0) break;
    room.bytes += own.bytes;
    room.isAll &&= own.isAll;
  }
  return MODELS.filter(({ use }) => use === undefined).map((model) => {
    const { stored, f16, ...narrow } = model.weightBytes;
    const weightBytes = { auto: stored, f32: 2 * f16, f16, ...narrow }[weights];
    const token = model.kvBytesPerToken * { f32: 1, f16: 0.5, q8: 0.28 }[kv];
    const pool = poolRoom(room.bytes - weightBytes);
    const most = contextLength ?? defaultContext(model.contextLength, (tokens) => tokens * token <= pool);
    const bytes = weightBytes + Math.min(model.contextLength, most) * token + BESIDE_BYTES * count;
    const missing = Math.max(0, bytes - room.bytes);
    return { model, weightBytes, bytes, missing: missing > 0 && !room.isAll ? undefined : missing };
  });
}

/** What `load('auto')` means. */
export interface AutoModel {
  readonly name: string;
  readonly why: string;
}

/** Tokens a second that people read at. */
const FAST_ENOUGH = 10;

/**
 * The catalog's model that answers best here, about: the largest that fits and writes as fast as people read; where none does, the
 * quickest.
 * @throws SplitkvError as `catalogFit`, `limit` where none fits, `usage` with a cluster
 */
export async function autoModel(options: Options & Pick<LoadOptions, 'cluster'> = {}): Promise<AutoModel> {
  if (options.cluster) throw usageError("model 'auto' is chosen for this machine's GPUs: name a model for a cluster");
  return bestOf(await catalogFit(options), await readSpeed(options));
}

/** @param bytesPerSecond of weights, as generated tokens read them */
export function bestOf(fits: readonly CatalogFit[], bytesPerSecond: number): AutoModel {
  const fitting = fits.filter(({ missing }) => missing === 0);
  if (fitting.length === 0) {
    const { model, bytes } = fits.reduce((least, fit) => (fit.bytes < least.bytes ? fit : least));
    throw limitError(
      `model 'auto': no model of the catalog fits the memory here; ${model.name} takes ${formatBytes(bytes)}: close what uses the GPU, or raise memory`,
    );
  }
  const speedOf = ({ weightBytes }: CatalogFit): number => bytesPerSecond / weightBytes;
  const quick = fitting.filter((fit) => speedOf(fit) >= FAST_ENOUGH);
  // Of two as large the newer one stands last.
  const best =
    quick.length > 0
      ? quick.reduce((most, fit) => (fit.model.parameters >= most.model.parameters ? fit : most))
      : fitting.reduce((most, fit) => (speedOf(fit) > speedOf(most) ? fit : most));
  const because =
    quick.length > 0
      ? `the largest of ${quick.length} that fit the memory and write ${FAST_ENOUGH} tokens/s or more here`
      : `the quickest: none writes ${FAST_ENOUGH} tokens/s here`;
  const { name } = best.model;
  return { name, why: `${name}, ${because} (expected: ${Number(speedOf(best).toPrecision(2))})` };
}

/** Of the first rank's adapter: bytes of weights that one row reads a second. */
async function readSpeed(options: Options): Promise<number> {
  const [request] = await rankAdapters(options, rankCount(options));
  const device = await openDevice(request!);
  device.dispose();
  const { adapters } = await measured(await defaultStore(), 'basics', device.adapter, false, () =>
    measureAdapters([request!]),
  );
  const { copyBytesPerSecond, matvecSeconds } = adapters[0]!;
  // A matrix may stay in the GPU's cache, copies don't; on a CPU kernels are slower than copies.
  return Math.min(2 * copyBytesPerSecond, (2 * MATVEC_SIZE ** 2) / matvecSeconds);
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
