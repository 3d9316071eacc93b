import type { Tokenizer } from '../../../tokenizer/index.js';
import type { TokenChance } from '../api.js';

/** Logits may hold infinities; sampling counts them as these, and so do probabilities. */
const LARGEST = 1e30;
const finite = (logit: number): number =>
  Number.isNaN(logit) ? -LARGEST : Math.min(LARGEST, Math.max(-LARGEST, logit));

/**
 * The log-softmax of a row of logits, in float64: of `token`, and of the `top` likeliest ids, likeliest first, the lower id among
 * equals.
 */
export function tokenLogprobs(
  logits: Float32Array,
  token: number,
  top: number,
): { readonly logprob: number; readonly top: readonly { readonly id: number; readonly logprob: number }[] } {
  const best: { id: number; logit: number }[] = [];
  let largest = -LARGEST;
  for (let id = 0; id < logits.length; id++) {
    const logit = finite(logits[id]!);
    if (logit > largest) largest = logit;
    if (top === 0 || (best.length === top && logit <= best[top - 1]!.logit)) continue;
    let place = best.length;
    while (place > 0 && best[place - 1]!.logit < logit) place--;
    best.splice(place, 0, { id, logit });
    if (best.length > top) best.pop();
  }
  let sum = 0;
  for (const logit of logits) sum += Math.exp(finite(logit) - largest);
  const logprobOf = (logit: number): number => logit - largest - Math.log(sum);
  return {
    logprob: logprobOf(finite(logits[token]!)),
    top: best.map(({ id, logit }) => ({ id, logprob: logprobOf(logit) })),
  };
}

/** A token's own text and bytes, special tokens included. */
export function tokenChance(tokenizer: Tokenizer | undefined, id: number, logprob: number): TokenChance {
  const bytes = tokenizer?.piece(id, false)?.bytes ?? new Uint8Array(0);
  return { id, text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes), bytes: [...bytes], logprob };
}
