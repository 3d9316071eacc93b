/**
 * Room: a prompt's cache compressed head by head: which entries each kv head keeps, and moving them to the front of
 * its blocks. docs/kv_compression.md explains. Read prompt_compression.ts next.
 */

import { didYouMean, usageError } from '../../base/errors.js';
import { MAX_WINDOW } from '../../base/kv_units.js';

/**
 * How many entries each kv head keeps of a prompt:
 *   'snap'    every head the same (SnapKV)
 *   'ada'     by the head's share of its layer's best scores, above a floor (Ada-KV)
 *   'static'  by loads that were measured before (HeadKV)
 * Which ones is decided by score in all of them.
 */
export type KvPolicy = 'snap' | 'ada' | 'static';

const KV_POLICIES: readonly KvPolicy[] = ['snap', 'ada', 'static'];

/** How the KV cache of a prompt is compressed, head by head. */
export interface CompressionOptions {
  readonly policy: KvPolicy;
  /** Part of the prompt's tokens that a head keeps on average, window included: above 0, at most 1. */
  readonly budget: number;
  /** The last tokens of the prompt, whose queries score and which are always kept. */
  readonly window: number;
  /** Neighbours that a score is the largest of, itself among them: odd; 1 pools nothing. */
  readonly poolWidth: number;
  /** 'ada', alpha: the part of the average that every head is given whatever its scores: 0 to 1 in steps of 0.001. */
  readonly floor: number;
  /** 'static': [layer][kv head] of the whole model, say mean kept entries; what a head keeps is in proportion. */
  readonly loads?: readonly (readonly number[])[];
}

/** Of the model that is compressed. */
export interface CompressedModel {
  readonly numLayers: number;
  readonly numKvHeads: number;
}

export const COMPRESSION_DEFAULTS = { window: 32, poolWidth: 7, floor: 0.2 } as const;

/** Options with defaults for what is left out. @throws SplitkvError `usage` that names the option, its value and what it may be. */
export function compressionOptions(
  given: Pick<CompressionOptions, 'policy' | 'budget'> & Partial<CompressionOptions>,
  model: CompressedModel,
): CompressionOptions {
  const options = { ...COMPRESSION_DEFAULTS, ...given };
  const { policy, budget, window, poolWidth, floor, loads } = options;
  if (!KV_POLICIES.includes(policy)) {
    throw usageError(`kvPolicy '${policy}': use 'none', 'snap', 'ada' or 'static'.${didYouMean(policy, KV_POLICIES)}`);
  }
  if (!(budget > 0 && budget <= 1)) {
    throw usageError(`kvBudget ${budget}: expected a part of the prompt, above 0 and at most 1`);
  }
  if (!Number.isInteger(window) || window < 1 || window > MAX_WINDOW) {
    throw usageError(`kvWindow ${window}: expected an integer from 1 to ${MAX_WINDOW}`);
  }
  if (!Number.isInteger(poolWidth) || poolWidth < 1 || poolWidth > 255 || poolWidth % 2 === 0) {
    throw usageError(`kvKernel ${poolWidth}: expected an odd number from 1 (no pooling) to 255`);
  }
  if (!(floor >= 0 && floor <= 1) || Math.abs(floor * 1000 - Math.round(floor * 1000)) > 1e-6) {
    throw usageError(`kvAlpha ${floor}: expected 0 to 1 in steps of 0.001`);
  }
  if (policy === 'static') checkLoads(loads, model);
  return options;
}

function checkLoads(loads: CompressionOptions['loads'], { numLayers, numKvHeads }: CompressedModel): void {
  if (!loads) {
    throw usageError(
      "kvPolicy 'static' needs the heads' loads: give a profile that `splitkv profile` wrote, or use 'ada'",
    );
  }
  if (loads.length !== numLayers || loads.some((layer) => layer.length !== numKvHeads)) {
    throw usageError(
      `loads of ${loads.length} layers of ${[...new Set(loads.map((layer) => layer.length))].join(', ')} kv heads; ` +
        `this model has ${numLayers} of ${numKvHeads}: profile this model`,
    );
  }
  if (loads.some((layer) => layer.some((load) => !(load >= 0 && Number.isFinite(load))))) {
    throw usageError('loads must be finite numbers of at least 0');
  }
  if (loads.every((layer) => layer.every((load) => load === 0))) {
    throw usageError('every load is 0: at least one head must keep something');
  }
}
