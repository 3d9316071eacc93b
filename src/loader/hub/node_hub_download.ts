import { isErrno } from '../sources/node_files.js';
import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readFile, rename, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ioError, messageOf, SplitkvError, throwIfAborted } from '../../base/errors.js';
import { formatBytes } from '../../base/math.js';
import type { OpenOptions } from '../open_source.js';
import { checkFileName, type Source } from '../source.js';
import type { HubListing } from './hub_api.js';
import type { HubName } from './hub_name.js';
import type { RepositoryCache } from './node_hub_cache.js';

/** What one request asks for; the next one is under way while a piece is written. */
const PIECE_BYTES = 16 * 1024 * 1024;
const LOCK_WAIT_MS = 500;

export interface Download {
  readonly source: Source;
  readonly name: HubName;
  readonly listing: HubListing & { readonly commit: string };
  readonly repository: RepositoryCache;
  readonly options: Pick<OpenOptions, 'onProgress' | 'onWarning'>;
}

interface Wanted {
  readonly file: string;
  readonly size: number;
  /** What the blob is called. */
  readonly id: string;
}

/**
 * Downloads files of a repository's commit that the cache lacks; resolves to how many bytes came. A file that broke off goes on
 * where it ended. What arrives is checked against the hash that the Hub tells.
 * @throws SplitkvError `io`, `aborted`; what has come is kept as `.incomplete`
 */
export async function download(
  work: Download,
  files: readonly string[],
  signal: AbortSignal | undefined,
): Promise<number> {
  const { source, name, listing, repository, options } = work;
  const { commit } = listing;
  const there = await repository.files(commit);
  const wanted: Wanted[] = [];
  for (const file of files) {
    checkFileName(file);
    const size = listing.files.get(file)?.size;
    // One of another size was cut short, or is another's doing.
    if (!there.has(file) || (size !== undefined && there.get(file) !== size)) {
      wanted.push(await wantedFile(source, file, commit, signal));
    }
  }
  const total = wanted.reduce((sum, { size }) => sum + size, 0);
  await checkRoom(repository, wanted, total);
  let loaded = 0;
  let came = 0;
  for (const { file, size, id } of wanted) {
    const before = loaded;
    const report = (bytes: number): void =>
      options.onProgress?.({ file, loadedBytes: before + bytes, totalBytes: total });
    const waiting = (): void =>
      options.onWarning?.(`${file} of ${name.repo} is being downloaded by another process: waiting for it`);
    try {
      came += await locked(repository.lock(id), signal, waiting, () =>
        fetchBlob(source, { file, size, id }, repository, report, signal),
      );
      await repository.link(commit, file, id);
    } catch (error) {
      throw error instanceof SplitkvError ? error : notWritten(repository, error);
    }
    loaded += size;
  }
  return came;
}

