import { formatError, SplitkvError } from '../../base/errors.js';
import { parseJson } from '../../base/json.js';
import { sha256 } from '../../base/math.js';
import type { Bucket } from './bucket.js';

/** A file, and the pieces that it was cut into: SHA-256 of each, which is its key, too. */
export interface StoredFile {
  readonly file: string;
  readonly bytes: number;
  readonly pieces: readonly string[];
}

/** All of a model, as its manifest says. */
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
  /** Of all files. */
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
export async function readPiece(
  bucket: Bucket,
  name: string,
  digest: string,
  signal?: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  const entry = await bucket.get(pieceKey(digest), signal);
  if (!entry) {
    throw new SplitkvError(
      'io',
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
export const isDigest = (value: unknown): value is string => typeof value === 'string' && DIGEST.test(value);
const areDigests = (value: unknown): value is string[] => Array.isArray(value) && value.every(isDigest);
