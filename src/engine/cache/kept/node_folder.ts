import { readdir, readFile, rm, stat, utimes } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { joinBytes, sha256 } from '../../../base/math.js';
import { isErrno } from '../../../loader/sources/node_files.js';
import { cacheFolder, replaceFile } from '../../measure/stores/node_store.js';
import type { KvFolder } from '../../contracts/kv_folder.js';
import { kvFileHead, readKvHead } from './kv_file.js';

/** What there is of a file's or folder's; `none` where it isn't there. */
async function orMissing<T, None>(reading: Promise<T>, none: None): Promise<T | None> {
  try {
    return await reading;
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return none;
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
    write: (name, bytes) => replaceFile(fileOf(name), bytes),
    remove: (name) => rm(fileOf(name), { force: true }),
    touch: (name) => orMissing(utimes(fileOf(name), Date.now() / 1000, Date.now() / 1000), undefined),
  };
}

/** A file of one prompt: a line of JSON that says what follows, and the pieces. What wasn't used goes with the next flush. */
export class NodeKvFile implements KvFolder {
  subject: string | undefined;
  /** SHA-256 of the head that was written, in hex. */
  digest: string | undefined;
  readonly #pieces = new Map<string, Uint8Array<ArrayBuffer>>();
  readonly #used = new Set<string>();
  #isWritten = true;

  constructor(readonly name: string) {}

  async list(): Promise<{ name: string; bytes: number }[]> {
    const bytes = await orMissing(readFile(this.name), undefined);
    if (!bytes) return [];
    const { subject, pieces = [] } = readKvHead(bytes) ?? {};
    this.subject = String(subject);
    for (const [name, { at, bytes: size }] of pieces) this.#pieces.set(name, bytes.subarray(at, at + size));
    return [...this.#pieces].map(([name, { byteLength }]) => ({ name, bytes: byteLength }));
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
    this.#isWritten &&= !this.#pieces.delete(name);
  }

  async touch(name: string): Promise<void> {
    this.#used.add(name);
  }

  async flush(subject: string): Promise<void> {
    if (this.#isWritten) return;
    const used = [...this.#pieces].filter(([name]) => this.#used.has(name));
    const head = kvFileHead(subject, used);
    await replaceFile(this.name, joinBytes([head, ...used.map(([, bytes]) => bytes)]));
    this.digest = await sha256(head);
    this.#isWritten = true;
  }
}