async function wantedFile(
  source: Source,
  file: string,
  commit: string,
  signal: AbortSignal | undefined,
): Promise<Wanted> {
  const size = await source.size(file, signal);
  if (size === undefined) throw ioError(`${file} is not in ${source.name}, though the Hub lists it`);
  const version = (await source.sha256?.(file, signal)) ?? (await source.version(file, signal));
  const id = version?.replace(/^W\/|"/g, '');
  // Without a validator the commit and the name say which file it is.
  if (id !== undefined && /^\w[\w.-]*$/.test(id)) return { file, size, id };
  return { file, size, id: createHash('sha256').update(`${commit}/${file}`).digest('hex').slice(0, 32) };
}

async function checkRoom(repository: RepositoryCache, wanted: readonly Wanted[], total: number): Promise<void> {
  if (wanted.length === 0) return;
  await mkdir(dirname(repository.blob('x')), { recursive: true }).catch((error: unknown) => {
    throw notWritten(repository, error);
  });
  let there = 0;
  for (const { id } of wanted) {
    for (const path of [repository.blob(id), partOf(repository, id)]) there += (await sizeOf(path)) ?? 0;
  }
  const disk = await statfs(repository.folder).catch(() => undefined);
  const free = disk === undefined ? Infinity : disk.bavail * disk.bsize;
  if (total - there > free) {
    throw ioError(
      `${repository.repo} needs ${formatBytes(total - there)} more in ${repository.cache}, where ${formatBytes(free)} are free: ` +
        '`splitkv models --delete NAME` makes room, HF_HUB_CACHE names another folder',
    );
  }
}

const notWritten = ({ cache }: RepositoryCache, error: unknown): SplitkvError =>
  ioError(`${cache} can't be written: ${messageOf(error)}; HF_HUB_CACHE names another folder`, error);

const partOf = (repository: RepositoryCache, id: string): string => `${repository.blob(id)}.incomplete`;
const sizeOf = async (path: string): Promise<number | undefined> => (await stat(path).catch(() => undefined))?.size;

/** Bytes that came for a blob; 0 where it is there. */
async function fetchBlob(
  source: Source,
  { file, size, id }: Wanted,
  repository: RepositoryCache,
  report: (bytes: number) => void,
  signal: AbortSignal | undefined,
): Promise<number> {
  if ((await sizeOf(repository.blob(id))) === size) return 0;
  const part = partOf(repository, id);
  const begun = (await sizeOf(part)) ?? 0;
  const start = begun > size ? 0 : begun; // longer than the file: not a part of it
  const hash = hashOf(id, size);
  if (start > 0 && hash)
    for await (const bytes of createReadStream(part, { end: start - 1 })) hash.update(bytes as Uint8Array);
  const handle = await open(part, start === 0 ? 'w' : 'r+');
  try {
    const piece = (at: number): Promise<Uint8Array<ArrayBuffer>> | undefined => {
      if (at >= size) return undefined;
      const bytes = source.read(file, at, Math.min(size, at + PIECE_BYTES), signal);
      bytes.catch(() => {}); // heard when it is its turn
      return bytes;
    };
    let coming = piece(start);
    report(start);
    for (let at = start; coming;) {
      const bytes = await coming;
      coming = piece(at + bytes.byteLength);
      hash?.update(bytes);
      await handle.write(bytes, 0, bytes.byteLength, at);
      at += bytes.byteLength;
      report(at);
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
  if (hash && hash.digest('hex') !== id) {
    await rm(part, { force: true });
    throw ioError(
      `${file} of ${source.name} has arrived damaged: it doesn't have the hash that the Hub tells (${id}). Try again` +
        (start > 0 ? '; it was begun earlier, and is now fetched anew' : ''),
    );
  }
  await rename(part, repository.blob(id));
  return size - start;
}

/** The hash that is the blob's name: SHA-256 of a large file, git's SHA-1 of a small one. */
function hashOf(id: string, size: number): Hash | undefined {
  if (/^[0-9a-f]{64}$/.test(id)) return createHash('sha256');
  return /^[0-9a-f]{40}$/.test(id) ? createHash('sha1').update(`blob ${size}\0`) : undefined;
}

/** Locks of this process. */
const held = new Set<string>();

/** Runs `body` while nobody else of ours downloads the same. The lock of a process that ended is taken over. */
async function locked<T>(
  path: string,
  signal: AbortSignal | undefined,
  waiting: () => void,
  body: () => Promise<T>,
): Promise<T> {
  await mkdir(dirname(path), { recursive: true });
  const mine = `${process.pid} ${hostname()}`;
  for (let told = false; ;) {
    throwIfAborted(signal, 'downloading');
    try {
      await writeFile(path, mine, { flag: 'wx' });
      break;
    } catch (error) {
      if (!isErrno(error, 'EEXIST')) throw error;
    }
    if (await isStale(path)) {
      await rm(path, { force: true });
      continue;
    }
    if (!told) waiting();
    told = true;
    await pause(LOCK_WAIT_MS, undefined, signal && { signal }).catch(() => {}); // aborted: told above
  }
  held.add(path);
  try {
    return await body();
  } finally {
    held.delete(path);
    await rm(path, { force: true });
  }
}

async function isStale(path: string): Promise<boolean> {
  const [pid, host] = (await readFile(path, 'utf8').catch(() => '')).split(' ');
  if (host === undefined) return ((await stat(path).catch(() => undefined))?.mtimeMs ?? 0) < Date.now() - 10_000;
  if (host !== hostname()) return false;
  if (Number(pid) === process.pid) return !held.has(path); // of an earlier process with the same number
  try {
    process.kill(Number(pid), 0);
    return false;
  } catch (error) {
    return !isErrno(error, 'EPERM');
  }
}
