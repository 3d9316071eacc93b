import type { GenerateResult } from '../../contracts/api.js';
import type { AnswerDelta, AnswerReader } from '../../../chat_formats/answer_reader.js';
import { StopScanner, type TextStream, type Tokenizer } from '../../../tokenizer/index.js';
import { stopTexts } from '../../ranks/sampling/sampling_options.js';
import type { CompletionEvent, CompletionOptions, TokenLogprobs } from '../api.js';
import type { EngineEnd } from '../loop/requests.js';
import { chosenToken } from './logprobs.js';

const DETAILS: Readonly<Record<EngineEnd, GenerateResult['finish_detail']>> = {
  eos: 'eos',
  stop_token: 'stop_token',
  ended: 'stop_string',
  length: 'max_tokens',
  context_full: 'context_full',
  aborted: 'aborted',
};

type Out = Pick<CompletionEvent, 'text' | 'logprobs' | 'reasoning' | 'toolCalls'>;
const NOTHING: Out = { text: '', logprobs: [] };

/** A token whose text isn't out yet. */
interface Held {
  /** Where its text ends in the text of all tokens. */
  readonly end: number;
  readonly logprobs: TokenLogprobs;
}

/**
 * One answer's tokens as text: whole characters, nothing of a stop text, and each token's probability with its text. Thoughts and
 * calls of tools come beside it.
 */
export class Answer {
  readonly #scanner: StopScanner;
  readonly #stream: TextStream | undefined;
  tokens = 0;
  /** UTF-16 units that the tokens so far have given, and those handed out. */
  #decoded: number;
  #out: number;
  #stop: string | undefined;
  /** Of the tokens, those of thoughts. */
  reasoningTokens = 0;
  #held: Held[] = [];

  /**
   * @param options stop texts are looked for in what comes after `minTokens` tokens
   * @param reader tells thoughts and calls apart; default: all is text
   * @param begins where its text begins, in UTF-16 units
   * @throws SplitkvError `usage` for an empty stop text
   */
  constructor(
    private readonly tokenizer: Tokenizer | undefined,
    private readonly options: Pick<CompletionOptions, 'stop' | 'minTokens' | 'logprobs'>,
    private readonly reader?: AnswerReader,
    begins = 0,
  ) {
    this.#decoded = begins;
    this.#out = begins;
    this.#scanner = new StopScanner(stopTexts(options.stop));
    // Text after a prompt keeps the blank that a sentence's first token would lose.
    this.#stream = tokenizer?.stream({ continues: true, keep: reader && new Set(tokenizer.marks.keys()) });
  }

  /** A stop text was met, or the one call was made that may be: the answer ends here. */
  get stopped(): boolean {
    return this.#stop !== undefined || this.reader?.done === true;
  }

  /** Takes a token, and the logits it was chosen by where probabilities are wanted. */
  push(token: number, logits: Float32Array | undefined): Out {
    this.tokens++;
    const thought = this.reader?.thinking;
    const read = this.#read(this.#stream?.push(token) ?? '');
    if (thought || this.reader?.thinking) this.reasoningTokens++;
    const { text } = read;
    const [offset, { logprobs }] = [this.#decoded, this.options];
    this.#decoded += text.length;
    if (logits && logprobs !== undefined) {
      this.#held.push({
        end: this.#decoded,
        logprobs: chosenToken(this.tokenizer, token, logits, { top: logprobs, offset }),
      });
    }
    return { ...read.beside, ...this.#scan(text) };
  }

  /** What was held back, and why the answer ended. */
  finish(end: EngineEnd): Out & Pick<CompletionEvent, 'stop'> & Required<Pick<CompletionEvent, 'finish'>> {
    if (this.#stop !== undefined) return { ...NOTHING, finish: 'stop_string', stop: this.#stop };
    const read = this.#read(this.#stream?.flush() ?? '', true);
    const last = { ...read.beside, ...this.#scan(read.text) };
    if (this.#stop !== undefined) return { ...last, finish: 'stop_string', stop: this.#stop };
    const rest = this.#scanner.flush();
    const logprobs = [...last.logprobs, ...this.#held.map((held) => held.logprobs)];
    this.#held = [];
    // It ended with its one call.
    const finish = end === 'ended' && this.reader?.done ? 'eos' : DETAILS[end];
    return { ...last, text: last.text + rest, logprobs, finish };
  }

  /** What new text says, and what comes beside the answer's own. */
  #read(
    piece: string,
    isLast = false,
  ): { readonly text: string; readonly beside: Pick<Out, 'reasoning' | 'toolCalls'> } {
    if (!this.reader) return { text: piece, beside: {} };
    const first = this.reader.push(piece);
    const last: AnswerDelta = isLast ? this.reader.finish() : { text: '', reasoning: '', toolCalls: [] };
    const reasoning = first.reasoning + last.reasoning;
    const toolCalls = [...first.toolCalls, ...last.toolCalls];
    return {
      text: first.text + last.text,
      beside: { ...(reasoning !== '' && { reasoning }), ...(toolCalls.length > 0 && { toolCalls }) },
    };
  }

  #scan(piece: string): Out {
    const goesOn = this.tokens <= (this.options.minTokens ?? 0);
    const { text, stopped } = goesOn ? { text: piece, stopped: undefined } : this.#scanner.push(piece);
    this.#out += text.length;
    this.#stop ??= stopped;
    // A token that the stop text begins in has given some of the answer; later ones have given none.
    const isOut = ({ end, logprobs }: Held): boolean =>
      this.#stop === undefined ? end <= this.#out : logprobs.offset < this.#out;
    const count = this.#held.findIndex((held) => !isOut(held));
    const out = this.#held.splice(0, count < 0 ? this.#held.length : count);
    if (this.#stop !== undefined) this.#held = [];
    return { text, logprobs: out.map(({ logprobs }) => logprobs) };
  }
}
