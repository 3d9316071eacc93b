import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { swiftshaderIcd } from './node.js';

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-swiftshader-'));
afterAll(() => rmSync(scratch, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());

function file(...parts: readonly string[]): string {
  const path = join(scratch, ...parts);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, '');
  return path;
}

describe.skipIf(process.platform !== 'linux')("SwiftShader's driver", () => {
  test('is found beside the browser that CHROME_PATH names, through links', () => {
    const icd = file('chrome', 'vk_swiftshader_icd.json');
    symlinkSync(file('chrome', 'chrome'), join(scratch, 'link'));
    vi.stubEnv('CHROME_PATH', join(scratch, 'link'));
    expect(swiftshaderIcd()).toBe(icd);
  });

  test("is found in Playwright's cache, newest first, where no system has one", () => {
    file('cache', 'chromium-999', 'chrome-linux', 'vk_swiftshader_icd.json');
    file('cache', 'chromium-1200', 'INSTALLATION_COMPLETE');
    const icd = file('cache', 'chromium-1200', 'chrome-linux64', 'vk_swiftshader_icd.json');
    file('cache', 'chromium-1300.lock');
    vi.stubEnv('PLAYWRIGHT_BROWSERS_PATH', join(scratch, 'cache'));
    vi.stubEnv('CHROME_PATH', undefined);
    expect(swiftshaderIcd([])).toBe(icd);
  });
});
