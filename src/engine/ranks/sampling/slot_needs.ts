import { CANDIDATES } from '../../../../shaders/sampling/params.js';
import type { SamplingOptions } from '../../contracts/api.js';
import type { DrawOptions } from '../../contracts/rank.js';
import { dropsUnlikely, hasControls, isGreedy } from './sampling_options.js';

/**
 * What a batch's slots need of the logits, the least first. `greedy`: every rank's best token. `top-k`: every rank's CANDIDATES best
 * tokens. `whole`: all logits in one place.
 */
export const SAMPLING_MODES = ['greedy', 'top-k', 'whole'] as const;
export type SamplingMode = (typeof SAMPLING_MODES)[number];

/** The least that a slot with these options is sampled from exactly. */
export function samplingMode(options: SamplingOptions): SamplingMode {
  const { topK = 0 } = options;
  if (isGreedy(options)) return 'greedy';
  return topK >= 1 && topK <= CANDIDATES && !dropsUnlikely(options) ? 'top-k' : 'whole';
}

/** What the requests in a batch's slots need together: alike on every rank, as all are told of the same requests in the same order. */
export class SlotNeeds {
  readonly #slots = new Map<number, Omit<DrawOptions, 'seed'>>();

  set(slot: number, options: Omit<DrawOptions, 'seed'>): void {
    this.#slots.set(slot, options);
  }

  delete(slot: number): void {
    this.#slots.delete(slot);
  }

  get mode(): SamplingMode {
    const modes = new Set([...this.#slots.values()].map(samplingMode));
    return SAMPLING_MODES.findLast((mode) => modes.has(mode)) ?? 'greedy';
  }

  /** Some slot has a repetition penalty: it matters which tokens were seen. */
  get penalises(): boolean {
    return [...this.#slots.values()].some(({ repetitionPenalty = 1 }) => repetitionPenalty !== 1);
  }

  /** Some slot's logits change before they are searched. */
  get controls(): boolean {
    return [...this.#slots.values()].some(hasControls);
  }
}
