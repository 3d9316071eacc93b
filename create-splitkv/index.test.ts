import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';

const above = mkdtempSync(join(tmpdir(), 'splitkv-create-'));
afterAll(() => rmSync(above, { recursive: true }));

const program = resolve('create-splitkv/index.js');
/** `caller` is told as npm, pnpm, yarn and bun tell themselves. */
function createBy(caller: string, ...args: string[]): { status: number | null; stdout: string; stderr: string } {
  const env = { ...process.env, npm_config_user_agent: `${caller}/1.0.0 npm/? node/v20.19.0 linux x64` };
  return spawnSync(process.execPath, [program, ...args], { cwd: above, encoding: 'utf8', env });
}
const create = (...args: string[]) => createBy('npm', ...args);

/** In a terminal: each answer is typed once its question is there. Without a line end it is a key. */
async function createTyping(answers: readonly string[], ...args: string[]) {
  const terminal = 'data:text/javascript,process.stdin.isTTY = process.stdout.isTTY = true';
  const child = spawn(process.execPath, ['--import', terminal, program, ...args], { cwd: above });
  let [output, asked] = ['', 0];
  const read = (text: Buffer): void => {
    output += text.toString();
    const questions = output.match(/\(\S+\): /g)?.length ?? 0;
    while (asked < Math.min(questions, answers.length)) child.stdin.write(answers[asked++]!);
  };
  child.stdout.on('data', read);
  child.stderr.on('data', read);
  const status = await new Promise((done) => child.on('exit', done));
  return { status, output };
}

const templates = readdirSync('create-splitkv/templates');
const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name));

describe('npm create splitkv', () => {
  test.each(templates)('%s: every file, with the name, the model and the version', (template) => {
    const { status, stdout } = create(`My ${template}`, '--template', template, '--model', 'ORG/NAME@main');
    expect(status).toBe(0);
    expect(stdout).toContain(`cd 'My ${template}'\n  npm install\n  npm `);
    const files = filesBelow(join(above, `My ${template}`));
    const texts = files.map((file) => readFileSync(file, 'utf8')).join('\n');
    expect(files).toHaveLength(filesBelow(join('create-splitkv/templates', template)).length);
    expect(texts).toContain('ORG/NAME@main');
    expect(texts).not.toMatch(/__[A-Z]+__/);
    const { name, dependencies } = JSON.parse(
      readFileSync(join(above, `My ${template}`, 'package.json'), 'utf8'),
    ) as Record<'name', string> & Record<'dependencies', Record<string, string>>;
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
    expect(name).toBe(`my-${template}`);
    expect(dependencies['splitkv']).toBe(`^${version}`);
  });

  test('the help and the README name every template', () => {
    const { stdout } = create('--help');
    const readme = readFileSync('create-splitkv/README.md', 'utf8');
    for (const template of templates) {
      expect(stdout).toContain(` ${template} `);
      expect(readme).toContain(`\`${template}\``);
    }
  });

  test.each([
    [[], /say the folder and the template: npm create splitkv my-app -- --template vanilla/],
    [['app'], /say the template: npm create splitkv app -- --template vanilla/],
    [['--template', 'rag'], /say the folder: npm create splitkv my-app -- --template rag/],
    [['', '--template', 'rag'], /say the folder: /],
    [['app', '--template', 'angular'], /angular: no such template; there are vanilla, vite-react/],
    [['app', '--template', 'toString'], /toString: no such template; there are/],
    [['app', 'b', '--template', 'vue'], /one folder, not 2: app b/],
    [['app', '--template', 'vue', '--model', '"; alert(1)'], /--model .*expected a name/],
    [['app', '--typescript'], /Unknown option '--typescript'[\s\S]*Usage:/],
    [['full', '--template', 'vue'], /full isn't empty \(kept\.txt\)/],
    [['full/kept.txt', '--template', 'vue'], /full\/kept\.txt is a file/],
    [['full/kept.txt/app', '--template', 'vue'], /full\/kept\.txt\/app can't be written .*; name another folder/],
  ])('%j is refused, and nothing is written', (args, message) => {
    mkdirSync(join(above, 'full'), { recursive: true });
    writeFileSync(join(above, 'full/kept.txt'), 'mine');
    const { status, stderr } = create(...args);
    expect(status).toBe(2);
    expect(stderr).toMatch(message);
    expect(stderr).not.toMatch(/ at .*:\d+:\d+/);
    expect(existsSync(join(above, 'app'))).toBe(false);
    expect(readdirSync(join(above, 'full'))).toEqual(['kept.txt']);
  });

  test.each(['npm', 'pnpm', 'yarn', 'bun'])('%s installs and starts what it created', (caller) => {
    const { stdout } = createBy(caller, `by-${caller}`, '--', '--template', 'next');
    expect(stdout).toContain(`cd by-${caller}\n  ${caller} install\n  ${caller} run dev`);
    const refused = createBy(caller).stderr;
    expect(refused).toContain(`${caller} create splitkv my-app ${caller === 'npm' ? '-- --' : '--'}template vanilla`);
  });

  test('a template without its option, which npm takes where the dashes are missing', () => {
    expect(create('undashed', 'vue').stdout).toContain('vue is in undashed');
  });

  test('in a terminal it asks again for what it can not take', async () => {
    mkdirSync(join(above, 'taken'), { recursive: true });
    writeFileSync(join(above, 'taken/mine.txt'), 'mine');
    const { status, output } = await createTyping(['taken\r', 'typed\r', 'toString\r', '10\r', '4\r']);
    expect(output).toContain("taken isn't empty (mine.txt)");
    expect(output).toContain('toString: no such template');
    expect(output).toContain('10: no such template');
    expect(output).toContain('vue is in typed');
    expect(status).toBe(0);
    expect(existsSync(join(above, 'typed/src/App.vue'))).toBe(true);
  });

  test.each([
    ['Ctrl-C', ['\u0003']],
    ['Ctrl-D', ['left\r', '\u0004']],
  ])('%s at a question ends it, without a word of an error', async (_, answers) => {
    const { status, output } = await createTyping(answers);
    expect(status).toBe(130);
    expect(output).not.toMatch(/error/i);
    expect(existsSync(join(above, 'left'))).toBe(false);
  });
});
