import { spawnSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { expect, test } from '@playwright/test';
import { drawn } from '../../src/gpu/testing/draw.js';
import { openLibraryPage } from '../support/library_page.js';
import { QUESTIONS, STORY } from '../../models/example.js';
import { packPackage } from '../apps/run_app.js';

// The test server builds dist/ before it starts.

test('the built library works in a page by one import, without a bundler', async ({ page }) => {
  await openLibraryPage(page);
  const { question, answer } = QUESTIONS[2];
  const text = await page.evaluate(async (content) => {
    const address = '/lib/splitkv.js';
    const { load } = (await import(address)) as typeof import('../../src/index.js');
    const model = await load('/models/tiny-gqa/', { cache: false });
    const completion = await model.chat.completions.create({ messages: [{ role: 'user', content }], max_tokens: 20 });
    await model.dispose();
    return completion.choices[0]!.message.content;
  }, `${STORY} ${question}`);
  expect(text!.trim()).toBe(answer);
});

test('the package, installed: small, without pages and maps, in order, and its command line answers in Node and in Chrome', () => {
  const root = mkdtempSync(join(tmpdir(), 'splitkv-pack-'));
  const npm = (...args: string[]) => spawnSync('npm', args, { encoding: 'utf8', shell: process.platform === 'win32' });
  try {
    const tarball = packPackage(root);
    writeFileSync(join(root, 'package.json'), '{"private": true}');
    const installed = npm('install', '--prefix', root, '--offline', '--no-audit', '--no-fund', tarball);
    expect(installed.status, installed.stderr).toBe(0);
    expect(readdirSync(join(root, 'node_modules')).filter((name) => !name.startsWith('.'))).toEqual(['splitkv']);

    const packed = join(root, 'node_modules/splitkv');
    const files = readdirSync(packed, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    const bytes = (of: typeof files) =>
      of.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
    expect(files.filter(({ name }) => name.endsWith('.map') || /^(index|chat)\.html$/.test(name))).toEqual([]);
    expect(files.length).toBeGreaterThan(40);
    // It was 2: arrangements in one step, plans without a GPU with their declarations, degrees; 2.1: clusters,
    // NATS's client with them; 2.5: JetStream, for models that a cluster keeps; 2.6: forms in threads,
    // the layers of five more families; 2.84: encoders, Ollama's API; 2.91: pictures, drafts, more of the Prompt API;
    // 3.01: keys and values that outlive the ranks; 3.03: a draft model, encoders beside GGUF files, prefixes that sites ship;
    // 3.06: codebooks of GGUF's types, pictures of any size; 3.11: pictures of LFM2-VL and Gemma 4, a model's own head;
    // 3.14: adapters of every matrix, a shared model's worker; 5.03: the same as one file, for bundled pages (1.83), and sound; 5.07: Mamba-2;
    // 5.09: drafts of several requests by one model; 5.11: Gemma 4 12B's pictures and sound, Qwen2.5-VL's pictures;
    // 5.13: copies of heads for single prompts, prompts on ranks of a cluster; 5.16: names of the Hub, the Prompt API's pictures.
    expect(bytes(files) / 1e6).toBeLessThan(5.17);

    const lint = spawnSync(
      process.execPath,
      [resolve('node_modules/publint/src/cli.js'), packed, '--strict', '--pack', 'false'],
      {
        encoding: 'utf8',
      },
    );
    expect(lint.status, lint.stdout + lint.stderr).toBe(0);
    const published = npm('publish', '--dry-run', '--ignore-scripts', '--offline', '--json');
    expect(published.status, published.stderr).toBe(0);

    for (const name of ['webgpu', 'playwright-core'])
      symlinkSync(resolve('node_modules', name), join(root, 'node_modules', name), 'junction');
    const { FORCE_COLOR: _, ...env } = process.env; // Playwright's
    const run = (...args: string[]) =>
      spawnSync(process.execPath, [join(packed, 'bin/splitkv.js'), ...args], { encoding: 'utf8', cwd: tmpdir(), env });
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
    expect(run('--version').stdout).toBe(`${version}\n`);
    expect(run('bench', '--suite', 'decode')).toMatchObject({
      status: 2,
      stderr: expect.stringMatching(/^splitkv: benches and simulations run in a checkout: git clone .*\n$/),
    });
    const { question, answer } = QUESTIONS[2];
    for (const host of ['node', 'chrome']) {
      const args = [
        '--model',
        resolve('models/tiny-gqa'),
        '--prompt',
        `${STORY} ${question}`,
        '--host',
        host,
        '--json',
      ];
      const { status, stdout, stderr } = run('generate', ...args);
      expect(status, stderr).toBe(0);
      expect((JSON.parse(stdout) as { text: string }).text.trim()).toBe(answer);
    }
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});

const COMPILERS = {
  'TypeScript 7': 'node_modules/typescript/bin/tsc',
  'TypeScript 5.4': 'node_modules/typescript5_4/node_modules/typescript/bin/tsc',
};
const STRICT = {
  noEmit: true,
  strict: true,
  skipLibCheck: false,
  exactOptionalPropertyTypes: true,
  module: 'nodenext',
  target: 'es2022',
  lib: ['es2022', 'dom'],
  jsx: 'react-jsx',
  types: [],
};

for (const [compiler, path] of drawn(Object.entries(COMPILERS), 1, 'compilers')) {
  test(`the packed library's types are whole for ${compiler}, without types of WebGPU, and say what is wrong`, () => {
    const root = mkdtempSync(join(tmpdir(), 'splitkv-types-'));
    try {
      const packed = join(root, 'node_modules/splitkv');
      const declarations = readdirSync('dist').filter((name) => name.endsWith('.d.ts'));
      expect(declarations).toEqual([
        'splitkv-ai_sdk.d.ts',
        'splitkv-chat.d.ts',
        'splitkv-offline.d.ts',
        'splitkv-planning.d.ts',
        'splitkv-prompt_api.d.ts',
        'splitkv-react.d.ts',
        'splitkv-stores.d.ts',
        'splitkv.d.ts',
      ]);
      for (const name of declarations) cpSync(join('dist', name), join(packed, 'dist', name));
      cpSync('package.json', join(packed, 'package.json'));
      writeFileSync(join(root, 'package.json'), '{"type": "module"}');
      writeFileSync(
        join(root, 'use.ts'),
        `import { load, type Source } from 'splitkv';
import type { SplitkvChat } from 'splitkv/chat';
import { promptApi, type LanguageModelSession } from 'splitkv/prompt-api';
export const session = (): Promise<LanguageModelSession> => promptApi((options) => load('model', options)).create({ topK: 3 });
export const open = (source: Source) => load(source, { weights: 'q4', powerPreference: 'low-power' });
const { info } = await load('model');
export const size: string = info.vocabSize;
const chat: SplitkvChat = document.createElement('splitkv-chat');
chat.model = new URL('https://a.example/');
chat.maxTokens = undefined;
export const wrong: number = chat.messages[0]!.content;
chat.addEventListener('splitkv-answer', ({ detail }) => { detail.text.trim(); detail.nothing; });
chat.addEventListener('click', ({ clientX }) => clientX.toFixed());
chat.seed = true;
`,
      );
      const check = (...files: string[]): string[] => {
        writeFileSync(join(root, 'tsconfig.json'), JSON.stringify({ compilerOptions: STRICT, files }));
        const args = [resolve(path), '-p', '.', '--pretty', 'false'];
        const { stdout } = spawnSync(process.execPath, args, { encoding: 'utf8', cwd: root });
        return stdout
          .split('\n')
          .filter((line) => /error TS/.test(line))
          .map((line) => line.replace(/: .*/, ''));
      };
      expect(check('use.ts')).toEqual(['use.ts(7,14)', 'use.ts(11,14)', 'use.ts(12,86)', 'use.ts(14,1)']);

      for (const name of ['@types/react', 'csstype', 'react']) {
        mkdirSync(dirname(join(root, 'node_modules', name)), { recursive: true });
        symlinkSync(resolve('node_modules', name), join(root, 'node_modules', name), 'junction');
      }
      writeFileSync(
        join(root, 'app.tsx'),
        `import { useRef } from 'react';
import 'splitkv/chat';
import type { SplitkvChat as Element } from 'splitkv/chat';
import { SplitkvChat, useConversation, useModel } from 'splitkv/react';
export const Tag = () => <splitkv-chat model="m/" autostart max-tokens={20} className="a" onsplitkv-answer={(event) => event.detail.text} />;
export const Wrong = () => <splitkv-chat max-tokens={[]} />;
export function App() {
  const ref = useRef<Element>(null);
  return <SplitkvChat ref={ref} model="m/" noSelfTest onAnswer={({ detail }) => detail.text.trim()} />;
}
export const Bad = () => <SplitkvChat modell="m/" />;
export function Own() {
  const { model, progress, error } = useModel('m', { weights: 'q4' });
  const { messages, send, isAnswering } = useConversation(model, { system: 'x' });
  return <p onClick={() => send('x', { maxTokens: 3 })}>{[messages[0]?.role, isAnswering, progress?.phase, String(error)].join()}</p>;
}
export const Wrongly = () => useModel('m', { weihgts: 'q4' });
`,
      );
      expect(check('app.tsx')).toEqual(['app.tsx(6,29)', 'app.tsx(11,39)', 'app.tsx(17,46)']);
    } finally {
      rmSync(root, { recursive: true, force: true });
    }
  });
}
