/** Installs the peers' packages by their own lock file, without install scripts: node bench/peer_packages/install.mjs */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const cwd = fileURLToPath(new URL('.', import.meta.url));
const args = ['ci', '--ignore-scripts', '--no-audit', '--no-fund'];
const { status } = spawnSync('npm', args, { cwd, stdio: 'inherit', shell: process.platform === 'win32' });
process.exitCode = status ?? 1;
