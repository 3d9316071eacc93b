import { SplitkvError, throwIfAborted, usageError, withAbort } from '../../base/errors.js';
import { beyondFile, checkFileName, checkRange, missingFile, type Source } from '../source.js';

/**
 * Files a person chose (`<input webkitdirectory>`, `<input multiple>`, drag and drop), as a model folder: the one that holds
 * config.json, the outermost when there are several. Files outside of it are left out.
 */
export function fileListSource(files: readonly File[]): Source {
  const paths = files.map((file) => file.webkitRelativePath || file.name);
  const config = paths
    .filter((path) => path === 'config.json' || path.endsWith('/config.json'))
    .sort((a, b) => depth(a) - depth(b))[0];
  const folder = config === undefined ? '' : config.slice(0, -'config.json'.length);
  const byName = new Map<string, File>();
  for (const [at, path] of paths.entries()) {
    if (!path.startsWith(folder)) continue;
    const name = path.slice(folder.length);
    if (byName.has(name))
      throw usageError(
        `${path} is there twice among the ${files.length} files; expected the files of one model folder`,
      );
    byName.set(name, files[at]!);
  }
  return new FileListSource(folder === '' ? 'the chosen files' : folder.slice(0, -1), byName);
}

const depth = (path: string): number => path.split('/').length;

/** Files by their names in a model folder. */
export class FileListSource implements Source {
  readonly name: string;
  readonly #files: ReadonlyMap<string, File>;

  constructor(name: string, files: ReadonlyMap<string, File>) {
    this.name = name;
    this.#files = files;
  }

  async size(file: string, signal?: AbortSignal): Promise<number | undefined> {
    checkFileName(file);
    throwIfAborted(signal, `reading ${file}`);
    return this.#files.get(file)?.size;
  }

  async list(): Promise<readonly string[]> {
    return [...this.#files.keys()];
  }

  async version(file: string, signal?: AbortSignal): Promise<string | undefined> {
    throwIfAborted(signal, `reading ${file}`);
    const found = this.#find(file);
    return `${found.size}-${found.lastModified}`;
  }

  async read(file: string, start: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    checkFileName(file);
    checkRange(file, start, end);
    throwIfAborted(signal, `reading ${file}`);
    const found = this.#find(file);
    if (end > found.size) throw beyondFile(this.name, file, start, end, found.size);
    try {
      const buffer = await withAbort(found.slice(start, end).arrayBuffer(), signal, `reading ${file}`);
      if (buffer.byteLength !== end - start) throw beyondFile(this.name, file, start, end, start + buffer.byteLength);
      return new Uint8Array(buffer);
    } catch (error) {
      if (error instanceof SplitkvError) throw error;
      // Browsers refuse a file that changed since it was chosen.
      throw new SplitkvError(
        'io',
        `${file} of ${this.name} can't be read (${String(error)}); if it has changed, choose the folder again`,
        {
          cause: error,
        },
      );
    }
  }

  #find(file: string): File {
    const found = this.#files.get(file);
    if (!found) throw missingFile(this.name, file);
    return found;
  }
}
