import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from '@playwright/test';
import { drawn } from '../../src/gpu/testing/draw.js';
import { APPS } from '../apps/apps.js';
import { packPackage, runApp } from '../apps/run_app.js';
import { packTemplates, runTemplate, TEMPLATES } from '../apps/templates.js';

// The test server builds dist/ before it starts. `npm run apps` makes all apps and templates; one of these stands for the others.

const folder = mkdtempSync(join(tmpdir(), 'splitkv-apps-'));
test.afterAll(() => rmSync(folder, { recursive: true, force: true }));
let tarball: string;
test.beforeAll(() => {
  tarball = packPackage(folder);
});

for (const name of drawn(['import-map', 'esbuild', 'vite7-react19', ...Object.keys(TEMPLATES)], 1, 'apps')) {
  test(`an app with its default configuration takes the package: ${name in TEMPLATES ? 'npm create splitkv, ' : ''}${name}`, async ({
    browser,
  }) => {
    test.setTimeout(400_000);
    if (name in TEMPLATES) await runTemplate(name, packTemplates(folder, tarball), browser);
    else await runApp(name, APPS[name]!, tarball, browser);
  });
}
