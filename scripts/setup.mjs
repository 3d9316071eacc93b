/**
 * What `npm start` and `npm test` need before anything else: npm packages, a browser, and for tests a software Vulkan driver
 * and a C compiler. Plain Node, no dependencies. Everything is looked for first; a complete machine is only looked at (some milliseconds).
 *
 * SPLITKV_NO_SYSTEM_INSTALL=1 forbids Debian's packages; then what is missing is only named. `npm run setup -- --undo` removes what was
 * installed for the whole system, and with `--dry-run` says what that would be.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findChrome } from '../src/cli/hosts/find_chrome.js';
import {
  findNatsServer,
  findNginx,
  maySystemInstall,
  systemInstall,
  undoSystemInstalls,
  unpack,
} from './system_packages.mjs';

export const root = fileURLToPath(new URL('..', import.meta.url));

const say = (text) => process.stderr.write(`[setup] ${text}\n`);

/** Runs a command with its output on stderr (stdout belongs to the caller's result); true when it succeeded. */
function run(command, args, options = {}) {
  const result = spawnSync(command, args, { cwd: root, stdio: ['ignore', 2, 2], ...options });
  return result.status === 0;
}

/** True when node_modules holds what package-lock.json asks for (packages for other platforms aside). */
export function packagesAreInstalled() {
  const read = (path) => JSON.parse(readFileSync(join(root, path), 'utf8')).packages;
  try {
    const installed = read('node_modules/.package-lock.json');
    return Object.entries(read('package-lock.json')).every(
      ([path, entry]) => path === '' || entry.optional || entry.peer || installed[path]?.version === entry.version,
    );
  } catch {
    return false;
  }
}

/**
 * Installs what package-lock.json asks for. Not by `npm ci`: it refuses a lock file that lacks packages of other platforms,
 * which npm leaves out of a lock file where the registry at hand doesn't have them. No package here needs its install script.
 */
export function ensurePackages() {
  if (packagesAreInstalled()) return;
  say('installing npm packages');
  const inNpm = process.env.npm_execpath;
  const args = ['install', '--no-save', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
  const ok = inNpm?.endsWith('.js')
    ? run(process.execPath, [inNpm, ...args])
    : run('npm', args, { shell: process.platform === 'win32' });
  if (!ok) throw new Error('npm install failed; see its message above');
}

/** Finds a browser, else installs one. Returns its path. */
export function ensureChrome() {
  const found = findChrome();
  if (found) return found;
  say('no Chrome or Chromium found; downloading one (playwright install chromium)');
  const downloaded = run(process.execPath, [join(root, 'node_modules/playwright-core/cli.js'), 'install', 'chromium'], {
    timeout: 600_000,
  });
  if (!downloaded && maySystemInstall()) systemInstall(['chromium'], 'a browser, as the download failed');
  const installed = findChrome();
  if (!installed)
    throw new Error(
      'no Chrome or Chromium, and none could be installed: install one, or set CHROME_PATH to its binary',
    );
  return installed;
}

const ICD_FOLDERS = ['/usr/share/vulkan/icd.d', '/etc/vulkan/icd.d'];
const hasVulkanDriver = () => ICD_FOLDERS.some((folder) => existsSync(folder) && readdirSync(folder).length > 0);

/**
 * A software Vulkan driver (lavapipe) where none is installed: then Node has a WebGPU adapter of its own, and tests run on two
 * kinds of adapter. Tests don't depend on it where a browser brings SwiftShader; a failure is only reported.
 */
export function ensureVulkan() {
  if (hasVulkanDriver() || process.platform !== 'linux') return;
  if (!maySystemInstall()) return say('no Vulkan driver found; for more test adapters install mesa-vulkan-drivers');
  // Mesa 22 of bookworm lacks shader-f16; backports has 25.
  const isBookworm = /bookworm/.test(readFileSync('/etc/os-release', 'utf8'));
  const suite = isBookworm ? 'bookworm-backports' : undefined;
  if (!systemInstall(['mesa-vulkan-drivers', 'libvulkan1'], 'a software Vulkan driver', suite)) {
    say('the driver could not be installed; tests run on the adapters that are there');
  }
}

/** A C compiler, with which `bench --suite compile` builds what asks AMD's compiler about the kernels; its tests are skipped without. */
export function ensureCompiler() {
  const compiles = spawnSync('cc', ['-E', '-x', 'c', '-'], { input: '#include <dlfcn.h>\n' }).status === 0;
  if (compiles || process.platform !== 'linux') return;
  const skipped = "the tests of kernels on GPUs' compilers will be skipped";
  if (!maySystemInstall()) return say(`no C compiler found (cc); ${skipped}. Debian: gcc, libc6-dev`);
  if (!systemInstall(['gcc', 'libc6-dev'], 'a C compiler')) say(`the C compiler could not be installed; ${skipped}`);
}

/** PyTorch from Debian, for the training scripts' smoke test. */
export function ensureTorch() {
  if (spawnSync('/usr/bin/python3', ['-c', 'import torch']).status === 0) return;
  if (!maySystemInstall()) return say('no PyTorch for /usr/bin/python3; the training smoke test will be skipped');
  if (!systemInstall(['python3-torch', 'libopenblas0-openmp'], 'PyTorch for the training smoke test')) {
    say('PyTorch could not be installed; the training smoke test will be skipped');
  }
}

/** nginx, unpacked below this checkout, for the tests of servers behind it. */
export function ensureNginx() {
  if (findNginx() || (unpack('nginx') && findNginx())) return;
  say('no nginx found (set NGINX_PATH); the tests of servers behind it will be skipped');
}

/** nats-server, unpacked below this checkout, for the tests of clusters. */
export function ensureNats() {
  if (findNatsServer() || (unpack('nats-server') && findNatsServer())) return;
  say('no nats-server found (set NATS_SERVER_PATH); the tests of clusters will be skipped');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes('--undo')) {
    try {
      undoSystemInstalls(process.argv.includes('--dry-run'));
    } catch (error) {
      say(error.message);
      process.exitCode = 1;
    }
    process.exit();
  }
  ensurePackages();
  say(`browser: ${ensureChrome()}`);
  ensureVulkan();
  ensureCompiler();
  ensureNginx();
  ensureNats();
  if (process.argv.includes('--torch')) ensureTorch();
}
