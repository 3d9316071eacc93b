import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { FILES, GROUPS, waiting, waitingFiles } from './turns.mjs';

const runs = Array.from({ length: 400 }, (_, seed) => waiting(seed));

test.each(GROUPS)('%s: the tests that take turns are there, and each gets its turn', (files, taken, titles) => {
  const texts = files.split(' ').map((file) => readFileSync(`e2e/specs/${file}`, 'utf8'));
  const text = texts.join('\n').replaceAll("\\'", "'");
  for (const title of titles) expect(text.split(title).length, title).toBe(2);
  expect(taken).toBeLessThan(titles.length);
  const run = runs.map((left) => titles.filter((title) => !left.test(title)));
  for (const tests of run) expect(tests).toHaveLength(taken);
  expect(new Set(run.flat()).size).toBe(titles.length);
});

test('the files that take turns are there, are in one group, and each gets its turn', () => {
  const files = FILES.map(([folder, , names]) => names.map((name) => `${folder}/${name}.test.ts`));
  const all = files.flat();
  expect(all.filter((file) => !existsSync(file))).toEqual([]);
  expect(new Set(all).size).toBe(all.length);
  const rest = Array.from({ length: 400 }, (_, seed) => new Set(waitingFiles(seed)));
  for (const [at, [folder, taken]] of FILES.entries()) {
    const runs = rest.map((waits) => files[at]!.filter((file) => !waits.has(file)));
    for (const run of runs) expect(run, folder).toHaveLength(taken);
    expect(new Set(runs.flat()).size, folder).toBe(files[at]!.length);
  }
});
