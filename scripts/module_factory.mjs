/**
 * `import create from 'PACKAGE?factory'`: a UMD package as a function that makes a new instance of it each time. It finds none of its
 * surroundings, so that it is the same in pages, workers and Node.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { isAbsolute } from 'node:path';

const require = createRequire(import.meta.url);

/** Hidden from it, so that it needs no files and no addresses. */
const HIDDEN = ['process', 'window', 'importScripts', 'document', 'location', 'define'];

export const isFactory = (specifier) => specifier.endsWith('?factory');

/** The file that a specifier is of, with `?factory` behind it. */
export const factoryFile = (specifier) => `${require.resolve(specifier.replace(/\?factory$/, ''))}?factory`;

/** @param {string} specifier of a package, or as `factoryFile` gives it */
export function factoryModule(specifier) {
  const source = readFileSync(require.resolve(specifier.replace(/\?factory$/, '')), 'utf8');
  const nodeOnly = "await import('module')";
  if (!source.includes(nodeOnly)) throw new Error(`${specifier}: it isn't as it was; see scripts/module_factory.mjs`);
  const plain = source.replaceAll(nodeOnly, '{}').replace(/^\/\/# sourceMappingURL=.*$/m, '');
  return `export default function (console) {
const module = { exports: {} };
(function (module, exports, require, __filename, ${HIDDEN.join(', ')}) {
${plain}
}).call({}, module, module.exports, () => ({ pathToFileURL: () => ({ href: 'file:///' }) }), '');
return module.exports;
}`;
}

/** Vite plugin. */
export const moduleFactories = () => ({
  name: 'splitkv-module-factories',
  enforce: 'pre',
  resolveId: { filter: { id: /\?factory$/ }, handler: (id) => (isAbsolute(id) ? id : factoryFile(id)) },
  load: { filter: { id: /\?factory$/ }, handler: (id) => factoryModule(id) },
});
