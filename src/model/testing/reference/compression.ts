import { attentionOf, type ModelConfig } from '../../config/model_config.js';
import type { ReferenceCache } from './llama.js';
import { referenceLogits, type WeightMap } from './reference.js';
import type { Vector } from './math.js';

/** As the papers have it (SnapKV, Ada-KV, HeadKV), in their terms. */
export interface CompressionRecipe {
  readonly policy: 'snap' | 'ada' | 'static';
  /** Entries a head on average, window included. */
  readonly capacity: number;
  readonly window: number;
  readonly kernel: number;
  /** 'ada'. */
  readonly alpha: number;
  /** 'static': entries beside the window that each head keeps, [layer][kv head]. */
  readonly given?: readonly (readonly number[])[];
}

export interface CompressedReference {
  /** Float64, of the prompt's positions and of the tokens behind it, which find the compressed cache. */
  readonly logits: Float64Array[];
  /** [layer][kv head]: positions, ascending. */
  readonly kept: number[][][];
  /** Rotated keys, [layer][position]. */
  readonly keys: Vector[][];
  /** The smallest relative distance of a score that was chosen from one that wasn't: where it is near the error of f32, so are choices. */
  readonly margin: number;
}

interface Scored {
  readonly head: number;
  readonly position: number;
  readonly score: number;
}

/**
 * A prompt, its compression and the tokens behind it in float64, one position after the other, nothing moved: an evicted key is one
 * that later queries don't see. Shares no code with what it is there to check.
 */
export function compressedReference(
  config: ModelConfig,
  weights: WeightMap,
  prompt: readonly number[],
  behind: readonly number[],
  recipe: CompressionRecipe,
): CompressedReference {
  const { kvHeads } = attentionOf(config, 'gqa');
  const kept: number[][][] = [];
  const keys: Vector[][] = [];
  let margin = Infinity;
  const cache: ReferenceCache = (layer, q, k) => {
    keys[layer] = k;
    const pooled = Array.from({ length: kvHeads }, (_, head) =>
      maxPool(windowAttention(config, q, k, head, prompt.length, recipe.window), recipe.kernel),
    );
    const budgets = recipe.policy === 'ada' ? adaBudgets(pooled, recipe) : fixedBudgets(pooled.length, layer, recipe);
    const choices = pooled.map((scores, head) => {
      const order = ranked([scores]);
      const budget = Math.min(budgets.values[head]!, scores.length);
      margin = Math.min(margin, distance(order, budget), budgets.margin);
      const best = order.slice(0, budget).map(({ position }) => position);
      const last = Array.from({ length: recipe.window }, (_, i) => prompt.length - recipe.window + i);
      return [...best, ...last].toSorted((a, b) => a - b);
    });
    kept[layer] = choices;
    const sets = choices.map((positions) => new Set(positions));
    return (kvHead, position, t) => position < prompt.length || t >= prompt.length || sets[kvHead]!.has(t);
  };
  const logits = referenceLogits(config, weights, [...prompt, ...behind], { cache });
  return { logits, kept, keys, margin };
}

/** Mean softmax of the window's queries over each key before it, over the query heads of a kv head. */
function windowAttention(
  config: ModelConfig,
  q: readonly Vector[],
  k: readonly Vector[],
  kvHead: number,
  length: number,
  window: number,
): number[] {
  const { heads, kvHeads, headDim } = attentionOf(config, 'gqa');
  const group = heads / kvHeads;
  const sums = new Array<number>(length - window).fill(0);
  for (let head = kvHead * group; head < (kvHead + 1) * group; head++) {
    for (let at = length - window; at < length; at++) {
      const query = q[at]!.subarray(head * headDim, (head + 1) * headDim);
      const scores = k.slice(0, at + 1).map((key) => {
        const own = key.subarray(kvHead * headDim, (kvHead + 1) * headDim);
        return query.reduce((sum, value, d) => sum + value * own[d]!, 0) / Math.sqrt(headDim);
      });
      const largest = Math.max(...scores);
      const weights = scores.map((score) => Math.exp(score - largest));
      const total = weights.reduce((a, b) => a + b, 0);
      for (const t of sums.keys()) sums[t]! += weights[t]! / total / (group * window);
    }
  }
  return sums;
}

const maxPool = (scores: readonly number[], kernel: number): number[] =>
  scores.map((_, t) => Math.max(...scores.slice(Math.max(0, t - (kernel - 1) / 2), t + (kernel + 1) / 2)));

/** Best first; of equal scores the lower position, then the lower head. */
const ranked = (scores: readonly (readonly number[])[]): Scored[] =>
  scores
    .flatMap((own, head) => own.map((score, position) => ({ head, position, score })))
    .toSorted((a, b) => b.score - a.score || a.position - b.position || a.head - b.head);

/** How far the last of the best `count` is from the next, relative to it; equal scores are told apart by position. */
function distance(order: readonly Scored[], count: number): number {
  const [last, next] = [order[count - 1], order[count]];
  if (!last || !next || last.score === next.score) return Infinity;
  return (last.score - next.score) / last.score;
}

function adaBudgets(
  pooled: readonly (readonly number[])[],
  { capacity, window, alpha }: CompressionRecipe,
): { values: number[]; margin: number } {
  const base = capacity - window;
  const order = ranked(pooled);
  const counts = pooled.map(() => 0);
  for (const { head } of order.slice(0, base * pooled.length)) counts[head]! += 1;
  // In tenths of a thousandth, so that halves are halves.
  const values = counts.map((count) => {
    const tenThousandths = Math.round(count * (1 - alpha) * 1e4 + base * alpha * 1e4);
    const [whole, rest] = [Math.floor(tenThousandths / 1e4), tenThousandths % 1e4];
    return rest > 5000 || (rest === 5000 && whole % 2 === 1) ? whole + 1 : whole;
  });
  return { values, margin: distance(order, base * pooled.length) };
}

function fixedBudgets(
  heads: number,
  layer: number,
  { given, capacity, window }: CompressionRecipe,
): { values: number[]; margin: number } {
  const values = given ? [...given[layer]!] : new Array<number>(heads).fill(capacity - window);
  return { values, margin: Infinity };
}
