import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { expect, test } from '@playwright/test';
import { QUESTIONS, STORY } from '../../src/app/example.js';

// The test server builds dist/ before it starts.

test('the built library works in a page by one import, without a bundler', async ({ page }) => {
  const files = readdirSync('dist').filter((name) => name.endsWith('.js'));
  await page.route('**/lib/*.js', (route) => {
    const name = basename(new URL(route.request().url()).pathname);
    return files.includes(name)
      ? route.fulfill({ contentType: 'text/javascript', body: readFileSync(join('dist', name), 'utf8') })
      : route.fulfill({ status: 404 });
  });
  await page.route('**/plain.html', (route) =>
    route.fulfill({ contentType: 'text/html', body: '<!doctype html><title>plain</title>' }),
  );
  await page.goto('/plain.html');
  const { question, answer } = QUESTIONS[2];
  const text = await page.evaluate(async (content) => {
    const address = '/lib/splitkv.js';
    const { load } = (await import(address)) as typeof import('../../src/index.js');
    const model = await load('/models/tiny-gqa/', { cache: false });
    const completion = await model.chat.completions.create({ messages: [{ role: 'user', content }], max_tokens: 20 });
    await model.dispose();
    return completion.choices[0]!.message.content;
  }, `${STORY} ${question}`);
  expect(text.trim()).toBe(answer);
});

test('the packed command line runs from its build, in Node and in Chrome', () => {
  const root = mkdtempSync(join(tmpdir(), 'splitkv-pack-'));
  try {
    for (const name of ['bin', 'dist', 'package.json']) cpSync(name, join(root, name), { recursive: true });
    symlinkSync(resolve('node_modules'), join(root, 'node_modules'), 'junction');
    const run = (...args: string[]) =>
      spawnSync(process.execPath, [join(root, 'bin/splitkv.js'), ...args], { encoding: 'utf8', cwd: tmpdir() });
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
    expect(run('--version').stdout).toBe(`${version}\n`);
    for (const host of ['node', 'chrome']) {
      const args = [
        '--model',
        resolve('models/tiny-gqa'),
        '--tokens',
        '1,300',
        '--output',
        'argmax',
        '--host',
        host,
        '--json',
      ];
      const { status, stdout, stderr } = run('logits', ...args);
      expect(status, stderr).toBe(0);
      expect((JSON.parse(stdout) as { results: { positions: number[] }[] }).results[0]!.positions).toEqual([1]);
    }
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});

test("the packed library's types are found, and say what is wrong", () => {
  const root = mkdtempSync(join(tmpdir(), 'splitkv-types-'));
  try {
    const packed = join(root, 'node_modules/splitkv');
    cpSync('dist/types', join(packed, 'dist/types'), { recursive: true });
    cpSync('package.json', join(packed, 'package.json'));
    writeFileSync(join(root, 'package.json'), '{"type": "module"}');
    const use = "import { load } from 'splitkv';\nconst { info } = await load('model', { weights: 'q4' });\n";
    const element =
      "import 'splitkv/chat';\nexport const state: number = document.createElement('splitkv-chat').messages[0]!.content;\n";
    writeFileSync(join(root, 'use.ts'), `${use}export const size: string = info.vocabSize;\n${element}`);
    const options = [
      '--noEmit',
      '--strict',
      '--pretty',
      'false',
      '--module',
      'nodenext',
      '--lib',
      'esnext,dom',
      '--types',
      '',
    ];
    const tsc = [resolve('node_modules/typescript/bin/tsc'), ...options, 'use.ts'];
    const { stdout } = spawnSync(process.execPath, tsc, { encoding: 'utf8', cwd: root });
    expect(stdout.match(/^use.*/gm)).toEqual([
      "use.ts(3,14): error TS2322: Type 'number' is not assignable to type 'string'.",
      "use.ts(5,14): error TS2322: Type 'string' is not assignable to type 'number'.",
    ]);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});
