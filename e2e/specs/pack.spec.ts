import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, test } from '@playwright/test';
import type { BenchDocument } from '../../bench/document.js';
import type { DecodeResult } from '../../bench/suites/decode.js';
import { swiftshaderIcd } from '../../src/gpu/node.js';

const SYSTEM_ICDS = '/usr/share/vulkan/icd.d';

function softwareDriver(): string | undefined {
  const icds = existsSync(SYSTEM_ICDS) ? readdirSync(SYSTEM_ICDS) : [];
  const lavapipe = icds.find((name) => name.startsWith('lvp_icd'));
  return lavapipe === undefined ? swiftshaderIcd() : join(SYSTEM_ICDS, lavapipe);
}

const pack = (...args: string[]) =>
  spawnSync(process.execPath, [resolve('bench/pack/pack.mjs'), ...args], { encoding: 'utf8' });

test('the packed bench runs from an empty environment, anywhere', () => {
  test.skip(process.platform !== 'linux', 'packs are for Linux');
  const driver = softwareDriver();
  test.skip(driver === undefined, 'no software Vulkan driver is installed');
  const scratch = mkdtempSync(join(tmpdir(), 'splitkv pack '));
  try {
    const folder = join(scratch, 'a pack');
    const packed = pack(folder, '--model', 'models/tiny-mla');
    expect(packed.stderr).toBe('');
    expect(packed.status).toBe(0);
    const args = [
      '--json',
      '--model',
      join(folder, 'models/tiny-mla'),
      '--prompt-tokens',
      '5',
      '--max-tokens',
      '2',
      '--runs',
      '1',
    ];
    const { status, stdout, stderr } = spawnSync(join(folder, 'bench.sh'), args, {
      encoding: 'utf8',
      cwd: scratch,
      env: { VK_DRIVER_FILES: driver! },
    });
    expect(status, stderr).toBe(0);
    const { environment, results } = JSON.parse(stdout) as BenchDocument<DecodeResult>;
    const { commit } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { commit?: string };
    expect(environment).toMatchObject({
      host: 'node',
      ...(commit !== undefined && { commit }),
      adapters: [{ software: true }],
    });
    expect(results).toMatchObject([{ model: 'tiny-mla', prompt_tokens: 5 }]);

    const wrong = spawnSync(join(folder, 'bench.sh'), ['--suite', 'none'], { encoding: 'utf8', env: {} });
    expect(wrong.status).toBe(2);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
});

test('pack says what it needs', () => {
  const nothing = pack();
  expect(nothing.stderr).toContain('usage: ');
  expect(nothing.status).toBe(1);
  const inUse = pack('src');
  expect(inUse.stderr).toMatch(/^pack: .*src: not empty, and no pack; name a new folder\n$/);
  expect(inUse.status).toBe(1);
});
