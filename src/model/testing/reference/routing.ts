import type { ExpertsConfig } from '../../config/model_config.js';
import type { Vector } from './math.js';

/** What routing is told of the experts. */
export type RoutingKeys =
  | 'numExperts'
  | 'expertsPerToken'
  | 'numGroups'
  | 'topkGroups'
  | 'scoring'
  | 'method'
  | 'normTopkProb'
  | 'routedScalingFactor';

export interface Routing {
  /** Indices of the chosen experts, ascending. */
  experts: number[];
  /** Of each of them. */
  weights: number[];
  /** Gap between the worst group or expert chosen and the best not chosen, in the scores compared; Infinity: no choice. */
  margin: number;
}

/**
 * The experts of one token. Follows transformers' DeepSeek-V3 and DeepSeek's own code, but an expert outside the chosen groups is
 * never chosen (transformers sets its score to 0, which wins over a negative one).
 *
 * @param logits of the router, [numExperts]. @param bias e_score_correction_bias.
 */
export function routeReference(
  moe: Pick<ExpertsConfig, RoutingKeys>,
  logits: Vector,
  bias?: ArrayLike<number>,
): Routing {
  const scores = moe.scoring === 'sigmoid' ? logits.map((x) => 1 / (1 + Math.exp(-x))) : softmax(logits);
  const compared = scores.map((score, expert) => score + (bias === undefined ? 0 : bias[expert]!));
  const groupSize = moe.numExperts / moe.numGroups;
  const groupScores = Array.from({ length: moe.numGroups }, (_, group) => {
    const members = compared.slice(group * groupSize, (group + 1) * groupSize).sort((a, b) => b - a);
    return moe.method === 'noaux_tc' && groupSize > 1 ? members[0]! + members[1]! : members[0]!;
  });
  const groups = best(moe.topkGroups, groupScores, (group) => groupScores[group]!);
  const open = [...compared.keys()].filter((expert) => groups.chosen.includes(Math.floor(expert / groupSize)));
  const experts = best(moe.expertsPerToken, open, (i) => compared[open[i]!]!);
  const chosen = experts.chosen.map((i) => open[i]!).sort((a, b) => a - b);
  const total = moe.normTopkProb ? chosen.reduce((sum, expert) => sum + scores[expert]!, 0) + 1e-20 : 1;
  return {
    experts: chosen,
    weights: chosen.map((expert) => (scores[expert]! / total) * moe.routedScalingFactor),
    margin: Math.min(groups.margin, experts.margin),
  };
}

/** Indices of the `count` largest values (the first of equals), and how far the next one is. */
function best(count: number, list: ArrayLike<unknown>, value: (i: number) => number) {
  const order = Array.from({ length: list.length }, (_, i) => i).sort((a, b) => value(b) - value(a) || a - b);
  const margin = count < order.length ? value(order[count - 1]!) - value(order[count]!) : Infinity;
  return { chosen: order.slice(0, count), margin };
}

function softmax(x: Vector): Vector {
  const largest = x.reduce((a, b) => Math.max(a, b));
  const powers = x.map((value) => Math.exp(value - largest));
  const total = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / total);
}
