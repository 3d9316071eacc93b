/**
 * `npm run pace -- COMMIT`: how fast this tree is beside another one, in turns: tokens of a generation, the first token, and `serve`
 * with 1, 16 and 64 clients. First whether both give the same tokens, then ratios with intervals. Ends with code 1 where tokens differ
 * or where anything has less than 0.97 of the other's pace.
 *
 *   npm run pace -- COMMIT | DIR [--rounds N] [--seconds S] [--only TEXT]... [--adapter NAME] [--out FILE]
 *
 * COMMIT is checked out into a temporary folder, with this tree's packages; DIR is a checkout as it is. Each round has processes of its
 * own, one of both libraries and one of each server. A thing measured takes four turns of about S seconds on each side, those of the
 * libraries cut into generations.
 */
import { fork, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { ensurePackages, ensureVulkan, root } from './setup.mjs';

const MODELS = ['tiny-gqa', 'tiny-mla'];
const CLIENTS = [1, 16, 64];
const PROMPT_TOKENS = 120;
const OUTPUT_TOKENS = 60;
/** So many behind the first one: whoever streams has more than one step under way. */
const FIRST_TOKENS = 8;
const TURNS = 4;
/** JavaScript is compiled while it runs: generations before any is timed, and a turn's least requests of a server. */
const WARM_UPS = 8;
/** Kinds of requests, of different lengths. */
const KINDS = 24;
/** Ticks a second of /proc, on every Linux that Node runs on. */
const TICKS = 100;

const { values, positionals } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '1' },
    only: { type: 'string', multiple: true },
    adapter: { type: 'string' },
    out: { type: 'string' },
  },
  allowPositionals: true,
});

function usage(text) {
  console.error(`pace: ${text}; say npm run pace -- COMMIT [--rounds N] [--seconds S] [--only TEXT] [--out FILE]`);
  process.exit(2);
}

function positive(name, text) {
  const value = Number(text);
  if (text.trim() === '' || !Number.isFinite(value) || value <= 0)
    usage(`--${name} ${text}: expected a number above 0`);
  return value;
}

const rounds = positive('rounds', values.rounds);
const seconds = positive('seconds', values.seconds);
if (!Number.isInteger(rounds)) usage(`--rounds ${rounds}: expected an integer`);
if (positionals.length !== 1) usage(`expected one commit or folder, not ${positionals.length}`);
const [other] = positionals;
const NAMES = [
  ...MODELS.flatMap((model) => [`decode ${model}`, `first token ${model}`]),
  ...CLIENTS.map((clients) => `serve ${clients}`),
];
/** A whole name means that one alone: 'serve 1' isn't 'serve 16'. */
const isMeant = (name) => (text) => name === text || (!NAMES.includes(text) && name.includes(text));
const names = NAMES.filter((name) => !values.only || values.only.some(isMeant(name)));
if (names.length === 0) usage(`--only ${values.only.join(', ')}: there are ${NAMES.join(', ')}`);

const git = (...args) => spawnSync('git', ['-C', root, ...args], { encoding: 'utf8' });

/** A checkout of the other tree, and what removes it. */
function otherTree() {
  if (existsSync(join(other, 'bin/splitkv.js'))) return { tree: resolve(other), remove: () => {} };
  const { status, stdout } = git('rev-parse', '--verify', '--quiet', `${other}^{commit}`);
  if (status !== 0) usage(`${other}: neither a commit of this repository nor a checkout of splitkv`);
  const folder = mkdtempSync(join(tmpdir(), 'splitkv-pace-'));
  const tree = join(folder, 'tree');
  const remove = () => {
    git('worktree', 'remove', '--force', tree);
    rmSync(folder, { recursive: true, force: true });
  };
  const added = git('worktree', 'add', '--detach', tree, stdout.trim());
  if (added.status !== 0) {
    remove();
    throw new Error(`git worktree add: ${added.stderr.trim()}`);
  }
  symlinkSync(join(root, 'node_modules'), join(tree, 'node_modules'), 'junction');
  return { tree, remove };
}

