import { usageError } from '../../base/errors.js';
import type { KvType } from '../../model/layers/attention/cache.js';
import { type AdapterRequest, adapterVariants } from '../../gpu/index.js';
import type { LoadOptions } from '../api.js';

export type { AdapterRequest } from '../../gpu/index.js';

const PREFERENCES: readonly string[] = ['high-performance', 'low-power'] satisfies GPUPowerPreference[];

/** The adapter of each of `count` ranks that the options ask for. @throws SplitkvError `usage` where they say two things. */
export function rankAdapters(
  options: Pick<LoadOptions, 'ranks' | 'adapter' | 'powerPreference' | 'variants'>,
  count: number,
): AdapterRequest[] {
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
export async function cacheType(
  options: Pick<LoadOptions, 'kv' | 'ranks' | 'adapter' | 'powerPreference' | 'variants'>,
): Promise<KvType> {
  const { kv = 'auto' } = options;
  if (kv !== 'auto') return kv;
  const requests = new Map(
    rankAdapters(options, rankCount(options)).map((request) => [JSON.stringify(request), request]),
  );
  for (const request of requests.values()) if ((await adapterVariants(request)) === 'software') return 'f32';
  return 'f16';
}

/** By a power preference, or by part of its name. */
export const namedAdapter = (name: string): AdapterRequest =>
  PREFERENCES.includes(name) ? { powerPreference: name as GPUPowerPreference } : { adapterName: name };

/** @throws SplitkvError `usage` for a number of ranks that can't be */
export function rankCount({ ranks = 1 }: Pick<LoadOptions, 'ranks'>): number {
  const count = typeof ranks === 'number' ? ranks : ranks.length;
  if (!Number.isInteger(count) || count < 1 || count > 64) {
    throw usageError(`ranks ${count}: expected a number of ranks from 1 to 64, or a list of adapters`);
  }
  return count;
}
