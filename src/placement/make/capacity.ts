import { type MemoryOptions, planMemory } from '../memory.js';
import type { Plan } from '../plan.js';
import type { ModelSizes } from '../sizes.js';

/** More than any plan is asked for. */
const MOST = 2 ** 20;

/**
 * Whole sequences of `contextLength` tokens whose cache fits the ranks' budgets beside the weights; 0 where not even the weights fit.
 * @param budgets bytes that each rank may take, in order of ranks
 */
export function maxSequences(
  plan: Plan,
  sizes: ModelSizes,
  options: Omit<MemoryOptions, 'slots'>,
  budgets: readonly number[],
): number {
  const fits = (slots: number): boolean =>
    planMemory(plan, sizes, { ...options, slots }).every(({ rank, totalBytes }) => totalBytes <= budgets[rank]!);
  let low = 0;
  let high = MOST;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle;
  }
  // Sequences are sharded whole: where one more overfills a rank, two more may not.
  for (let slots = low + 1; slots <= 1.5 * low + plan.worldSize; slots++) if (fits(slots)) low = slots;
  return low;
}
