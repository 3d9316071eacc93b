/**
 * Room: models that a cluster's NATS server keeps. Their names, what is there, what a model is written as, and one as a
 * source of files (here); push.ts puts one there and has who may, and bucket.ts is what is asked of JetStream.
 */

import { formatError, ioError, throwIfAborted, usageError, withAbort } from '../../base/errors.js';
import { Kept } from '../../base/kept.js';
import { range } from '../../base/lists.js';
import type { Cluster } from '../connect.js';
import { STORED } from '../../engine/contracts/cluster_options.js';
import { FileSource, type FoundFile } from '../../loader/source.js';
import { Bucket, WIDTH } from './bucket.js';
import { parseJson } from '../../base/json.js';
import { sha256 } from '../../base/math.js';
import { inParallel } from '../../base/waits.js';

export interface ListedModel extends Pick<Head, 'digest' | 'bytes' | 'pushed'> {
  readonly name: string;
}

const NAME = /^[A-Za-z0-9](?:[\w-]|\.(?=[\w-])){0,126}$/;

/** @throws SplitkvError `usage` */
export function checkModelName(name: string): string {
  if (NAME.test(name)) return name;
  throw usageError(
    `${JSON.stringify(name.slice(0, 130))}: a model of a cluster's store has a name of up to 127 letters, digits, dots, - and _`,
  );
}

/** What `cluster:NAME` or `cluster:NAME@DIGEST` names. @throws SplitkvError `usage` */
function parseStored(where: string): { readonly name: string; readonly digest: string | undefined } {
  const [name = '', digest, ...more] = where.slice(STORED.length).split('@');
  if (more.length > 0 || (digest !== undefined && !isDigest(digest)))
    throw usageError(`${where.slice(0, 300)}: expected cluster:NAME`);
  return { name: checkModelName(name), digest };
}

