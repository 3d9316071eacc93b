import { type ErrorCode, internalError, SplitkvError, usageError } from '../../base/errors.js';
import type { AnswerFrame } from '../answer_frame.js';
import { Constraints, type FormConstraint } from '../constraints.js';
import { type NextTokens, type PackedVocabulary, unpacked } from '../masks.js';
import type { Network } from '../network.js';
import type { TextForm } from '../text_form.js';

/** What a thread is asked. It does one after the other, and answers each. A form is its options and its frame as JSON. */
export type FormAsk =
  | { readonly open: PackedVocabulary }
  | { readonly form: string }
  /** An answer's next tokens, behind more of it. Where it is new here, or `anew`, it begins with them. */
  | {
      readonly form: string;
      readonly answer: number;
      readonly anew: boolean;
      readonly tokens: readonly number[];
    }
  | { readonly drop: number };

export type FormTold = Told | { readonly wrong: { readonly code: ErrorCode; readonly message: string } };

export interface Told {
  readonly next?: NextTokens | undefined;
  /** Of a form. */
  readonly network?: Network;
}

/** What runs in a thread of forms. */
export class FormServer {
  #constraints: Constraints | undefined;
  readonly #answers = new Map<number, FormConstraint>();

  tell(ask: FormAsk): FormTold {
    try {
      return this.#next(ask);
    } catch (error) {
      const { code, message } = asSplitkvError(error);
      return { wrong: { code, message } };
    }
  }

  #next(ask: FormAsk): Told {
    if ('open' in ask) {
      this.#constraints = new Constraints(unpacked(ask.open));
      return {};
    }
    if ('drop' in ask) {
      this.#answers.delete(ask.drop);
      return {};
    }
    if (!('answer' in ask)) {
      const { first, network } = this.#compiled(ask.form);
      return { next: first, network };
    }
    let answer = this.#answers.get(ask.answer);
    if (!answer) this.#answers.set(ask.answer, (answer = this.#compiled(ask.form).start()));
    else if (ask.anew) answer.reset();
    for (const token of ask.tokens) answer.accept(token);
    return { next: answer.shared() };
  }

  #compiled(text: string) {
    const [form, frame] = JSON.parse(text) as [TextForm, AnswerFrame | null];
    return this.#constraints!.compile(form, frame ?? undefined, text)!;
  }
}

function asSplitkvError(error: unknown): SplitkvError {
  if (error instanceof SplitkvError) return error;
  if (error instanceof RangeError && error.message.includes('call stack')) {
    return usageError('the form is nested too deeply to be made ready; nest it less');
  }
  return internalError(`the form could not be made ready: ${String(error)}`);
}
