import type { Tokenizer } from '../../../tokenizer/index.js';
import type { CompletionEvent, TokenLogprobs } from '../api.js';
import { tokenChance, tokenLogprobs } from './logprobs.js';

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
    if (logprobs !== undefined) this.#tokens.push({ ...tokenChance(tokenizer, prompt[0]!, NaN), offset: 0, top: [] });
  }

  /** Logits at a position of the prompt: they predict the token behind it. After a lost device they come again. */
  readonly onRow = (position: number, logits: Float32Array): void => {
    const next = position + 1;
    if (this.logprobs === undefined || next !== this.#tokens.length || next >= this.prompt.length) return;
    const { logprob, top } = tokenLogprobs(logits, this.prompt[next]!, this.logprobs);
    this.#tokens.push({
      ...tokenChance(this.tokenizer, this.prompt[next]!, logprob),
      offset: this.#offsets[next]!,
      top: top.map((other) => tokenChance(this.tokenizer, other.id, other.logprob)),
    });
  };

  /** What an answer begins with. */
  get out(): Pick<CompletionEvent, 'text' | 'logprobs'> {
    return { text: this.text, logprobs: this.#tokens };
  }
}
