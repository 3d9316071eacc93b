import { didYouMean } from '../../src/base/errors.js';
import { formatBytes } from '../../src/base/math.js';
import type { RankState } from '../../src/cluster/ranks/rank_host.js';

/** What the page's address may say. */
export const PARAMETERS = ['cluster', 'cluster-name', 'name', 'adapter', 'memory'] as const;

/** What is wrong with the address, for people; '' for nothing. */
export function wrongParameters(query: URLSearchParams): string {
  const foreign = [...new Set(query.keys())].filter((name) => !(PARAMETERS as readonly string[]).includes(name));
  return foreign
    .map((name) =>
      name === 'token'
        ? "The address has a token, which others may have seen: it isn't used. Have another one made, and type it here."
        : `The address has a parameter '${name}', which means nothing here.${didYouMean(name, PARAMETERS)}`,
    )
    .join(' ');
}

/** In a word, for the tab. */
export function stateWord({ connected, serving, refused }: RankState): string {
  if (refused !== undefined) return 'refused';
  if (!connected) return 'away';
  if (serving?.lost !== undefined) return 'lost';
  return serving ? 'busy' : 'free';
}

/** What a rank is doing, for people. */
export function stateText({ connected, serving, left, refused }: RankState): string {
  if (refused !== undefined) return `${refused.charAt(0).toUpperCase()}${refused.slice(1)}.`;
  if (!connected) return "The cluster's server doesn't answer. It is tried again until it does.";
  if (!serving) {
    return left === undefined
      ? 'Free: it waits for a model.'
      : `Free: it waits for a model. The last one went: ${left}.`;
  }
  const { model, rank, ranks, weightBytes, lost } = serving;
  if (lost !== undefined) return `Its GPU is lost (${lost}). Whoever loaded the model was told.`;
  if (model === undefined) return 'Busy: somebody came.';
  const part = ranks === undefined || ranks === 1 ? model : `its part of ${model}, as rank ${rank} of ${ranks}`;
  return weightBytes === undefined ? `Loading ${part}.` : `Busy with ${part}.`;
}

/** What of the GPU's memory it takes. */
export function heldText({ serving }: RankState): string {
  const { weightBytes, kvBytes, loadedBytes, totalBytes } = serving ?? {};
  if (weightBytes !== undefined && kvBytes !== undefined) {
    return `${formatBytes(weightBytes)} of weights, ${formatBytes(kvBytes)} of KV cache`;
  }
  if (loadedBytes === undefined || totalBytes === undefined) return 'nothing';
  return `${formatBytes(loadedBytes)} of ${formatBytes(totalBytes)} of weights`;
}
