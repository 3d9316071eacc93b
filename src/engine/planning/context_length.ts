import { usageError } from '../../base/errors.js';
import { sum } from '../../base/lists.js';
import { isRecurrent, type ModelConfig } from '../../model/config/model_config.js';
import { modelSizes } from '../../model/model_sizes.js';
import { modelShape } from '../../model/shape.js';
import { weightBytes } from '../../model/weights/model_map.js';
import type { MemorySubject } from '../ranks/rank_memory.js';
import type { RunnerOptions } from '../contracts/rank.js';

/** What a pool of caches takes where nothing is said, in bytes. */
export const POOL_BYTES = 2 ** 30;
/** What every WebGPU adapter can bind: a layer's cache isn't made larger unless it was asked for. */
export const POOL_LAYER_BYTES = 2 ** 27;
/** Tokens of a default context: at least, where a model has as many positions, and at most. */
export const LEAST_CONTEXT = 4096;
const MOST_CONTEXT = 32_768;
const STEP = 1024;
/** Of what budgets leave beside the weights; activations need some too. */
const SHARE = 0.5;

/** @param memory budgets of the ranks, in bytes */
type Subject = Pick<MemorySubject, 'config' | 'type'> &
  Pick<RunnerOptions, 'kvType'> & { readonly memory?: number | readonly number[] | undefined };

/**
 * Tokens that a sequence may have: as asked, or the model's positions, at most 32,768, and of more than 4,096 only what a pool of caches
 * holds, or half of what budgets leave.
 * @throws SplitkvError `usage` beyond the model's positions
 */
export function contextOf(asked: number | undefined, subject: Subject): number {
  const { config, type, kvType, memory } = subject;
  if (asked === undefined) {
    const heads = modelShape(config).segmentHeads.length;
    const layers = modelSizes(config, type, kvType).layers.map(({ kvToken, window }) => ({
      token: kvToken * heads,
      window,
    }));
    const room = memory === undefined ? POOL_BYTES : poolRoom(sum([memory].flat()) - weightBytes(config, type).bytes);
    return defaultContext(shortPositions(config), (tokens) => {
      const bytes = layers.map(({ token, window = tokens }) => token * Math.min(window, tokens));
      return sum(bytes) <= room && Math.max(...bytes) <= POOL_LAYER_BYTES;
    });
  }
  if (asked > config.maxPositions) {
    throw usageError(`contextLength ${asked}: this model has at most ${config.maxPositions} positions`);
  }
  return asked;
}

/** Bytes that a default context's cache may take of those left beside the weights. */
export const poolRoom = (left: number): number => Math.min(POOL_BYTES, SHARE * left);

/**
 * Tokens of a context where nothing is said.
 * @param positions that the model has
 * @param fits whether there is room for the cache of so many tokens
 */
export function defaultContext(positions: number, fits: (tokens: number) => boolean): number {
  let tokens = LEAST_CONTEXT;
  while (tokens < Math.min(positions, MOST_CONTEXT) && fits(tokens + STEP)) tokens += STEP;
  return Math.min(positions, tokens);
}

/** Those of LongRoPE's short factors: a longer context takes the long ones for every text. */
export const shortPositions = ({ layers, maxPositions }: ModelConfig): number =>
  Math.min(
    maxPositions,
    ...layers.map(({ attention }) => {
      const scaling = isRecurrent(attention) ? undefined : attention.rope?.scaling;
      return scaling?.type === 'longrope' ? scaling.originalMaxPositions : Infinity;
    }),
  );
