import type { AdapterRequest } from '../../gpu/index.js';
import type { CatalogModel, Source } from '../../loader/index.js';
import type { AdaptersMeasure } from '../measure/basics.js';
import type { PlanModelOptions, PlanReport } from './plan_model.js';
import type { ServeOptions, ServingModel } from '../serving/api.js';

/** What a page that only loads a model needn't download: each part comes with its first call. */

/**
 * Loads a model to answer many requests at once: their tokens are computed side by side, and each request gets the same tokens,
 * bit for bit, as it would alone.
 *
 * @param where as for `load`
 * @throws SplitkvError as `load`; `limit` when the KV cache doesn't fit
 */
export async function serve(
  where: string | URL | readonly File[] | Source,
  options: ServeOptions = {},
): Promise<ServingModel> {
  return (await import('./serving_model.js')).serve(where, options);
}

/**
 * Tells what every plan would do with a model on this machine, without loading its weights. `ranks` is how many there may be, or an
 * adapter for each; default 2.
 * @throws SplitkvError as `load`, but not where no plan fits
 */
export async function planModel(
  where: string | URL | readonly File[] | Source,
  options: PlanModelOptions = {},
): Promise<PlanReport> {
  return (await import('./plan_model.js')).planModel(where, options);
}

/**
 * Measures adapters and the links between them; a second or two each.
 * @throws SplitkvError `no_webgpu`, `limit`; `internal` where an adapter computes nonsense
 */
export async function measureAdapters(
  requests: readonly AdapterRequest[],
  options: { readonly signal?: AbortSignal; readonly onProgress?: (what: string) => void } = {},
): Promise<AdaptersMeasure> {
  return (await import('../measure/basics.js')).measureAdapters(requests, options);
}

/** The catalog: small models that run here, by names that `load` takes; the smallest first. */
export const models = async (): Promise<readonly CatalogModel[]> =>
  (await import('../../loader/hub/catalog.js')).MODELS;
