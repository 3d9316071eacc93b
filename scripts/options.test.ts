import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { optionFiles } from './option_files.js';

const files = await optionFiles();

test.each(Object.keys(files))('%s is as the table of options says: npm run options', (path) => {
  expect(readFileSync(path, 'utf8')).toBe(files[path]);
});
