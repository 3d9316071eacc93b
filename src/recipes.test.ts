/** The recipes that run in Node, as they stand, on embedded models. Those of pages: e2e/specs/recipes.spec.ts. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, afterEach, expect, test, vi } from 'vitest';
import { findNginx } from '../scripts/system_packages.mjs';
import { drawn } from './gpu/testing/draw.js';
import { load, serve } from './index.js';
import { makeRandomModel, BERT, writeModelFolder } from './model/testing/random_model.js';
import { makeRandomVision } from './model/testing/random_vision.js';
import { randomAdapter } from './model/testing/random_adapter.js';
import { ApiServer } from './server/api_server.js';
import { tone, wavOf } from './sound/testing/wav.js';
import { startNginx } from './server/testing/behind_nginx.js';

const MODEL = 'models/tiny-gqa';
const folder = mkdtempSync(join(tmpdir(), 'splitkv-recipes-'));
afterAll(() => rmSync(folder, { recursive: true }));
const file = (name: string): string => join(folder, name);

const argv = process.argv;
afterEach(() => {
  process.argv = argv;
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

interface Given {
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
}

/** Runs a program of recipes/. @returns what it wrote to stdout */
async function run(program: string, { args = [], env = {}, stdin = '' }: Given = {}): Promise<string> {
  process.argv = [process.execPath, program, ...args];
  for (const [name, value] of Object.entries({ MODEL, ...env })) vi.stubEnv(name, value);
  let said = '';
  vi.spyOn(console, 'log').mockImplementation((...words) => void (said += `${words.join(' ')}\n`));
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => ((said += String(text)), true));
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  vi.spyOn(process, 'stdin', 'get').mockReturnValue(Readable.from([stdin]) as typeof process.stdin);
  // Anew each time.
  await import(/* @vite-ignore */ `../recipes/${program}?${crypto.randomUUID()}`);
  return said;
}

/** A server with the embedded model, while `during` runs. */
async function withServer(during: (server: ApiServer) => Promise<void>): Promise<void> {
  const model = await serve(MODEL, { contextLength: 512, slots: 2 });
  const server = await new ApiServer({ modelName: 'tiny' }).listen();
  server.open(model);
  try {
    await during(server);
  } finally {
    await server.close();
    await model.dispose();
  }
}

const STORY = 'mia put the red key in the kitchen box . leo hid the blue key in the attic chest .';
const nginx = findNginx();

