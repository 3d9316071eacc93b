/** Every `@example` of the public API, and the programs of the guides: they type-check, and those for Node run on an embedded model. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { transformWithOxc } from 'vite';
import { afterAll, expect, test } from 'vitest';
import { ENTRIES as REFERENCE_ENTRIES } from '../scripts/entries.mjs';
import { drawn } from './gpu/testing/draw.js';
import * as splitkv from './index.js';
import { randomAdapter } from './model/testing/random_adapter.js';

const ENTRIES = { ...REFERENCE_ENTRIES, 'splitkv/offline': 'src/app/offline/index.ts' };

interface Example {
  readonly name: string;
  readonly language: string;
  readonly code: string;
}

const sources = execFileSync('git', ['ls-files', 'src'], { encoding: 'utf8' })
  .split('\n')
  .filter((file) => /\.tsx?$/.test(file) && !file.endsWith('.test.ts'));

/** Fenced blocks of `@example`s, by file and line. */
const examples = sources.flatMap((file): Example[] => {
  const text = readFileSync(file, 'utf8');
  return [...text.matchAll(/^ *\* @example\n *\* ```(\w+)\n([\s\S]*?)^ *\* ```$/gm)].map(
    ({ index, 1: language, 2: code }) => ({
      name: `${file}:${text.slice(0, index).split('\n').length}`,
      language: language!,
      code: code!.replaceAll(/^ *\* ?/gm, ''),
    }),
  );
});

/** Programs of the guides: blocks that import the package. */
const programs = ['README.md', ...readdirSync('docs').map((name) => `docs/${name}`)]
  .filter((file) => file.endsWith('.md'))
  .flatMap((file): Example[] => {
    const text = readFileSync(file, 'utf8');
    return [...text.matchAll(/^```(js|ts)\n([\s\S]*?)^```$/gm)]
      .filter(([, , code]) => /from 'splitkv/.test(code!))
      .map(({ index, 1: language, 2: code }) => ({
        name: `${file}:${text.slice(0, index).split('\n').length}`,
        language: language!,
        code: code!,
      }));
  });

/** Of pages, or needing another service. */
const inPages = ({ code }: Example): boolean =>
  /splitkv\/(chat|react|offline)'|listCached|document\.|nats:|share: true/.test(code);

test('each example is fenced, and there are some of every entry', () => {
  const marked = sources.flatMap((file) => readFileSync(file, 'utf8').match(/^ *\* @example$/gm) ?? []);
  expect(examples).toHaveLength(marked.length);
  for (const entry of Object.keys(ENTRIES)) {
    expect(examples.filter(({ code }) => code.includes(`'${entry}'`)).length, entry).toBeGreaterThan(0);
  }
});

test('every example type-checks against the source', () => {
  const folder = mkdtempSync(join(tmpdir(), 'splitkv-examples-'));
  const names = examples.map(({ language, code }, index) => {
    const name = `example_${index}.${language}`;
    writeFileSync(join(folder, name), `${code}\nexport {};\n`);
    return name;
  });
  const at = (path: string): string => resolve(path);
  const paths = Object.fromEntries(Object.entries(ENTRIES).map(([entry, file]) => [entry, [at(file)]]));
  const others = {
    ai: [at('node_modules/ai')],
    react: [at('node_modules/@types/react')],
    'react/*': [at('node_modules/@types/react/*')],
  };
  writeFileSync(
    join(folder, 'tsconfig.json'),
    JSON.stringify({
      extends: at('tsconfig.json'),
      compilerOptions: { paths: { ...paths, ...others }, typeRoots: [at('node_modules/@types'), at('node_modules')] },
      include: [],
      files: names,
    }),
  );
  const { stdout, status } = spawnSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', folder], {
    encoding: 'utf8',
  });
  rmSync(folder, { recursive: true });
  const where = stdout.replaceAll(/^\S*example_(\d+)\.\w+/gm, (_, index: string) => examples[Number(index)]!.name);
  expect(where).toBe('');
  expect(status).toBe(0);
}, 120_000);

/** What a name of the catalog stands for here. */
const MODEL = 'models/tiny-gqa';
const QUERIES = 'model.layers.0.self_attn.q_proj.weight';
const opened: { dispose(): Promise<void> }[] = [];
const isEmbedded = (where: unknown): boolean => typeof where === 'string' && where.startsWith('models/');
async function open<T extends { dispose(): Promise<void> }>(loading: Promise<T>): Promise<T> {
  const model = await loading;
  opened.push(model);
  return model;
}

const config = JSON.parse(readFileSync(`${MODEL}/config.json`, 'utf8')) as Record<string, number>;
const shape = [config['num_attention_heads']! * config['head_dim']!, config['hidden_size']!];
/** An adapter of that model, whatever an example names. */
const adapter = [
  ...randomAdapter({ weights: new Map([[QUERIES, { shape, data: new Float32Array() }]]) }, { seed: 1 }).files,
].map(([name, bytes]) => new File([bytes], name));
const scratch = mkdtempSync(join(tmpdir(), 'splitkv-examples-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const standIns = ({ adapters = {}, kvDir }: splitkv.LoadOptions = {}): splitkv.LoadOptions => ({
  adapters: Object.fromEntries(Object.keys(adapters).map((name) => [name, adapter])),
  ...(typeof kvDir === 'string' && { kvDir: join(scratch, kvDir) }),
});

const packages: Record<string, unknown> = {
  splitkv: {
    ...splitkv,
    load: (where: string, options?: splitkv.LoadOptions) =>
      open(splitkv.load(isEmbedded(where) ? where : MODEL, { contextLength: 512, ...options, ...standIns(options) })),
    serve: (where: string, options?: splitkv.ServeOptions) =>
      open(splitkv.serve(isEmbedded(where) ? where : MODEL, { contextLength: 512, ...options })),
    planModel: (where: string, options?: splitkv.PlanModelOptions) =>
      splitkv.planModel(isEmbedded(where) ? where : MODEL, options),
  },
};

/** Runs a program with imports of the package replaced. @returns what it logged */
async function run({ name, code }: Example): Promise<unknown[][]> {
  const body = code.replaceAll(
    /^import (\{[^}]*\}|\* as \w+) from '([^']+)';$/gm,
    (_, names: string, from: string) => `const ${names.replace('* as ', '')} = await given.open('${from}');`,
  );
  const plain = (
    await transformWithOxc(
      `export async function main(given, console) {\n${body}\n}`,
      `${name.replaceAll(/\W/g, '_')}.ts`,
    )
  ).code;
  const { main } = (await import(/* @vite-ignore */ `data:text/javascript,${encodeURIComponent(plain)}`)) as {
    main: (given: unknown, console: unknown) => Promise<void>;
  };
  const said: unknown[][] = [];
  const given = {
    open: async (from: string): Promise<unknown> =>
      packages[from] ??
      (await import(/* @vite-ignore */ from in ENTRIES ? resolve(ENTRIES[from as keyof typeof ENTRIES]) : from)),
  };
  try {
    await main(given, { log: (...words: unknown[]) => said.push(words) });
  } finally {
    await Promise.all(opened.splice(0).map((model) => model.dispose()));
    delete (globalThis as { LanguageModel?: unknown }).LanguageModel;
  }
  return said;
}

const runnable = [
  ...examples.filter((example) => !inPages(example)),
  ...programs.filter((example) => !inPages(example)),
];

test.each(drawn(runnable, 6, 'examples'))('$name runs', async (example) => {
  const said = await run(example);
  if (example.code.includes('console.log')) expect(said.length).toBeGreaterThan(0);
  expect(said.flat()).not.toContain(undefined);
});
