import type { TokenDecoder, TokenPiece } from './token_bytes.js';

/** What a TextStream needs of a tokenizer. */
export interface PieceSource {
  /** What the token adds to the text; undefined for one that adds nothing. Throws `usage` for what is no token id. */
  piece(id: number, skipSpecial: boolean): TokenPiece | undefined;
  readonly strip: TokenDecoder['strip'];
}

export interface TextStreamOptions {
  /** Leave out special tokens; default true. */
  skipSpecial?: boolean;
  /** True when the ids follow others, as an answer follows its prompt: a leading space is text then. Default false. */
  continues?: boolean;
}

/**
 * Token ids in, text out, a piece at a time. A piece ends at a character boundary: bytes of a character that isn't complete
 * wait for the next id. Bytes that can't be UTF-8 become U+FFFD, one for each longest invalid run (WHATWG decoding). The pieces
 * joined, with that of `flush`, are the text of all the ids.
 */
export class TextStream {
  readonly #source: PieceSource;
  readonly #skipSpecial: boolean;
  readonly #bytes = new TextDecoder('utf-8', { ignoreBOM: true });
  #toStrip: number;

  constructor(source: PieceSource, { skipSpecial = true, continues = false }: TextStreamOptions = {}) {
    this.#source = source;
    this.#skipSpecial = skipSpecial;
    this.#toStrip = continues ? 0 : source.strip.count;
  }

  /** The text that this id completes; '' while it only begins a character. */
  push(id: number): string {
    const piece = this.#source.piece(id, this.#skipSpecial);
    if (piece === undefined) return '';
    if (piece.raw) return this.#strip(this.#bytes.decode(piece.bytes, { stream: true }));
    return this.#strip(this.#bytes.decode() + this.#bytes.decode(piece.bytes));
  }

  /** What is left of a character that never got complete. The stream may go on after it. */
  flush(): string {
    return this.#strip(this.#bytes.decode());
  }

  #strip(text: string): string {
    if (this.#toStrip === 0 || text === '') return text;
    let start = 0;
    while (start < this.#toStrip && text[start] === this.#source.strip.character) start++;
    this.#toStrip = start === text.length ? this.#toStrip - start : 0;
    return text.slice(start);
  }
}

/** Ids of the tokens between Harmony's messages (gpt-oss). */
export interface HarmonyMarks {
  readonly start: number;
  readonly channel: number;
  readonly message: number;
  /** What ends a message: `<|end|>`, and what ends an answer with it. */
  readonly ends: readonly number[];
}

/**
 * An answer that consists of messages on channels:
 *
 *   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>
 *
 * What is said on `final` is the answer, on other channels reasoning; marks, roles and channels' names are neither. An answer without
 * marks is one, and so is a message without a channel.
 */
export class HarmonyChannels {
  readonly #marks: HarmonyMarks;
  readonly #source: PieceSource;
  #part: 'role' | 'channel' | 'message' = 'message';
  #name = '';
  #names: TextStream | undefined;

  constructor(source: PieceSource, marks: HarmonyMarks) {
    this.#source = source;
    this.#marks = marks;
  }

  /** What this id belongs to; undefined for neither. */
  push(id: number): 'answer' | 'reasoning' | undefined {
    const { start, channel, message, ends } = this.#marks;
    if (id === channel) {
      this.#part = 'channel';
      this.#name = '';
      this.#names = new TextStream(this.#source, { continues: true });
    } else if (id === message) {
      this.#part = 'message';
    } else if (id === start || ends.includes(id)) {
      this.#part = 'role';
      this.#name = '';
    } else if (this.#part === 'channel') {
      this.#name += this.#names!.push(id);
    } else if (this.#part === 'message') {
      // A name may be followed by who the message is for.
      return /^\s*(final\b|$)/.test(this.#name) ? 'answer' : 'reasoning';
    }
    return undefined;
  }
}
