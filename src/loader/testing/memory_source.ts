/**
 * Room: sources and servers for tests: files in memory, an http server with every kind of header, a Hub, a private
 * file system. source_suite.ts is what each Source must do.
 */

import { throwIfAborted } from '../../base/errors.js';
import { beyondFile, checkFileName, checkRange, missingFile, type Source } from '../source.js';

/** Files in memory, and the ranges that were read of them. */
export class MemorySource implements Source {
  readonly name = 'memory';
  readonly files: Map<string, Uint8Array>;
  readonly reads: { file: string; start: number; end: number }[] = [];

  constructor(files: Record<string, Uint8Array | string>) {
    this.files = new Map(
      Object.entries(files).map(([name, data]) => [
        name,
        typeof data === 'string' ? new TextEncoder().encode(data) : data,
      ]),
    );
  }

  async size(file: string, signal?: AbortSignal): Promise<number | undefined> {
    checkFileName(file);
    throwIfAborted(signal, `reading ${file}`);
    return this.files.get(file)?.byteLength;
  }

  async version(file: string, signal?: AbortSignal): Promise<string | undefined> {
    throwIfAborted(signal, `reading ${file}`);
    return String(this.#find(file).byteLength);
  }

  async read(file: string, start: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    checkFileName(file);
    checkRange(file, start, end);
    throwIfAborted(signal, `reading ${file}`);
    const data = this.#find(file);
    if (end > data.byteLength) throw beyondFile(this.name, file, start, end, data.byteLength);
    this.reads.push({ file, start, end });
    const bytes = new Uint8Array(data.subarray(start, end));
    await Promise.resolve(); // nothing real answers at once
    throwIfAborted(signal, `reading ${file}`);
    return bytes;
  }

  #find(file: string): Uint8Array {
    const data = this.files.get(file);
    if (!data) throw missingFile(this, file);
    return data;
  }
}
