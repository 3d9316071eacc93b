/**
 * `npm run site`: a static folder, site/, for any web server and any path: the pages, the library that they and the gallery's recipes
 * load, the example model, and the package's reference. `-- --out DIR` puts it elsewhere.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { BESIDE_PAGES } from './beside_pages.mjs';
import { llmsText } from './llms_text.mjs';
import { ensurePackages, root } from './setup.mjs';

ensurePackages();
const { values } = parseArgs({ options: { out: { type: 'string' } } });
const out = resolve(values.out ?? join(root, 'site'));
if (existsSync(out) && readdirSync(out).length > 0 && !existsSync(join(out, '.nojekyll'))) {
  throw new Error(`${out} holds something else; name a folder that is empty, or that npm run site made`);
}

if (!process.env.SPLITKV_BUILT) {
  const { status } = spawnSync(process.execPath, [join(root, 'scripts/build.mjs')], { stdio: 'inherit' });
  if (status !== 0) process.exit(1);
}
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
// GitHub's pages would else leave out what begins with an underscore.
writeFileSync(join(out, '.nojekyll'), '');
writeFileSync(join(out, 'llms.txt'), llmsText());

cpSync(join(root, 'dist/app'), out, { recursive: true });
rmSync(join(out, 'host.html')); // the command line's
const copy = (to, wanted) => {
  const from = join(root, BESIDE_PAGES[to]);
  for (const name of readdirSync(from).filter(wanted))
    cpSync(join(from, name), join(out, to, name), { recursive: true });
};
copy('models', (name) => name === 'tiny-gqa');
copy('splitkv', (name) => /^(splitkv(?!-node)[\w-]*\.js|THIRD_PARTY_LICENSES\.md)$/.test(name));
// onnxruntime-web, which the bench page can run beside splitkv: the file that it imports, and what that loads.
copy('peers/onnxruntime-web', (name) =>
  /^(ort\.webgpu\.bundle\.min|ort-wasm-simd-threaded\.asyncify)\.(mjs|wasm)$/.test(name),
);

await import('./run_typescript.mjs');
const { buildApiReference } = await import('./api_reference.mjs');
const { PAGES } = await import('../pages/shared/pages.ts');
await buildApiReference(join(out, 'api'), PAGES);
console.log(`the site is in ${out}: publish the folder as it is, at any path`);
