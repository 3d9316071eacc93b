import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { floors } from '../.dependency-cruiser.mjs';

/** Runs a Node program in a made-up source tree; file texts by path. */
function inTree(
  files: Record<string, string>,
  [program, ...args]: string[],
): { readonly ok: boolean; readonly output: string } {
  const root = mkdtempSync(join(tmpdir(), 'splitkv-layers-'));
  try {
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    }
    const { status, stdout, stderr } = spawnSync(process.execPath, [resolve(program!), ...args], {
      cwd: root,
      encoding: 'utf8',
    });
    return { ok: status === 0, output: stdout + stderr };
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

const config = resolve('.dependency-cruiser.mjs');
const checkLayers = (files: Record<string, string>) =>
  inTree(files, ['node_modules/dependency-cruiser/bin/dependency-cruise.mjs', '--config', config, '-T', 'err', 'src']);

const good = {
  'src/base/errors.ts': 'export class E extends Error { readonly code: string = "x"; }',
  'src/gpu/device.ts': "import { E } from '../base/errors.js'; export const device = (): E => new E();",
  'src/model/llama.ts': "import { device } from '../gpu/device.js'; export const llama = device;",
  'src/engine/faces/engine.ts': "import { llama } from '../../model/llama.js'; export const engine = llama;",
  'src/engine/files/node_files.ts': "import { readFileSync } from 'node:fs'; export const read = readFileSync;",
  'src/placement/plan.ts': "import type { E } from '../base/errors.js'; export type Plan = E;",
};

test('downward imports pass', () => {
  const { ok, output } = checkLayers(good);
  expect(output).toContain('no dependency violations found');
  expect(ok).toBe(true);
});

const faults = [
  [
    'an import upwards',
    'src/gpu/up.ts',
    "import { engine } from '../engine/faces/engine.js'; export const up = engine;",
    'no-upward',
  ],
  [
    'a type import upwards',
    'src/base/up.ts',
    "import type { Plan } from '../placement/plan.js'; export type P = Plan;",
    'no-upward',
  ],
  [
    'a type among values upwards',
    'src/gpu/mixed.ts',
    "import { E } from '../base/errors.js'; import { type Plan } from '../placement/plan.js'; export type P = Plan | E;",
    'no-upward',
  ],
  ['types handed on upwards', 'src/loader/up.ts', "export type * from '../placement/plan.js';", 'no-upward'],
  [
    'a room of the same floor',
    'src/loader/beside.ts',
    "import type { device } from '../gpu/device.js'; export type D = typeof device;",
    'no-upward',
  ],
  [
    "a room of the engine's upwards",
    'src/engine/ranks/up.ts',
    "import type { engine } from '../faces/engine.js'; export type F = typeof engine;",
    'no-upward',
  ],
  [
    'a folder on no floor',
    'src/attic/old.ts',
    "import type { E } from '../base/errors.js'; export type Old = E;",
    'stands-on-a-floor',
  ],
  [
    'a lazy import upwards',
    'src/model/up.ts',
    "export const up = () => import('../engine/faces/engine.js');",
    'no-upward',
  ],
  [
    'a GPU behind the planner',
    'src/placement/gpu.ts',
    "export { device } from '../gpu/device.js';",
    'pure-code-needs-no-gpu',
  ],
  [
    'a Node module in page code',
    'src/engine/files/file.ts',
    "export { readFileSync } from 'node:fs';",
    'node-modules-only',
  ],
  ['a missing file', 'src/engine/files/lost.ts', "export { x } from './nowhere.js';", 'no-unresolvable'],
] as const;

test('each fault is caught', () => {
  const { ok, output } = checkLayers({ ...good, ...Object.fromEntries(faults.map(([, path, text]) => [path, text])) });
  const told = output.split('\n').filter((line) => line.includes('error '));
  for (const [what, path, , rule] of faults) {
    expect(
      told.filter((line) => line.includes(rule) && line.includes(path)),
      `${what}\n${output}`,
    ).toHaveLength(1);
  }
  expect(ok).toBe(false);
});

test('a cycle is caught by the linter, a cycle of types alone is not', () => {
  const cycle = (importing: string) => ({
    'src/base/a.ts': `import ${importing}{ b } from './b.js'; export const a: typeof b = 1;`,
    'src/base/b.ts': `import ${importing}{ a } from './a.js'; export const b: typeof a = 1;`,
  });
  const lint = ['node_modules/oxlint/bin/oxlint', '--config', resolve('.oxlintrc.json')];
  expect(inTree(cycle(''), lint).output).toContain('no-cycle');
  expect(inTree(cycle('type '), lint).ok).toBe(true);
});

const sources = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', 'src', 'shaders'], {
  encoding: 'utf8',
})
  .trim()
  .split('\n')
  .filter((file) => file.endsWith('.ts') && !/(\.(test|bench|d)\.ts$|\/testing\/)/.test(file) && existsSync(file));
const roomOf = (file: string): string =>
  file.startsWith('shaders/')
    ? 'shaders'
    : file
        .split('/')
        .slice(0, file.startsWith('src/engine/') ? 3 : 2)
        .join('/');

test('every folder of src, and of src/engine, stands on one floor', () => {
  const known = floors.flat().filter((room) => /^(src\/|shaders$)/.test(room));
  expect([...new Set(sources.map(roomOf))].toSorted()).toEqual(known.toSorted());
});

test("docs/architecture.md's diagrams have every room", () => {
  const nodes = [...readFileSync('docs/architecture.md', 'utf8').matchAll(/\["([\w., ]+): /g)].flatMap(([, names]) =>
    names!.split(', '),
  );
  const nameOf = (room: string): string => room.split('/').at(-1)!;
  expect(nodes.toSorted()).toEqual(['engine', ...floors.flat().map(nameOf)].toSorted());
});

test("a type named by its file, which the parser doesn't see, is of the same room or of a lower floor", () => {
  const floorOf = (room: string): number => floors.findIndex((rooms) => rooms.includes(room));
  const upwards = sources.flatMap((file) =>
    [...readFileSync(file, 'utf8').matchAll(/\bimport\('(\.[^'?]+)'\)/g)]
      .map(([, path]) => join(dirname(file), path!))
      .filter((path) => roomOf(path) !== roomOf(file) && floorOf(roomOf(path)) >= floorOf(roomOf(file)))
      .map((path) => `${file} -> ${path}`),
  );
  expect(upwards).toEqual([]);
});
