import { type FileHandle, open, readdir, stat } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { abortedError, ioError, messageOf, SplitkvError, throwIfAborted, usageError } from '../../base/errors.js';
import { ggufSource, isGgufName } from '../gguf/file.js';
import { beyondFile, FileSource, type FoundFile, type Source } from '../source.js';

/** Bytes between two looks at the abort signal. */
const READ_BYTES = 16 * 1024 * 1024;

/** A model folder or a GGUF file on disk. A path that is neither throws `io` here rather than file by file later. */
export async function directorySource(where: string | URL): Promise<Source> {
  const directory = resolve(typeof where === 'string' ? where : fileURLToPath(where));
  const found = await stat(directory).catch(() => undefined);
  if (!found) throw ioError(`${directory} does not exist; expected a folder that holds config.json and the weights`);
  if (!found.isDirectory()) {
    if (isGgufName(directory)) {
      const [, snapshot = dirname(directory), file = basename(directory)] = IN_SNAPSHOT.exec(directory) ?? [];
      return ggufSource(new DirectorySource(snapshot), file.split(sep).join('/'));
    }
    throw usageError(
      `${directory} is a file; expected a .gguf file, or the folder it is in, which must hold config.json and the weights`,
    );
  }
  return new DirectorySource(directory);
}

/** A file of the Hub's cache: what goes with it may lie in another folder of the repository. */
const IN_SNAPSHOT = /^(.+[\\/]snapshots[\\/][0-9a-f]{40})[\\/](.+)$/;

export const isOnDisk = async (path: string): Promise<boolean> =>
  (await stat(path).catch(() => undefined)) !== undefined;

class DirectorySource extends FileSource {
  constructor(readonly name: string) {
    super();
  }

  async list(): Promise<readonly string[]> {
    const isSnapshot = IN_SNAPSHOT.test(join(this.name, 'x'));
    const entries = await readdir(this.name, { withFileTypes: true, recursive: isSnapshot });
    return entries
      .filter((entry) => !entry.isDirectory())
      .map((entry) => relative(this.name, join(entry.parentPath, entry.name)).split(sep).join('/'));
  }

  protected async find(file: string, signal: AbortSignal | undefined): Promise<FoundFile | undefined> {
    throwIfAborted(signal, `reading ${file}`);
    try {
      const found = await stat(join(this.name, file));
      if (!found.isFile()) return undefined;
      const { size, mtimeMs } = found;
      return { size, version: `${size}-${mtimeMs}`, read: (start, end) => this.#read(file, start, end, signal) };
    } catch (error) {
      if (isErrno(error, 'ENOENT', 'ENOTDIR')) return undefined;
      throw this.#failed(file, error);
    }
  }

  async #read(file: string, start: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    let handle: FileHandle | undefined;
    try {
      handle = await open(join(this.name, file), 'r');
      const bytes = new Uint8Array(end - start);
      for (let done = 0; done < bytes.length;) {
        const { bytesRead } = await handle.read(bytes, done, Math.min(READ_BYTES, bytes.length - done), start + done);
        if (signal?.aborted) throw abortedError(`reading ${file}`, signal);
        if (bytesRead === 0) throw beyondFile(this.name, file, start, end, start + done);
        done += bytesRead;
      }
      return bytes;
    } catch (error) {
      throw error instanceof SplitkvError ? error : this.#failed(file, error);
    } finally {
      await handle?.close();
    }
  }

  #failed(file: string, error: unknown): SplitkvError {
    return ioError(`${file} of ${this.name} can't be read: ${messageOf(error)}`, error);
  }
}

export const isErrno = (error: unknown, ...codes: readonly string[]): boolean =>
  error instanceof Error && 'code' in error && codes.includes(String(error.code));
