/** `npm run apps [-- NAME...]`: see docs/architecture.md. Prints a line for each app; the exit code is the number of those that failed. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { didYouMean } from '../../src/base/errors.js';
import { APPS } from './apps.js';
import { launch, packPackage, type Ran, runApp } from './run_app.js';
import { packTemplates, runTemplate, TEMPLATES } from './templates.js';

const names = process.argv.slice(2);
/** Templates of create-splitkv have names of their own. */
const PREFIX = 'create-';
const all = [...Object.keys(APPS), ...Object.keys(TEMPLATES).map((name) => `${PREFIX}${name}`)];
const unknown = names.filter((name) => !all.includes(name));
if (unknown.length > 0) {
  console.error(`apps: no app '${unknown[0]}'.${didYouMean(unknown[0]!, all)} There are: ${all.join(', ')}`);
  process.exit(2);
}
const folder = mkdtempSync(join(tmpdir(), 'splitkv-apps-'));
const browser = await launch();
let failed = 0;
try {
  const tarball = packPackage(folder);
  const tarballs = packTemplates(folder, tarball);
  const runNamed = (name: string): Promise<Ran> =>
    name.startsWith(PREFIX)
      ? runTemplate(name.slice(PREFIX.length), tarballs, browser)
      : runApp(name, APPS[name]!, tarball, browser);
  for (const name of names.length > 0 ? names : all) {
    try {
      const { seconds, complaints } = await runNamed(name);
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
