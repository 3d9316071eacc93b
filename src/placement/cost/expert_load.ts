/**
 * The expected number of (row, expert) pairs on the busiest rank, when `pairs` of them fall on ranks with these shares of the
 * experts: a step waits for it, and for few rows it has far more than the mean. Ranks count as independent and routing as even:
 * the sum over m of 1 - P(no rank has more than m).
 */
export function expectedLargest(pairs: number, shares: readonly number[]): number {
  // Binomial terms P(X = m) of each rank, by recurrence in logarithms: pairs may be thousands.
  const atMost = shares.map(() => 0);
  const term = shares.map((share) => pairs * Math.log1p(-share));
  let expected = 0;
  for (let m = 0; m < pairs; m++) {
    let none = 1;
    for (const [rank, share] of shares.entries()) {
      if (share >= 1) none = 0;
      else if (share > 0) {
        atMost[rank] = Math.min(1, atMost[rank]! + Math.exp(term[rank]!));
        none *= atMost[rank]!;
        term[rank]! += Math.log(((pairs - m) / (m + 1)) * (share / (1 - share)));
      }
    }
    expected += 1 - none;
  }
  return expected;
}

/** Of a rank's `experts`, the number that some of `rows` rows is routed to, when `pairs` of their (row, expert) pairs fall on it. */
export function expertsRead(rows: number, pairs: number, experts: number): number {
  if (rows === 0 || experts === 0) return 0;
  // A row is routed to an expert once at most.
  const missed = Math.max(0, 1 - pairs / (rows * experts)) ** rows;
  return experts * (1 - missed);
}
