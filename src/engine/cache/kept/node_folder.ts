import { mkdir, open, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { formatError } from '../../../base/errors.js';
import { joinBytes } from '../../../base/math.js';
import { cacheFolder } from '../../measure/stores/node_store.js';
import type { KvFolder } from '../../contracts/kv_folder.js';

const isMissing = (error: unknown): boolean => (error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT';

/** What there is of a file's or folder's; `none` where it isn't there. */
async function orMissing<T, None>(reading: Promise<T>, none: None): Promise<T | None> {
  try {
    return await reading;
  } catch (error) {
    if (isMissing(error)) return none;
    throw error;
  }
}

/** Replaces a file in one step. */
async function replace(path: string, bytes: Uint8Array): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const partial = `${path}.${process.pid}.part`;
  try {
    await writeFile(partial, bytes);
    await rename(partial, path);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

/** A folder with a file for each piece, whose time is that of its last use; by default in the user's cache. */
export function nodeKvFolder(path = join(cacheFolder(), 'kv')): KvFolder {
  const folder = resolve(path);
  const fileOf = (name: string): string => join(folder, name);
  return {
    name: path,
    async list() {
      const names = await orMissing(readdir(folder), []);
      const files = await Promise.all(
        names.map(async (name) => {
          const found = await orMissing(stat(fileOf(name)), undefined);
          return found?.isFile() ? [{ name, bytes: found.size, at: found.mtimeMs }] : [];
        }),
      );
      return files.flat().toSorted((a, b) => a.at - b.at);
    },
    read: (name) => orMissing(readFile(fileOf(name)), undefined),
    write: (name, bytes) => replace(fileOf(name), bytes),
    remove: (name) => rm(fileOf(name), { force: true }),
    touch: (name) => orMissing(utimes(fileOf(name), Date.now() / 1000, Date.now() / 1000), undefined),
  };
}

const TITLE = 'splitkv kv 1';
interface FileHead {
  readonly subject: string;
  readonly pieces: readonly (readonly [name: string, bytes: number])[];
}

/** A file of one prompt: a line of text, one of JSON that says what follows, and the pieces. What wasn't used goes with the next flush. */
export class NodeKvFile implements KvFolder {
  subject: string | undefined;
  readonly #pieces = new Map<string, Uint8Array<ArrayBuffer>>();
  readonly #used = new Set<string>();
  #isWritten = true;

  constructor(readonly name: string) {}

  async list(): Promise<{ name: string; bytes: number }[]> {
    const file = await orMissing(open(this.name), undefined);
    if (!file) return [];
    const bytes = new Uint8Array(await file.readFile().finally(() => file.close()));
    const { head, start } = readHead(bytes, this.name);
    this.subject = head.subject;
    let at = start;
    for (const [name, size] of head.pieces) this.#pieces.set(name, bytes.subarray(at, (at += size)));
    return head.pieces.map(([name, size]) => ({ name, bytes: size }));
  }

  async read(name: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.#pieces.get(name);
  }

  async write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    this.#pieces.set(name, bytes);
    this.#used.add(name);
    this.#isWritten = false;
  }

  async remove(name: string): Promise<void> {
    this.#pieces.delete(name);
    this.#used.delete(name);
    this.#isWritten = false;
  }

  async touch(name: string): Promise<void> {
    this.#used.add(name);
  }

  async flush(subject: string): Promise<void> {
    if (this.#isWritten && subject === this.subject) return;
    const used = [...this.#pieces].filter(([name]) => this.#used.has(name));
    const head: FileHead = { subject, pieces: used.map(([name, bytes]) => [name, bytes.byteLength]) };
    const lines = new TextEncoder().encode(`${TITLE}\n${JSON.stringify(head)}\n`);
    await replace(this.name, joinBytes([lines, ...used.map(([, bytes]) => bytes)]));
    this.#isWritten = true;
    this.subject = subject;
  }
}

/** @throws SplitkvError `format` */
function readHead(bytes: Uint8Array, name: string): { readonly head: FileHead; readonly start: number } {
  const first = bytes.indexOf(10);
  const second = bytes.indexOf(10, first + 1);
  const text = (from: number, to: number): string => new TextDecoder().decode(bytes.subarray(from, to));
  if (first !== TITLE.length || text(0, first) !== TITLE || second < 0) {
    throw formatError(`${name} isn't a file of keys and values of this version`);
  }
  const head = JSON.parse(text(first + 1, second)) as Partial<FileHead>;
  const isPiece = (piece: unknown): boolean =>
    Array.isArray(piece) && typeof piece[0] === 'string' && Number.isSafeInteger(piece[1]) && piece[1] >= 0;
  const isHead = typeof head?.subject === 'string' && Array.isArray(head.pieces) && head.pieces.every(isPiece);
  if (!isHead) throw formatError(`${name} is damaged`);
  return { head: head as FileHead, start: second + 1 };
}
