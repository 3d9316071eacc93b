import { formatError } from '../../../base/errors.js';
import { parsed } from '../../../base/json.js';
import { defined } from '../../../base/options.js';
import { baseAddress, isNode } from '../../../base/platform.js';
import { formatBytes, sha256, toBase64 } from '../../../base/math.js';
import { missingFile, type Source } from '../../../loader/source.js';
import { packagedSource } from '../../../loader/sources/file_list_source.js';
import { httpSource } from '../../../loader/sources/http_source.js';
import { parseSha256 } from '../../../loader/sources/integrity.js';
import type { LoadOptions } from '../../contracts/api.js';
import type { KvFolder } from '../../contracts/kv_folder.js';
import { HEADER } from './kept_kv.js';

const BEGIN = '{"splitkv":"kv"';
/** A head is looked for in so much, and then in so much. */
const [HEAD_BYTES, MOST_HEAD_BYTES] = [2 ** 16, 2 ** 24];

const headerOf = (piece: Uint8Array): string => toBase64(piece.subarray(0, HEADER));

/** What a file begins with: a line of JSON. The header of each piece is in it, in base64, so that its own digest is that of all. */
export function kvFileHead(subject: string, pieces: Iterable<readonly [string, Uint8Array]>): Uint8Array<ArrayBuffer> {
  const places = Object.fromEntries([...pieces].map(([name, piece]) => [name, [piece.byteLength, headerOf(piece)]]));
  return new TextEncoder().encode(`${JSON.stringify({ splitkv: 'kv', subject, pieces: places })}\n`);
}

/** The head that these bytes begin with, and where its last piece ends; undefined where it goes on behind them. @throws SplitkvError `format` */
export function readKvHead(bytes: Uint8Array<ArrayBuffer>) {
  const text = new TextDecoder();
  if (text.decode(bytes.subarray(0, BEGIN.length)) !== BEGIN)
    throw formatError('no file of keys and values, left as it is');
  let end = bytes.indexOf(10) + 1;
  if (end === 0) return undefined;
  const line = bytes.slice(0, end);
  const { subject, pieces } = (parsed(text.decode(line)) ?? {}) as Readonly<Record<string, unknown>>;
  const places = new Map<string, { readonly at: number; readonly bytes: number; readonly header: string }>();
  for (const [name, place] of Object.entries(pieces ?? {})) {
    const [size, header] = Array.isArray(place) ? (place as unknown[]) : [];
    if (!Number.isSafeInteger(size) || (size as number) < HEADER) break; // nobody knows where the next one is
    places.set(name, { at: end, bytes: size as number, header: String(header) });
    end += size as number;
  }
  return { line, subject: String(subject), pieces: places, end };
}

/** A file that others wrote, wherever it is: of a server pieces come one by one, by ranges. Nothing is written. */
export class ShippedKv implements KvFolder {
  readonly name: string;
  subject: string | undefined;
  #file = '';
  #source: Source | undefined;
  #head: ReturnType<typeof readKvHead>;

  /** @param where a URL, or (Node) a path; `#sha256-...` behind it is the digest that its head must have */
  constructor(
    readonly where: string | URL,
    readonly options: Pick<LoadOptions, 'fetch' | 'headers' | 'onWarning'>,
  ) {
    this.name = String(where).replace(/[?#].*$/, '');
  }

  async list(): Promise<{ name: string; bytes: number }[]> {
    const base = isNode() ? `file://${process.cwd()}/` : baseAddress();
    const url = new URL(this.where, base);
    const folder = Object.assign(new URL('.', url), { search: url.search }); // a signature
    this.#file = decodeURIComponent(url.pathname.split('/').at(-1)!);
    const { headers, fetch, onWarning } = this.options;
    const source = (this.#source = /^https?:/.test(url.protocol)
      ? httpSource(folder, defined({ headers, fetch, attempts: 2 })) // what can be computed isn't waited for
      : url.protocol === 'file:'
        ? await (await import('../../../loader/sources/node_files.js')).directorySource(folder)
        : packagedSource(folder)); // of an extension
    const size = await source.size(this.#file);
    if (size === undefined) throw missingFile(source, this.#file);
    if (source.isWhole?.(this.#file))
      onWarning?.(`${this.name}: its server ignores ranges, and sends all of its ${formatBytes(size)}`);
    const pin = url.hash.slice(1);
    const upTo = async (end: number) => readKvHead(await source.read(this.#file, 0, Math.min(end, size)));
    const head = (await upTo(HEAD_BYTES)) ?? (await upTo(MOST_HEAD_BYTES));
    if (!head) throw formatError('its head has no end');
    if (pin && (await sha256(head.line)) !== parseSha256(pin)) throw formatError(`its digest isn't ${pin}`);
    if (head.end !== size) throw formatError(`it has ${size} bytes, where its head tells of ${head.end}`);
    [this.#head, this.subject] = [head, head.subject];
    return [...head.pieces].map(([name, { bytes }]) => ({ name, bytes }));
  }

  async read(name: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const place = this.#head?.pieces.get(name);
    if (!place) return undefined;
    const piece = await this.#source!.read(this.#file, place.at, place.at + place.bytes);
    if (headerOf(piece) !== place.header) throw formatError("a piece isn't the one that its head names");
    return piece;
  }

  readonly write = async (): Promise<void> => {};
  readonly remove = this.write;
}