/** What each of them does. */
const RECIPES: Readonly<Record<string, () => Promise<void>>> = {
  node_script: async () => {
    writeFileSync(file('story.txt'), STORY);
    expect((await run('node_script/ask.mjs', { args: [file('story.txt'), 'where is the blue key ?'] })).trim()).toBe(
      'in the attic chest .',
    );
  },
  agent: async () => {
    const said = await run('agent/agent.mjs');
    expect(said).toMatch(/^read_notes\(\{ ?"place": ?"home" ?\}\): mia put/);
    expect(said.trim().split('\n').at(-1)).toBe('in the kitchen box .');
  },
  labels: async () => {
    const said = await run('labels/label.mjs', { args: ['recipes/labels/texts.txt', file('labels.jsonl')] });
    const rows = readFileSync(file('labels.jsonl'), 'utf8').trim().split('\n');
    expect(rows.map((row) => (JSON.parse(row) as { label: string }).label)).toEqual([
      'in the kitchen box .',
      'in the attic chest .',
      'in the garden bag .',
      'in the kitchen box .',
    ]);
    expect(said).toContain('2 in the kitchen box .\n1 in the attic chest .');
  },
  evaluate: async () => {
    const questions = readFileSync('recipes/evaluate/questions.jsonl', 'utf8');
    // One whose answer isn't what is wanted.
    writeFileSync(file('questions.jsonl'), questions.replace('"answer": "5 8 2 ."', '"answer": "5 8 3 ."'));
    const said = await run('evaluate/evaluate.mjs', { args: [file('questions.jsonl'), file('report.json')] });
    expect(said).toContain('where: 2 of 2 right\ncode: 1 of 2 right\n');
    expect(said).toContain('wanted 5 8 3 .\n  said   5 8 2 .');
    const { model, rows } = JSON.parse(readFileSync(file('report.json'), 'utf8')) as {
      model: string;
      rows: { right: boolean }[];
    };
    expect([model, rows.map(({ right }) => right)]).toEqual(['tiny-gqa', [true, true, false, true]]);
  },
  grammar: async () => {
    expect(JSON.parse(await run('grammar/places.mjs'))).toEqual({ room: 'attic', thing: 'chest' });
    const args = [STORY, 'where is the red key ?'];
    expect(JSON.parse(await run('grammar/places.mjs', { args }))).toEqual({ room: 'kitchen', thing: 'box' });
  },
  lora: async () => {
    // Random, as none was trained: that it changes the answer is what shows.
    const bytes = readFileSync(`${MODEL}/model.safetensors`);
    const header = JSON.parse(bytes.toString('utf8', 8, 8 + Number(bytes.readBigUInt64LE()))) as Record<
      string,
      { shape: number[] }
    >;
    const weights = new Map(
      Object.entries(header).flatMap(([name, { shape }]) =>
        name.startsWith('__') ? [] : [[name, { shape, data: new Float32Array() }] as const],
      ),
    );
    await writeModelFolder(file('adapter'), randomAdapter({ weights }, { seed: 3, config: { lora_alpha: 60 } }).files);
    const said = await run('lora/lora.mjs', { args: [file('adapter'), `${STORY} where is the red key ?`] });
    const answers = said
      .trim()
      .split('\n')
      .map((line) => line.slice(line.indexOf(':') + 1).trim());
    expect(answers[0]).toBe('in the kitchen box .');
    expect(new Set(answers).size).toBe(3);
  },
  speculation: async () => {
    const said = await run('speculation/speculate.mjs');
    expect(said).toContain('the same text: true');
    const [, accepted, steps] = /of 60 tokens (\d+) were guessed, \d+ guesses wrong, in (\d+) steps/
      .exec(said)!
      .map(Number);
    expect(accepted).toBeGreaterThan(steps!);
  },
  transcribe: async () => {
    // A third of all tokens end an answer.
    const ends = Array.from({ length: 100 }, (_, at) => 3 * at);
    const config = { max_position_embeddings: 2048, eos_token_id: ends };
    const { files } = makeRandomVision({ kind: 'gemma4', seed: 8, text: config, sound: { layers: 1 } });
    await writeModelFolder(file('hears'), files);
    // One piece of 30 s, and a shorter one.
    const samples = tone(16_000 * 31);
    const wav = wavOf(samples);
    writeFileSync(file('speech.wav'), wav);
    const said = await run('transcribe/transcribe.mjs', { args: [file('speech.wav')], env: { MODEL: file('hears') } });
    const model = await load(file('hears'), { sound: true });
    const text = 'Transcribe the following speech segment in its original language. Only output the transcription.';
    let expected = '';
    for (const audio of [wavOf(samples.slice(0, 480_000)), wavOf(samples.slice(480_000))]) {
      const content = [{ type: 'text', text } as const, { type: 'audio', audio } as const];
      const answer = model.generate({ messages: [{ role: 'user', content }] }, { temperature: 0, maxTokens: 300 });
      expected += `${(await answer.result).text}\n`;
    }
    await model.dispose();
    expect(expected.trim()).not.toBe('');
    expect(said).toBe(expected);
  },
  ai_sdk: async () => {
    const stdin = `${STORY} where is the red key ?\nwhere is the blue key ?\n`;
    expect((await run('ai_sdk/chat.mjs', { stdin })).split('\n')).toEqual([
      '>  in the kitchen box .',
      '>  in the attic chest .',
      '> ',
    ]);
  },
  langchain: () =>
    withServer(async ({ url }) => {
      expect(
        (await run('langchain/chain.mjs', { env: { SPLITKV_URL: `${url}/v1`, MODEL: 'tiny' } })).split('\n'),
      ).toEqual(['in the kitchen box .', 'in the attic chest .', ' in the kitchen box .', '']);
    }),
  from_transformers_js: async () => {
    const config = { ...BERT, max_position_embeddings: 600 };
    await writeModelFolder(file('embedder'), makeRandomModel({ seed: 31, config }).files);
    const said = await run('from_transformers_js/splitkv.mjs', { env: { EMBEDDER: file('embedder') } });
    const [text, alike] = said.trim().split('\n') as [string, string];
    expect(text.trim()).toBe('in the kitchen box .');
    const [same, other] = alike.split(' ').map(Number) as [number, number];
    expect(same).toBe(1);
    expect(other).toBeLessThan(1);
  },
  nginx: () =>
    withServer(async ({ url }) => {
      if (!nginx) return console.log('no nginx (npm run setup unpacks one): its recipe is not tested');
      const port = Number(new URL(url).port);
      writeFileSync(
        file('nginx.conf'),
        `pid ${file('pid')};\nevents {}\nhttp { include ${join(process.cwd(), 'recipes/nginx/splitkv.conf')}; }\n`,
      );
      const { stderr } = spawnSync(nginx, ['-t', '-p', folder, '-e', 'stderr', '-c', file('nginx.conf')], {
        encoding: 'utf8',
      });
      // Who isn't root has no right to the port 80, and to logs.
      expect(stderr).toContain('syntax is ok');
      const proxy = await startNginx(nginx, [port, port]);
      try {
        const response = await fetch(`${proxy.url}/v1/chat/completions`, {
          method: 'POST',
          headers: { 'Content-Type': 'application/json' },
          body: JSON.stringify({ messages: [{ role: 'user', content: `${STORY} where is the red key ?` }] }),
        });
        const { choices } = (await response.json()) as { choices: { message: { content: string } }[] };
        expect(choices[0]!.message.content.trim()).toBe('in the kitchen box .');
      } finally {
        await proxy.stop();
      }
    }),
};

