import { ioError, type SplitkvError, withAbort } from '../../base/errors.js';
import { decodeReason, encodeReason, type Port, type PortReason } from '../../distributed/ports/port.js';
import type { Source } from '../../loader/index.js';
import { beyondFile, checkRange, missingFile } from '../../loader/source.js';

/** Files that another thread reads for a worker, as data. */
export interface PortFiles {
  readonly name: string;
  readonly gguf?: string | undefined;
  /** Bytes of each file. */
  readonly files: ReadonlyMap<string, number>;
  readonly port: MessagePort;
}

interface ReadRequest {
  readonly id: number;
  readonly file: string;
  readonly start: number;
  readonly end: number;
}

type ReadAnswer =
  | { readonly id: number; readonly bytes: Uint8Array<ArrayBuffer> }
  | { readonly id: number; readonly reason: PortReason };

interface Waiting {
  readonly resolve: (bytes: Uint8Array<ArrayBuffer>) => void;
  readonly reject: (reason: unknown) => void;
}

/** Reads for whoever has the other end of the port, until it is closed. */
export function serveFiles(source: Source, port: Port): void {
  const left = new AbortController();
  port.addEventListener('close', () => left.abort());
  port.onmessage = ({ data }) => {
    const { id, file, start, end } = data as ReadRequest;
    source.read(file, start, end, left.signal).then(
      (bytes) => port.postMessage({ id, bytes } satisfies ReadAnswer, [bytes.buffer]),
      (error: unknown) => port.postMessage({ id, reason: encodeReason(error) } satisfies ReadAnswer, []),
    );
  };
}

/** What `serveFiles` reads at the other end of a port. Close the port when nothing more is read: an open one holds its thread. */
export function portSource({ name, gguf, files, port }: PortFiles): Source {
  const waiting = new Map<number, Waiting>();
  let requests = 0;
  let over: SplitkvError | undefined;
  port.onmessage = ({ data }: MessageEvent<ReadAnswer>) => {
    const asked = waiting.get(data.id);
    waiting.delete(data.id);
    if ('bytes' in data) asked?.resolve(data.bytes);
    else asked?.reject(decodeReason(data.reason));
  };
  port.addEventListener('close', () => {
    over = ioError(`${name}: whoever reads it has left`);
    for (const { reject } of waiting.values()) reject(over);
    waiting.clear();
  });
  const read = (file: string, start: number, last: number): Promise<Uint8Array<ArrayBuffer>> => {
    if (over) return Promise.reject(over);
    const id = requests++;
    port.postMessage({ id, file, start, end: last } satisfies ReadRequest);
    return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
  };
  return {
    name,
    ...(gguf !== undefined && { gguf }),
    list: () => Promise.resolve([...files.keys()]),
    size: (file) => Promise.resolve(files.get(file)),
    version: () => Promise.resolve(undefined),
    read: async (file, start, last, signal) => {
      checkRange(file, start, last);
      const bytes = files.get(file);
      if (bytes === undefined) throw missingFile({ name }, file);
      if (last > bytes) throw beyondFile(name, file, start, last, bytes);
      return withAbort(read(file, start, last), signal, `reading ${file} of ${name}`);
    },
  };
}
