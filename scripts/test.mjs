/**
 * `npm test`: set-up, then every check there is, then one summary line. `npm test -- FILTER` runs the matching unit tests only.
 * The summary counts unit and end-to-end tests, and a static check (types, lint, format, layers) that failed.
 */
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { ensureChrome, ensureCompiler, ensureNats, ensureNginx, ensurePackages, ensureVulkan, root } from './setup.mjs';
import { waiting } from './turns.mjs';

ensurePackages();
process.env.CHROME_PATH = ensureChrome();
ensureVulkan();
ensureCompiler();
ensureNginx();
ensureNats();

const bin = (name) => join(root, 'node_modules/.bin', name);
const filter = process.argv.slice(2);
// What takes turns is drawn by it, in unit tests and in browsers: by the tree of the commit, so that a commit draws the same anywhere.
const tree = spawnSync('git', ['rev-parse', '--short=8', 'HEAD^{tree}'], { cwd: root, encoding: 'utf8' }).stdout;
process.env.SPLITKV_SEED ??= String((tree ? parseInt(tree, 16) : Date.now()) % 100_000);
console.log(`SPLITKV_SEED=${process.env.SPLITKV_SEED} repeats what this run draws`);
const scratch = mkdtempSync(join(tmpdir(), 'splitkv-test-'));
const counts = { passed: 0, failed: 0, skipped: 0 };
const failures = [];
/** What failed, a line a test, for the end of a long log. */
const failed = [];

/** Runs a step with its output shown; resolves to its exit code. */
async function step(name, command, args, env = {}) {
  const start = performance.now();
  console.log(`\n── ${name}`);
  const child = spawn(command, args, {
    cwd: root,
    stdio: 'inherit',
    shell: process.platform === 'win32',
    env: { ...process.env, ...env },
  });
  const code = await new Promise((resolve) => {
    child.on('error', (error) => {
      console.error(String(error));
      resolve(127);
    });
    child.on('exit', (status) => resolve(status ?? 1));
  });
  console.log(
    `── ${name}: ${code === 0 ? 'ok' : `FAILED (exit code ${code})`} in ${((performance.now() - start) / 1000).toFixed(1)} s`,
  );
  if (code !== 0) failures.push(name);
  return code;
}

async function check(name, command, args) {
  if ((await step(name, command, args)) !== 0) counts.failed++;
}

/** Adds a test runner's counts; one that failed without a failed test (a crash, no report) counts as one failure. */
function add(code, report) {
  counts.passed += report?.passed ?? 0;
  counts.skipped += report?.skipped ?? 0;
  counts.failed += Math.max(report?.failed ?? 0, code === 0 ? 0 : 1);
}

const readReport = (file) => (existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : undefined);

/** Notes a failed test, with the first line of what it said. */
function name(path, test, message = '') {
  // eslint-disable-next-line no-control-regex -- a terminal's colours
  const [first] = message.replaceAll(/\u001B\[[\d;]*m/g, '').split('\n');
  failed.push(`  ${path}: ${test}: ${first}`.slice(0, 500));
}

/** Builds the package, and lays it out as it is installed. @returns its command line, or undefined where the build failed */
async function builtPackage() {
  if ((await step('build', process.execPath, [join(root, 'scripts/build.mjs')])) !== 0) {
    counts.failed++;
    return undefined;
  }
  const folder = join(scratch, 'splitkv');
  mkdirSync(folder);
  for (const copied of ['bin', 'package.json']) cpSync(join(root, copied), join(folder, copied), { recursive: true });
  symlinkSync(join(root, 'dist'), join(folder, 'dist'), 'junction');
  return join(folder, 'bin/splitkv.js');
}

async function unitTests(built) {
  const file = join(scratch, 'unit.json');
  const reporters = ['--reporter=default', `--reporter=${join(root, 'scripts/unit_report.mjs')}`];
  const takesTurns = filter.length === 0 && process.env.SPLITKV_SWEEP !== 'all';
  const env = {
    SPLITKV_UNIT_REPORT: file,
    ...(built && { SPLITKV_TEST_BIN: built }),
    ...(takesTurns && { SPLITKV_TURNS: '1' }),
  };
  const code = await step('unit tests', bin('vitest'), ['run', ...reporters, ...filter], env);
  const report = readReport(file);
  for (const { path, test, message } of report?.failures ?? []) name(path, test, message);
  add(report ? code : code || 1, report);
}

async function endToEndTests(built) {
  const file = join(scratch, 'playwright.json');
  const turns =
    process.env.SPLITKV_SWEEP === 'all' ? [] : ['--grep-invert', waiting(Number(process.env.SPLITKV_SEED)).source];
  const code = await step('end-to-end tests', bin('playwright'), ['test', '--reporter=list,json', ...turns], {
    PLAYWRIGHT_JSON_OUTPUT_FILE: file,
    ...(built && { SPLITKV_BUILT: '1' }),
  });
  const report = readReport(file);
  const walk = ({ suites = [], specs = [] }) => {
    for (const { ok, file: path, line, title, tests } of specs) {
      const error = tests.flatMap(({ results }) => results).find((result) => result.error)?.error;
      if (!ok) name(`e2e/specs/${path}`, `${line}: ${title}`, error?.message);
    }
    for (const suite of suites) walk(suite);
  };
  if (report) walk(report);
  const stats = report?.stats;
  add(code, stats && { passed: stats.expected + stats.flaky, failed: stats.unexpected, skipped: stats.skipped });
}

/** Whether the registry signed what is installed: beside the tests, as it may be slow to answer, or say nothing at all. */
async function signatures() {
  const child = spawn('npm', ['audit', 'signatures'], {
    cwd: root,
    shell: process.platform === 'win32',
    timeout: 300_000,
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text));
  const code = await new Promise((resolve) => child.on('error', () => resolve(127)).on('exit', resolve));
  if (code === 0 || /(invalid|missing) (registry signatures?|attestations?)/.test(said)) return { code, said };
  return undefined;
}

async function signatureCheck(found) {
  const answer = await found;
  if (!answer) return console.log('\n── npm audit signatures: the registry says nothing of them; skipped');
  console.log(`\n── npm audit signatures: ${answer.code === 0 ? 'ok' : `FAILED\n${answer.said}`}`);
  if (answer.code === 0) return;
  failures.push('npm audit signatures');
  counts.failed++;
}

const signed = filter.length === 0 ? signatures() : undefined;
try {
  // Each of these has a core to itself. Some tests of one file need no build.
  const layers = ['--config', '.dependency-cruiser.mjs', 'src', 'pages', 'shaders', 'bench', 'e2e'];
  const [built] =
    filter.length > 0
      ? []
      : await Promise.all([
          builtPackage(),
          check('types', bin('tsc'), ['-p', 'tsconfig.json'])
            .then(() => check('lint', bin('oxlint'), ['--type-aware', '--deny-warnings']))
            .then(() => check('format', bin('oxfmt'), ['--check']))
            .then(() => check('layers', bin('depcruise'), layers)),
        ]);
  await unitTests(built);
  if (filter.length === 0) await endToEndTests(built);
  if (signed) await signatureCheck(signed);
} finally {
  rmSync(scratch, { recursive: true, force: true });
}

const ok = failures.length === 0 && counts.failed === 0;
console.log(`\n${ok ? 'All checks passed.' : `Failed: ${failures.join(', ')}.`}`);
for (const line of failed) console.log(line);
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exitCode = ok ? 0 : 1;
