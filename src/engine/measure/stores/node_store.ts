import { mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { cpus, homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { MEASURE_DAYS, type MeasureStore } from './store.js';

/** A folder of JSON files, `measures` in the user's cache folder for splitkv (SPLITKV_CACHE_DIR names another). */
export function nodeStore(): MeasureStore {
  const folder = join(cacheFolder(), 'measures');
  const fileOf = (key: string): string => join(folder, `${key}.json`);
  return {
    // LP_NUM_THREADS is how many cores a software device of Mesa's may use.
    environment: JSON.stringify([
      cpus()[0]?.model,
      cpus().length,
      process.env['LP_NUM_THREADS'],
      process.versions.node,
    ]),
    async get(key) {
      const { mtimeMs } = await stat(fileOf(key));
      if (Date.now() - mtimeMs > MEASURE_DAYS * 24 * 3600 * 1000) return undefined;
      return JSON.parse(await readFile(fileOf(key), 'utf8')) as unknown;
    },
    set: (key, value) => replaceFile(fileOf(key), `${JSON.stringify(value)}\n`),
  };
}

/** Writes a file, or replaces it, in one step. */
export async function replaceFile(path: string, content: Uint8Array | string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const partial = `${path}.${process.pid}.part`;
  try {
    await writeFile(partial, content);
    await rename(partial, path);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
}

/** What splitkv itself keeps between runs. */
export function cacheFolder(): string {
  const { SPLITKV_CACHE_DIR: own, XDG_CACHE_HOME: xdg, LOCALAPPDATA: local } = process.env;
  if (own) return own;
  if (process.platform === 'win32') return join(local || join(homedir(), 'AppData', 'Local'), 'splitkv');
  if (process.platform === 'darwin') return join(homedir(), 'Library', 'Caches', 'splitkv');
  return join(xdg || join(homedir(), '.cache'), 'splitkv');
}
