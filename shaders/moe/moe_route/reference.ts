import type { MoeRouteProblem } from './index.js';

export interface RowRouting {
  readonly experts: readonly number[];
  readonly weights: readonly number[];
}

/** Float64, straight from the equations: the experts of one row, ascending, and their weights. */
export function routeRow(
  problem: MoeRouteProblem,
  logits: readonly number[],
  bias: ArrayLike<number> | undefined,
  scale?: ArrayLike<number>,
): RowRouting {
  const { experts, topK, groups, topkGroups, scoring, method, normTopkProb, routedScalingFactor } = problem;
  const exponentials = logits.map((x) => Math.exp(x - Math.max(...logits)));
  const total = exponentials.reduce((a, b) => a + b);
  const scores = scoring === 'softmax' ? exponentials.map((x) => x / total) : logits.map((x) => 1 / (1 + Math.exp(-x)));
  const compared = scores.map((score, e) => score + (bias ? bias[e]! : 0));

  const size = experts / groups;
  const groupScores = Array.from({ length: groups }, (_, g) => {
    const [best = 0, second = 0] = compared.slice(g * size, (g + 1) * size).sort((a, b) => b - a);
    return method === 'noaux_tc' ? best + second : best;
  });
  const open = topOf(groupScores, groups, topkGroups);
  const candidates = compared.map((score, e) =>
    open.includes(Math.floor(e / size)) ? score : Number.NEGATIVE_INFINITY,
  );
  const chosen = topOf(candidates, experts, topK).sort((a, b) => a - b);
  const divisor = normTopkProb ? chosen.reduce((sum, e) => sum + scores[e]!, 0) + 1e-20 : 1;
  return {
    experts: chosen,
    weights: chosen.map((e) => (scores[e]! / divisor) * routedScalingFactor * (scale?.[e] ?? 1)),
  };
}

/** Indices of the `count` largest values; of equals the first. */
function topOf(values: readonly number[], length: number, count: number): number[] {
  return Array.from({ length }, (_, i) => i)
    .sort((a, b) => values[b]! - values[a]! || a - b)
    .slice(0, count);
}
