/** Node module hooks: a `?raw` import is the file's text, as in Vite, and a `?factory` import a function that makes the package. */
import { readFile } from 'node:fs/promises';
import { factoryModule, isFactory } from './module_factory.mjs';

const isRaw = (url) => url.startsWith('file:') && new URL(url).searchParams.has('raw');

export async function resolve(specifier, context, next) {
  if (isFactory(specifier)) return { url: `splitkv:${specifier}`, shortCircuit: true };
  if (!specifier.endsWith('?raw') || !/^\.{0,2}\//.test(specifier)) return next(specifier, context);
  return { url: new URL(specifier, context.parentURL).href, shortCircuit: true };
}

export async function load(url, context, next) {
  if (url.startsWith('splitkv:')) {
    return { format: 'module', source: factoryModule(url.slice('splitkv:'.length)), shortCircuit: true };
  }
  if (!isRaw(url)) return next(url, context);
  const path = new URL(url);
  path.search = '';
  return {
    format: 'module',
    source: `export default ${JSON.stringify(await readFile(path, 'utf8'))};`,
    shortCircuit: true,
  };
}
