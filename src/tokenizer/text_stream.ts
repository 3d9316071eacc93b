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
  /** Special tokens that aren't left out. */
  keep?: ReadonlySet<number> | undefined;
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
  readonly #keep: ReadonlySet<number> | undefined;
  readonly #bytes = new TextDecoder('utf-8', { ignoreBOM: true });
  #toStrip: number;

  constructor(source: PieceSource, { skipSpecial = true, keep, continues = false }: TextStreamOptions = {}) {
    this.#keep = keep;
    this.#source = source;
    this.#skipSpecial = skipSpecial;
    this.#toStrip = continues ? 0 : source.strip.count;
  }

  /** The text that this id completes; '' while it only begins a character. */
  push(id: number): string {
    const piece = this.#source.piece(id, this.#skipSpecial && !this.#keep?.has(id));
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
