/**
 * A Chromium whose software adapter is Mesa's lavapipe instead of SwiftShader: with shader-f16 and subgroups of 8, so that runtimes that
 * need those run without a GPU. Linux, with a C compiler and mesa-vulkan-drivers. Links the browser's files into FOLDER, which has to
 * be on the same file system to take no room, and changes nothing outside it:
 *
 *   node bench/peer_packages/lavapipe/make.mjs FOLDER
 *   CHROME_PATH=FOLDER/chromium npm run bench -- --suite peers
 */
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findChrome } from '../../../src/cli/hosts/find_chrome.js';

const DRIVER = 'libvk_swiftshader.so';
const ICD = 'vk_swiftshader_icd.json';
/** SwiftShader itself, which still draws pages. */
const REAL = 'libvk_swiftshader_real.so';

const fail = (message) => {
  console.error(message);
  process.exit(1);
};

const [target, ...others] = process.argv.slice(2);
if (target === undefined || others.length > 0) fail('usage: node bench/peer_packages/lavapipe/make.mjs FOLDER');
const folder = resolve(target);
if (existsSync(folder) && readdirSync(folder).length > 0)
  fail(`${folder}: expected a folder that is empty or isn't there`);
// Debian's /usr/bin/chromium is a script; the browser's own folder has the driver beside it.
const from = [
  findChrome(),
  '/usr/lib/chromium/chromium',
  '/usr/lib/chromium-browser/chromium-browser',
  '/opt/google/chrome/chrome',
]
  .filter((path) => path !== undefined && existsSync(path))
  .map((path) => dirname(path))
  .find((path) => existsSync(join(path, DRIVER)));
if (from === undefined) fail(`no Chrome or Chromium with ${DRIVER} beside it was found`);

link(from, folder);
renameSync(join(folder, DRIVER), join(folder, REAL));
const icd = readFileSync(join(folder, ICD), 'utf8').replace(DRIVER, REAL);
rmSync(join(folder, ICD)); // a link: written over, it would change the browser's own
writeFileSync(join(folder, ICD), icd);
const shim = fileURLToPath(new URL('shim.c', import.meta.url));
const compiled = spawnSync('cc', ['-O2', '-Wall', '-shared', '-fPIC', '-o', join(folder, DRIVER), shim, '-ldl'], {
  stdio: 'inherit',
});
if (compiled.status !== 0) {
  rmSync(folder, { recursive: true });
  fail('the shim was not compiled: cc is needed');
}
const browser = ['chromium', 'chrome', 'chromium-browser'].find((name) => existsSync(join(folder, name)));
console.log(`CHROME_PATH=${join(folder, browser ?? 'chrome')}`);

/** Hard links, or copies where the file systems differ. */
function link(source, to) {
  mkdirSync(to, { recursive: true });
  for (const name of readdirSync(source)) {
    const [path, other] = [join(source, name), join(to, name)];
    if (statSync(path).isDirectory()) link(path, other);
    else {
      try {
        linkSync(path, other);
      } catch {
        cpSync(path, other);
      }
    }
  }
}
