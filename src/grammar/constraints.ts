/**
 * Room: texts of a given form: JSON of a schema (schema/), regular expressions, grammars, and masks of the tokens that
 * may come next. Rules become nodes (network.ts), which matcher.ts follows and masks.ts asks for tokens. Here they
 * are together. Read network.ts next.
 */

import { usageError } from '../base/errors.js';
import { Kept } from '../base/kept.js';
import { type AnswerFrame, framed } from './answer_frame.js';
import { FormPlace, nameOf, type NextTokens, type ReadyForm, TokenTree, type Vocabulary } from './masks.js';
import { Matcher } from './matcher.js';
import { type Network, networkOf } from './network.js';
import { grammarOf, type TextForm } from './text_form.js';

/** Compiled forms that are kept. */
const KEPT = 32;

/** Forms over the tokens of one model. */
export class Constraints {
  readonly #compiled = new Kept<CompiledForm>(KEPT);
  readonly #tree: TokenTree;

  constructor(readonly vocabulary: Vocabulary) {
    this.#tree = new TokenTree(vocabulary);
  }

  /**
   * Makes a form ready for answers, in a frame where there is one; undefined where the options limit nothing.
   * @param name the form's and the frame's, which nothing else has
   * @throws SplitkvError `usage` for what is no form, and for parts that can't be held to; `unsupported` where no token can begin a text of it
   */
  compile(options: TextForm, frame?: AnswerFrame, name = nameOf(options, frame)): CompiledForm | undefined {
    const known = this.#compiled.get(name);
    if (known) return known;
    const form = grammarOf(options);
    const alone = form && networkOf(form.root);
    if (form && !alone) throw usageError(form.none);
    const network = frame ? framed(frame, form, this.vocabulary.marks ?? []) : alone;
    if (!network) return undefined;
    const compiled = new CompiledForm(network, this.vocabulary, this.#tree);
    this.#compiled.set(name, compiled, 1);
    return compiled;
  }
}

export class CompiledForm implements ReadyForm {
  readonly matcher: Matcher;
  readonly first: NextTokens;

  constructor(
    readonly network: Network,
    readonly vocabulary: Vocabulary,
    readonly tree: TokenTree,
  ) {
    this.matcher = new Matcher(network);
    const first = tree.next(this.matcher, this.matcher.start);
    if (!first) throw usageError('grammar: only the empty text is of it');
    this.first = first;
  }

  /** For one answer. */
  start(): FormConstraint {
    return new FormConstraint(this);
  }
}

/** What may follow the tokens of one answer so far. */
export class FormConstraint extends FormPlace<CompiledForm> {
  /** @throws SplitkvError `unsupported` where the model has no token that the text could go on with */
  next(): NextTokens | undefined {
    return this.own(this.shared());
  }

  /** What may come next in any answer that is here. */
  shared(): NextTokens | undefined {
    const { matcher, tree } = this.form;
    const { state } = this;
    matcher.begin();
    return state && tree.next(matcher, state);
  }
}
