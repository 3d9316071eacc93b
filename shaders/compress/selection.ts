/**
 * Room: which entries of a cache are kept, by score: `snap_scores`, `snap_pool`, `ada_budgets`, `snap_select`,
 * `kv_compact`, in this order. This file is the same choice in plain TypeScript; problem.ts says what they share.
 */

/**
 * Which entries of a KV cache to keep, by score: SnapKV's choice and Ada-KV's budgets (`FFY0/AdaKV`, snapkv_utils.py). Pure; the
 * kernels of this folder compute the same, and of equal scores prefer the same.
 */

/** Largest of each score's neighbours up to `width >> 1` away. `width` is odd. */
export function poolScores(scores: ArrayLike<number>, width: number): Float64Array {
  const radius = width >> 1;
  return Float64Array.from(scores, (_, at) => {
    let largest = -Infinity;
    for (let t = Math.max(0, at - radius); t <= Math.min(scores.length - 1, at + radius); t++) {
      largest = Math.max(largest, scores[t]!);
    }
    return largest;
  });
}

/** Positions of the best `count` scores, ascending; of equal scores the one at the lower position is better. */
export function bestPositions(scores: ArrayLike<number>, count: number): number[] {
  const order = Array.from(scores, (_, position) => position).sort((a, b) => scores[b]! - scores[a]! || a - b);
  return order.slice(0, count).sort((a, b) => a - b);
}

/**
 * How many of each head's scores are among the best `heads * base` of all heads together; of equal scores the one at the lower
 * position is better, then the one of the lower head.
 */

export function headShares(scores: readonly ArrayLike<number>[], base: number): number[] {
  const all = scores.flatMap((own, head) => Array.from(own, (score, position) => ({ score, position, head })));
  all.sort((a, b) => b.score - a.score || a.position - b.position || a.head - b.head);
  const shares = scores.map(() => 0);
  for (const { head } of all.slice(0, scores.length * base)) shares[head]!++;
  return shares;
}

/** Halves to even, as in Python and torch. */
export function roundHalfEven(value: number): number {
  const whole = Math.floor(value);
  const rest = value - whole;
  return rest > 0.5 || (rest === 0.5 && whole % 2 === 1) ? whole + 1 : whole;
}

/**
 * Ada-KV: entries that each head of a layer keeps beside the window. `floor` (alpha, a multiple of 0.001) is the part of `base` that
 * every head is given whatever its scores. Their sum is heads * base but for rounding.
 */
export function adaBudgets(scores: readonly ArrayLike<number>[], base: number, floor: number): number[] {
  const thousandths = Math.round(floor * 1000);
  const own = Math.min(base, scores[0]?.length ?? 0);
  return headShares(scores, own).map((share) =>
    roundHalfEven((share * (1000 - thousandths) + own * thousandths) / 1000),
  );
}

/** Entries that a head keeps, ascending: its best `cap` of `scores`, and the `window` entries behind them. */
export function keptEntries(scores: ArrayLike<number>, cap: number, window: number): number[] {
  return [...bestPositions(scores, cap), ...Array.from({ length: window }, (_, i) => scores.length + i)];
}
