import { usageError } from '../../../base/errors.js';
import type { CompiledForm } from '../../../grammar/constraints.js';
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
  options: TextForm & { readonly ignoreEos?: boolean | undefined; readonly minTokens?: number | undefined },
): void {
  if (!wantsForm(options)) return;
  if (options.ignoreEos)
    throw usageError('ignoreEos: a text of a given form ends where it is whole; leave one of the two out');
  if ((options.minTokens ?? 0) > 0) {
    throw usageError('min_tokens: a text of a given form ends where it is whole; leave one of the two out');
  }
}

/** Forms of one model's texts. The engine of grammars is loaded with the first. */
export class TextForms {
  #constraints: Promise<{ compile(options: TextForm): Promise<CompiledForm | undefined> }> | undefined;

  constructor(
    readonly reader: Pick<PromptReader, 'tokenizer' | 'noTokenizer'>,
    readonly vocabSize: number,
    readonly endIds: readonly number[],
  ) {}

  /**
   * What answers are held to; undefined where the options limit nothing. The same options give the same form, without waiting long.
   * @throws SplitkvError `usage` for what is no form, and for parts of a schema or grammar that can't be held to: they are named
   */
  async compile(options: TextForm): Promise<CompiledForm | undefined> {
    if (!wantsForm(options)) return undefined;
    const tokenizer = needTokenizer(this.reader, 'a text of a given form');
    const given = Object.fromEntries(NAMES.flatMap((name) => (options[name] == null ? [] : [[name, options[name]]])));
    return (await this.#open(tokenizer)).compile(given);
  }

  #open(tokenizer: Tokenizer): Promise<{ compile(options: TextForm): Promise<CompiledForm | undefined> }> {
    return (this.#constraints ??= (async () => {
      const { Constraints } = await import('../../../grammar/constraints.js');
      return new Constraints({
        size: this.vocabSize,
        bytesOf: (id) => tokenizer.piece(id, true)?.bytes,
        endIds: this.endIds.filter((id) => id < this.vocabSize),
      });
    })());
  }
}
