import { sizeRange } from './config_parts.js';
import type { ConfigReader } from './config_reader.js';

/**
 * A mixture of experts. A layer's output is the sum over the chosen experts, in ascending order, of weight * SwiGLU, plus the
 * shared experts, which see every token and are stored as one SwiGLU of numShared * intermediateSize.
 *
 * Routing of a token, in f32: scores = softmax or sigmoid of the router's logits (mlp.gate.weight). What is compared when
 * choosing is the score, plus e_score_correction_bias where there is one. First the topkGroups best groups (of numExperts /
 * numGroups neighbours each), by the largest score in the group (`group_limited_greedy`) or the sum of its two largest
 * (`noaux_tc`), then the expertsPerToken best experts in them; experts of other groups are never chosen. Weights are the scores,
 * without bias, of the chosen, divided by their sum + 1e-20 if normTopkProb, times routedScalingFactor.
 */
export interface MoeConfig {
  numExperts: number;
  expertsPerToken: number;
  /** Of one expert. */
  intermediateSize: number;
  /** 0: none. */
  numShared: number;
  /** 1 with `greedy`. */
  numGroups: number;
  topkGroups: number;
  scoring: 'softmax' | 'sigmoid';
  method: 'greedy' | 'group_limited_greedy' | 'noaux_tc';
  normTopkProb: boolean;
  routedScalingFactor: number;
  /** True: the router has e_score_correction_bias. */
  correctionBias: boolean;
}

/**
 * null where n_routed_experts is written as null. DeepSeek-V2 follows DeepSeek's later code, vLLM and llama.cpp: normalised weights
 * are scaled too (its first code left that out, and transformers ignores norm_topk_prob; published checkpoints don't
 * normalise). DeepSeek-V3 follows transformers.
 */
export function parseMoe(architecture: 'deepseek_v2' | 'deepseek_v3', config: ConfigReader): MoeConfig | null {
  const numExperts = config.optionalInteger('n_routed_experts', { min: 1, max: 1024 });
  if (numExperts === undefined) return config.has('n_routed_experts') ? null : config.missing('n_routed_experts');
  const expertsPerToken = config.integer('num_experts_per_tok', { min: 1, max: numExperts });
  const normalise = config.boolean('norm_topk_prob', architecture === 'deepseek_v3');
  return {
    numExperts,
    expertsPerToken,
    intermediateSize: config.integer('moe_intermediate_size', sizeRange),
    numShared: parseShared(config),
    ...parseMethod(architecture, config, numExperts, expertsPerToken),
    // DeepSeek-V2 leaves a single weight as it is.
    normTopkProb: normalise && (architecture === 'deepseek_v3' || expertsPerToken > 1),
    routedScalingFactor: config.optionalPositive('routed_scaling_factor') ?? (architecture === 'deepseek_v3' ? 2.5 : 1),
  };
}

/** null means none; absent means a class default that is rarely what the weights have. */
function parseShared(config: ConfigReader): number {
  if (!config.has('n_shared_experts')) return config.missing('n_shared_experts');
  return config.optionalInteger('n_shared_experts', { min: 0, max: 64 }) ?? 0;
}

function parseMethod(
  architecture: 'deepseek_v2' | 'deepseek_v3',
  config: ConfigReader,
  numExperts: number,
  expertsPerToken: number,
): Pick<MoeConfig, 'scoring' | 'method' | 'correctionBias' | 'numGroups' | 'topkGroups'> {
  const scoring = architecture === 'deepseek_v3' ? 'sigmoid' : 'softmax';
  const given = config.optionalString('scoring_func') ?? scoring;
  if (given !== scoring) throw config.unsupported('scoring_func', given, `${architecture} has '${scoring}'`);
  if (architecture === 'deepseek_v3') {
    const method = config.optionalString('topk_method') ?? 'noaux_tc';
    if (method !== 'noaux_tc') throw config.unsupported('topk_method', method, "deepseek_v3 has 'noaux_tc'");
    return { scoring, method, correctionBias: true, ...parseGroups(config, numExperts, expertsPerToken, 2) };
  }
  const method = config.optionalString('topk_method') ?? 'greedy';
  if (method === 'greedy') return { scoring, method, correctionBias: false, numGroups: 1, topkGroups: 1 };
  if (method === 'group_limited_greedy') {
    return { scoring, method, correctionBias: false, ...parseGroups(config, numExperts, expertsPerToken, 1) };
  }
  throw config.unsupported('topk_method', method, "deepseek_v2 has 'greedy' and 'group_limited_greedy'");
}

/** @param ranked how many experts of a group its score is made of. */
function parseGroups(config: ConfigReader, numExperts: number, expertsPerToken: number, ranked: number) {
  const numGroups = config.integer('n_group', { min: 1, max: numExperts });
  const topkGroups = config.integer('topk_group', { min: 1, max: numGroups });
  const groupSize = numExperts / numGroups;
  if (!Number.isInteger(groupSize)) {
    throw config.invalid('n_group', numGroups, `a divisor of n_routed_experts (${numExperts})`);
  }
  if (groupSize < ranked) {
    throw config.invalid(
      'n_group',
      numGroups,
      `at most ${Math.floor(numExperts / ranked)}: a group needs ${ranked} experts`,
    );
  }
  if (expertsPerToken > topkGroups * groupSize) {
    const reachable = `at most ${topkGroups * groupSize}, the experts of topk_group (${topkGroups}) groups`;
    throw config.invalid('num_experts_per_tok', expertsPerToken, reachable);
  }
  return { numGroups, topkGroups };
}
