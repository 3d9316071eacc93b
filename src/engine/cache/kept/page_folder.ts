import {
  cacheNames,
  KV_FOLDER,
  readCacheFile,
  removeCacheEntry,
  writeCacheFile,
  type CacheDirectory,
} from '../../../loader/cache/opfs.js';
import type { KvFolder } from '../../contracts/kv_folder.js';

/** A folder of the origin's private file system (OPFS). Its files tell when they were written, not when they were read. */
export function pageKvFolder(name: string, root?: CacheDirectory): KvFolder {
  const folder = async (): Promise<CacheDirectory> => {
    const top: CacheDirectory = root ?? (await navigator.storage.getDirectory());
    return top.getDirectoryHandle(KV_FOLDER + name, { create: true });
  };
  return {
    name,
    async list() {
      const directory = await folder();
      const found: { name: string; bytes: number; at: number }[] = [];
      for (const file of await cacheNames(directory)) {
        const blob = await readCacheFile(directory, file);
        if (blob) found.push({ name: file, bytes: blob.size, at: (blob as Partial<File>).lastModified ?? 0 });
      }
      return found.toSorted((a, b) => a.at - b.at);
    },
    async read(file) {
      const blob = await readCacheFile(await folder(), file);
      return blob && new Uint8Array(await blob.arrayBuffer());
    },
    write: async (file, bytes) => writeCacheFile(await folder(), file, bytes),
    remove: async (file) => removeCacheEntry(await folder(), file),
  };
}
