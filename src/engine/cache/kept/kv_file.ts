import { formatError } from '../../../base/errors.js';
import { parsed } from '../../../base/json.js';
import { isNode } from '../../../base/platform.js';
import { formatBytes, sha256, toBase64 } from '../../../base/math.js';
import { missingFile, openFolder, type OpenOptions, parseSha256, type Source } from '../../../loader/index.js';
import type { KvFolder } from '../../contracts/kv_folder.js';
import { HEADER } from './kept_kv.js';

const BEGIN = '{"splitkv":"kv"';
/** A head is read by so much, then by twice that, and has no more than the last. */
const [HEAD_BYTES, MOST_HEAD_BYTES] = [2 ** 16, 2 ** 26];

/** Where a piece is in a file, and the header that it has there, in base64. */
interface Place {
  readonly at: number;
  readonly bytes: number;
  readonly header: string;
}

/** What a file begins with: a line of JSON. The header of each piece is in it, so that its own digest is that of all. */
export interface KvFileHead {
  readonly subject: string;
  readonly pieces: ReadonlyMap<string, Place>;
  /** Where the last piece ends. */
  readonly end: number;
}

const headerOf = (piece: Uint8Array): string => toBase64(piece.subarray(0, HEADER));

export function kvFileHead(subject: string, pieces: Iterable<readonly [string, Uint8Array]>): Uint8Array<ArrayBuffer> {
  const places = Object.fromEntries([...pieces].map(([name, piece]) => [name, [piece.byteLength, headerOf(piece)]]));
  return new TextEncoder().encode(`${JSON.stringify({ splitkv: 'kv', subject, pieces: places })}\n`);
}

/** The head that these bytes begin with; undefined where it goes on behind them. @throws SplitkvError `format` */
export function readKvHead(bytes: Uint8Array): KvFileHead | undefined {
  const text = new TextDecoder();
  if (text.decode(bytes.subarray(0, BEGIN.length)) !== BEGIN)
    throw formatError('no file of keys and values, left as it is');
  let end = bytes.indexOf(10) + 1;
  if (end === 0) return undefined;
  const { subject, pieces } = (parsed(text.decode(bytes.subarray(0, end))) ?? {}) as Readonly<Record<string, unknown>>;
  const places = new Map<string, Place>();
  for (const [name, place] of Object.entries(pieces ?? {})) {
    const [size, header] = Array.isArray(place) ? (place as unknown[]) : [];
    if (!Number.isSafeInteger(size) || (size as number) < HEADER) break; // nobody knows where the next one is
    places.set(name, { at: end, bytes: size as number, header: String(header) });
    end += size as number;
  }
  return { subject: String(subject), pieces: places, end };
}

/** A file that others wrote, wherever it is: of a server pieces come one by one, by ranges. Nothing is written. */
export class ShippedKv implements KvFolder {
  readonly name: string;
  #file = '';
  #source: Source | undefined;
  #head: KvFileHead | undefined;

  /** @param where a URL, or (Node) a path; `#sha256-...` behind it is the digest that its head must have */
  constructor(
    readonly where: string | URL,
    readonly options: OpenOptions,
  ) {
    this.name = String(where).replace(/[?#].*$/, '');
  }

  get subject(): string | undefined {
    return this.#head?.subject;
  }

  async list(): Promise<{ name: string; bytes: number }[]> {
    const base = isNode() ? `file://${process.cwd()}/` : (globalThis.document?.baseURI ?? location.href);
    const url = new URL(this.where, base);
    const folder = Object.assign(new URL('.', url), { search: url.search }); // a signature
    this.#file = decodeURIComponent(url.pathname.split('/').at(-1)!);
    // What is computed anew needn't be waited for.
    const source = (this.#source = await openFolder(folder, { ...this.options, attempts: 2 }));
    const size = await source.size(this.#file);
    if (size === undefined) throw missingFile(source, this.#file);
    if (source.isWhole?.(this.#file))
      this.options.onWarning?.(`${this.name}: its server ignores ranges, and sends all of its ${formatBytes(size)}`);
    const pin = url.hash.slice(1);
    let head: KvFileHead | undefined;
    for (let end = HEAD_BYTES; !head; end *= 2) {
      const bytes = await source.read(this.#file, 0, Math.min(end, size));
      head = readKvHead(bytes);
      if (!head && end >= Math.min(size, MOST_HEAD_BYTES)) throw formatError('its head has no end');
      const digest = head && pin && (await sha256(bytes.slice(0, bytes.indexOf(10) + 1)));
      if (digest && digest !== parseSha256(pin)) throw formatError(`its digest isn't ${pin}`);
    }
    if (head!.end !== size) throw formatError(`it has ${size} bytes, where its head tells of ${head!.end}`);
    this.#head = head;
    return [...head!.pieces].map(([name, { bytes }]) => ({ name, bytes }));
  }

  async read(name: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const place = this.#head?.pieces.get(name);
    if (!place) return undefined;
    const piece = await this.#source!.read(this.#file, place.at, place.at + place.bytes);
    if (headerOf(piece) !== place.header) throw formatError("a piece isn't the one that its head names");
    return piece;
  }

  async write(): Promise<void> {}

  async remove(): Promise<void> {}
}
