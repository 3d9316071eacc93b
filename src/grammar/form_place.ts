import { SplitkvError, usageError } from '../base/errors.js';
import type { AnswerFrame } from './answer_frame.js';
import { symbolsOf, type Vocabulary } from './masks.js';
import { type Matcher, MAX_FOLLOWED, type State } from './matcher.js';
import type { TextForm } from './text_form.js';

/**
 * Tells a form in its frame from others: it is read from it again.
 * @throws SplitkvError `usage` for what isn't JSON
 */
export function nameOf(options: TextForm, frame: AnswerFrame | undefined): string {
  try {
    return JSON.stringify([options, frame ?? null]);
  } catch (error) {
    if (error instanceof RangeError) throw usageError('the form is nested too deeply to be read; nest it less');
    throw usageError(`the form isn't JSON: ${(error as Error).message.split('\n')[0]!}`);
  }
}

/** Where an answer is in the texts of a form. */
export class FormPlace {
  #state: State | undefined;

  constructor(
    private readonly matcher: Matcher,
    private readonly vocabulary: Vocabulary,
  ) {
    this.#state = matcher.start;
  }

  /** Undefined where nothing may come any more. */
  get state(): State | undefined {
    const isOver = this.vocabulary.endIds.length === 0 && this.#state?.nodes.length === 0;
    return isOver ? undefined : this.#state;
  }

  reset(): void {
    this.#state = this.matcher.start;
  }

  /** @throws SplitkvError `internal` for a token that isn't allowed, `usage` where too many ways of reading the text go on */
  accept(token: number): void {
    let state: State | null | undefined = this.#state;
    this.matcher.begin(MAX_FOLLOWED);
    const symbols = symbolsOf(this.vocabulary, token);
    if (this.vocabulary.endIds.includes(token)) state = state?.accepts ? undefined : null;
    else if (symbols.length === 0) state = null;
    else for (let at = 0; state && at < symbols.length; at++) state = this.matcher.step(state, symbols[at]!);
    if (state === null || (state === undefined && this.#state === undefined))
      throw new SplitkvError('internal', `token ${token} was sampled, which the text's form doesn't allow`);
    this.#state = state;
  }
}
