import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn, drawSeed, isTurn, sweepsAll } from '../../gpu/testing/draw.js';
import { readModelConfig } from '../../model/families/registry.js';
import { modelShape } from '../../model/shape.js';
import { makePlan } from '../../placement/index.js';
import { load, serve, type ServingModel } from '../../index.js';
import { natsServer, startNats } from '../testing/nats_server.js';
import { RankProcess } from '../testing/rank_process.js';

/** Fifty: SPLITKV_CLUSTER_LOSSES=50 npx vitest run src/cluster/ranks/cluster_losses.test.ts */
const LOSSES = Number(process.env['SPLITKV_CLUSTER_LOSSES'] ?? 3);
const CLIENTS = 4;
const TOKENS = 48;

/** Texts of all clients at once; `onToken` is told how many tokens there are. */
async function answersOf(model: ServingModel, onToken: (count: number) => void = () => {}): Promise<string[]> {
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
}

/** Processes that are killed, and such that come back no more, in turns. */
const killed = isTurn(2, 'losses of a cluster');

test.skipIf(!natsServer || !(killed || sweepsAll || LOSSES > 3))(
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
    const expected = await answersOf(model);
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
      const found = await answersOf(model, (count) => {
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

const config = JSON.parse(readFileSync('models/tiny-gqa/config.json', 'utf8')) as unknown;
/** Each with what it is over two ranks, once one of three is gone. */
const plans = [
  { name: 'tp', plan: 'tp', onTwo: 'tp' },
  { name: 'pp', plan: 'pp', onTwo: 'pp' },
  { name: 'token', plan: 'token', onTwo: 'token' },
  // It says who holds what, and is for three: the planner takes another.
  { name: 'of a file', plan: makePlan('tp', 3, modelShape(await readModelConfig(config))), onTwo: /./ },
];

test.skipIf(!natsServer || (killed && !sweepsAll)).for(drawn(plans, 1, 'ranks that are killed for good'))(
  'ranks are killed for good, and nobody takes their place: others take all shares of plan $name, and every text is as before',
  { timeout: 240_000 },
  async ({ plan, onTwo }) => {
    const adapter = (await testAdapters()).at(-1)!.name;
    const server = await startNats();
    const ranks = ['a', 'b', 'c'].map((name) => new RankProcess(name, server, ['--adapter', adapter]));
    for (const rank of ranks) await rank.ready();
    const warnings: string[] = [];
    const model = await serve('models/tiny-gqa', {
      cluster: { servers: server.url, patience: 1 },
      ranks: ['a', 'b', 'c'],
      plan,
      contextLength: 256,
      slots: CLIENTS,
      onWarning: (text) => warnings.push(text),
    });
    expect(model.info.plan.worldSize).toBe(3);
    const expected = await answersOf(model);
    const random = new Random(drawSeed);
    for (let ranksBefore = 3; ranksBefore > 1;) {
      const at = 1 + random.integer(CLIENTS * 20);
      const used = model.info.ranks.map(({ name }) => name!);
      const [lost] = used.splice(random.integer(used.length), 1);
      const place = ranks.findIndex(({ name }) => name === lost);
      const [dying] = ranks.splice(place, 1);
      let killed: Promise<unknown> | undefined;
      const found = await answersOf(model, (count) => {
        if (count === at) killed = dying!.stop('SIGKILL');
      });
      expect(found, `${lost} at event ${at}`).toEqual(expected);
      await killed;
      const { policy, worldSize } = model.info.plan;
      if (ranksBefore === 3) expect(policy).toMatch(onTwo);
      expect(worldSize).toBeLessThan(ranksBefore);
      ranksBefore = worldSize;
      const running = model.info.ranks.map(({ name }) => name!);
      expect(running).toHaveLength(worldSize);
      expect(used).toEqual(expect.arrayContaining(running));
      expect(warnings.at(-1)).toBe(`${lost} is gone: plan '${policy}' on ${running.join(', ')} goes on in its place`);
    }
    await model.dispose();
    for (const rank of ranks) await rank.stop();
    await server.stop();
  },
);

test.skipIf(!natsServer)(
  "recover() puts a loaded model on the ranks that are left, as far as their memory goes: a conversation's next answer is as it was",
  { timeout: 120_000 },
  async () => {
    const adapter = (await testAdapters()).at(-1)!.name;
    const server = await startNats();
    const start = async (name: string, memory: string): Promise<RankProcess> => {
      const rank = new RankProcess(name, server, ['--adapter', adapter, '--memory', memory]);
      await rank.ready();
      return rank;
    };
    const ranks = [await start('a', '1GB'), await start('b', '1GB')];
    const model = await load('models/tiny-gqa', {
      cluster: { servers: server.url, patience: 1 },
      ranks: ['a', 'b'],
      plan: 'tp',
      contextLength: 512,
    });
    const held = model.conversation();
    await held.send('Tom has a red ball. Who has a ball?', { maxTokens: 8 }).result;
    const next = async (): Promise<string> =>
      (await held.fork().send('What colour is it?', { maxTokens: 24, seed: 5, ignoreEos: true }).result).text;
    const expected = await next();
    await ranks[1]!.stop('SIGKILL');
    // A spare that gives too little is none.
    ranks[1] = await start('small', '1MB');
    await expect(next()).rejects.toMatchObject({ code: 'peer_lost' });
    await model.recover();
    expect(model.info.plan).toMatchObject({ policy: 'single', worldSize: 1 });
    expect(await next()).toBe(expected);
    await ranks[0]!.stop('SIGKILL');
    await expect(next()).rejects.toMatchObject({ code: 'peer_lost' });
    await expect(model.recover()).rejects.toMatchObject({
      code: 'peer_lost',
      message: expect.stringMatching(/small gives .* KiB, which may be too little/),
    });
    await expect(next()).rejects.toMatchObject({ code: 'peer_lost' });
    await model.dispose();
    await ranks[1]!.stop();
    await server.stop();
  },
);
