#!/usr/bin/env node
// The command line. A published package runs its build (dist/cli); a checkout runs the TypeScript source, so that an edit counts at once.
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { adoptTerminal, needsQuiet, runQuietly } from './quiet.js';

const at = (path) => new URL(`../${path}`, import.meta.url);

if (needsQuiet(process.argv.slice(2))) runQuietly(fileURLToPath(import.meta.url), process.argv.slice(2));
else await main();

async function main() {
  adoptTerminal();
  if (existsSync(at('src/cli/main.ts'))) {
    if (!existsSync(at('node_modules/tsx'))) {
      const { ensurePackages } = await import('../scripts/setup.mjs');
      try {
        ensurePackages();
      } catch (error) {
        console.error(`splitkv: ${error.message}`);
        process.exit(1);
      }
    }
    await import('../scripts/run_typescript.mjs');
    const { run } = await import(at('bench/cli/main.ts').href);
    await run(process.argv.slice(2));
  } else if (existsSync(at('dist/cli/main.js'))) {
    const { run } = await import(at('dist/cli/main.js').href);
    await run(process.argv.slice(2));
  } else {
    console.error(
      `splitkv: neither a build (dist/cli) nor source (src/cli) beside ${fileURLToPath(import.meta.url)}; install the package again`,
    );
    process.exitCode = 1;
  }
}
