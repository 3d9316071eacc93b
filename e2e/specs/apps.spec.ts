import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from '@playwright/test';
import { APPS } from '../apps/apps.js';
import { packPackage, runApp } from '../apps/run_app.js';

// The test server builds dist/ before it starts. `npm run apps` makes all the apps; these stand for the others.

const folder = mkdtempSync(join(tmpdir(), 'splitkv-apps-'));
test.afterAll(() => rmSync(folder, { recursive: true, force: true }));
let tarball: string;
test.beforeAll(() => {
  tarball = packPackage(folder);
});

for (const name of ['import-map', 'esbuild', 'vite7-react19']) {
  test(`an app with its default configuration takes the package: ${name}`, async ({ browser }) => {
    await runApp(name, APPS[name]!, tarball, browser);
  });
}
