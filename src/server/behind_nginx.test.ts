import { expect, test } from 'vitest';
import { findNginx } from '../../scripts/system_packages.mjs';
import type { CompletionEvent, ServingModel } from '../index.js';
import { ApiServer } from './api_server.js';
import { askSteadily, freePort, startNginx } from './testing/behind_nginx.js';
import { until } from './testing/until.js';

const nginx = findNginx();
if (!nginx) console.log('no nginx (npm run setup unpacks one): servers behind it are not tested');
/** Ten, at 100 requests a second: SPLITKV_RESTARTS=10 npx vitest run src/server/behind_nginx.test.ts */
const RESTARTS = Number(process.env['SPLITKV_RESTARTS'] ?? 2);
const PER_SECOND = RESTARTS > 2 ? 100 : 50;
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A model of which only the answers exist. */
const model = {
  info: { name: 'fake', slots: 64, contextLength: 64 },
  metrics: { unfinished: 0 },
  adapters: { list: [] },
  prepare: () => Promise.resolve(),
  completeAll: () => ({
    promptTokens: 1,
    cachedTokens: 0,
    completionTokens: 1,
    seed: 0,
    abort: () => {},
    async *[Symbol.asyncIterator](): AsyncGenerator<CompletionEvent> {
      await pause(5);
      yield { index: 0, text: 'x', logprobs: [], finish: 'max_tokens' };
    },
  }),
} as unknown as ServingModel;

// Again where this machine stood still for longer than a server drains.
test.skipIf(!nginx)(
  'requests survive restarts of one of two servers behind nginx',
  { timeout: 60_000 + 20_000 * RESTARTS, retry: RESTARTS > 2 ? 0 : 2 },
  async () => {
    const ports = [await freePort(), await freePort()] as const;
    const listen = (port: number): Promise<ApiServer> => new ApiServer({ port, maxPerClient: 1000 }).listen();
    const servers = await Promise.all(ports.map(listen));
    for (const server of servers) server.open(model);
    const proxy = await startNginx(nginx!, ports);
    const restarts = async (answered: () => number): Promise<void> => {
      const more = async (count: number): Promise<void> => {
        const before = answered();
        await until(() => answered() > before + count);
      };
      for (let restart = 0; restart < RESTARTS; restart++) {
        const at = restart % 2;
        // By requests rather than time, however busy this machine is: nginx must have seen that the other server is back, ...
        await more(30);
        await servers[at]!.drain(0);
        // ... and used up the connections that it keeps to this one.
        await more(80);
        await servers[at]!.close(5000);
        await pause(100);
        servers[at] = await listen(ports[at]!);
        // While it loads it says 503.
        await pause(100);
        servers[at].open(model);
      }
    };
    const body = JSON.stringify({ prompt: 'x', max_tokens: 1 });
    const ask = (): Promise<Response> => fetch(`${proxy.url}/v1/completions`, { method: 'POST', body });
    try {
      const counts = await askSteadily(PER_SECOND, ask, restarts);
      if (RESTARTS > 2) console.log(JSON.stringify({ restarts: RESTARTS, answers: Object.fromEntries(counts) }));
      expect([...counts.keys()], proxy.said()).toEqual(['200']);
      expect(counts.get('200')).toBeGreaterThan(100);
    } finally {
      await proxy.stop();
      await Promise.all(servers.map((server) => server.close()));
    }
  },
);
