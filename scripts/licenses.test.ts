import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { completeLicenses } from './licenses.mjs';

const XGRAMMAR = '## @mlc-ai/web-xgrammar - 0.1.27 (Apache-2.0)';
const before = `# Licenses\n\nWhat is bundled:\n\n## a - 1.0.0 (MIT)\n\nMIT License\n\n## A heading of its own\n\n${XGRAMMAR}\n\n## z - 2.0.0 (ISC)\n\nISC text\n`;

/** The texts below the headings of packages. */
const sections = (document: string): Map<string, string> =>
  new Map(
    document
      .split(/^(?=## \S+ - \S+ \([^)]*\)$)/m)
      .slice(1)
      .map((section) => [section.split('\n')[0]!, section.split('\n').slice(1).join('\n').trim()]),
  );

test('a package without a licence file has the text of what it declares, and what it contains is named', () => {
  const found = sections(completeLicenses(before));
  expect([...found.keys()]).toEqual(['## a - 1.0.0 (MIT)', XGRAMMAR, '## z - 2.0.0 (ISC)']);
  expect(found.get('## a - 1.0.0 (MIT)')).toBe('MIT License\n\n## A heading of its own');
  expect(found.get('## z - 2.0.0 (ISC)')).toBe('ISC text');
  const notice = found.get(XGRAMMAR)!;
  expect(notice).toMatch(/^XGrammar\nCopyright \(c\) 2024 by XGrammar Contributors\n\nApache License\nVersion 2\.0/);
  expect(notice).toContain('4. Redistribution.');
  for (const part of ['Cybozu Labs', 'Kazuho Oku', 'dlpack', 'Emscripten authors', 'Rich Felker', 'LLVM-exception'])
    expect(notice).toContain(part);
  expect(notice).toMatch(/Redistributions in binary form must\s+reproduce/);
  expect(notice).not.toMatch(/<year>|<owner>|<copyright holders>/);
  expect(completeLicenses(completeLicenses(before))).toBe(completeLicenses(before));
});

test('a package that nobody has looked at ends the build', () => {
  expect(() => completeLicenses('# Licenses\n\n## new - 1.0.0 (MIT)\n')).toThrow(/new is bundled and has no licence/);
});

const BUILT = 'dist/THIRD_PARTY_LICENSES.md';
test.skipIf(!existsSync(BUILT))('every section of the built document has a text', () => {
  const found = sections(readFileSync(BUILT, 'utf8'));
  expect([...found.keys()]).toContain(XGRAMMAR);
  for (const [heading, text] of found) expect(text.length, heading).toBeGreaterThan(400);
});
