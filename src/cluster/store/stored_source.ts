import { throwIfAborted, withAbort } from '../../base/errors.js';
import { range } from '../../base/lists.js';
import type { Source } from '../../loader/index.js';
import { beyondFile, checkRange, missingFile } from '../../loader/source.js';
import { type Bucket, inParallel } from './bucket.js';
import { type Manifest, readPiece, type StoredFile } from './manifest.js';

/** Pieces that are kept: neighbouring ranges begin and end in the same ones. */
const KEPT = 16;

/** A model of a cluster's store as files. Only the pieces of the ranges that are read are fetched. */
export class StoredSource implements Source {
  readonly name: string;
  readonly gguf?: string;
  /** What another machine opens to read the same. */
  readonly at: { readonly where: string };
  /** Bytes of each. */
  readonly files: ReadonlyMap<string, number>;
  readonly #files: ReadonlyMap<string, StoredFile>;
  /** Those asked for last come last. */
  readonly #kept = new Map<string, Promise<Uint8Array>>();

  constructor(
    readonly bucket: Bucket,
    readonly model: string,
    readonly digest: string,
    readonly manifest: Manifest,
  ) {
    this.name = `cluster:${model}`;
    if (manifest.gguf !== undefined) this.gguf = manifest.gguf;
    this.at = { where: `cluster:${model}@${digest}` };
    this.#files = new Map(manifest.files.map((file) => [file.file, file]));
    this.files = new Map(manifest.files.map(({ file, bytes }) => [file, bytes]));
  }

  list(): Promise<readonly string[]> {
    return Promise.resolve([...this.#files.keys()]);
  }

  size(file: string): Promise<number | undefined> {
    return Promise.resolve(this.#files.get(file)?.bytes);
  }

  version(): Promise<string> {
    return Promise.resolve(this.digest);
  }

  read(file: string, start: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    return withAbort(this.#read(file, start, end, signal), signal, `reading ${file} of ${this.name}`);
  }

  async #read(
    file: string,
    start: number,
    end: number,
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array<ArrayBuffer>> {
    checkRange(file, start, end);
    const found = this.#files.get(file);
    if (!found) throw missingFile(this.name, file);
    if (end > found.bytes) throw beyondFile(this.name, file, start, end, found.bytes);
    const { pieceBytes } = this.manifest;
    const out = new Uint8Array(end - start);
    const pieces = range(Math.floor(start / pieceBytes), Math.ceil(end / pieceBytes));
    await inParallel(end === start ? [] : pieces, async (index) => {
      throwIfAborted(signal, `reading ${file} of ${this.name}`);
      const piece = await this.#piece(found.pieces[index]!);
      const first = index * pieceBytes;
      const from = Math.max(start, first);
      out.set(piece.subarray(from - first, Math.min(end, first + pieceBytes) - first), from - start);
    });
    return out;
  }

  #piece(digest: string): Promise<Uint8Array> {
    const kept = this.#kept.get(digest);
    const piece = kept ?? readPiece(this.bucket, this.model, digest);
    this.#kept.delete(digest);
    this.#kept.set(digest, piece);
    if (!kept) piece.catch(() => this.#kept.delete(digest));
    if (this.#kept.size > KEPT) this.#kept.delete(this.#kept.keys().next().value!);
    return piece;
  }
}
