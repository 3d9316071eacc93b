import { parsed } from '../base/json.js';
import { readFile } from 'node:fs/promises';

/** The package's version; 'unknown' where its manifest isn't found. */
export async function version(): Promise<string> {
  for (const path of ['../../package.json', '../../../package.json']) {
    // Source and build lie at different depths.
    const text = await readFile(new URL(path, import.meta.url), 'utf8').catch(() => '');
    const manifest = parsed(text) as { readonly name?: string; readonly version: string } | undefined;
    if (manifest?.name === 'splitkv') return manifest.version;
  }
  return 'unknown';
}
