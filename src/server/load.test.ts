import { readFileSync } from 'node:fs';
import { queryObjects } from 'node:v8';
import { expect, test } from 'vitest';
import { formatBytes } from '../base/math.js';
import { ServerProcess } from '../cli/testing/run_server.js';
import { testAdapters } from '../gpu/testing/adapters.js';
import { RunningCompletion } from '../engine/serving/text/completion.js';
import { EventStream, Exchange } from './http/exchange.js';
import { type LoadReport, runAlone, runLoad } from './testing/load_run.js';
import { openTestModel, startTestServer } from './testing/test_server.js';
import { until } from './testing/until.js';

const words =
  'the cat sat on the mat and the dog ran after the cat because the river runs under an old stone bridge'.split(' ');
/** Prompts of several lengths that partly begin alike; greedy and drawn; answers of several lengths. */
const tasks = Array.from({ length: 24 }, (_, index) => ({
  prompt: [...words.slice(0, (index * 7) % words.length), String(index), ...words].join(' '),
  maxTokens: 8 + ((index * 5) % 33),
  temperature: index % 2,
  seed: index,
}));

function expectRight(report: LoadReport, clients: number): void {
  expect(report.wrong).toEqual([]);
  expect(report.failed).toEqual([]);
  expect(report.completed).toBeGreaterThan(clients);
  expect(report.vanished).toBeGreaterThan(0);
}

test(
  'many clients at once, some of which vanish: the others get what they get alone, and nothing stays',
  { timeout: 300_000 },
  async () => {
    // Too few blocks for all slots, so that some are preempted; fewer slots than clients, so that some wait.
    const model = await openTestModel({ slots: 6, kvBlocks: 9 });
    const server = await startTestServer(model);
    const { url } = server;
    const alone = await runAlone(url, 'tiny', tasks);
    const report = await runLoad({ url, model: 'tiny', tasks: alone, clients: 16, seconds: 4, vanishing: 10, seed: 1 });
    expectRight(report, 16);
    await until(() => server.live === 0);
    const { metrics } = model;
    expect(metrics).toMatchObject({ running: 0, waiting: 0, unfinished: 0, kvBlocksFree: metrics.kvBlocks });
    expect(metrics.preemptionsTotal).toBeGreaterThan(0);
    await server.close();
    // Counted after a garbage collection: nobody holds on to what is over.
    for (const kind of [Exchange, EventStream, RunningCompletion]) {
      expect(queryObjects(kind, { format: 'count' }), kind.name).toBe(0);
    }
    await model.dispose();
  },
);

interface Question {
  readonly context: number;
  readonly prompt: string;
}

// 64 clients against `splitkv serve` for two minutes: SPLITKV_LOAD=120 npx vitest run src/server/load.test.ts
const loadSeconds = Number(process.env['SPLITKV_LOAD'] ?? 0);
const timeout = loadSeconds * 1000 + 600_000;
test.skipIf(!(loadSeconds > 0))('the full load on a server of its own', { timeout }, async () => {
  const clients = 64;
  const adapter = (await testAdapters()).at(-1)!.name;
  const server = new ServerProcess(['--model', 'models/tiny-gqa', '--port', '0', '--json', '--adapter', adapter]);
  const { url, model } = JSON.parse(await server.ready()) as { url: string; model: string };
  const metric = async (name: string): Promise<number> => {
    const text = await (await fetch(`${url}/metrics`)).text();
    return Number(new RegExp(`^${name} (.*)$`, 'm').exec(text)![1]);
  };
  const questions = readFileSync('models/eval.jsonl', 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Question)
    .filter(({ context }) => context === 256)
    .slice(0, 16)
    .map(({ prompt }, seed) => ({ prompt, maxTokens: 16, temperature: 0, seed }));
  const alone = await runAlone(url, model, [...tasks, ...questions]);
  const load = (seconds: number, seed: number): Promise<LoadReport> =>
    runLoad({ url, model, tasks: alone, clients, seconds, vanishing: 10, seed });
  await load(10, 1);
  const level = await metric('process_resident_memory_bytes');
  let most = level;
  const watch = setInterval(() => {
    void metric('process_resident_memory_bytes').then((bytes) => (most = Math.max(most, bytes)));
  }, 1000);
  const report = await load(loadSeconds, 2);
  clearInterval(watch);
  const left = {
    running: await metric('splitkv_sequences_running'),
    waiting: await metric('splitkv_sequences_waiting'),
    used: await metric('splitkv_kv_blocks_used'),
    live: await metric('splitkv_requests_live'),
  };
  await new Promise((resolve) => setTimeout(resolve, 5000));
  const end = await metric('process_resident_memory_bytes');
  const memory = { level: formatBytes(level), most: formatBytes(most), end: formatBytes(end) };
  console.log(JSON.stringify({ ...report, ...left, preemptions: await metric('splitkv_preemptions_total'), memory }));
  expectRight(report, clients);
  // The request for the metrics itself.
  expect(left).toEqual({ running: 0, waiting: 0, used: 0, live: 1 });
  expect(end).toBeLessThan(level * 1.1);
  expect(await server.stop('SIGTERM')).toBe(0);
});
