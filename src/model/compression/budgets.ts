import { usageError } from '../../base/errors.js';
import { nth, sum } from '../../base/lists.js';
import type { Plan } from '../../placement/index.js';
import type { CompressedModel, CompressionOptions } from './options.js';

/** Entries that a head keeps of a prompt of `length` tokens on average, window included. */
export const capacity = ({ budget, window }: Pick<CompressionOptions, 'budget' | 'window'>, length: number): number =>
  Math.min(length, Math.max(window, Math.round(budget * length)));

/** The same beside the window. */
export const baseEntries = (options: Pick<CompressionOptions, 'budget' | 'window'>, length: number): number =>
  Math.max(0, capacity(options, length) - options.window);

/** Whether anything of such a prompt is evicted: not of one within the budget, nor of one within the window. */
export const isCompressed = (options: Pick<CompressionOptions, 'budget' | 'window'>, length: number): boolean =>
  capacity(options, length) < length;

/**
 * Kept entries in proportion to loads: integers from `least` to `most` that add up to `total` as far as these allow. What a bound takes
 * from a head or gives it goes to the others in proportion; what rounding leaves goes to the largest remainders, the first of equals.
 */
export function proportionalEntries(
  loads: readonly number[],
  total: number,
  { least, most }: { readonly least: number; readonly most: number },
): number[] {
  const wanted = Math.min(Math.max(total, least * loads.length), most * loads.length);
  const at = (scale: number): number[] => loads.map((load) => Math.min(most, Math.max(least, scale * load)));
  const smallest = Math.min(...loads.filter((load) => load > 0));
  let low = 0;
  let high = most / smallest;
  for (let i = 0; i < 100; i++) {
    const middle = (low + high) / 2;
    if (sum(at(middle)) < wanted) low = middle;
    else high = middle;
  }
  const shares = at(high);
  const entries = shares.map((share) => Math.floor(share + 1e-9));
  const order = shares
    .map((share, head) => ({ head, rest: share - nth(entries, head) }))
    .sort((a, b) => b.rest - a.rest || a.head - b.head);
  let left = wanted - sum(entries);
  // Heads without load only get what the others can't hold.
  for (let round = 0; left > 0; round++) {
    for (const { head } of order) {
      if (left === 0) break;
      if (nth(entries, head) >= most || (round === 0 && loads[head] === 0)) continue;
      entries[head]!++;
      left--;
    }
  }
  return entries;
}

/**
 * 'snap', 'static': entries beside the window by [layer][kv head] of the whole model, as the host knows them before a prompt ends.
 * 'ada' counts its own. Every head keeps at most the prompt.
 */
export function givenBudgets(
  options: CompressionOptions,
  { numLayers, numKvHeads }: CompressedModel,
  length: number,
): number[][] {
  const { policy, window, loads } = options;
  const base = baseEntries(options, length);
  if (policy !== 'static' || !loads) {
    return Array.from({ length: numLayers }, () => new Array<number>(numKvHeads).fill(base));
  }
  const kept = proportionalEntries(loads.flat(), numLayers * numKvHeads * capacity(options, length), {
    least: Math.min(window, length),
    most: length,
  });
  return loads.map((layer, at) => {
    const first = loads.slice(0, at).reduce((sum, { length: heads }) => sum + heads, 0);
    return layer.map((_, head) => nth(kept, first + head) - Math.min(window, length));
  });
}

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
          given.slice(first, end).map((heads) => meanOf(kvHeads.map((head) => nth(heads, head))) + options.window),
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

const meanOf = (values: readonly number[]): number => sum(values) / values.length;

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

/** @throws SplitkvError `usage` when steps of `promptRows` rows can't hold a window. */
export function checkWindowFits(window: number, promptRows: number): void {
  if (window <= promptRows) return;
  throw usageError(
    `kvWindow ${window}: a prompt step has room for ${promptRows} rows; use a window of at most that, or a larger prefillChunk`,
  );
}
