import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { checkLicenses } from './licenses.mjs';

test('a package without a licence file ends the build', () => {
  const document =
    '# Licenses\n\n## a - 1.0.0 (MIT)\n\nMIT License\n\n## A heading of its own\n\n## @b/c - 1.0.0 (ISC)\n';
  expect(() => checkLicenses(document)).toThrow('@b/c is bundled and has no licence');
  expect(() => checkLicenses(`${document}\nISC text\n`)).not.toThrow();
});

const BUILT = 'dist/THIRD_PARTY_LICENSES.md';
test.skipIf(!existsSync(BUILT))('every section of the built document has a text', () => {
  const sections = readFileSync(BUILT, 'utf8').split(/^(?=## \S+ - \S+ \([^)]*\)$)/m);
  expect(sections.length).toBeGreaterThan(1);
  for (const section of sections.slice(1)) expect(section.length, section.slice(0, 80)).toBeGreaterThan(400);
});
