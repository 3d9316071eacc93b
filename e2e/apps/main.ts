/** `npm run apps [-- NAME...]`: see docs/architecture.md. Prints a line for each app; the exit code is the number of those that failed. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { didYouMean } from '../../src/base/errors.js';
import { APPS } from './apps.js';
import { launch, packPackage, runApp } from './run_app.js';

const names = process.argv.slice(2);
const unknown = names.filter((name) => !Object.hasOwn(APPS, name));
if (unknown.length > 0) {
  const all = Object.keys(APPS);
  console.error(`apps: no app '${unknown[0]}'.${didYouMean(unknown[0]!, all)} There are: ${all.join(', ')}`);
  process.exit(2);
}
const folder = mkdtempSync(join(tmpdir(), 'splitkv-apps-'));
const browser = await launch();
let failed = 0;
try {
  const tarball = packPackage(folder);
  for (const name of names.length > 0 ? names : Object.keys(APPS)) {
    try {
      const { seconds, complaints } = await runApp(name, APPS[name]!, tarball, browser);
      const said = complaints.map((line) => `\n    console: ${line}`).join('');
      console.log(`ok      ${name.padEnd(20)} ${seconds.toFixed(0)} s${said}`);
    } catch (error) {
      failed++;
      const text = error instanceof Error ? error.message : String(error);
      console.log(`FAILED  ${name.padEnd(20)} ${text.replaceAll('\n', '\n    ')}`);
    }
  }
} finally {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
}
process.exitCode = Math.min(failed, 100);
