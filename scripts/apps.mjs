/** `npm run apps [-- NAME...]`: fresh apps of bundlers and frameworks, with their default configurations, take the package and answer. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ensureChrome, ensurePackages, root } from './setup.mjs';

ensurePackages();
process.env.CHROME_PATH = ensureChrome();
process.chdir(root);
if (!process.env.SPLITKV_BUILT) {
  const { status } = spawnSync(process.execPath, [join(root, 'scripts/build.mjs')], { stdio: 'inherit' });
  if (status !== 0) process.exit(1);
}
await import('./run_typescript.mjs');
await import('../e2e/apps/main.ts');
