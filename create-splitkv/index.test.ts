import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';

const above = mkdtempSync(join(tmpdir(), 'splitkv-create-'));
afterAll(() => rmSync(above, { recursive: true }));

function create(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(process.execPath, [resolve('create-splitkv/index.js'), ...args], { cwd: above, encoding: 'utf8' });
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
    expect(stdout).toContain(`cd "My ${template}"\n  npm install\n  npm `);
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
    [['app', '--template', 'angular'], /--template angular: there are vanilla, vite-react/],
    [['app', '--template', 'toString'], /--template toString: there are/],
    [['app', 'b', '--template', 'vue'], /one folder, not 2: app b/],
    [['app', '--template', 'vue', '--model', '"; alert(1)'], /--model .*expected a name/],
    [['app', '--typescript'], /Unknown option '--typescript'[\s\S]*Usage:/],
    [['full', '--template', 'vue'], /full isn't empty \(kept\.txt\)/],
    [['full/kept.txt', '--template', 'vue'], /full\/kept\.txt is a file/],
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
});
