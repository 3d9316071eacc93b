import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from '@playwright/test';
import { drawn } from '../../src/gpu/testing/draw.js';
import { packPackage } from '../apps/run_app.js';
import { packTemplates, runTemplate, TEMPLATES } from '../apps/templates.js';

// `npm run apps` makes all templates; one of these stands for the others.

const folder = mkdtempSync(join(tmpdir(), 'splitkv-create-'));
test.afterAll(() => rmSync(folder, { recursive: true, force: true }));

for (const name of drawn(Object.keys(TEMPLATES), 1, 'templates')) {
  test(`npm create splitkv: ${name} installs, builds and answers`, async ({ browser }) => {
    test.setTimeout(400_000);
    await runTemplate(name, packTemplates(folder, packPackage(folder)), browser);
  });
}
