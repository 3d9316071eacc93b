import { LARGEST_LOGIT as LARGEST } from '../../../../shaders/sampling/controls.js';
import { nth } from '../../../base/lists.js';
import type { Tokenizer } from '../../../tokenizer/index.js';
import type { CompletionEvent, TokenChance, TokenLogprobs } from '../api.js';

/** Logits may hold infinities; probabilities count them as sampling does. */
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
function tokenChance(tokenizer: Tokenizer | undefined, id: number, logprob: number): TokenChance {
  const bytes = tokenizer?.piece(id, false)?.bytes ?? new Uint8Array(0);
  return { id, text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes), bytes: [...bytes], logprob };
}

/** What is told of a token that was chosen by logits, and of the `top` likeliest ones. @param offset where its text begins */
export function chosenToken(
  tokenizer: Tokenizer | undefined,
  token: number,
  logits: Float32Array,
  { top, offset }: { readonly top: number; readonly offset: number },
): TokenLogprobs {
  const { logprob, top: likeliest } = tokenLogprobs(logits, token, top);
  const others = likeliest.map((other) => tokenChance(tokenizer, other.id, other.logprob));
  return { ...tokenChance(tokenizer, token, logprob), offset, top: others };
}

/** A prompt as the beginning of its answer: its text, and each token's probability by the logits before it. */
export class PromptEcho {
  readonly text: string;
  readonly #tokens: TokenLogprobs[] = [];
  /** Where each token's text begins. */
  readonly #offsets: number[] = [];

  /** @param logprobs how many likeliest tokens to tell beside each; undefined: no probabilities */
  constructor(
    private readonly tokenizer: Tokenizer | undefined,
    private readonly prompt: readonly number[],
    private readonly logprobs: number | undefined,
  ) {
    const stream = tokenizer?.stream();
    let text = '';
    for (const token of prompt) {
      this.#offsets.push(text.length);
      text += stream?.push(token) ?? '';
    }
    this.text = text + (stream?.flush() ?? '');
    // Nothing predicts the first one.
    if (logprobs !== undefined)
      this.#tokens.push({ ...tokenChance(tokenizer, nth(prompt, 0), NaN), offset: 0, top: [] });
  }

  /** Logits at a position of the prompt: they predict the token behind it. After a lost device they come again. */
  readonly onRow = (position: number, logits: Float32Array): void => {
    const next = position + 1;
    if (this.logprobs === undefined || next !== this.#tokens.length || next >= this.prompt.length) return;
    const told = { top: this.logprobs, offset: nth(this.#offsets, next) };
    this.#tokens.push(chosenToken(this.tokenizer, nth(this.prompt, next), logits, told));
  };

  /** What an answer begins with. */
  get out(): Pick<CompletionEvent, 'text' | 'logprobs'> {
    return { text: this.text, logprobs: this.#tokens };
  }
}
