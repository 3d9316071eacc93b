import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test, vi } from 'vitest';
import { launchChrome } from './chrome.js';

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-chrome-'));
afterAll(() => rmSync(scratch, { recursive: true }));

test.skipIf(process.platform === 'win32')(
  "a signal ends the wait for a browser that doesn't answer",
  async () => {
    const silent = join(scratch, 'chrome');
    writeFileSync(silent, '#!/bin/sh\nexec sleep 20\n', { mode: 0o755 });
    vi.stubEnv('CHROME_PATH', silent);
    vi.stubEnv('SPLITKV_CHROME_ADAPTER', 'software');
    await expect(launchChrome(AbortSignal.timeout(300))).rejects.toMatchObject({ code: 'aborted' });
  },
  10_000,
);
