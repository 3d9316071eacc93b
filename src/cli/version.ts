import { readFile } from 'node:fs/promises';

/** The package's version; 'unknown' where its manifest isn't found. */
export async function version(): Promise<string> {
  for (const path of ['../../package.json', '../../../package.json']) {
    try {
      const manifest = JSON.parse(await readFile(new URL(path, import.meta.url), 'utf8')) as {
        name?: string;
        version: string;
      };
      if (manifest.name === 'splitkv') return manifest.version;
    } catch {
      // Not here: source and build lie at different depths.
    }
  }
  return 'unknown';
}