/** The models in the order of their names. @throws SplitkvError `io` */
export async function listStored(cluster: Cluster, signal?: AbortSignal): Promise<ListedModel[]> {
  const bucket = await Bucket.open(cluster);
  const models = await inParallel(await bucket.keys(headKey(''), signal), WIDTH, async (key) => {
    const name = key.slice(headKey('').length);
    const head = await readHead(bucket, name, signal);
    return head && { name, digest: head.digest, bytes: head.bytes, pushed: head.pushed };
  });
  return models.filter((model) => model !== undefined).toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/**
 * A model's files as a cluster's store has them. Reading fetches the pieces that are asked for, each checked by its digest.
 * @param where `cluster:NAME`, or `cluster:NAME@DIGEST` for that one alone
 * @throws SplitkvError `io` where it isn't there, or is another one by now; `format` where what is there makes no sense
 */
export async function openStored(cluster: Cluster, where: string, signal?: AbortSignal): Promise<StoredSource> {
  const { name, digest } = parseStored(where);
  const bucket = await Bucket.open(cluster);
  const head = await readHead(bucket, name, signal);
  if (!head) {
    const names = (await listStored(cluster, signal)).map((model) => model.name);
    throw ioError(
      `${where}: cluster ${cluster.name} has no model of that name${names.length > 0 ? ` (it has ${names.join(', ')})` : ''}: push it (splitkv push MODEL --cluster URL)`,
    );
  }
  if (digest !== undefined && digest !== head.digest) {
    throw ioError(
      `cluster:${name} was pushed anew since the model was loaded (${head.digest.slice(0, 12)}, not ${digest.slice(0, 12)}): load it again`,
    );
  }
  return new StoredSource(bucket, name, head.digest, await readManifest(bucket, name, head, signal));
}

/** Pieces that are kept: neighbouring ranges begin and end in the same ones. */
const KEPT = 16;

/** A model of a cluster's store as files. Only the pieces of the ranges that are read are fetched. */
class StoredSource extends FileSource {
  readonly name: string;
  readonly gguf?: string;
  /** What another machine opens to read the same. */
  readonly at: { readonly where: string };
  /** Bytes of each. */
  readonly files: ReadonlyMap<string, number>;
  readonly #files: ReadonlyMap<string, StoredFile>;
  readonly #kept = new Kept<Promise<Uint8Array>>(KEPT);

  constructor(
    readonly bucket: Bucket,
    readonly model: string,
    readonly digest: string,
    readonly manifest: Manifest,
  ) {
    super();
    this.name = `cluster:${model}`;
    if (manifest.gguf !== undefined) this.gguf = manifest.gguf;
    this.at = { where: `cluster:${model}@${digest}` };
    this.#files = new Map(manifest.files.map((file) => [file.file, file]));
    this.files = new Map(manifest.files.map(({ file, bytes }) => [file, bytes]));
  }

  list(): Promise<readonly string[]> {
    return Promise.resolve([...this.#files.keys()]);
  }

  protected async find(file: string, signal: AbortSignal | undefined): Promise<FoundFile | undefined> {
    const found = this.#files.get(file);
    if (!found) return undefined;
    const what = `reading ${file} of ${this.name}`;
    const { pieceBytes } = this.manifest;
    const read = async (start: number, end: number): Promise<Uint8Array<ArrayBuffer>> => {
      const out = new Uint8Array(end - start);
      const pieces = range(Math.floor(start / pieceBytes), Math.ceil(end / pieceBytes));
      await inParallel(end === start ? [] : pieces, WIDTH, async (index) => {
        throwIfAborted(signal, what);
        const piece = await this.#piece(found.pieces[index]!);
        const first = index * pieceBytes;
        const from = Math.max(start, first);
        out.set(piece.subarray(from - first, Math.min(end, first + pieceBytes) - first), from - start);
      });
      return out;
    };
    return { size: found.bytes, version: this.digest, read: (...span) => withAbort(read(...span), signal, what) };
  }

  #piece(digest: string): Promise<Uint8Array> {
    const kept = this.#kept.get(digest);
    if (kept) return kept;
    const piece = readPiece(this.bucket, this.model, digest);
    this.#kept.set(digest, piece, 1);
    piece.catch(() => this.#kept.delete(digest));
    return piece;
  }
}

/** A file, and the pieces that it was cut into: SHA-256 of each, which is its key, too. */
export interface StoredFile {
  readonly file: string;
  readonly bytes: number;
  readonly pieces: readonly string[];
}

export interface Manifest {
  readonly version: 1;
  /** Of every piece but a file's last one. */
  readonly pieceBytes: number;
  /** The file that is the model, where one is. */
  readonly gguf?: string;
  readonly files: readonly StoredFile[];
}

/** What is written last: a model is there when this is. */
export interface Head {
  readonly version: 1;
  /** SHA-256 of the manifest, in hex: what tells two models of one name apart. */
  readonly digest: string;
  readonly bytes: number;
  /** When it was pushed, as ISO 8601 has it. */
  readonly pushed: string;
  /** Pieces that the manifest is in. */
  readonly manifest: readonly string[];
}

export const headKey = (name: string): string => `model.${name}`;
export const pieceKey = (digest: string): string => `piece.${digest}`;

/** @throws SplitkvError `format` for what is no head */
export async function readHead(bucket: Bucket, name: string, signal?: AbortSignal): Promise<Head | undefined> {
  const entry = await bucket.get(headKey(name), signal);
  if (!entry) return undefined;
  const head = jsonOf(entry.value, `the head of cluster:${name}`) as Partial<Head> | null;
  const { version, digest, bytes, pushed, manifest } = head ?? {};
  if (version === 1 && isDigest(digest) && isCount(bytes) && typeof pushed === 'string' && areDigests(manifest))
    return { version, digest, bytes, pushed, manifest };
  throw formatError(`cluster:${name} isn't a model as this version of splitkv pushes it: push it again`);
}

/** @throws SplitkvError `io` for a piece that is gone, `format` for what is no manifest */
export async function readManifest(bucket: Bucket, name: string, head: Head, signal?: AbortSignal): Promise<Manifest> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for (const digest of head.manifest) parts.push(await readPiece(bucket, name, digest, signal));
  const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
  const wrong = formatError(`the manifest of cluster:${name} makes no sense: push it again`);
  if ((await sha256(bytes)) !== head.digest) throw wrong;
  const { version, pieceBytes, gguf, files } = (jsonOf(bytes, `the manifest of cluster:${name}`) ??
    {}) as Partial<Manifest>;
  const isFile = ({ file, bytes: size, pieces }: StoredFile): boolean =>
    typeof file === 'string' && isCount(size) && areDigests(pieces) && pieces.length === Math.ceil(size / pieceBytes!);
  const isWhole =
    version === 1 &&
    isCount(pieceBytes) &&
    pieceBytes > 0 &&
    (gguf === undefined || typeof gguf === 'string') &&
    Array.isArray(files) &&
    files.every((file) => typeof file === 'object' && file !== null && isFile(file));
  if (!isWhole) throw wrong;
  return { version, pieceBytes, files, ...(gguf !== undefined && { gguf }) };
}

/** @throws SplitkvError `io` where it is gone, `format` where it is damaged */
async function readPiece(
  bucket: Bucket,
  name: string,
  digest: string,
  signal?: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  const entry = await bucket.get(pieceKey(digest), signal);
  if (!entry) {
    throw ioError(
      `cluster:${name}: a piece of it (${digest.slice(0, 12)}) is gone from the cluster's store: the model was removed, or pushed anew; push it again`,
    );
  }
  // The client's buffer is the connection's, and may be shared.
  const bytes = new Uint8Array(entry.value);
  if ((await sha256(bytes)) !== digest)
    throw formatError(`cluster:${name}: a piece of it (${digest.slice(0, 12)}) is damaged: push it again`);
  return bytes;
}

const jsonOf = (bytes: Uint8Array, what: string): unknown => parseJson(new TextDecoder().decode(bytes), what);
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const DIGEST = /^[0-9a-f]{64}$/;
const isDigest = (value: unknown): value is string => typeof value === 'string' && DIGEST.test(value);
const areDigests = (value: unknown): value is string[] => Array.isArray(value) && value.every(isDigest);
