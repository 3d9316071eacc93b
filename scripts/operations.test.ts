import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { command } from '../src/cli/commands/serve.js';
import { parseOptions } from '../src/cli/options.js';
import { changesOf, neededOf, othersRemoved } from './system_packages.mjs';

const page = readFileSync('docs/operations.md', 'utf8');
const block = (language: string): string => new RegExp(`\`\`\`${language}\n([^]*?)\`\`\``).exec(page)![1]!;

test('the service and the container of docs/operations.md start a server with options that there are', () => {
  const service = /^ExecStart=.* serve (.*)$/m.exec(block('ini'))![1]!.split(' ');
  const entry = JSON.parse(/^ENTRYPOINT (.*)$/m.exec(block('dockerfile'))![1]!) as string[];
  for (const args of [service, entry.slice(entry.indexOf('serve') + 1)]) {
    expect(parseOptions('serve', command.options, args).has('exit-on-failure')).toBe(true);
  }
});

test('packages are installed without their scripts wherever docs say how', () => {
  for (const file of ['README.md', ...readdirSync('docs').map((name) => `docs/${name}`)]) {
    if (!file.endsWith('.md')) continue;
    for (const [line] of readFileSync(file, 'utf8').matchAll(/npm (?:install|i|ci)\b[^`\n]*webgpu[^`\n]*/g))
      expect(line, file).toContain('--ignore-scripts');
  }
});

const ANALYZE = '/usr/bin/systemd-analyze';
test.skipIf(!existsSync(ANALYZE))('systemd finds nothing wrong with the service', () => {
  const folder = mkdtempSync(join(tmpdir(), 'splitkv-unit-'));
  const file = join(folder, 'splitkv.service');
  // Where node lies elsewhere, that isn't the unit's fault.
  writeFileSync(file, block('ini').replace('/usr/bin/node', process.execPath));
  const { status, stderr } = spawnSync(ANALYZE, ['verify', '--man=no', file], { encoding: 'utf8' });
  rmSync(folder, { recursive: true });
  expect(stderr.split('\n').filter((line) => line.includes('splitkv.service'))).toEqual([]);
  expect(status).toBe(0);
});

test('what a simulated installation would change, so that it can be undone', () => {
  const said =
    'NOTE: only a simulation\nInst libdrm2 [2.4.114-1] (2.4.124-2~bpo12+1 Debian Backports [amd64])\n' +
    'Inst libvulkan1 (1.3.239-1 Debian:12 [amd64])\nConf libdrm2 (2.4.124-2~bpo12+1 Debian Backports [amd64])\n';
  expect(changesOf(said)).toEqual([
    ['libdrm2', '2.4.114-1'],
    ['libvulkan1', undefined],
  ]);
});

test('what an undoing leaves: what others need by now', () => {
  const installed = [
    'player\tlibgl1 (>= 1), codec | other\t',
    'libgl1\tlibc6, libgallium\t',
    'libgallium\tlibdrm2\t',
    'libdrm2\tlibc6\t',
    'codec-free\t\tcodec (= 1), codec2',
    'chromium\tlibdrm2, libpulse0\t',
    'libpulse0\t\t',
  ].join('\n');
  const added = ['chromium', 'libpulse0', 'libgallium', 'libdrm2', 'codec-free'];
  expect(neededOf(added, installed)).toEqual(['libgallium', 'libdrm2', 'codec-free']);
  expect(neededOf([...added, 'player', 'libgl1'], installed)).toEqual([]);
  const said = 'Remv player [1.2]\nRemv chromium [3]\nInst libdrm2 [2.4.124-2] (2.4.114-1 Debian:12 [amd64])\n';
  expect(othersRemoved(said, added)).toEqual(['player']);
});
