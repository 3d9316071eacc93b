import { ioError, type SplitkvError, throwIfAborted, usageError } from '../../base/errors.js';
import { range } from '../../base/lists.js';
import { sha256 } from '../../base/math.js';
import { inParallel, pause } from '../../base/waits.js';
import { openModelFiles } from '../../engine/files/model_files.js';
import { modelName } from '../../engine/files/model_name.js';
import { findMmproj, type Source } from '../../loader/index.js';
import { modelTexts } from '../../loader/tensor_index.js';
import type { Cluster } from '../connect.js';
import { Bucket, WIDTH } from './bucket.js';
import {
  checkModelName,
  type Head,
  headKey,
  listStored,
  type Manifest,
  pieceKey,
  readHead,
  readManifest,
  type StoredFile,
} from './model_store.js';

/** What one message carries. */
const PIECE_BYTES = 512 * 1024;
/** A message has a subject and headers, too. */
const AROUND_BYTES = 4096;

interface Waiting {
  readonly signal?: AbortSignal | undefined;
  /** Told once, where somebody else changes the store. */
  readonly onWait?: (() => void) | undefined;
}

export interface PushOptions extends Waiting {
  /** Default: the model's own. */
  readonly name?: string | undefined;
  /** In bytes of all files. */
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

export interface Pushed {
  readonly name: string;
  readonly digest: string;
  readonly files: number;
  readonly bytes: number;
  /** What the store hadn't. */
  readonly sentBytes: number;
}

/**
 * Puts a model's files into a cluster's store, in pieces by their digests: what is there already isn't sent. It can be loaded when all
 * of it is there; what broke off goes on with the next push.
 * @throws SplitkvError `limit` where the server has no room, `io`, `aborted`, as `openModelFiles` for what is no model
 */
export async function pushModel(cluster: Cluster, source: Source, options: PushOptions = {}): Promise<Pushed> {
  const { signal, onProgress } = options;
  const name = checkModelName(options.name ?? modelName(source.gguf ?? source.name));
  const files = await filesOf(source, signal);
  const total = files.reduce((sum, { bytes }) => sum + bytes, 0);
  const bucket = await Bucket.open(cluster);
  return alone(bucket, options, async (stillAlone) => {
    const there = new Set(await bucket.keys(pieceKey(''), signal));
    const pieceBytes = Math.min(PIECE_BYTES, cluster.maxPayload - AROUND_BYTES);
    let done = 0;
    let sentBytes = 0;
    const put = async (bytes: Uint8Array<ArrayBuffer>): Promise<string> => {
      const digest = await sha256(bytes);
      const key = pieceKey(digest);
      if (there.has(key)) return digest;
      await bucket.put(key, bytes, signal);
      there.add(key);
      sentBytes += bytes.byteLength;
      return digest;
    };
    const cut = (bytes: number, read: (start: number, end: number) => Promise<Uint8Array<ArrayBuffer>>) =>
      inParallel(range(0, Math.ceil(bytes / pieceBytes)), WIDTH, async (index) => {
        throwIfAborted(signal, 'pushing');
        const piece = await read(index * pieceBytes, Math.min(bytes, (index + 1) * pieceBytes));
        const digest = await put(piece);
        done += piece.byteLength;
        onProgress?.(Math.min(done, total), total);
        return digest;
      });
    const stored: StoredFile[] = [];
    for (const { file, bytes } of files) {
      const pieces = await cut(bytes, (start, end) => source.read(file, start, end, signal));
      stored.push({ file, bytes, pieces });
    }
    await source.flush?.(); // throws where what was read isn't one version of each file
    const { gguf } = source;
    const manifest: Manifest = { version: 1, pieceBytes, ...(gguf !== undefined && { gguf }), files: stored };
    const text = new TextEncoder().encode(JSON.stringify(manifest));
    const digest = await sha256(text);
    const parts = await cut(text.byteLength, (start, end) => Promise.resolve(text.slice(start, end)));
    const before = await readHead(bucket, name, signal).catch(() => undefined);
    const head: Head = { version: 1, digest, bytes: total, pushed: new Date().toISOString(), manifest: parts };
    await stillAlone();
    await bucket.put(headKey(name), new TextEncoder().encode(JSON.stringify(head)), signal);
    if (before && before.digest !== digest) await collect(bucket, signal);
    return { name, digest, files: files.length, bytes: total, sentBytes };
  });
}

/**
 * Removes a model, and the pieces that no other model has. @returns bytes that the server keeps no longer
 * @throws SplitkvError `usage` where there is none of that name
 */
export async function removeStored(cluster: Cluster, name: string, options: Waiting = {}): Promise<number> {
  const { signal } = options;
  checkModelName(name);
  const names = (await listStored(cluster, signal)).map((model) => model.name);
  if (!names.includes(name)) {
    throw usageError(
      `cluster ${cluster.name} has no model ${name}${names.length > 0 ? `; it has ${names.join(', ')}` : ', and no other'}`,
    );
  }
  const bucket = await Bucket.open(cluster);
  return alone(bucket, options, async (stillAlone) => {
    const before = await bucket.bytes(signal);
    await stillAlone();
    await bucket.remove([headKey(name)], signal);
    await collect(bucket, signal);
    return Math.max(0, before - (await bucket.bytes(signal)));
  });
}

/** Removes pieces that no model has: of models that were removed, and of pushes that broke off. */
async function collect(bucket: Bucket, signal: AbortSignal | undefined): Promise<void> {
  const used = new Set<string>();
  for (const key of await bucket.keys(headKey(''), signal)) {
    const name = key.slice(headKey('').length);
    const head = await readHead(bucket, name, signal);
    if (!head) continue;
    const { files } = await readManifest(bucket, name, head, signal);
    for (const digest of [...head.manifest, ...files.flatMap(({ pieces }) => pieces)]) used.add(pieceKey(digest));
  }
  const there = await bucket.keys(pieceKey(''), signal);
  await bucket.remove(
    there.filter((key) => !used.has(key)),
    signal,
  );
}

/** The files that a load of the model may read. @throws SplitkvError as `openModelFiles` */
async function filesOf(source: Source, signal: AbortSignal | undefined): Promise<Pick<StoredFile, 'file' | 'bytes'>[]> {
  const { index } = await (await openModelFiles(source, signal)).reader();
  const { gguf } = source;
  const others =
    gguf === undefined
      ? await modelTexts(source, signal)
      : [await findMmproj(source, gguf, signal).catch(() => undefined)];
  const names = [...others, ...index.files.map(({ name }) => name)].filter((name) => name !== undefined);
  const files: Pick<StoredFile, 'file' | 'bytes'>[] = [];
  for (const file of names) {
    const bytes = await source.size(file, signal);
    if (bytes !== undefined) files.push({ file, bytes });
  }
  return files;
}

const LOCK = 'lock';
const BEAT_MS = 2000;
/** Beats that whoever has it may miss. */
const MISSED = 5;

/** That nobody else changes the store. @throws SplitkvError `io` where somebody took the lock in between */
type StillAlone = () => Promise<void>;

/**
 * Changes the store alone: what others push or remove at the same time can't take pieces away that are counted on. Whoever ended
 * without giving the lock back is told by its beats, by the clock of whoever waits.
 */
async function alone<T>(bucket: Bucket, options: Waiting, work: (stillAlone: StillAlone) => Promise<T>): Promise<T> {
  const { signal } = options;
  const own = new TextEncoder().encode(crypto.randomUUID());
  let revision = await take(bucket, own, options);
  let lost: SplitkvError | undefined;
  let beat: Promise<void> = Promise.resolve();
  const stillAlone = (): Promise<void> =>
    (beat = beat.then(async () => {
      if (!lost) {
        const next = await bucket.put(LOCK, own, signal, revision);
        if (next === undefined) {
          lost = ioError("this process was away for so long that another one changes the cluster's store: push again");
        } else revision = next;
      }
      if (lost) throw lost;
    }));
  // What fails is thrown to whoever asks next.
  const timer = setInterval(() => void stillAlone().catch(() => (beat = Promise.resolve())), BEAT_MS);
  try {
    return await work(stillAlone);
  } finally {
    clearInterval(timer);
    await beat.catch(() => {});
    if (!lost) await bucket.remove([LOCK]).catch(() => {});
  }
}

/** Resolves with the lock's number. */
async function take(bucket: Bucket, own: Uint8Array, { signal, onWait }: Waiting): Promise<number> {
  let seen: number | undefined;
  let missed = 0;
  for (let tries = 0; ; tries++) {
    throwIfAborted(signal, "waiting for the cluster's store");
    const there = (await bucket.get(LOCK, signal))?.revision ?? 0;
    missed = there === seen ? missed + 1 : 0;
    seen = there;
    if (there === 0 || missed > MISSED) {
      const taken = await bucket.put(LOCK, own, signal, there);
      if (taken !== undefined) return taken;
    } else if (tries === 0) onWait?.();
    await pause(BEAT_MS);
  }
}
