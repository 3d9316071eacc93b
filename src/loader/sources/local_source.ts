import { SplitkvError, withAbort } from '../../base/errors.js';
import { FileListSource, fileListSource } from './file_list_source.js';
import { checkFileName, type Source } from '../source.js';

/** The GGUF file at a `blob:` URL. @throws SplitkvError `io` when there is no such blob, `aborted` */
export async function blobSource(url: URL, signal?: AbortSignal): Promise<Source> {
  const blob = await withAbort(fetchBlob(url.href), signal, `reading ${url.href}`);
  if (blob) return fileListSource([new File([blob], 'model.gguf')]);
  throw new SplitkvError('io', `${url.href}: no such blob; was its URL made by this page, and not revoked since?`);
}

/**
 * A folder of an extension's package (`chrome-extension:`, `moz-extension:`). Its files aren't cached: they are on this machine. Nor are
 * they read by range requests, which browsers answer there in different ways: a response becomes a Blob, which the browser keeps on its
 * disk when it is large, and slices of it are read.
 */
export class PackagedSource implements Source {
  readonly name: string;
  readonly #files = new Map<string, Promise<Source>>();

  constructor(readonly folder: URL) {
    this.name = folder.href;
  }

  async size(file: string, signal?: AbortSignal): Promise<number | undefined> {
    return (await this.#open(file, signal)).size(file, signal);
  }

  async version(file: string, signal?: AbortSignal): Promise<string | undefined> {
    return (await this.#open(file, signal)).version(file, signal);
  }

  async read(file: string, start: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    return (await this.#open(file, signal)).read(file, start, end, signal);
  }

  /** The one file of it; none where the package lacks it. */
  #open(file: string, signal: AbortSignal | undefined): Promise<Source> {
    checkFileName(file);
    let opened = this.#files.get(file);
    if (!opened) {
      const url = new URL(file.split('/').map(encodeURIComponent).join('/'), this.folder.href.replace(/\/?$/, '/'));
      opened = fetchBlob(url.href).then(
        (blob) =>
          new FileListSource(
            this.name,
            new Map(blob && [[file, new File([blob], file.split('/').at(-1)!, { lastModified: 0 })]]),
          ),
      );
      this.#files.set(file, opened);
    }
    return withAbort(opened, signal, `reading ${file}`);
  }
}

/** Undefined where there is nothing: such a fetch has no status, it fails. */
const fetchBlob = (href: string): Promise<Blob | undefined> =>
  fetch(href).then(
    (response) => (response.ok ? response.blob() : undefined),
    () => undefined,
  );
