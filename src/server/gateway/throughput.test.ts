import { type ChildProcess, spawn } from 'node:child_process';
import { availableParallelism, cpus } from 'node:os';
import { expect, test } from 'vitest';
import { natsServer, startNats } from '../../cluster/testing/nats_server.js';
import { ReplicaProcess } from '../testing/replica_process.js';
import { until } from '../testing/until.js';
import { BIN } from '../../cli/testing/bin.js';

/**
 * Requests a second of gateways as processes, and what a request costs one of them in processor time, with stand-ins for models:
 * SPLITKV_THROUGHPUT=10 (seconds each) npx vitest run src/server/gateway/throughput.test.ts
 */
const SECONDS = Number(process.env['SPLITKV_THROUGHPUT'] ?? 0);
const CLIENTS = 32;

/** A gateway as a user starts it. */
async function startGateway(servers: string): Promise<{ readonly url: string; readonly child: ChildProcess }> {
  const child = spawn(process.execPath, [
    BIN,
    'gateway',
    '--cluster',
    servers,
    '--port',
    '0',
    '--json',
    '--max-per-client',
    '100000',
  ]);
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
  child.stderr.resume();
  await until(() => said.includes('\n') || child.exitCode !== null);
  return { url: (JSON.parse(said) as { url: string }).url, child };
}

const seconds = async (url: string): Promise<number> => {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^process_cpu_seconds_total (.*)$/m.exec(text)![1]);
};

/** Requests that were answered, by clients who ask again at once. */
async function ask(urls: readonly string[], body: object): Promise<number> {
  const end = performance.now() + SECONDS * 1000;
  let count = 0;
  const text = JSON.stringify(body);
  const client = async (url: string): Promise<void> => {
    while (performance.now() < end) {
      const response = await fetch(`${url}/v1/completions`, { method: 'POST', body: text });
      expect(response.status).toBe(200);
      await response.text();
      count++;
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, (_, index) => client(urls[index % urls.length]!)));
  return count;
}

test.skipIf(!natsServer || SECONDS === 0)('requests a second', { timeout: 120_000 + SECONDS * 10_000 }, async () => {
  const nats = await startNats();
  const replicas = ['a', 'b'].map(
    (replica) => new ReplicaProcess({ servers: nats.url, replica, tokenMs: 0, slots: 256 }),
  );
  const gateways = [];
  try {
    await Promise.all(replicas.map((replica) => replica.ready()));
    for (let count = 0; count < 2; count++) gateways.push(await startGateway(nats.url));
    const urls = gateways.map(({ url }) => url);
    const { length: cores } = cpus();
    for (const url of urls) await until(async () => (await fetch(`${url}/readyz`)).ok);
    for (const [name, body] of Object.entries({
      whole: { prompt: 'the cat sat', max_tokens: 1 },
      'stream of 32 events': { prompt: 'the cat sat', max_tokens: 32, stream: true },
    })) {
      await ask(urls, body);
      for (const used of [urls.slice(0, 1), urls]) {
        const before = await Promise.all(used.map(seconds));
        const count = await ask(used, body);
        const after = await Promise.all(used.map(seconds));
        const cpu = after.reduce((sum, value, at) => sum + value - before[at]!, 0);
        const figures = {
          request: name,
          gateways: used.length,
          perSecond: count / SECONDS,
          cpuMsEach: (1000 * cpu) / count,
        };
        console.log(JSON.stringify({ ...figures, cores, usable: availableParallelism(), cpu: cpus()[0]?.model }));
        expect(count).toBeGreaterThan(0);
      }
    }
  } finally {
    for (const { child } of gateways) child.kill('SIGKILL');
    await Promise.all(replicas.map((replica) => replica.signal('SIGKILL')));
    await nats.stop();
  }
});
