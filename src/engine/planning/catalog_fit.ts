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

/** What `load('auto')` means. */
export interface AutoModel {
  readonly name: string;
  /** Undefined: as the options have it. */
  readonly weights: (typeof TYPES)[number] | undefined;
  readonly why: string;
}

/** Tokens a second that people read at. */
const FAST_ENOUGH = 10;
/** Of what is downloaded, so large a part is used at least. */
const LEAN = 0.45;

/**
 * The catalog's model that answers best here, about: the largest that fits and writes as fast as people read; where none does, the
 * quickest. Models whose licence has to be accepted first are left out, and those of files that are much larger than what is used.
 * @throws SplitkvError as `catalogFit`, `limit` where none fits, `usage` with a cluster
 */
export async function autoModel(options: Options & Pick<LoadOptions, 'cluster'> = {}): Promise<AutoModel> {
  if (options.cluster) throw usageError("model 'auto' is chosen for this machine's GPUs: name a model for a cluster");
  const { weights = 'auto' } = options;
  return bestOf(await catalogFit(options), await readSpeed(options), weights === 'auto');
}

/**
 * @param bytesPerSecond of weights, as generated tokens read them
 * @param narrows weights may be narrower than what fits, where that is quicker
 */
export function bestOf(fits: readonly CatalogFit[], bytesPerSecond: number, narrows: boolean): AutoModel {
  const open = fits.filter(({ model }) => !model.gated);
  const fitting = open.filter(({ missing }) => missing === 0);
  const bytesOf = ({ model }: CatalogFit, type: CatalogFit['weights']): number =>
    type === 'auto' ? model.weightBytes.stored! : model.weightBytes[type];
  if (fitting.length === 0) {
    const { model, bytes } = open.reduce((least, fit) => (fit.bytes < least.bytes ? fit : least));
    throw limitError(
      `model 'auto': no model of the catalog fits the memory here; ${model.name} takes ${formatBytes(bytes)}: close what uses the GPU, or raise memory`,
    );
  }
  const lean = fitting.filter((fit) => bytesOf(fit, fit.weights) >= LEAN * fit.model.downloadBytes);
  const known = (lean.length > 0 ? lean : fitting).map((fit) => {
    const narrower = fit.weights === 'auto' || !narrows ? [] : TYPES.slice(TYPES.indexOf(fit.weights) + 1);
    const speeds = [fit.weights, ...narrower].map((type) => ({ type, speed: bytesPerSecond / bytesOf(fit, type) }));
    return { model: fit.model, ...(speeds.find(({ speed }) => speed >= FAST_ENOUGH) ?? speeds.at(-1)!) };
  });
  const quick = known.filter(({ speed }) => speed >= FAST_ENOUGH);
  const best =
    quick.length > 0
      ? quick.toSorted(({ model: a }, { model: b }) =>
          a.parameters === b.parameters ? a.downloadBytes - b.downloadBytes : b.parameters - a.parameters,
        )[0]!
      : known.reduce((most, each) => (each.speed > most.speed ? each : most));
  const { model, type, speed } = best;
  const because =
    quick.length > 0
      ? `the largest of ${quick.length} that fit the memory and write ${FAST_ENOUGH} tokens/s or more here`
      : `the quickest: none writes ${FAST_ENOUGH} tokens/s here`;
  const why = `${model.name}, ${because} (expected: ${Number(speed.toPrecision(2))})`;
  return { name: model.name, weights: type === 'auto' ? undefined : type, why };
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
