import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, test } from 'vitest';
import { llmsText } from './llms_text.mjs';

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

test('llms.txt has every page of the index, by whole addresses', () => {
  const text = llmsText();
  const pages = [...readFileSync('docs/README.md', 'utf8').matchAll(/^- \[[^\]]+\]\(([^)]+)\)/gm)];
  expect(pages.length).toBeGreaterThan(15);
  expect(text).toMatch(/^# splitkv\n\n> \S/);
  for (const [, page] of pages) expect(text).toContain(`/blob/main/${normalize(join('docs', page!))})`);
  expect(text).not.toMatch(/\]\((?!https:)/);
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

/** What CONTRIBUTING.md says of adding something, and the test that adds the smallest one. */
const WALKS = [
  {
    walk: 'model family',
    toy: 'src/model/families/testing/toy.ts',
    test: 'toy_family.test.ts',
    adds: 'registerFamily',
  },
  {
    walk: 'plan policy',
    toy: 'src/placement/testing/toy_policy.ts',
    test: 'toy_policy.test.ts',
    adds: 'registerPolicy',
  },
] as const;

/** Of a `walk` the text; the files that it has one write, and those that exist. */
function readWalk(walk: string): { text: string; written: string[]; changed: string[] } {
  const text = new RegExp(`^## Walk \\d: add a ${walk}\\n([\\s\\S]*?)(?=^## )`, 'm').exec(
    readFileSync('CONTRIBUTING.md', 'utf8'),
  )![1]!;
  const items = [...text.matchAll(/^- `([^`]+)`( \(new\))?/gm)];
  const named = (isNew: boolean) =>
    items.filter(([, , mark]) => (mark !== undefined) === isNew).map(([, path]) => path!);
  return { text, written: named(true), changed: named(false) };
}

test.each(WALKS)('the walk of a $walk names the files that its toy touches', ({ walk, toy, test: name, adds }) => {
  const { text, written, changed } = readWalk(walk);
  const test = `src/engine/testing/contract/${name}`;
  for (const path of [toy, test]) expect(text).toContain(`\`${path}\``);
  // The table that the test adds a row to is the first file that the walk changes, and the new file is beside it.
  const [table] = changed as [string, ...string[]];
  expect(readFileSync(table, 'utf8')).toMatch(new RegExp(`export function ${adds}\\b`));
  expect(readFileSync(test, 'utf8')).toContain(adds);
  expect(written.map(dirname)).toEqual([dirname(table)]);
});

test('a family is a file and a row: what it is made of never asks for it by name', async () => {
  const { supportedModelTypes } = await import('../src/model/families/registry.js');
  const types = supportedModelTypes();
  expect(types.length).toBeGreaterThan(20);
  const quoted = new RegExp(`['"\`](${types.join('|')})['"\`]`);
  // Chat formats and pre-tokenizers have names of their own, some of which are those of families.
  const elsewhere = files.filter(
    (file) =>
      /^(src\/(engine|loader|placement|model|gpu|distributed)|shaders)\/.*\.ts$/.test(file) &&
      !/^src\/model\/families\/|\/testing\/|\.(test|bench)\.ts$/.test(file),
  );
  expect(elsewhere.length).toBeGreaterThan(300);
  expect(elsewhere.filter((file) => quoted.test(readFileSync(file, 'utf8')))).toEqual([]);
});

test('docs/README.md leads to every page, and pages of use begin with an example', () => {
  const text = readFileSync('docs/README.md', 'utf8');
  const linked = [...text.matchAll(/^- \[\S+\]\((\S+)\)/gm)].map(([, path]) => normalize(join('docs', path!)));
  const wanted = pages.filter((page) => /^docs\/[^/]+\.md$/.test(page) && page !== 'docs/README.md');
  expect(wanted.filter((page) => !linked.includes(page))).toEqual([]);
  const embed = text.slice(text.indexOf('## Embed'), text.indexOf('## Several'));
  for (const [, page] of embed.matchAll(/^- \[(library|chat|serving|sampling|structured_output|tools)\.md\]/gm)) {
    const [opening] = readFileSync(`docs/${page}.md`, 'utf8').split(/^## /m);
    expect(opening, page).toMatch(/^```(js|html|sh)$/m);
  }
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

test.each(pages)('tables of %s are whole', (page) => {
  const paragraphs = readFileSync(page, 'utf8').split(/\n\s*\n/);
  const torn = paragraphs.filter((text) => text.startsWith('|') && !/^\|[ :|-]+\|$/.test(text.split('\n')[1] ?? ''));
  expect(torn).toEqual([]);
});
