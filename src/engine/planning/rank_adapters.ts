import { usageError } from '../../base/errors.js';
import type { KvType } from '../../model/layers/attention/cache.js';
import { adapterFastPaths, type AdapterRequest, adapterVariants } from '../../gpu/index.js';
import type { LoadOptions } from '../contracts/api.js';
import { MAX_RANKS } from '../contracts/options/load_rows.js';
import { memoryBudgets } from './budgets.js';
import type { PlanRanks } from './plan_subject.js';

export type { AdapterRequest } from '../../gpu/index.js';

const PREFERENCES: readonly string[] = ['high-performance', 'low-power'] satisfies GPUPowerPreference[];

type Adapters = Pick<LoadOptions, 'ranks' | 'adapter' | 'powerPreference' | 'variants'>;

/**
 * The adapter of each of `count` ranks that the options ask for. All may multiply prompts only in ways that all of them have, so that a
 * prompt's numbers don't follow from which rank computes them; with precision 'auto' in ways of GPUs that need no flag.
 * @throws SplitkvError `usage` where they say two things.
 */
export async function rankAdapters(
  options: Adapters & Pick<LoadOptions, 'precision'>,
  count: number,
): Promise<AdapterRequest[]> {
  const { precision = 'exact' } = options;
  const isAuto = precision === 'auto';
  const named = namedAdapters(options, count);
  if (precision === 'exact') return named;
  const requests = isAuto ? named : named.map((request) => ({ ...request, experimental: true }));
  const each = await Promise.all(distinct(requests).map((request) => adapterFastPaths(request, isAuto)));
  const [first = [], ...others] = each;
  const fast = first.filter((path) => others.every((paths) => paths.includes(path)));
  return isAuto && fast.length === 0 ? named : requests.map((request) => ({ ...request, fast }));
}

/** Adapters and budgets of so many ranks. @throws as `rankAdapters` and `memoryBudgets` */
export const ranksOf = async (worldSize: number, options: LoadOptions): Promise<PlanRanks> => ({
  adapters: await rankAdapters(options, worldSize),
  budgets: memoryBudgets(options.memory, worldSize),
  virtual: options.virtualRanks ?? false,
  signal: options.signal,
});

const distinct = (requests: readonly AdapterRequest[]): AdapterRequest[] => [
  ...new Map(requests.map((request) => [JSON.stringify(request), request])).values(),
];

/** Ranks are on adapters that may be unlike. */
export const areUnlike = ({ adapters, virtual }: Pick<PlanRanks, 'adapters' | 'virtual'>): boolean =>
  !virtual && distinct(adapters).length > 1;

function namedAdapters(options: Adapters, count: number): AdapterRequest[] {
  const { ranks, adapter, powerPreference, variants = 'auto' } = options;
  const forced = variants === 'auto' ? {} : { variants };
  if (ranks === undefined || typeof ranks === 'number') {
    const same = {
      ...(powerPreference && { powerPreference }),
      ...(adapter !== undefined && { adapterName: adapter }),
      ...forced,
    };
    return Array.from({ length: count }, () => same);
  }
  if (adapter !== undefined || powerPreference) {
    throw usageError('ranks names an adapter for each rank: leave adapter and powerPreference out');
  }
  return ranks.map((name) => ({ ...namedAdapter(name), ...forced }));
}

/** The KV cache's type that the options ask for: 'auto' is f16 where kernels are a GPU's on every rank, and f32 elsewhere. */
export async function cacheType(options: Adapters & Pick<LoadOptions, 'kv'>): Promise<KvType> {
  const { kv = 'auto' } = options;
  if (kv !== 'auto') return kv;
  const requests = distinct(namedAdapters(options, rankCount(options)));
  for (const request of requests) if ((await adapterVariants(request)) === 'software') return 'f32';
  return 'f16';
}

/** By a power preference, or by part of its name. */
export const namedAdapter = (name: string): AdapterRequest =>
  PREFERENCES.includes(name) ? { powerPreference: name as GPUPowerPreference } : { adapterName: name };

/** @throws SplitkvError `usage` for a number of ranks that can't be */
export function rankCount({ ranks = 1 }: Pick<LoadOptions, 'ranks'>): number {
  const count = typeof ranks === 'number' ? ranks : ranks.length;
  if (!Number.isInteger(count) || count < 1 || count > MAX_RANKS) {
    throw usageError(`ranks ${count}: expected a number of ranks from 1 to ${MAX_RANKS}, or a list of adapters`);
  }
  return count;
}
