/**
 * `node scripts/release.mjs [--tag vN.N.N]`: whether a release can be made of this commit: one version everywhere, its part of the
 * changelog, a clean tree, and packages that npm would take. Publishes nothing.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { root } from './setup.mjs';

const { values } = parseArgs({ options: { tag: { type: 'string' } } });
const read = (path) => readFileSync(join(root, path), 'utf8');
const { name, version } = JSON.parse(read('package.json'));
const creator = JSON.parse(read('create-splitkv/package.json'));
const problems = [];
const must = (holds, what) => holds || problems.push(what);

must(name === 'splitkv' && creator.name === 'create-splitkv', `the packages are called ${name} and ${creator.name}`);
must(creator.version === version, `create-splitkv has version ${creator.version}, splitkv ${version}`);
must(read('CITATION.cff').includes(`\nversion: ${version}\n`), `CITATION.cff doesn't say version ${version}`);
must(
  new RegExp(`^## \\[${version.replaceAll('.', '\\.')}\\] - \\d{4}-\\d\\d-\\d\\d$`, 'm').test(read('CHANGELOG.md')),
  `CHANGELOG.md has no "## [${version}] - DATE"`,
);
must(values.tag === undefined || values.tag === `v${version}`, `the tag is ${values.tag}, the version ${version}`);
const git = spawnSync('git', ['status', '--porcelain'], { cwd: root, encoding: 'utf8' });
must(git.status === 0 && git.stdout === '', `not committed:\n${git.stdout}`);

for (const folder of ['.', 'create-splitkv']) {
  const tried = spawnSync('npm', ['publish', '--dry-run', '--json', '--provenance=false'], {
    cwd: join(root, folder),
    encoding: 'utf8',
    shell: process.platform === 'win32',
  });
  must(tried.status === 0, `npm publish --dry-run in ${folder}:\n${tried.stderr.trim()}`);
  const [, bytes, files] = /"size": (\d+)[\s\S]*"entryCount": (\d+)/.exec(tried.stdout) ?? [];
  if (bytes) console.log(`${folder === '.' ? name : creator.name} ${version}: ${files} files, ${bytes} bytes packed`);
}
for (const problem of problems) console.error(`release: ${problem}`);
if (problems.length === 0) console.log(`ready: git tag v${version}, and push it`);
process.exitCode = problems.length > 0 ? 1 : 0;
