import { formatError, type SplitkvError } from '../../base/errors.js';
import { grouped } from '../../base/math.js';
import type { Source } from '../source.js';

const FIRST_READ_BYTES = 64 * 1024;
const LARGEST_READ_BYTES = 2 * 1024 * 1024;

/** Entries of all lists, keys and names together: a vocabulary of 262,144 tokens comes with 1.3 million. */
const MAX_VALUES = 2 * 1024 * 1024;
/** UTF-8 of all texts together: that vocabulary and its merges are 10 MB. */
const MAX_TEXT_BYTES = 64 * 1024 * 1024;

/**
 * Reads a header whose length nobody tells, front to back: ranges that double in size, of which only what isn't used yet is kept.
 * Await `need(n)` where `has(n)` is false, then take n bytes by the readers below: a list of numbers costs no await each.
 */
export class HeaderCursor {
  readonly fileBytes: number;
  /** The file as messages name it. */
  readonly what: string;
  readonly #source: Source;
  readonly #file: string;
  readonly #signal: AbortSignal | undefined;
  // Tokens may begin with U+FEFF.
  readonly #text = new TextDecoder('utf-8', { ignoreBOM: true });
  #bytes = new Uint8Array(0);
  #view = new DataView(this.#bytes.buffer);
  #at = 0;
  #values = 0;
  #textBytes = 0;
  /** Where #bytes ends in the file. */
  #loaded = 0;

  constructor(source: Source, file: string, fileBytes: number, signal: AbortSignal | undefined) {
    this.#source = source;
    this.#file = file;
    this.fileBytes = fileBytes;
    this.what = `${file} of ${source.name}`;
    this.#signal = signal;
  }

  /** Bytes of the file before the next value. */
  get position(): number {
    return this.#loaded - this.#bytes.length + this.#at;
  }

  /** Bytes of the file from the next value on. */
  get left(): number {
    return this.fileBytes - this.position;
  }

  has(bytes: number): boolean {
    return this.#bytes.length - this.#at >= bytes;
  }

  /** Throws `format` when the file ends before. */
  async need(bytes: number): Promise<void> {
    if (this.has(bytes)) return;
    if (bytes > this.left) throw this.cutShort();
    const rest = this.#bytes.subarray(this.#at);
    const size = Math.min(Math.max(this.#loaded, FIRST_READ_BYTES), LARGEST_READ_BYTES);
    const end = Math.min(this.#loaded + Math.max(size, bytes - rest.length), this.fileBytes);
    const more = await this.#source.read(this.#file, this.#loaded, end, this.#signal);
    const joined = new Uint8Array(rest.length + more.length);
    joined.set(rest);
    joined.set(more, rest.length);
    this.#bytes = joined;
    this.#view = new DataView(joined.buffer);
    this.#at = 0;
    this.#loaded = end;
  }

  /** The bytes of the next value, as a view of them. */
  take(bytes: number): DataView {
    const view = new DataView(this.#view.buffer, this.#at, bytes);
    this.#at += bytes;
    return view;
  }

  u32(): number {
    const value = this.#view.getUint32(this.#at, true);
    this.#at += 4;
    return value;
  }

  /** As a number, which is exact up to 2^53. */
  u64(): number {
    const value = this.#view.getBigUint64(this.#at, true);
    this.#at += 8;
    return Number(value);
  }

  /** A length and as many bytes of UTF-8. Files hold tokens that are no UTF-8; their bytes become U+FFFD. */
  async string(): Promise<string> {
    if (!this.has(8)) await this.need(8);
    const length = this.u64();
    this.#textBytes += length;
    if (this.#textBytes > MAX_TEXT_BYTES) {
      if (length > this.left) throw this.cutShort();
      throw this.#tooMuch(`${grouped(this.#textBytes)} bytes of text`, MAX_TEXT_BYTES);
    }
    if (!this.has(length)) await this.need(length);
    return this.#take(length);
  }

  /** As `string`, where it has been read whole: a list of a million texts needn't wait a million times. */
  stringNow(): string | undefined {
    if (!this.has(8)) return undefined;
    const length = Number(this.#view.getBigUint64(this.#at, true));
    if (!this.has(8 + length)) return undefined;
    this.#at += 8;
    this.#textBytes += length;
    return this.#take(length);
  }

  #take(length: number): string {
    const text = length === 0 ? '' : this.#text.decode(this.#bytes.subarray(this.#at, this.#at + length));
    this.#at += length;
    return text;
  }

  /** Counts values that a header says it has. Throws `format` for more than any model's header holds. */
  count(values: number): void {
    this.#values += values;
    if (this.#values > MAX_VALUES) throw this.#tooMuch(`${grouped(this.#values)} values`, MAX_VALUES);
  }

  #tooMuch(claimed: string, most: number): SplitkvError {
    return formatError(`${this.what}: its header has ${claimed}; expected at most ${grouped(most)} in all`);
  }

  cutShort(): SplitkvError {
    return formatError(
      `${this.what} ends within its header (${grouped(this.fileBytes)} bytes); is the file truncated, or no GGUF file?`,
    );
  }
}
