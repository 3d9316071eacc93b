import { usageError } from '../../../base/errors.js';
import type { ChatOptions } from '../../../chat_formats/tools.js';
import type { AnswerFrame } from '../../../grammar/answer_frame.js';
import type { CompiledForm, Constraints } from '../../../grammar/constraints.js';
import type { TextForm } from '../../../grammar/text_form.js';
import type { Tokenizer } from '../../../tokenizer/index.js';
import { needTokenizer, type PromptReader } from '../../prompt_tokens.js';

/** For options that may limit what a text is. */
export const formSchema = { responseFormat: true, grammar: true, regex: true, choice: true } as const satisfies Record<
  keyof TextForm,
  true
>;

const NAMES = Object.keys(formSchema) as (keyof TextForm)[];

/** Whether options limit what the text may be. */
export const wantsForm = (options: TextForm): boolean =>
  NAMES.some(
    (name) => options[name] != null && !(name === 'responseFormat' && options.responseFormat?.type === 'text'),
  );

/** @throws SplitkvError `usage` for options that a form can't be held to with */
export function checkForm(
  options: TextForm &
    ChatOptions & { readonly ignoreEos?: boolean | undefined; readonly minTokens?: number | undefined },
): void {
  const { toolChoice: choice = 'auto' } = options;
  if (!wantsForm(options) && (choice === 'auto' || choice === 'none')) return;
  if (options.ignoreEos)
    throw usageError('ignoreEos: a text of a given form ends where it is whole; leave one of the two out');
  if ((options.minTokens ?? 0) > 0) {
    throw usageError('min_tokens: a text of a given form ends where it is whole; leave one of the two out');
  }
}

/** Forms of one model's texts. The engine of grammars is loaded with the first. */
export class TextForms {
  #constraints: Promise<Pick<Constraints, 'compile'>> | undefined;

  constructor(
    readonly reader: Pick<PromptReader, 'tokenizer' | 'noTokenizer'>,
    readonly vocabSize: number,
    readonly endIds: readonly number[],
  ) {}

  /**
   * What answers are held to, in the frame that they stand in; undefined where the options limit nothing. The same options give the same form, without waiting long.
   * @throws SplitkvError `usage` for what is no form, and for parts of a schema or grammar that can't be held to: they are named
   */
  async compile(options: TextForm, frame?: AnswerFrame): Promise<CompiledForm | undefined> {
    if (!wantsForm(options) && !frame) return undefined;
    const tokenizer = needTokenizer(this.reader, 'a text of a given form');
    const given = Object.fromEntries(NAMES.flatMap((name) => (options[name] == null ? [] : [[name, options[name]]])));
    return (await this.#open(tokenizer)).compile(given, frame);
  }

  #open(tokenizer: Tokenizer): Promise<Pick<Constraints, 'compile'>> {
    return (this.#constraints ??= (async () => {
      const { Constraints } = await import('../../../grammar/constraints.js');
      const marks = [...new Set(tokenizer.marks.values())];
      return new Constraints({
        size: this.vocabSize,
        marks: [...marks],
        markOf: (id) => {
          const text = tokenizer.marks.get(id);
          return text === undefined ? undefined : marks.indexOf(text);
        },
        bytesOf: (id) => tokenizer.piece(id, true)?.bytes,
        endIds: this.endIds.filter((id) => id < this.vocabSize),
      });
    })());
  }
}
