/**
 * `npm run site`: a static folder, site/, for any web server and any path: the pages, the library that they and the gallery's recipes
 * load, the example model, and the package's reference. `-- --out DIR` puts it elsewhere. `--base URL` says where it will be published:
 * links to its pages then show a picture, whose address must be whole.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { BESIDE_PAGES } from './beside_pages.mjs';
import { llmsText } from './llms_text.mjs';
import { ensurePackages, root } from './setup.mjs';

ensurePackages();
const { values } = parseArgs({ options: { out: { type: 'string' }, base: { type: 'string' } } });
const base = values.base === undefined ? undefined : `${values.base.replace(/\/+$/, '')}/`;
if (base !== undefined && !/^https?:\/\/[^/?#]+\/[^?#]*$/.test(base)) {
  throw new Error(`--base ${values.base}: expected an address such as https://example.org/splitkv/`);
}
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
if (base !== undefined) {
  cpSync(join(root, 'docs/images/card.png'), join(out, 'card.png'));
  for (const { address } of PAGES.filter(({ address: each }) => !each.includes('/'))) {
    const tags = {
      'og:url': base + (address === 'index.html' ? '' : address),
      'og:image': `${base}card.png`,
      'og:image:width': '1200',
      'og:image:height': '630',
      'og:image:alt': 'splitkv: language models on WebGPU, on one GPU or on several',
    };
    const metas = Object.entries(tags).map(
      ([name, content]) => `    <meta property="${name}" content="${content}" />\n`,
    );
    const text = readFileSync(join(out, address), 'utf8');
    const whole = text.replace(
      'name="twitter:card" content="summary"',
      'name="twitter:card" content="summary_large_image"',
    );
    writeFileSync(join(out, address), whole.replace('  </head>', `${metas.join('')}  </head>`));
  }
}
await buildApiReference(join(out, 'api'), PAGES);
console.log(`the site is in ${out}: publish the folder as it is, at any path`);
