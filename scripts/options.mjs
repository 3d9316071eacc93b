/** `npm run options`: writes the types of options and the tables in docs/ from the rows of src/engine/contracts/options. */
import { writeFileSync } from 'node:fs';
import { ensurePackages } from './setup.mjs';

ensurePackages();
await import('./run_typescript.mjs');
const { optionFiles } = await import('./option_files.ts');
for (const [path, text] of Object.entries(await optionFiles())) {
  writeFileSync(new URL(`../${path}`, import.meta.url), text);
}
