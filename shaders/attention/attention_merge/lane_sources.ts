import { SplitkvError } from '../../../src/base/errors.js';
import { MERGE_LANES } from '../../cache/kv_cache.js';

/** Lanes of a bundle of heads that one rank holds: their states, [lanes][rows][bundleHeads], among those that a merge 'home' reads. */
export interface LaneContributor {
  /**
   * Its lane slots, before a sequence's offset rotates them: lane l of a sequence is in slot (l + chunk offset) mod `slots`. The states of
   * the lanes that it holds lie one behind the other.
   */
  readonly slots: readonly number[];
  /** Index of its first state, in states. */
  readonly base: number;
  /** Lanes that its states have room for. */
  readonly lanes: number;
}

/**
 * The `sources` of attention_merge 'home', u32 [bundles][slots][2]: by bundle and lane slot, where the states of the rank that holds it
 * begin, and a bit for each slot that this rank holds, of 8 (copies of heads). `rows`: that states have room for.
 * @param bundles each with the ranks that hold its lanes
 * @param slots ranks that share every sequence, a slot each; or the 8 merge lanes, where copies of heads have some each
 * @throws SplitkvError `internal` when a lane slot has no rank or two, or states of two lie in the same place
 */
export function laneSources(
  bundles: readonly (readonly LaneContributor[])[],
  {
    rows,
    bundleHeads,
    slots = MERGE_LANES,
  }: { readonly rows: number; readonly bundleHeads: number; readonly slots?: number },
): Uint32Array<ArrayBuffer> {
  const sources = new Uint32Array(bundles.length * slots * 2);
  for (const [bundle, contributors] of bundles.entries()) {
    for (let slot = 0; slot < slots; slot++) {
      const holders = contributors.filter((contributor) => contributor.slots.includes(slot));
      if (holders.length !== 1) {
        throw new SplitkvError('internal', `lane slot ${slot} of bundle ${bundle} is held by ${holders.length} ranks`);
      }
      const [{ base, slots: held }] = holders as [LaneContributor];
      const mask = held.reduce((bits, one) => bits | (1 << one), 0);
      sources.set([base, mask], (bundle * slots + slot) * 2);
    }
  }
  const runs = bundles.flatMap((contributors, bundle) =>
    contributors.map(({ base, lanes }) => ({ bundle, base, end: base + lanes * rows * bundleHeads })),
  );
  const inOrder = runs.toSorted((a, b) => a.base - b.base);
  for (const [at, { bundle, base }] of inOrder.entries()) {
    const before = inOrder[at - 1];
    if (before && before.end > base) {
      throw new SplitkvError(
        'internal',
        `lane states of bundle ${bundle} from ${base} on overlap those of bundle ${before.bundle}, which end at ${before.end}`,
      );
    }
  }
  return sources;
}
