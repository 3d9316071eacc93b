import { usageError } from '../../../base/errors.js';
import { joinBytes } from '../../../base/math.js';
import { pause } from '../../../base/waits.js';
import type { ChatOptions } from '../../../chat_formats/tools.js';
import type { AnswerFrame } from '../../../grammar/answer_frame.js';
import type { PackedVocabulary } from '../../../grammar/masks.js';
import type { Form, FormThreads, FormWait } from '../../../grammar/threads/form_threads.js';
import type { TextForm } from '../../../grammar/text_form.js';
import type { Tokenizer } from '../../../tokenizer/index.js';
import { needTokenizer, type PromptReader } from '../prompt_tokens.js';

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
  const name = options.ignoreEos ? 'ignoreEos' : (options.minTokens ?? 0) > 0 ? 'min_tokens' : undefined;
  if (name) throw usageError(`${name}: a text of a given form ends where it is whole; leave one of the two out`);
}

/** Tokens that are read without a pause. */
const AT_ONCE = 4096;

/** Forms of one model's texts. What makes them ready starts with the first. */
export class TextForms {
  #threads: Promise<FormThreads> | undefined;

  constructor(
    readonly reader: Pick<PromptReader, 'tokenizer' | 'noTokenizer'>,
    readonly vocabSize: number,
    readonly endIds: readonly number[],
  ) {}

  /**
   * What answers are held to, in the frame that they stand in; undefined where the options limit nothing. The same options give the same form, without waiting long.
   * @throws SplitkvError `usage` for what is no form, for parts of a schema or grammar that can't be held to (they are named), and for what takes too
   * long or too much memory; `aborted`
   */
  async compile(options: TextForm, frame?: AnswerFrame, wait?: FormWait): Promise<Form | undefined> {
    if (!wantsForm(options) && !frame) return undefined;
    const tokenizer = needTokenizer(this.reader, 'a text of a given form');
    const given = Object.fromEntries(NAMES.flatMap((name) => (options[name] == null ? [] : [[name, options[name]]])));
    return (await (this.#threads ??= this.#open(tokenizer))).compile(given, frame, wait);
  }

  dispose(): void {
    void this.#threads?.then((threads) => threads.dispose());
  }

  async #open(tokenizer: Tokenizer): Promise<FormThreads> {
    const { FormThreads } = await import('../../../grammar/threads/form_threads.js');
    let packed: Promise<PackedVocabulary> | undefined;
    return new FormThreads(() => (packed ??= this.#pack(tokenizer)));
  }

  /** Step by step: 150,000 tokens take as long as several of an answer. */
  async #pack(tokenizer: Tokenizer): Promise<PackedVocabulary> {
    const { vocabSize, endIds } = this;
    const marks = [...new Set(tokenizer.marks.values())];
    const pieces: Uint8Array[] = [];
    for (let id = 0; id < vocabSize; id++) {
      if (id % AT_ONCE === AT_ONCE - 1) await pause(0);
      pieces.push(tokenizer.piece(id, true)?.bytes ?? new Uint8Array());
    }
    let end = 0;
    return {
      bytes: joinBytes(pieces),
      ends: Uint32Array.from(pieces, ({ length }) => (end += length)),
      marks,
      markOf: new Map(
        [...tokenizer.marks].flatMap(([id, text]) => (id < vocabSize ? [[id, marks.indexOf(text)] as const] : [])),
      ),
      endIds: endIds.filter((id) => id < vocabSize),
    };
  }
}
