import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, test } from 'vitest';

const listed = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { encoding: 'utf8' });
/** Tracked and new files, without those that were removed. */
const files = listed
  .trim()
  .split('\n')
  .filter((file) => existsSync(file));
const pages = files.filter((file) => file.endsWith('.md'));
const folders = new Set(files.flatMap((file) => file.split('/').map((_, i, parts) => parts.slice(0, i).join('/'))));

/** What a page may name that is made by a command, or stands for the reader's own. */
const MADE = [/^bench\/results\b/, /^models\/my-model\b/];
/** Files of the package, and of others. */
const FOREIGN = [/^ort\./, /^splitkv[\w.-]*\.js$/, /^dist\//];

/** Paths of the repository, and file names in backticks that stand alone or with a part of their path. */
function named(text: string): string[] {
  const paths = [...text.matchAll(/(?:^|[\s`(])((?:src|bench|shaders|scripts|docs|models|e2e)\/[\w./-]*[\w/])/gm)];
  const quoted = [...text.matchAll(/`((?:[\w-]+\/)*[\w-]+\.(?:ts|mjs|wgsl|py|html))`/g)];
  return [...new Set([...paths, ...quoted].map(([, path]) => path!.replace(/\/$/, '')))].filter(
    (path) => ![...MADE, ...FOREIGN].some((pattern) => pattern.test(path)),
  );
}

/** Words in capitals stand for any name. */
function exists(path: string): boolean {
  if (files.includes(path) || folders.has(path) || files.some((file) => file.endsWith(`/${path}`))) return true;
  // A filter of test files.
  if (files.some((file) => file.startsWith(`${path}.`))) return true;
  if (!/[A-Z]{2,}/.test(path)) return false;
  const pattern = new RegExp(`^${path.replace(/[.]/g, '\\.').replace(/[A-Z]{2,}/g, '[\\w-]+')}(/|$)`);
  return files.some((file) => pattern.test(file));
}

test.each(pages)('%s names files that are there', (page) => {
  expect(named(readFileSync(page, 'utf8')).filter((path) => !exists(path))).toEqual([]);
});

/** As GitHub makes them of headings. */
const anchorsOf = (text: string): string[] =>
  [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replace(/[^\w\s-]/g, '')
      .trim()
      .replace(/\s/g, '-'),
  );

test.each(pages)('links of %s lead somewhere', (page) => {
  const broken = [...readFileSync(page, 'utf8').matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, link]) => link!)
    .filter((link) => !/^[a-z]+:/.test(link))
    .filter((link) => {
      const [path, anchor] = link.split('#') as [string, string | undefined];
      const target = path === '' ? page : normalize(join(dirname(page), path));
      if (!files.includes(target) && !folders.has(target.replace(/\/$/, ''))) return true;
      return anchor !== undefined && !anchorsOf(readFileSync(target, 'utf8')).includes(anchor);
    });
  expect(broken).toEqual([]);
});

test.each(pages)('results stand at the end of %s', (page) => {
  const sections: readonly string[] = readFileSync(page, 'utf8').match(/^## .*$/gm) ?? [];
  expect(sections.indexOf('## Measurements'), 'the last section').toBeOneOf([-1, sections.length - 1]);
});

test('a family is a file and a row, a policy three files at most, a kernel its folder and a row', () => {
  const text = readFileSync('CONTRIBUTING.md', 'utf8');
  const walks = [...text.matchAll(/^## Walk \d: add a (.+)\n([\s\S]*?)(?=^## )/gm)].map(([, what, walk]) => {
    const items = [...walk!.matchAll(/^- `([^`]+)`( \(new\))?/gm)];
    return [what, items.filter(([, , isNew]) => isNew).length, items.filter(([, , isNew]) => !isNew).length];
  });
  expect(walks).toEqual([
    ['kernel', 5, 1],
    ['model family', 1, 1],
    ['plan policy', 1, 2],
  ]);
});

test('eight files to read first, and thirty words at most', () => {
  const text = readFileSync('CONTRIBUTING.md', 'utf8');
  expect(text.match(/^\d\. `[^`]+`/gm)?.length).toBe(8);
  const words = text.slice(text.indexOf('## Words')).match(/^\| (?!word |---).*\|$/gm);
  expect(words!.length).toBeLessThanOrEqual(30);
});

/** A kernel's folder begins with its WGSL, a package of others' code with its README. */
test('every kernel has the files of the walk', () => {
  const kernels = files.filter((file) => /^shaders\/\w+\/\w+\/index\.ts$/.test(file)).map(dirname);
  expect(kernels.length).toBeGreaterThan(20);
  for (const kernel of kernels) {
    const name = kernel.split('/').at(-1)!;
    for (const file of [`${name}.wgsl`, 'reference.ts', 'cases.ts', `${name}.test.ts`]) {
      expect(files, `${kernel}/${file}`).toContain(`${kernel}/${file}`);
    }
  }
});
