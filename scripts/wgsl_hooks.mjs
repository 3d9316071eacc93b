/** Node module hooks: a `?raw` import is the file's text, as in Vite. */
import { readFile } from 'node:fs/promises';

const isRaw = (url) => url.startsWith('file:') && new URL(url).searchParams.has('raw');

export async function resolve(specifier, context, next) {
  if (!specifier.endsWith('?raw') || !/^\.{0,2}\//.test(specifier)) return next(specifier, context);
  return { url: new URL(specifier, context.parentURL).href, shortCircuit: true };
}

export async function load(url, context, next) {
  if (!isRaw(url)) return next(url, context);
  const path = new URL(url);
  path.search = '';
  return {
    format: 'module',
    source: `export default ${JSON.stringify(await readFile(path, 'utf8'))};`,
    shortCircuit: true,
  };
}
