/**
 * Long sweeps: `npm test` runs what is drawn of them, `npm run test:all` (SPLITKV_SWEEP=all) runs them whole. The quickest adapter
 * draws more than a slower one, which compiles for seconds.
 */
import { Random } from '../../base/random.js';

/** Pages have none: fixtures run there as benches. */
const environment = (
  globalThis as { readonly process?: { readonly env: Readonly<Record<string, string | undefined>> } }
).process?.env;

/** SPLITKV_SEED repeats a run. */
export const drawSeed = Number(environment?.['SPLITKV_SEED'] ?? Date.now() % 100_000);

export const sweepsAll = environment?.['SPLITKV_SWEEP'] === 'all';

/** `count` of the items, in their order; all of them in a sweep. `what` makes draws of the same seed differ. */
export function drawn<Item>(items: readonly Item[], count: number, what: string): Item[] {
  return sweepsAll ? [...items] : drawnBy(drawSeed, items, count, what);
}

/** Whether a run in `every` is this one. `what` as of `drawn`. */
export const isTurn = (every: number, what: string): boolean => drawn([...Array(every).keys()], 1, what).includes(0);

/** What a seed draws. */
export function drawnBy<Item>(seed: number, items: readonly Item[], count: number, what: string): Item[] {
  if (count >= items.length) return [...items];
  const random = new Random(
    Array.from(what).reduce((hash, letter) => (hash * 31 + letter.charCodeAt(0)) % 2 ** 31, seed),
  );
  const left = [...items.keys()];
  const taken = Array.from({ length: count }, () => left.splice(random.integer(left.length), 1)[0]!);
  return taken.toSorted((a, b) => a - b).map((index) => items[index]!);
}
