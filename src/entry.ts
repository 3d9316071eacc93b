import type { AdapterRequest } from './gpu/index.js';
import type { Source } from './loader/index.js';
import type { AdaptersMeasure } from './engine/measure/basics.js';
import type { PlanModelOptions, PlanReport } from './engine/faces/plan_model.js';
import type { CatalogModel, LoadOptions, Model } from './engine/contracts/api.js';
import { type JoinPlaces, load as loadModel } from './engine/faces/load.js';
import type { ServeOptions, ServingModel } from './engine/serving/api.js';
import type { JoinPeerOptions } from './cluster/peers/peers.js';
import type { RankHost } from './cluster/ranks/rank_host.js';
import type { PeerOptions, Peers } from './engine/contracts/cluster_options.js';

/** Ranks of a cluster's machines, for whoever names a cluster. */
const join: JoinPlaces = async (options) =>
  (await import('./cluster/ranks/cluster_ranks.js')).ClusterRanks.join(options);

/**
 * Loads a Hugging Face model folder or a GGUF file and prepares it on one GPU device, or on several (`ranks`, `plan`).
 *
 * @example
 * ```ts
 * import { load } from 'splitkv';
 *
 * const model = await load('smollm2-360m-instruct', { weights: 'q4' });
 * const { text } = await model.generate('Why is the sky blue?', { maxTokens: 50 }).result;
 * console.log(text);
 * await model.dispose();
 * ```
 *
 * @param where a folder or .gguf file on disk (Node), a URL of either that answers range requests, the files (browser), or a model of
 *   the Hugging Face Hub: 'ORG/NAME', 'hf:ORG/NAME@REVISION/FILE.gguf', or a name of the catalog (`models()`); 'auto' takes the
 *   catalog's model that answers best here, by the GPU's memory and speed: `info.modelReason` says why
 * @throws SplitkvError: `usage`, `io`, `format`, `config`, `unsupported`, `limit`, `no_webgpu`, `aborted`. Whatever was
 *   allocated until then is freed.
 */
export async function load(where: string | URL | readonly File[] | Source, options: LoadOptions = {}): Promise<Model> {
  if (options?.share) return (await import('./engine/faces/share/shared_model.js')).loadShared(where, options, join);
  return loadModel(where, options, join);
}

// What a page that only loads a model needn't download: each part comes with its first call.

/**
 * Loads a model to answer many requests at once: their tokens are computed side by side, and each request gets the same tokens,
 * bit for bit, as it would alone.
 *
 * @example
 * ```ts
 * import { serve } from 'splitkv';
 *
 * const model = await serve('smollm2-360m-instruct', { slots: 8 });
 * for await (const { index, text } of model.complete('Once upon a time', { n: 2, maxTokens: 20 })) {
 *   console.log(index, text);
 * }
 * await model.dispose();
 * ```
 *
 * @param where as for `load`
 * @throws SplitkvError as `load`; `limit` when the KV cache doesn't fit
 */
export async function serve(
  where: string | URL | readonly File[] | Source,
  options: ServeOptions = {},
): Promise<ServingModel> {
  return (await import('./engine/faces/serving_model.js')).serve(where, options, join);
}

/**
 * Tells what every plan would do with a model on this machine, without loading its weights. `ranks` is how many there may be, or an
 * adapter for each; default 2.
 *
 * @example
 * ```ts
 * import { planModel } from 'splitkv';
 *
 * const { pick, download, why } = await planModel('smollm2-360m-instruct', { weights: 'q4', ranks: 1 });
 * console.log(pick?.policy, download?.bytes, why);
 * ```
 *
 * @throws SplitkvError as `load`, but not where no plan fits
 */
export async function planModel(
  where: string | URL | readonly File[] | Source,
  options: PlanModelOptions = {},
): Promise<PlanReport> {
  return (await import('./engine/faces/plan_model.js')).planModel(where, options);
}

/**
 * Measures adapters and the links between them; a second or two each.
 * @throws SplitkvError `no_webgpu`, `limit`; `internal` where an adapter computes nonsense
 */
export async function measureAdapters(
  requests: readonly AdapterRequest[],
  options: { readonly signal?: AbortSignal; readonly onProgress?: (what: string) => void } = {},
): Promise<AdaptersMeasure> {
  return (await import('./engine/measure/basics.js')).measureAdapters(requests, options);
}

/**
 * The catalog: small models that run here, by names that `load` takes; the smallest first.
 *
 * @example
 * ```ts
 * import { models } from 'splitkv';
 *
 * for (const { name, license, weightBytes } of await models()) console.log(name, license, weightBytes.q4);
 * ```
 */
export const models = async (): Promise<readonly CatalogModel[]> => (await import('./loader/hub/catalog.js')).MODELS;

/**
 * This page as a rank, and pages that it invites: a cluster without a server (`load(name, { cluster: { peers }, ranks: peers.names })`).
 * @throws SplitkvError `usage`, `unsupported` without WebRTC, `no_webgpu`
 */
export const openPeers = async (options: PeerOptions): Promise<Peers> =>
  (await import('./cluster/peers/peers.js')).openPeers(options);

/**
 * Joins the page that invited, as a rank of what it loads, once both pages have agreed.
 * @param invitation its text, its id (of a page of this browser, or with `relay`), or an address that ends with either
 * @throws SplitkvError `usage` for what is no invitation, one that was used, and where somebody says no; `io` where the pages don't reach
 *   each other; `aborted`, `unsupported`, `no_webgpu`
 */
export const joinPeer = async (invitation: string, options: JoinPeerOptions): Promise<RankHost> =>
  (await import('./cluster/peers/peers.js')).joinPeer(invitation, options);
