import { basename } from 'node:path';
import { expect, test } from 'vitest';
import { ServerProcess } from '../../cli/testing/run_server.js';
import { isTurn } from '../../gpu/testing/draw.js';
import { runAlone, runLoad } from '../testing/load_run.js';
import { ReplicaProcess } from '../testing/replica_process.js';
import { natsServer, TestCluster } from '../testing/test_cluster.js';
import { until } from '../testing/until.js';

/**
 * Two minutes: SPLITKV_KILLS=120 npx vitest run src/server/gateway/kills.test.ts; with a real model instead of a stand-in:
 * SPLITKV_KILLS_MODEL=models/tiny-gqa beside it.
 */
const MODEL = process.env['SPLITKV_KILLS_MODEL'];
const MODEL_NAME = MODEL === undefined ? 'stand-in' : basename(MODEL);
const SECONDS = Number(process.env['SPLITKV_KILLS'] ?? 8);
const isLong = SECONDS > 8;
const CLIENTS = isLong ? 64 : 8;
const PAUSE_MS = isLong ? 10_000 : 3000;
const NAMES = ['a', 'b', 'c'];
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const tests = new TestCluster();

const tasks = Array.from({ length: 24 }, (_, index) => ({
  prompt: `${'the cat sat on the mat '.repeat(index % 5)}${index}`,
  maxTokens: 8 + ((index * 11) % 60),
  temperature: index % 2,
  seed: index,
}));

/** A replica that can be killed. */
async function start(name: string): Promise<{ kill(): Promise<unknown> }> {
  if (MODEL !== undefined) {
    const server = new ServerProcess([MODEL, '--cluster', tests.url, '--replica', name, '--slots', '32']);
    await server.ready();
    return { kill: () => server.stop('SIGKILL') };
  }
  const replica = new ReplicaProcess({ servers: tests.url, replica: name, tokenMs: 10, slots: 32 });
  await replica.ready();
  return { kill: () => replica.signal('SIGKILL') };
}

test.runIf(natsServer && (isLong || isTurn(2, 'killed replicas')))(
  'replicas are killed one after the other while clients read: nothing is lost, every text is as alone',
  { timeout: 180_000 + SECONDS * 2000 },
  async () => {
    const gateway = await tests.gateway({ patienceMs: 60_000 });
    const replicas = await Promise.all(NAMES.map(start));
    try {
      const isThere = (count: number): Promise<void> => until(() => gateway.replicas.ready.length === count);
      await isThere(NAMES.length);
      const { url } = gateway;
      const alone = await runAlone(url, MODEL_NAME, tasks);
      const load = runLoad({
        url,
        model: MODEL_NAME,
        tasks: alone,
        clients: CLIENTS,
        seconds: SECONDS,
        vanishing: 10,
        seed: 1,
      });
      let isOver = false;
      const ended = load.finally(() => (isOver = true));
      let kills = 0;
      while (!isOver) {
        await Promise.race([pause(PAUSE_MS), ended]);
        if (isOver) break;
        const at = kills++ % NAMES.length;
        await replicas[at]!.kill();
        replicas[at] = await start(NAMES[at]!);
      }
      const report = await ended;
      const text = await (await fetch(`${url}/metrics`)).text();
      const metric = (name: string): number => Number(new RegExp(`^${name} (.*)$`, 'm').exec(text)![1]);
      const figures = {
        kills,
        moved: metric('splitkv_gateway_moved_total'),
        resumed: metric('splitkv_gateway_resumed_total'),
      };
      if (isLong) console.log(JSON.stringify({ ...report, ...figures }));
      expect(report.failed).toEqual([]);
      expect(report.wrong).toEqual([]);
      expect(report.completed).toBeGreaterThan(CLIENTS);
      expect(kills).toBeGreaterThan(0);
      expect(figures.moved).toBeGreaterThan(0);
      await until(() => gateway.live === 0);
    } finally {
      await Promise.all(replicas.map((replica) => replica.kill()));
    }
  },
);
