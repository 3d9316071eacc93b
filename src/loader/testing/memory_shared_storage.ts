import { createHash } from 'node:crypto';
import type { CrossOriginStorage } from '../cache/cross_origin_storage.js';
import type { CacheFileHandle } from '../cache/opfs.js';

type Hash = { readonly algorithm: string; readonly value: string };
type Options = { readonly create?: boolean; readonly origins?: unknown };

const refusal = (name: string): DOMException => new DOMException(`${name} (of the shared storage in memory)`, name);

/**
 * A browser's Cross-Origin Storage: files by their SHA-256, checked when their writing ends; a file is for other origins where it was
 * written with `origins: '*'`; handles for writing can't be read.
 */
export class SharedStorage {
  readonly files = new Map<string, { readonly bytes: Uint8Array<ArrayBuffer>; readonly origins: Set<string> }>();
  /** Calls in order: 'read' or 'write', and the first digits of the hash. */
  readonly calls: string[] = [];
  /** What every call fails with, or 'never': it isn't answered, as while a person is asked. */
  refusal: string | undefined;
  /** Bytes that there is room for. */
  quota = Infinity;

  /** `navigator.crossOriginStorage` of an origin; `plural`: as the proposal was until spring 2026. */
  of(origin: string, plural = false): CrossOriginStorage {
    const one = (hash: Hash, options: Options = {}): Promise<CacheFileHandle> => this.#handle(origin, hash, options);
    if (!plural) return { requestFileHandle: one };
    return {
      requestFileHandles: (hashes, options: Options = {}) =>
        // Without `origins` for all.
        Promise.all(hashes.map((hash) => one(hash, options.create ? { ...options, origins: '*' } : options))),
    };
  }

  async #handle(
    origin: string,
    { algorithm, value }: Hash,
    { create = false, origins }: Options,
  ): Promise<CacheFileHandle> {
    if (algorithm !== 'SHA-256' || !/^[0-9a-f]{64}$/.test(value)) throw new TypeError('expected a SHA-256');
    this.calls.push(`${create ? 'write' : 'read'} ${value.slice(0, 6)}`);
    if (this.refusal === 'never') return new Promise(() => {});
    if (this.refusal !== undefined) throw refusal(this.refusal);
    const file = this.files.get(value);
    if (create) return this.#writing(origin, value, origins === '*' ? '*' : origin);
    if (!file || !(file.origins.has('*') || file.origins.has(origin))) throw refusal('NotFoundError');
    return {
      getFile: async () => new Blob([file.bytes]),
      createWritable: () => Promise.reject(refusal('NotAllowedError')),
    };
  }

  #writing(origin: string, value: string, scope: string): CacheFileHandle {
    let written: Uint8Array<ArrayBuffer>[] = [];
    return {
      getFile: () => Promise.reject(refusal('NotAllowedError')),
      createWritable: async () => ({
        write: async (bytes) => {
          if (written.reduce((sum, part) => sum + part.byteLength, bytes.byteLength) > this.quota) {
            throw refusal('QuotaExceededError');
          }
          written.push(bytes.slice());
        },
        close: async () => {
          const bytes = Uint8Array.from(Buffer.concat(written));
          if (createHash('sha256').update(bytes).digest('hex') !== value) throw refusal('DataError');
          const origins = this.files.get(value)?.origins ?? new Set();
          this.files.set(value, { bytes, origins: origins.add(origin).add(scope) });
        },
        abort: async () => void (written = []),
      }),
    };
  }
}
