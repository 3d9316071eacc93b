/** Built for pages by cache_table.spec.ts: a model's file through the browser's cache, step by step. */

import { cachedFiles } from '../../src/loader/cache/cache_list.js';
import { cachedSource } from '../../src/loader/cache/cached_source.js';
import { toHex } from '../../src/base/math.js';
import { httpSource } from '../../src/loader/sources/http_source.js';
import type { Source } from '../../src/loader/source.js';

const visits: { readonly source: Source; readonly warnings: string[] }[] = [];

/** Opens the model of this page's server, as a page does that is loaded; its number. */
export async function visit(stallMs = 30_000): Promise<number> {
  const warnings: string[] = [];
  const http = httpSource(new URL('/model/', location.href), { attempts: 2, backoffMs: 1, stallMs });
  const source = await cachedSource(http, { onWarning: (text) => warnings.push(text) });
  return visits.push({ source, warnings }) - 1;
}

/** Reads the weights from `from` to `to`, by default all of them, and waits until they are stored: their SHA-256, or the error. */
export async function read(visit: number, from = 0, to?: number): Promise<string> {
  const { source } = visits[visit]!;
  try {
    const size = await source.size('model.safetensors');
    if (size === undefined) return 'missing';
    const bytes = await source.read('model.safetensors', from, to ?? size);
    await source.flush!();
    return toHex(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes)));
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    return `${code}: ${message}`;
  }
}

export const warnings = (visit: number): string => visits[visit]!.warnings.join('\n');

export const kept = cachedFiles;

/** Changes what is on the disk behind the cache's back. */
export async function spoil(how: 'flip' | 'truncate' | 'evict'): Promise<void> {
  const root = await navigator.storage.getDirectory();
  if (how === 'evict') return root.removeEntry('splitkv-models', { recursive: true });
  const pieces = async function* (folder: FileSystemDirectoryHandle): AsyncGenerator<FileSystemFileHandle> {
    for await (const [name, handle] of folder) {
      if (handle instanceof FileSystemDirectoryHandle) yield* pieces(handle);
      else if (name === '1') yield handle as FileSystemFileHandle;
    }
  };
  for await (const piece of pieces(root)) {
    const bytes = new Uint8Array(await (await piece.getFile()).arrayBuffer());
    bytes[1000]! ^= 255;
    const writable = await piece.createWritable();
    await writable.write(how === 'flip' ? bytes : bytes.subarray(0, 2_000_000));
    await writable.close();
  }
}
