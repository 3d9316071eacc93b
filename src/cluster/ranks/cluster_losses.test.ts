import { expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawSeed } from '../../gpu/testing/draw.js';
import { serve } from '../../index.js';
import { natsServer, startNats } from '../testing/nats_server.js';
import { RankProcess } from '../testing/rank_process.js';

/** Fifty: SPLITKV_CLUSTER_LOSSES=50 npx vitest run src/cluster/ranks/cluster_losses.test.ts */
const LOSSES = Number(process.env['SPLITKV_CLUSTER_LOSSES'] ?? 3);
const CLIENTS = 4;
const TOKENS = 48;

test.skipIf(!natsServer)(
  'rank processes and the server are killed while requests run: every text is as without',
  { timeout: 120_000 + LOSSES * 60_000 },
  async () => {
    const adapter = (await testAdapters()).at(-1)!.name;
    const random = new Random(drawSeed);
    let server = await startNats();
    const port = Number(new URL(server.url).port);
    const start = async (name: string): Promise<RankProcess> => {
      const rank = new RankProcess(name, server, ['--adapter', adapter]);
      await rank.ready();
      return rank;
    };
    const ranks = [await start('a'), await start('b'), await start('c')];
    const model = await serve('models/tiny-gqa', {
      cluster: { servers: server.url },
      ranks: 2,
      plan: 'pp',
      contextLength: 256,
      slots: CLIENTS,
    });
    /** All at once; `onToken` is told how many tokens there are. */
    const answers = async (onToken: (count: number) => void = () => {}): Promise<string[]> => {
      let count = 0;
      return Promise.all(
        Array.from({ length: CLIENTS }, async (_, client) => {
          let text = '';
          const prompt = `Tom has a red ball. ${'The dog runs. '.repeat(client)}Who has a ball?`;
          const events = model.completeAll([prompt], {
            maxTokens: TOKENS,
            seed: client,
            temperature: client % 2,
            ignoreEos: true,
          });
          for await (const event of events) {
            text += event.text;
            onToken(++count);
          }
          return text;
        }),
      );
    };
    const expected = await answers();
    const kills = {
      server: async () => {
        await server.stop('SIGKILL');
        server = await startNats({ port });
      },
      rank: async () => {
        const at = random.integer(ranks.length);
        const { name } = ranks[at]!;
        await ranks[at]!.stop('SIGKILL');
        ranks[at] = await start(name);
      },
    };
    const done: Record<keyof typeof kills, number> = { server: 0, rank: 0 };
    for (let loss = 1; loss <= LOSSES; loss++) {
      const what = loss % 3 === 0 ? 'server' : 'rank';
      const at = 1 + random.integer(CLIENTS * 20);
      let killed: Promise<void> | undefined;
      const found = await answers((count) => {
        if (count === at) killed = kills[what]();
      });
      expect(found, `loss ${loss}: ${what} at event ${at}`).toEqual(expected);
      await killed;
      done[what]++;
    }
    console.log(JSON.stringify({ ...done, recoveries: model.metrics.recoveriesTotal }));
    await model.dispose();
    for (const rank of ranks) await rank.stop();
    await server.stop();
  },
);