test.each(drawn(Object.keys(RECIPES), 2, 'recipes'))('%s', (name) => RECIPES[name]!());

/** Lines of `before` that `after` lacks. */
const lost = (before: string, after: string): string[] => {
  const lines = new Set(readFileSync(`recipes/${after}`, 'utf8').split('\n'));
  return readFileSync(`recipes/${before}`, 'utf8')
    .split('\n')
    .filter((line) => !lines.has(line));
};

test('what moves from other libraries differs in few lines', () => {
  expect(lost('from_webllm/webllm.html', 'from_webllm/index.html')).toHaveLength(4);
  expect(lost('from_webllm/index.html', 'from_webllm/webllm.html')).toHaveLength(4);
  const moved = lost('from_transformers_js/transformers.mjs', 'from_transformers_js/splitkv.mjs');
  expect(moved.length).toBeLessThan(8);
});

test('each recipe is listed, tested, and told in few words and a screen', () => {
  const names = readdirSync('recipes', { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name);
  expect(names.length).toBeGreaterThanOrEqual(20);
  const list = readFileSync('recipes/README.md', 'utf8');
  const specs = ['recipes', 'site'].map((name) => readFileSync(`e2e/specs/${name}.spec.ts`, 'utf8')).join('\n');
  for (const name of names) {
    expect(list).toMatch(new RegExp(`^- \\[${name}\\]\\(${name}/README\\.md\\): \\S.*$`, 'm'));
    const words = readFileSync(`recipes/${name}/README.md`, 'utf8')
      .split(/\s+/)
      .filter((word) => /\w/.test(word));
    expect(words.length, name).toBeLessThanOrEqual(120);
    expect(name in RECIPES || new RegExp(`\\b${name}\\b`).test(specs), `${name} has a test`).toBe(true);
    for (const program of readdirSync(`recipes/${name}`)) {
      const lines = readFileSync(`recipes/${name}/${program}`, 'utf8').split('\n').length;
      expect(lines, `${name}/${program}`).toBeLessThan(90);
    }
  }
});
