import type { Plan } from '../../placement/index.js';
import { baseEntries, capacity, givenBudgets, isCompressed } from './budgets.js';
import type { CompressedModel, CompressionOptions } from './options.js';

/** What a pager that counts tokens, not heads, must know of compressed prompts. Functions of a prompt's length alone. */
export interface PromptEviction {
  /** Rows that a prompt's last step has at least; 0 for prompts that are left as they are. */
  windowOf(promptLength: number): number;
  /** Tokens of the prompt that blocks need no longer hold afterwards, on any rank and layer. */
  evictedOf(promptLength: number): number;
}

/**
 * Bounds for a plan: a rank's heads of a layer never take more blocks than equally many heads would that each had lost `evictedOf`
 * tokens, however 'ada' deals out its budget.
 * @param block tokens of a block
 */
export function promptEviction(
  options: CompressionOptions,
  model: CompressedModel,
  { stages }: Plan,
  block: number,
): PromptEviction {
  const held = stages.flatMap(({ layers, shares }) =>
    shares.filter(({ kvHeads }) => kvHeads.length > 0).map(({ kvHeads }) => ({ layers, kvHeads })),
  );
  const mean = (length: number): number => {
    if (options.policy === 'snap') return capacity(options, length);
    if (options.policy === 'static') {
      const given = givenBudgets(options, model, length);
      return Math.max(
        ...held.flatMap(({ layers: [first, end], kvHeads }) =>
          given.slice(first, end).map((heads) => meanOf(kvHeads.map((head) => heads[head]!)) + options.window),
        ),
      );
    }
    const keys = length - options.window;
    const base = baseEntries(options, length);
    const fewest = Math.min(...held.map(({ kvHeads }) => kvHeads.length));
    const share = Math.min(keys, (base * model.numKvHeads) / fewest);
    // Each head's budget is rounded.
    return options.window + share * (1 - options.floor) + base * options.floor + 0.5;
  };
  return {
    windowOf: (length) => (isCompressed(options, length) ? options.window : 0),
    evictedOf(length) {
      if (!isCompressed(options, length)) return 0;
      // Heads that keep as much as each other fill blocks alike; otherwise each may have a part of one to itself.
      const slack = options.policy === 'snap' ? 0 : block - 1;
      return Math.max(0, length - Math.ceil(mean(length)) - slack);
    },
  };
}

const meanOf = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

/**
 * What heads that kept different numbers of entries count for: the least number m such that, however many entries more each gets, they
 * take no more blocks than as many heads of m entries each would.
 * @param block tokens of a block
 */
export function countedEntries(kept: readonly number[], block: number): number {
  // Each head's last block may be full when the counted ones' is: what is then beyond must fit in what others lack.
  const beyond = (entries: number): number => kept.reduce((sum, own) => sum + Math.ceil((own - entries) / block), 0);
  let entries = Math.ceil(meanOf(kept));
  while (beyond(entries) > 0) entries++;
  return entries;
}
