import type { GenerateResult } from '../../api.js';
import { type HarmonyChannels, StopScanner, type TextStream, type Tokenizer } from '../../../tokenizer/index.js';
import type { CompletionEvent, TokenLogprobs } from '../api.js';
import type { EngineEnd } from '../engine.js';
import { tokenChance, tokenLogprobs } from './logprobs.js';

const DETAILS: Readonly<Record<EngineEnd, GenerateResult['finish_detail']>> = {
  eos: 'eos',
  stop_token: 'stop_token',
  ended: 'stop_string',
  length: 'max_tokens',
  context_full: 'context_full',
  aborted: 'aborted',
};

type Out = Pick<CompletionEvent, 'text' | 'logprobs' | 'reasoning'>;
const NOTHING: Out = { text: '', logprobs: [] };

/** A token whose text isn't out yet. */
interface Held {
  /** Where its text ends in the text of all tokens. */
  readonly end: number;
  readonly logprobs: TokenLogprobs;
}

/**
 * One answer's tokens as text: whole characters, nothing of a stop text, and each token's probability with its text. Reasoning on
 * channels of its own comes beside it.
 */
export class Answer {
  readonly #scanner: StopScanner;
  readonly #stream: TextStream | undefined;
  readonly #channels: HarmonyChannels | undefined;
  readonly #reasoning: TextStream | undefined;
  #tokens = 0;
  /** UTF-16 units that the tokens so far have given, and those handed out. */
  #decoded: number;
  #out: number;
  #stop: string | undefined;
  #reasoningTokens = 0;
  #held: Held[] = [];

  /**
   * @param minTokens stop texts are looked for in what comes after so many tokens
   * @param logprobs how many likeliest tokens to tell beside each; undefined: no probabilities
   * @param begins where its text begins, in UTF-16 units
   * @throws SplitkvError `usage` for an empty stop text
   */
  constructor(
    private readonly tokenizer: Tokenizer | undefined,
    stops: readonly string[],
    private readonly logprobs: number | undefined,
    private readonly minTokens = 0,
    begins = 0,
  ) {
    this.#decoded = begins;
    this.#out = begins;
    this.#scanner = new StopScanner(stops);
    // Text after a prompt keeps the blank that a sentence's first token would lose.
    this.#stream = tokenizer?.stream({ continues: true });
    this.#channels = tokenizer?.channels();
    this.#reasoning = this.#channels && tokenizer?.stream({ continues: true });
  }

  get tokens(): number {
    return this.#tokens;
  }

  /** Of these, those of reasoning. */
  get reasoningTokens(): number {
    return this.#reasoningTokens;
  }

  /** A stop text was met: the answer ends here. */
  get stopped(): boolean {
    return this.#stop !== undefined;
  }

  /** Takes a token, and the logits it was chosen by where probabilities are wanted. */
  push(token: number, logits: Float32Array | undefined): Out {
    this.#tokens++;
    const where = this.#channels ? this.#channels.push(token) : 'answer';
    if (where === 'reasoning') this.#reasoningTokens++;
    const text = (where === 'answer' ? this.#stream?.push(token) : '') ?? '';
    const reasoning = where === 'reasoning' ? this.#reasoning?.push(token) : this.#reasoning?.flush();
    if (logits && this.logprobs !== undefined) this.#hold(token, logits, this.logprobs, text);
    this.#decoded += text.length;
    const out = this.#scan(text);
    return reasoning ? { ...out, reasoning } : out;
  }

  /** What was held back, and why the answer ended. */
  finish(end: EngineEnd): Out & Pick<CompletionEvent, 'stop'> & Required<Pick<CompletionEvent, 'finish'>> {
    const last = this.stopped ? NOTHING : this.#scan(this.#stream?.flush() ?? '');
    if (this.#stop !== undefined) return { ...last, finish: 'stop_string', stop: this.#stop };
    const rest = this.#scanner.flush();
    const logprobs = [...last.logprobs, ...this.#held.map((held) => held.logprobs)];
    this.#held = [];
    const reasoning = this.#reasoning?.flush();
    return { text: last.text + rest, logprobs, ...(reasoning && { reasoning }), finish: DETAILS[end] };
  }

  #hold(token: number, logits: Float32Array, count: number, text: string): void {
    const { logprob, top } = tokenLogprobs(logits, token, count);
    this.#held.push({
      end: this.#decoded + text.length,
      logprobs: {
        ...tokenChance(this.tokenizer, token, logprob),
        offset: this.#decoded,
        top: top.map((other) => tokenChance(this.tokenizer, other.id, other.logprob)),
      },
    });
  }

  #scan(piece: string): Out {
    const goesOn = this.#tokens <= this.minTokens;
    const { text, stopped } = goesOn ? { text: piece, stopped: undefined } : this.#scanner.push(piece);
    this.#out += text.length;
    this.#stop ??= stopped;
    // A token that the stop text begins in has given some of the answer; later ones have given none.
    const isOut = ({ end, logprobs }: Held): boolean => (this.stopped ? logprobs.offset < this.#out : end <= this.#out);
    const count = this.#held.findIndex((held) => !isOut(held));
    const out = this.#held.splice(0, count < 0 ? this.#held.length : count);
    if (this.stopped) this.#held = [];
    return { text, logprobs: out.map(({ logprobs }) => logprobs) };
  }
}
