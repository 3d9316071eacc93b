import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { expect, test } from 'vitest';

const listed = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { encoding: 'utf8' });
const sources = listed
  .trim()
  .split('\n')
  .filter((file) => /^(src|pages|bench|shaders)\/.*\.ts$/.test(file) && !/\.(test|bench|d)\.ts$/.test(file))
  .filter((file) => existsSync(file));

/** Sources by folder, of those that have several. A kernel's folder begins with its WGSL instead. */
const rooms = [...new Set(sources.map(dirname))]
  .map((folder) => [folder, sources.filter((file) => dirname(file) === folder)] as const)
  .filter(([folder, files]) => files.length > 1 && !existsSync(`${folder}/${basename(folder)}.wgsl`));

/** The first paragraph of the comment that a room's first file opens with. */
const opening = (file: string): string | undefined =>
  /^\/\*\*\n( \* Room: (?:.+\n)+?)(?: \*\n| \*\/\n)/.exec(readFileSync(file, 'utf8'))?.[1];

test.each(rooms)('%s has one file to open first, which says so in two to five lines', (_folder, files) => {
  const first = files.filter((file) => opening(file) !== undefined);
  expect(first).toHaveLength(1);
  const lines = opening(first[0]!)!.trimEnd().split('\n').length;
  expect(lines).toBeGreaterThanOrEqual(2);
  expect(lines).toBeLessThanOrEqual(5);
});

/** Rooms that are lists: what is in them is alike, a file each. */
const LISTS = ['src/model/families'];

test('rooms are small', () => {
  expect(rooms.length).toBeGreaterThan(60);
  expect(
    rooms.filter(([folder, files]) => files.length > 15 && !LISTS.includes(folder)).map(([folder]) => folder),
  ).toEqual([]);
});
