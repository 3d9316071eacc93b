/**
 * `import create from 'PACKAGE?factory'`: a UMD package as a function that makes a new instance of it each time. It finds none of its
 * surroundings, so that it is the same in pages, workers and Node.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

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
  // Its memory grows by what it asks for, up to what `console.maxBytes` allows: at the source's 2 GiB and a fifth more each time nobody
  // could tell what a grammar takes.
  const limits = [
    ['getHeapMax=()=>2147483648', 'getHeapMax=()=>console.maxBytes'],
    ['oldSize*(1+.2/cutDown)', 'oldSize'],
    ['wasmMemory.grow(pages);', 'wasmMemory.grow(pages);console.grown(wasmMemory.buffer.byteLength);'],
  ];
  let plain = source.replaceAll(nodeOnly, '{}').replace(/^\/\/# sourceMappingURL=.*$/m, '');
  for (const [from, to] of limits) {
    if (plain.split(from).length !== 2) throw new Error(`${specifier}: ${from} isn't in it once`);
    plain = plain.replace(from, () => to);
  }
  return `export default function (console) {
const module = { exports: {} };
(function (module, exports, require, __filename, ${HIDDEN.join(', ')}) {
${plain}
}).call({}, module, module.exports, () => ({ pathToFileURL: () => ({ href: 'file:///' }) }), '');
return module.exports;
}`;
}

/** Vite plugin. In a build the module has the path of its file, by which the package's licence is found; tests would load that by themselves. */
export const moduleFactories = () => {
  let isBuild = false;
  return {
    name: 'splitkv-module-factories',
    enforce: 'pre',
    configResolved: ({ command }) => void (isBuild = command === 'build'),
    resolveId: {
      filter: { id: /^[^/\0].*\?factory$/ },
      handler: (id) => (isBuild ? factoryFile(id) : `\0${id}`),
    },
    load: { filter: { id: /\?factory$/ }, handler: (id) => factoryModule(id.replace('\0', '')) },
  };
};