ensurePackages();
ensureVulkan();
const { tree: theirTree, remove } = otherTree();
const children = new Set();
let over = false;
function cleanUp() {
  if (over) return;
  over = true;
  for (const child of children) child.kill('SIGKILL');
  remove();
}
process.on('exit', cleanUp);
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(130));

await import('./run_typescript.mjs');
const { interleave } = await import('../bench/interleave.ts');
const { readEnvironment } = await import('../bench/cli/environment.ts');
const { LEAST_PACE, paceRows, paceTable } = await import('../bench/pace.ts');
const { randomPrompt } = await import('../bench/prompt.ts');

/** The same for both trees, so that only code differs. */
const modelFolder = (model) => join(root, 'models', model);

const note = (text) => process.stderr.write(`${text}\n`);

/** The last that a process said, where it ends unasked. */
function lastWords(child, what) {
  let words = '';
  child.stderr.setEncoding('utf8').on('data', (text) => (words = (words + text).slice(-2000)));
  return new Promise((_, reject) => {
    child.on('error', reject).on('exit', (code) => {
      children.delete(child);
      reject(new Error(`${what} ended with code ${code}: ${words.trim()}`));
    });
  });
}

/** The libraries of trees, in one process. */
async function openLibraries(trees) {
  const child = fork(fileURLToPath(new URL('pace_side.mjs', import.meta.url)), trees, {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  children.add(child);
  const ended = lastWords(child, `the libraries of ${trees.join(' and ')}`);
  ended.catch(() => {});
  const answer = async () => {
    const message = new Promise((resolve) => child.once('message', resolve));
    const { answer: result, error } = await Promise.race([message, ended]);
    if (error !== undefined) throw new Error(error);
    return result;
  };
  await answer();
  const sides = trees.map((_, side) => ({
    call: (call, args) => {
      child.send({ call, side, ...args });
      return answer();
    },
  }));
  return { sides, close: () => child.kill() };
}

/** Its random models repeat themselves: drafts would hide what a step takes. */
const speculates = (tree) => existsSync(join(tree, 'src/engine/serving/speculation'));

/** A tree's `serve` of a model, and what CPU time it took so far, in seconds. */
async function openServer(tree, model) {
  const args = ['serve', '--model', modelFolder(model), '--port', '0', '--weights', 'f16', '--json'];
  if (speculates(tree)) args.push('--speculate', 'off');
  if (values.adapter !== undefined) args.push('--adapter', values.adapter);
  const child = spawn(process.execPath, [join(tree, 'bin/splitkv.js'), ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  children.add(child);
  const ended = lastWords(child, `serve of ${tree}`);
  ended.catch(() => {});
  const lines = createInterface({ input: child.stdout });
  const [line] = await Promise.race([new Promise((resolve) => lines.once('line', (...line) => resolve(line))), ended]);
  const { url } = JSON.parse(line);
  const agent = new Agent({ keepAlive: true });
  return {
    ask: (body) => ask(url, agent, body),
    cpuSeconds: () => cpuSeconds(child.pid),
    close: () => {
      agent.destroy();
      child.kill();
    },
  };
}

function cpuSeconds(pid) {
  if (process.platform !== 'linux') return undefined;
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

function ask(url, agent, body) {
  return new Promise((resolve, reject) => {
    const asked = request(`${url}/v1/completions`, {
      method: 'POST',
      agent,
      headers: { 'Content-Type': 'application/json' },
    });
    const failed = (error) => {
      // A server closes a connection that was idle, perhaps just as it is used again.
      if (asked.reusedSocket && error.code === 'ECONNRESET') resolve(ask(url, agent, body));
      else reject(error);
    };
    asked.on('error', failed).on('response', (response) => {
      let text = '';
      response
        .setEncoding('utf8')
        .on('data', (piece) => (text += piece))
        .on('error', reject)
        .on('end', () => {
          if (response.statusCode !== 200) return reject(new Error(`${response.statusCode}: ${text.slice(0, 500)}`));
          const { choices, usage } = JSON.parse(text);
          resolve({ text: choices[0].text, tokens: usage.completion_tokens });
        });
    });
    asked.end(JSON.stringify(body));
  });
}

/** Short prompts and answers of 8 to 40 tokens. */
function requests(model) {
  const stories = readFileSync(join(root, 'models/eval.jsonl'), 'utf8').split('\n');
  return Array.from({ length: KINDS }, (_, kind) => ({
    model,
    prompt: JSON.parse(stories[kind])
      .prompt.split(' ')
      .slice(0, 12 + 2 * kind)
      .join(' '),
    max_tokens: 8 + Math.round((32 * ((kind * 7) % KINDS)) / (KINDS - 1)),
    temperature: 0,
  }));
}

/** Clients that ask one after another until `count` requests are answered: tokens, by the request's number. */
async function runClients(server, clients, kinds, count, from = 0) {
  const answers = [];
  let next = 0;
  const client = async () => {
    while (next < count) {
      const index = next++;
      answers[index] = await server.ask(kinds[(from + index) % kinds.length]);
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
  return answers;
}

async function timeClients(server, clients, kinds, count, from) {
  const cpu = server.cpuSeconds();
  const started = performance.now();
  const answers = await runClients(server, clients, kinds, count, from);
  const tokens = answers.reduce((sum, answer) => sum + answer.tokens, 0);
  const spent = (performance.now() - started) / 1000;
  const used = cpu === undefined ? undefined : server.cpuSeconds() - cpu;
  return { rate: tokens / spent, ...(used > 0 && { cpuRate: tokens / used }) };
}

function same(what, ours, theirs) {
  if (JSON.stringify(ours) === JSON.stringify(theirs)) return;
  const cut = (value) => JSON.stringify(value).slice(0, 300);
  throw new Error(`${what}: not the tokens of ${other}:\n  now:  ${cut(ours)}\n  then: ${cut(theirs)}`);
}

/**
 * The adapter that this tree takes by itself, for both: version 0.1 took SwiftShader where llvmpipe is, too. Adapters are asked for by a
 * part of their names.
 */
async function ownAdapter() {
  const library = await openLibraries([root]);
  const { adapter: own } = await library.sides[0].call('open', libraryOptions(MODELS[0], root));
  library.close();
  const software = ['llvmpipe', 'SwiftShader'].find((name) => own.name.includes(name));
  if (own.software && software !== undefined) values.adapter ??= software;
  return own;
}

const libraryOptions = (model, tree) => ({
  model: modelFolder(model),
  options: {
    weights: 'f16',
    ...(speculates(tree) && { speculate: 'off' }),
    ...(values.adapter !== undefined && { adapter: values.adapter }),
  },
});

const measured = new Map(names.map((name) => [name, { name, ours: [], theirs: [] }]));
const adapter = await ownAdapter();

/** Turns of both sides, once each side was warmed up. */
async function inTurns(name, sides, run, turns = TURNS) {
  const contenders = sides.map((side, index) => ({ name: index === 0 ? 'now' : 'then', run: () => run(side, index) }));
  const [ours, theirs] = await interleave(contenders, turns, {
    signal: new AbortController().signal,
    onProgress: () => {},
    onWarning: note,
  });
  measured.get(name).ours.push(...ours);
  measured.get(name).theirs.push(...theirs);
  const soFar = paceRows([measured.get(name)])[0];
  note(
    `${name}: ${soFar.ratio.value.toFixed(3)} (by CPU time ${soFar.cpu?.value.toFixed(3) ?? '?'}) after ${soFar.turns} turns`,
  );
}

let drawn = 0;
/** Prompts that no cache has seen, the same for both sides. */
function freshPrompts(count, vocabSize, from) {
  return Array.from({ length: count }, (_, index) =>
    randomPrompt(PROMPT_TOKENS + from + index, vocabSize).slice(-PROMPT_TOKENS),
  );
}

async function measureLibrary(model) {
  const wanted = names.filter((name) => name === `decode ${model}` || name === `first token ${model}`);
  if (wanted.length === 0) return;
  const { sides, close } = await openLibraries([root, theirTree]);
  try {
    const opened = [];
    for (const [index, tree] of [root, theirTree].entries()) {
      opened.push(await sides[index].call('open', libraryOptions(model, tree)));
    }
    if (opened[0].adapter.name !== opened[1].adapter.name) {
      throw new Error(`${opened.map((each) => each.adapter.name).join(' and ')} don't compare: give --adapter NAME`);
    }
    const { vocabSize } = opened[0];
    const run = (side, tokens, prompts) => side.call('generate', { prompts, tokens });
    const prompts = freshPrompts(1, vocabSize, drawn++);
    const found = [];
    for (const side of sides) found.push((await run(side, OUTPUT_TOKENS, prompts))[0]);
    same(model, found[0].tokens, found[1].tokens);
    const warming = freshPrompts(WARM_UPS, vocabSize, drawn);
    drawn += WARM_UPS;
    for (const side of sides) await run(side, OUTPUT_TOKENS, warming);
    for (const name of wanted) {
      const isFirst = name.startsWith('first');
      const tokens = isFirst ? FIRST_TOKENS : OUTPUT_TOKENS;
      const each = (found[0].ttftMs + (found[0].decodeMs * (tokens - 1)) / (OUTPUT_TOKENS - 1)) / 1000;
      const turns = TURNS * Math.max(1, Math.round(seconds / each));
      // A turn's prompt is the same on both sides: each side counts its own turns.
      const froms = sides.map(() => drawn);
      const turn = async (side, index) => {
        const [{ ttftMs, decodeMs, cpuMs }] = await run(side, tokens, freshPrompts(1, vocabSize, froms[index]++));
        const later = (tokens - 1) * 1000;
        return isFirst ? { rate: 1000 / ttftMs } : { rate: later / decodeMs, cpuRate: later / cpuMs };
      };
      await inTurns(name, sides, turn, turns);
      drawn = Math.max(...froms);
    }
  } finally {
    close();
  }
}

async function measureServers(model) {
  const wanted = CLIENTS.filter((clients) => names.includes(`serve ${clients}`));
  if (wanted.length === 0) return;
  const kinds = requests(model);
  const sides = await Promise.all([root, theirTree].map((tree) => openServer(tree, model)));
  try {
    const texts = [];
    for (const side of sides) texts.push(await runClients(side, 8, kinds, KINDS));
    same('serve', ...texts);
    for (const clients of wanted) {
      const least = Math.max(KINDS / 4, 2 * clients);
      for (const side of sides) await runClients(side, clients, kinds, WARM_UPS * least);
      const started = performance.now();
      await runClients(sides[0], clients, kinds, least);
      const each = (performance.now() - started) / 1000;
      await runClients(sides[1], clients, kinds, least);
      const count = Math.max(1, Math.round(seconds / each)) * least;
      // A turn's requests are the same on both sides, and the next one's others.
      const froms = sides.map(() => 0);
      await inTurns(`serve ${clients}`, sides, (side, index) => {
        const from = froms[index];
        froms[index] += count;
        return timeClients(side, clients, kinds, count, from);
      });
    }
  } finally {
    for (const side of sides) side.close();
  }
}

for (let round = 0; round < rounds; round++) {
  note(`round ${round + 1} of ${rounds}`);
  for (const model of MODELS) await measureLibrary(model);
  await measureServers(MODELS[0]);
}

const rows = paceRows([...measured.values()]);
const environment = await readEnvironment('node', [adapter]);
const against = git('rev-parse', '--short=12', other).stdout.trim() || other;
const isReal = !adapter.software;
console.log(
  `commit ${environment.commit} against ${against}, ${adapter.name}, Node ${environment.node}, ${environment.cpu_threads} threads`,
);
console.log(paceTable(rows));
console.log('pace: tokens or first tokens per second, now over then, medians of pairs with 95% intervals.');
if (values.out !== undefined) {
  const samples = isReal ? { samples: [...measured.values()] } : {};
  writeFileSync(values.out, `${JSON.stringify({ environment, against, rows, ...samples }, null, 1)}\n`);
}
if (rows.some(({ ratio }) => ratio.value < LEAST_PACE)) process.exitCode = 1;
process.exit();
