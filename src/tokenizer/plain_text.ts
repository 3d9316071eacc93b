import type { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import { isObject } from '../base/json.js';
import type { ChatMessage } from '../chat_formats/template_messages.js';

/** Stands in control tokens that are meant as text, behind their first letter: a noncharacter, which no text has. */
const MARK = '\uFDD0';

/** Parts of the library's tokenizer, all of which can be called. */
interface Inside {
  splitter_unnormalized: { split(text: string): string[] };
  splitter_normalized: { split(text: string): string[] };
  pre_tokenizer: ((text: string, options: unknown) => string[]) | null;
  model: (pieces: string[]) => string[];
}

const unmarked = (text: string): string => text.replaceAll(MARK, '');

/**
 * Keeps control tokens that somebody wrote into a message from being control tokens. They are marked before the chat template is rendered,
 * so that the tokenizer doesn't find them; the marks go before the text is cut into words. Everything else is tokenized as ever.
 */
export class PlainText {
  readonly #splitters: readonly { split(text: string): string[] }[];
  #isMarked = false;

  /** @param isControl whether a token's text is a control token's */
  constructor(
    library: HuggingFaceTokenizer,
    readonly isControl: (token: string) => boolean,
  ) {
    const inside = library as unknown as Inside;
    this.#splitters = [inside.splitter_unnormalized, inside.splitter_normalized];
    const { pre_tokenizer: cut, model } = inside;
    const isMarked = (): boolean => this.#isMarked;
    if (cut) {
      inside.pre_tokenizer = new Proxy(cut, {
        apply: (target, _, [text, options]: [string, unknown]) => target(isMarked() ? unmarked(text) : text, options),
      });
    }
    inside.model = new Proxy(model, {
      apply: (target, _, [pieces]: [string[]]) =>
        isMarked() ? pieces.flatMap((piece) => this.#tokens(target, unmarked(piece))) : target(pieces),
    });
  }

  /** Some vocabularies have control tokens among the words. */
  #tokens(model: Inside['model'], piece: string): string[] {
    const tokens = model([piece]);
    const isWritten = (token: string): boolean => this.isControl(token) && piece.includes(token);
    return tokens.some(isWritten) ? Array.from(piece, (letter) => model([letter])).flat() : tokens;
  }

  /** The messages for a template, with control tokens marked; the model's own answers are left as they are. */
  mark(messages: readonly ChatMessage[]): readonly ChatMessage[] {
    return messages.map((message) =>
      isObject(message) && message.role !== 'assistant'
        ? { ...(this.#markIn(message) as ChatMessage), role: message.role }
        : message,
    );
  }

  #markIn(value: unknown): unknown {
    if (typeof value === 'string') return this.#marked(value);
    if (Array.isArray(value)) return value.map((each) => this.#markIn(each));
    if (!isObject(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, this.#markIn(each)]));
  }

  #marked(text: string): string {
    let marked = unmarked(text);
    // A mark may leave another token that began within the first.
    for (let before = ''; before !== marked;) {
      before = marked;
      for (const splitter of this.#splitters) {
        marked = splitter
          .split(marked)
          .map((part) => {
            const first = String.fromCodePoint(part.codePointAt(0) ?? 0);
            return this.isControl(part) ? first + MARK + part.slice(first.length) : part;
          })
          .join('');
      }
    }
    return marked;
  }

  /** Runs `encode` of a text that may have marks. */
  encoding<T>(text: string, encode: () => T): T {
    this.#isMarked = text.includes(MARK);
    try {
      return encode();
    } finally {
      this.#isMarked = false;
    }
  }
}
