import { SplitkvError } from '../../../src/base/errors.js';
import { MERGE_LANES } from '../../cache/kv_cache.js';

/** Lanes of a bundle of heads that one rank holds: their states, [lanes][rows][bundleHeads], among those that a merge 'home' reads. */
export interface LaneContributor {
  /**
   * Its places among the ranks: of those that share every sequence the one with lanes l where (l + chunk offset) mod `slots` is the place;
   * of copies of a head its number. The states of the lanes that it holds lie one behind the other.
   */
  readonly slots: readonly number[];
  /** Index of its first state, in states. */
  readonly base: number;
  /** Lanes that its states have room for. */
  readonly lanes: number;
}

/**
 * The `sources` of attention_merge 'home', u32 [bundles][slots]: by bundle and place, where the states of the rank that holds it begin.
 * `rows`: that states have room for.
 * @param bundles each with the ranks that hold its lanes
 * @param slots ranks that share every sequence; left out: copies of heads, of which there are 8 at most
 * @throws SplitkvError `internal` when a place has no rank or two, or states of two lie in the same place
 */
export function laneSources(
  bundles: readonly (readonly LaneContributor[])[],
  { rows, bundleHeads, slots }: { readonly rows: number; readonly bundleHeads: number; readonly slots?: number },
): Uint32Array<ArrayBuffer> {
  const places = slots ?? MERGE_LANES;
  const sources = new Uint32Array(bundles.length * places);
  for (const [bundle, contributors] of bundles.entries()) {
    for (let place = 0; place < places; place++) {
      const [holder, ...others] = contributors.filter((contributor) => contributor.slots.includes(place));
      if (others.length > 0 || (!holder && (slots !== undefined || place === 0))) {
        const count = others.length + (holder ? 1 : 0);
        throw new SplitkvError('internal', `place ${place} of bundle ${bundle} is held by ${count} ranks`);
      }
      if (holder) sources[bundle * places + place] = holder.base;
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
