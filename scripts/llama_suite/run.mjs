/**
 * `npm run llama-suite`: llama.cpp's own tests of its server (pytest), against `splitkv serve`. passing.json lists those that pass: where one
 * of them fails, the command fails. The tests are fetched from GitHub at a pinned commit, and never kept here.
 *
 *   npm run llama-suite -- [--suite DIR] [--model DIR] [--update] [FILE...]
 *
 * --suite  a checkout of llama.cpp, in place of the fetched one
 * --model  a folder with what to serve (config.json, tokenizer.json, *.safetensors); default the trained stories260K where it
 *          lies, else models/tiny-gqa. The list is by model: prompts' lengths are the story model's
 * --update writes what passes into the list
 * FILE     of the tests, such as tokenize; default all that are known here
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { root } from '../setup.mjs';

/** A fork that follows llama.cpp; its tests of the server are llama.cpp's own, of 7 August 2026. */
const REPOSITORY = 'https://github.com/unslothai/llama.cpp';
const COMMIT = 'd32676d77426540327835040d5d3279728f0b4c8';
const FILES = [
  'basic',
  'chat_completion',
  'compat_anthropic',
  'compat_oai_responses',
  'completion',
  'ctx_shift',
  'embedding',
  'ignore_eos',
  'infill',
  'rerank',
  'security',
  'template',
  'tokenize',
  'tool_call',
];
const PACKAGES = ['pytest', 'requests', 'openai'];
const here = join(root, 'scripts', 'llama_suite');
const list = join(here, 'passing.json');

function fail(message) {
  console.error(message);
  process.exit(1);
}

const { values, positionals } = parseArgs({
  options: { suite: { type: 'string' }, model: { type: 'string' }, update: { type: 'boolean' } },
  allowPositionals: true,
});
const unknown = positionals.find((name) => !FILES.includes(name));
if (unknown) fail(`there are no tests '${unknown}' here; there are ${FILES.join(', ')}`);

const python = ['python3', 'python'].find((name) => spawnSync(name, ['--version']).status === 0);
if (!python) fail('these tests are in Python: install Python 3.10 or newer');
const missing = PACKAGES.filter((name) => spawnSync(python, ['-c', `import ${name}`]).status !== 0);
if (missing.length > 0) fail(`packages of Python are missing: ${python} -m pip install ${missing.join(' ')}`);

const work = mkdtempSync(join(tmpdir(), 'splitkv-llama-'));
process.on('exit', () => rmSync(work, { recursive: true, force: true }));
process.on('SIGINT', () => process.exit(130));

/** The tests, and the templates that they name, alone. */
function fetched() {
  const folder = join(work, 'llama.cpp');
  const git = (...args) => spawnSync('git', args, { stdio: 'inherit' }).status === 0;
  const done =
    git('clone', '--quiet', '--filter=blob:none', '--no-checkout', '--sparse', '--depth=1', REPOSITORY, folder) &&
    git('-C', folder, 'sparse-checkout', 'set', 'tools/server/tests', 'models/templates') &&
    git('-C', folder, 'fetch', '--quiet', '--filter=blob:none', '--depth=1', 'origin', COMMIT) &&
    git('-C', folder, 'checkout', '--quiet', COMMIT);
  if (!done)
    fail(`the tests can't be fetched from ${REPOSITORY}: without a network give a checkout of it, --suite DIR`);
  return folder;
}

const suite = values.suite ? resolve(values.suite) : fetched();
const tests = join(suite, 'tools', 'server', 'tests');
if (!existsSync(join(tests, 'utils.py')))
  fail(`${suite} is no checkout of llama.cpp: it has no tools/server/tests/utils.py`);

const stories = resolve(root, '..', 'shared', 'real', 'stories260K', 'hf');
const model = values.model ? resolve(values.model) : existsSync(stories) ? stories : join(root, 'models', 'tiny-gqa');
if (!existsSync(join(model, 'config.json'))) fail(`${model} is no model folder: it has no config.json`);
const name = basename(model) === 'hf' ? basename(dirname(model)) : basename(model);

const wanted = (positionals.length > 0 ? positionals : FILES).map((file) => `unit/test_${file}.py`);
const results = join(work, 'results');
writeFileSync(results, '');
const env = {
  ...process.env,
  PYTHONPATH: here,
  PYTHONDONTWRITEBYTECODE: '1',
  SPLITKV_ROOT: root,
  SPLITKV_MODEL: model,
  SPLITKV_RESULTS: results,
};
const run = spawnSync(python, ['-m', 'pytest', '-q', '-p', 'shim', '-p', 'no:cacheprovider', '--tb=short', ...wanted], {
  cwd: tests,
  env,
  stdio: 'inherit',
});
if (run.status > 1) fail(`pytest ended with code ${run.status}`);

const all = readFileSync(results, 'utf8')
  .trim()
  .split('\n')
  .filter(Boolean)
  .map((line) => JSON.parse(line));
const rows = wanted.map((file) => {
  const of = all.filter(({ name: test }) => test.startsWith(`${file}::`));
  const count = (outcome) => of.filter((test) => test.outcome === outcome).length;
  return { tests: file, passed: count('passed'), failed: count('failed'), skipped: count('skipped') };
});
console.table(rows);
const reasons = new Set(all.filter(({ outcome }) => outcome === 'skipped').map(({ why }) => why));
for (const why of reasons) console.log(why);

const lists = JSON.parse(readFileSync(list, 'utf8'));
const known = (lists[name] ?? []).filter((test) => wanted.some((file) => test.startsWith(`${file}::`)));
const passed = all.filter(({ outcome }) => outcome === 'passed').map(({ name: test }) => test);
const lost = known.filter((test) => !passed.includes(test));
const gained = passed.filter((test) => !known.includes(test));
if (values.update) {
  const others = (lists[name] ?? []).filter((test) => !known.includes(test));
  writeFileSync(
    list,
    `${JSON.stringify({ ...lists, [name]: [...others, ...passed].toSorted((a, b) => (a < b ? -1 : 1)) }, null, 2)}\n`,
  );
  console.log(`passing.json: ${gained.length} new, ${lost.length} gone, of ${name}`);
} else {
  for (const test of gained) console.log(`passes, and isn't in the list (--update): ${test}`);
  for (const test of lost) console.log(`in the list, and doesn't pass: ${test}`);
  console.log(`${passed.length} pass with ${name}; ${lost.length} of the list don't`);
  process.exitCode = lost.length > 0 ? 1 : 0;
}
