/** The package's declarations: one file an entry, rolled up, so that those who use it see no file of ours that isn't meant for them. */
import { spawnSync } from 'node:child_process';
import { appendFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, isAbsolute, join, relative } from 'node:path';
import { rolldown } from 'rolldown';
import { dts } from 'rolldown-plugin-dts';
import { root } from './setup.mjs';

/** What a room of the source holds is no matter of those who use the package; TypeScript before 5.7 has no kinds of byte arrays. */
const plain = (code) =>
  code.replace(/\/\*\*[\s*]*Room:[^]*?\*\/\n/, '').replaceAll('Uint8Array<ArrayBuffer>', 'Uint8Array');

/** The texts of a JSON file that a declaration imports, by their names. @param folder of the declarations */
const withTexts = (code, id, folder) =>
  code.replace(/^import (\w+) from '(\.[^']*\.json)'.*$/m, (_, name, file) => {
    const texts = JSON.parse(readFileSync(join(root, relative(folder, dirname(id)), file), 'utf8'));
    return `declare const ${name}: { ${Object.keys(texts)
      .map((text) => `readonly ${text}: string;`)
      .join(' ')} };`;
  });

/** Writes the declarations of each entry of the package into `folder`. */
export async function buildTypes(folder) {
  const parts = join(folder, 'types');
  mkdirSync(parts, { recursive: true });
  const tsc = [
    join(root, 'node_modules/typescript/bin/tsc'),
    '-p',
    join(root, 'tsconfig.types.json'),
    '--outDir',
    parts,
  ];
  if (spawnSync(process.execPath, tsc, { stdio: 'inherit' }).status !== 0)
    throw new Error('writing declarations failed');
  const entries = {
    splitkv: 'src/index.d.ts',
    'splitkv-chat': 'src/app/chat/index.d.ts',
    'splitkv-planning': 'src/planning/index.d.ts',
  };
  for (const [name, file] of Object.entries(entries)) await rollUp(name, join(parts, file), folder, parts);
  const frameworks = readFileSync(join(root, 'src/app/chat/frameworks.d.ts'), 'utf8').replace(/^import .*\n/gm, '');
  // Of what takes a model, which is the library's own.
  const faces = {
    prompt_api: ['types', 'index'],
    ai_sdk: ['index'],
    offline: ['index'],
    stores: ['index'],
    react: ['chat', 'hooks'],
  };
  for (const [face, files] of Object.entries(faces)) {
    const declared = files
      .map((file) => readFileSync(join(parts, `src/app/${face}/${file}.d.ts`), 'utf8'))
      .join('\n')
      .replaceAll(/^(import|export)[^;]*?from '\.\/[^']*';\n/gm, '')
      .replaceAll("'../../index.js'", "'splitkv'")
      .replaceAll(/'\.\.\/(chat|stores)\/index\.js'/g, "'splitkv/$1'");
    writeFileSync(join(folder, `splitkv-${face}.d.ts`), plain(declared));
  }
  appendFileSync(join(folder, 'splitkv-chat.d.ts'), frameworks);
  rmSync(parts, { recursive: true });
}

/** An entry and what it needs, in one file: what it does not export can't be imported. */
async function rollUp(name, input, folder, parts) {
  const transform = (code, id) => withTexts(plain(code), id, parts);
  const plugins = [{ name: 'plain', transform }, dts({ dtsInput: true })];
  const external = (id) => !id.startsWith('.') && !isAbsolute(id);
  const bundle = await rolldown({ input: { [name]: input }, plugins, external });
  await bundle.write({ dir: folder, entryFileNames: '[name].ts' });
  await bundle.close();
}
