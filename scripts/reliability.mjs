/**
 * `npm run reliability`: the long checks of docs/reliability.md, one after the other, and a summary of what each found. `npm test` has a
 * short form of each.
 *
 *   npm run reliability -- [--only NAME]... [--seed N] [--list]
 *
 * Figures are the lines of JSON that a check prints. Ends with code 1 where a check failed.
 */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs, stripVTControlCharacters } from 'node:util';
import { ensureChrome, ensureNats, ensureNginx, ensurePackages, ensureVulkan, root } from './setup.mjs';

/** What is checked, by name: unit tests of a file, made long by variables of the environment, or what runs in a browser. */
const CHECKS = {
  inputs: {
    what: 'a million model files changed at random',
    tests: ['src/engine/files/hostile_files.test.ts'],
    env: { SPLITKV_FUZZ: '1000000' },
  },
  files: {
    what: 'every hostile model file in a process of its own: 2 s of processor time, 500 MB',
    tests: ['src/engine/files/hostile_files.test.ts'],
    env: { SPLITKV_HOSTILE: 'all' },
  },
  restarts: {
    what: 'ten restarts of one of two servers behind nginx, 100 requests a second',
    tests: ['src/server/behind_nginx.test.ts'],
    env: { SPLITKV_RESTARTS: '10' },
  },
  load: {
    what: '64 clients, one in ten vanishing, for two minutes',
    tests: ['src/server/load.test.ts'],
    env: { SPLITKV_LOAD: '120' },
  },
  fair: {
    what: 'what one client costs four others, whatever it sends',
    tests: ['src/server/fair_clients.test.ts'],
    env: { SPLITKV_FAIR: '3' },
  },
  requests: {
    what: 'HTTP requests that no client would send, byte by byte',
    tests: ['src/server/hostile_http.test.ts'],
    env: { SPLITKV_SWEEP: 'all' },
  },
  losses: {
    what: 'a hundred lost devices on one rank and on two, requests under way',
    tests: ['src/engine/serving/losses.test.ts'],
    env: { SPLITKV_LOSSES: '100' },
  },
  gateway: {
    what: '64 clients for two minutes while replicas behind a gateway are killed',
    tests: ['src/server/gateway/kills.test.ts'],
    env: { SPLITKV_KILLS: '120' },
  },
  messages: {
    what: 'a hundred thousand messages that no replica and no gateway sends',
    tests: ['src/server/replicas/messages.test.ts'],
    env: { SPLITKV_MESSAGES: '100000' },
  },
  cluster: {
    what: 'fifty rank processes and servers of a cluster killed, requests under way',
    tests: ['src/cluster/ranks/cluster_losses.test.ts'],
    env: { SPLITKV_CLUSTER_LOSSES: '50' },
  },
  links: {
    what: 'a hundred thousand messages that no rank sends',
    tests: ['src/cluster/links/hostile_links.test.ts'],
    env: { SPLITKV_CLUSTER_FUZZ: '100000' },
  },
  cache: {
    what: "faults of servers, networks and disks, and a browser's cache",
    specs: ['cache_table', 'cache.spec'],
    env: { SPLITKV_SWEEP: 'all' },
  },
};

const { values } = parseArgs({
  options: {
    only: { type: 'string', multiple: true },
    seed: { type: 'string' },
    list: { type: 'boolean' },
  },
});
const names = values.only?.flatMap((name) => name.split(',')) ?? Object.keys(CHECKS);
const unknown = names.filter((name) => !Object.hasOwn(CHECKS, name));
if (unknown.length > 0) {
  console.error(`no check ${unknown.join(', ')}; there are ${Object.keys(CHECKS).join(', ')}`);
  process.exit(2);
}
if (values.list) {
  for (const name of names) console.log(`${name}: ${CHECKS[name].what}`);
  process.exit(0);
}

ensurePackages();
process.env.CHROME_PATH = ensureChrome();
ensureVulkan();
ensureNginx();
ensureNats();

/** Runs a check with its output shown. */
async function run({ tests, specs, env }) {
  const start = performance.now();
  const figures = [];
  const [program, args] = specs ? ['playwright', ['test', ...specs]] : ['vitest', ['run', ...tests]];
  const child = spawn(join(root, 'node_modules/.bin', program), args, {
    cwd: root,
    stdio: ['ignore', 'pipe', 'inherit'],
    shell: process.platform === 'win32',
    // SPLITKV_LOAD=1800 makes the load half an hour.
    env: { ...env, ...process.env, ...(values.seed !== undefined && { SPLITKV_SEED: values.seed }) },
  });
  const ended = new Promise((resolve) => {
    child.on('error', () => resolve(127)).on('exit', (code) => resolve(code ?? 1));
  });
  for await (const line of createInterface({ input: child.stdout })) {
    console.log(line);
    const plain = stripVTControlCharacters(line);
    if (plain.startsWith('{')) figures.push(plain);
  }
  return { code: await ended, figures, minutes: (performance.now() - start) / 60_000 };
}

const results = [];
for (const name of names) {
  console.log(`\n── ${name}: ${CHECKS[name].what}`);
  results.push({ name, ...(await run(CHECKS[name])) });
}
console.log('');
for (const { name, code, figures, minutes } of results) {
  console.log(`${name}: ${code === 0 ? 'ok' : `FAILED (exit code ${code})`} in ${minutes.toFixed(1)} min`);
  for (const line of figures) console.log(`  ${line}`);
}
const failed = results.filter(({ code }) => code !== 0).length;
console.log(`${results.length - failed} of ${results.length} checks passed`);
process.exitCode = failed > 0 ? 1 : 0;
