import { ioError, SplitkvError, throwIfAborted, usageError, withAbort } from '../../base/errors.js';
import { nth, valueIn } from '../../base/lists.js';
import { beyondFile, FileSource, type FoundFile, type Source } from '../source.js';

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
      throw usageError(`${path} is there twice among the ${files.length} files; expected those of one model folder`);
    byName.set(name, nth(files, at));
  }
  const name = folder === '' ? 'the chosen files' : folder.slice(0, -1);
  return new FilesSource(name, (file) => byName.get(file), [...byName.keys()]);
}

const depth = (path: string): number => path.split('/').length;

/** The GGUF file at a `blob:` URL. @throws SplitkvError `io` when there is no such blob, `aborted` */
export async function blobSource(url: URL, signal?: AbortSignal): Promise<Source> {
  const blob = await withAbort(fetchBlob(url.href), signal, `reading ${url.href}`);
  if (blob) return fileListSource([new File([blob], 'model.gguf')]);
  throw ioError(`${url.href}: no such blob; was its URL made by this page, and not revoked since?`);
}

/**
 * A folder of an extension's package (`chrome-extension:`, `moz-extension:`). Its files aren't cached: they are on this machine. Nor are
 * they read by range requests, which browsers answer there in different ways: a response becomes a Blob, which the browser keeps on its
 * disk when it is large, and slices of it are read.
 */
export function packagedSource(folder: URL): Source {
  const files = new Map<string, Promise<File | undefined>>();
  return new FilesSource(folder.href, (file) => {
    const open = async (): Promise<File | undefined> => {
      const url = new URL(file.split('/').map(encodeURIComponent).join('/'), folder.href.replace(/\/?$/, '/'));
      const blob = await fetchBlob(url.href);
      return blob && new File([blob], file, { lastModified: 0 });
    };
    return valueIn(files, file, open);
  });
}

/** Undefined where there is nothing: such a fetch has no status, it fails. */
const fetchBlob = (href: string): Promise<Blob | undefined> =>
  fetch(href).then(
    (response) => (response.ok ? response.blob() : undefined),
    () => undefined,
  );

/** Files by their names in a model folder. */
class FilesSource extends FileSource {
  constructor(
    readonly name: string,
    private readonly open: (file: string) => File | undefined | Promise<File | undefined>,
    private readonly names: readonly string[] = [],
  ) {
    super();
  }

  async list(): Promise<readonly string[]> {
    return this.names;
  }

  protected async find(file: string, signal: AbortSignal | undefined): Promise<FoundFile | undefined> {
    const what = `reading ${file}`;
    throwIfAborted(signal, what);
    const found = await withAbort(Promise.resolve(this.open(file)), signal, what);
    if (!found) return undefined;
    const read: FoundFile['read'] = async (start, end) => {
      try {
        const buffer = await withAbort(found.slice(start, end).arrayBuffer(), signal, what);
        if (buffer.byteLength !== end - start) throw beyondFile(this.name, file, start, end, start + buffer.byteLength);
        return new Uint8Array(buffer);
      } catch (cause) {
        if (cause instanceof SplitkvError) throw cause;
        // Browsers refuse a file that changed since it was chosen.
        const why = `${file} of ${this.name} can't be read (${String(cause)}); if it has changed, choose the folder again`;
        throw ioError(why, cause);
      }
    };
    return { size: found.size, version: `${found.size}-${found.lastModified}`, read };
  }
}
