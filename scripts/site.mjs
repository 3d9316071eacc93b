/**
 * `npm run site`: a static folder, site/, for any web server and any path: the pages, the library that they and the gallery's recipes
 * load, the example model, and the package's reference. `-- --out DIR` puts it elsewhere. `--base URL` says where it will be published:
 * links to its pages then show a picture, whose address must be whole. `--model PATH` puts a model folder or .gguf file in, which
 * the pages then offer first: one that converses.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { BESIDE_PAGES } from './beside_pages.mjs';
import { llmsText } from './llms_text.mjs';
import { ensurePackages, root } from './setup.mjs';

ensurePackages();
const { values } = parseArgs({
  options: { out: { type: 'string' }, base: { type: 'string' }, model: { type: 'string' } },
});
const base = values.base === undefined ? undefined : `${values.base.replace(/\/+$/, '')}/`;
if (base !== undefined && !/^https?:\/\/[^/?#]+\/[^?#]*$/.test(base)) {
  throw new Error(`--base ${values.base}: expected an address such as https://example.org/splitkv/`);
}
const demo = values.model === undefined ? undefined : resolve(values.model);
if (demo !== undefined && !existsSync(join(demo, 'config.json')) && !(existsSync(demo) && demo.endsWith('.gguf'))) {
  throw new Error(`--model ${values.model}: expected a folder with config.json, or a .gguf file`);
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
// Where it is, no page asks in vain for a template in a file of its own.
const { chat_template } = JSON.parse(readFileSync(join(out, 'models/tiny-gqa/tokenizer_config.json'), 'utf8'));
writeFileSync(join(out, 'models/tiny-gqa/chat_template.jinja'), chat_template);
copy('splitkv', (name) => /^(splitkv(?!-node)[\w-]*\.js|THIRD_PARTY_LICENSES\.md)$/.test(name));
// onnxruntime-web, which the bench page can run beside splitkv: the file that it imports, and what that loads.
copy('peers/onnxruntime-web', (name) =>
  /^(ort\.webgpu\.bundle\.min|ort-wasm-simd-threaded\.asyncify)\.(mjs|wasm)$/.test(name),
);

if (demo !== undefined) {
  const name = basename(demo);
  const to = join(out, 'models', name);
  cpSync(demo, to, { recursive: true });
  const files = name.endsWith('.gguf') ? [to] : readdirSync(to).map((file) => join(to, file));
  const bytes = files.reduce((all, file) => all + statSync(file).size, 0);
  const address = encodeURI(`models/${name}${name.endsWith('.gguf') ? '' : '/'}`);
  const escaped = (of) => of.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');
  const shown = escaped(name.replace(/\.gguf$/, ''));
  for (const page of ['index.html', 'gallery.html', 'chat.html']) {
    const text = readFileSync(join(out, page), 'utf8');
    const content = escaped(address);
    const meta = `    <meta name="site-model" content="${content}" data-name="${shown}" data-bytes="${bytes}" />\n`;
    // Where it is written already nothing moves when the page's script comes.
    const button = `<button type="button" aria-pressed="false">${shown}</button>`;
    const offered = text.replace(/<div id="models"[^>]*>/, (group) => `${group}\n            ${button}`);
    writeFileSync(
      join(out, page),
      offered.replace('  </head>', () => `${meta}  </head>`),
    );
  }
}
await import('./run_typescript.mjs');
const { buildApiReference } = await import('./api_reference.mjs');
const { MARK, navigation, PAGES } = await import('../pages/shared/pages.ts');
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
await buildApiReference(join(out, 'api'), { navigation, mark: MARK });
console.log(`the site is in ${out}: publish the folder as it is, at any path`);
