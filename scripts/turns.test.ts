import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { GROUPS, waiting } from './turns.mjs';

const runs = Array.from({ length: 60 }, (_, seed) => waiting(seed));

test.each(GROUPS)('%s: the tests that take turns are there, and each gets its turn', (files, taken, titles) => {
  const texts = files.split(' ').map((file) => readFileSync(`e2e/specs/${file}`, 'utf8'));
  const text = texts.join('\n').replaceAll("\\'", "'");
  for (const title of titles) expect(text.split(title).length, title).toBe(2);
  expect(taken).toBeLessThan(titles.length);
  const run = runs.map((left) => titles.filter((title) => !left.test(title)));
  for (const tests of run) expect(tests).toHaveLength(taken);
  expect(new Set(run.flat()).size).toBe(titles.length);
});
