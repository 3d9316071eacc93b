import { range, sum } from '../../base/lists.js';

/**
 * Cuts items 0 .. n - 1 into `parts` contiguous parts whose largest cost is as small as can be; among those, as even as can be
 * (the least sum of squares).
 *
 * @param cost of the part [first, end); Infinity for a part that isn't allowed
 * @returns the parts in order, or undefined where no allowed cut exists
 */
export function partition(
  n: number,
  parts: number,
  cost: (first: number, end: number) => number,
): [first: number, end: number][] | undefined {
  const largest = cut(n, parts, cost, Math.max);
  if (!largest) return undefined;
  const most = Math.max(...largest.map(([first, end]) => cost(first, end)));
  return cut(
    n,
    parts,
    (first, end) => {
      const value = cost(first, end);
      return value <= most ? value * value : Infinity;
    },
    (a, b) => a + b,
  );
}

/** The cut whose costs, joined, are least. */
function cut(
  n: number,
  parts: number,
  cost: (first: number, end: number) => number,
  join: (a: number, b: number) => number,
): [first: number, end: number][] | undefined {
  // best[p][end]: the least cost of cutting 0 .. end - 1 into p parts, and where the last one starts.
  const best: { cost: number; first: number }[][] = [];
  for (let p = 1; p <= parts; p++) {
    best[p] = range(0, n + 1).map((end) => {
      let least = { cost: Infinity, first: 0 };
      const [low, high] = p === 1 ? [0, 1] : [p - 1, end];
      for (let first = low; first < high && first < end; first++) {
        const value = p === 1 ? cost(0, end) : join(best[p - 1]![first]!.cost, cost(first, end));
        if (value < least.cost) least = { cost: value, first };
      }
      return least;
    });
  }
  if (!(best[parts]![n]!.cost < Infinity)) return undefined;
  const out: [number, number][] = [];
  for (let p = parts, end = n; p > 0; p--) {
    const { first } = best[p]![end]!;
    out.unshift([first, end]);
    end = first;
  }
  return out;
}

/**
 * Segments of these sizes in `parts` contiguous lists, as even as whole segments allow, each with something in it.
 * Where all sizes are 0 the segments themselves are spread.
 */
export function spreadSegments(sizes: readonly number[], parts: number): number[][] | undefined {
  const weights = sum(sizes) > 0 ? sizes : sizes.map(() => 1);
  const cuts = partition(weights.length, parts, (first, end) => sum(weights.slice(first, end)) || Infinity);
  return cuts?.map(([first, end]) => range(first, end));
}
