import { describe, expect, test } from 'vitest';
import { median } from '../../src/base/stats.js';
import { CODE, STORY } from '../suites/speculate.js';
import { testAdapters } from '../../src/gpu/testing/adapters.js';
import { load, type LoadOptions } from '../../src/index.js';
import { natsServer, startNats } from '../../src/cluster/testing/nats_server.js';
import { RankProcess } from '../../src/cluster/testing/rank_process.js';
import { slowLink } from '../../src/cluster/testing/slow_link.js';

// Two rank processes, of which one is so many milliseconds away from the server, in each direction: tokens per second of each plan over
// those of one rank, which answers in turns with it. npx vitest run -c vitest.bench.config.ts bench/cluster/delays
const DELAYS = [0, 1, 5, 20];
const PLANS = ['pp', 'token', 'tp', 'auto'];
const TOKENS = 24;
const TURNS = 3;

describe.skipIf(!natsServer)('ranks on a slow network', () => {
  test('tokens per second over those of one rank', { timeout: 3_600_000 }, async () => {
    const adapter = (await testAdapters()).at(-1)!.name;
    const server = await startNats();
    const near = ['one', 'a'].map((name) => new RankProcess(name, server, ['--adapter', adapter]));
    for (const rank of near) await rank.ready();
    const open = (ranks: readonly string[], plan: string) =>
      load('models/tiny-gqa', {
        cluster: { servers: server.url },
        contextLength: 256,
        speculate: 'off',
        ranks,
        plan,
      } satisfies LoadOptions);
    const one = await open(['one'], 'single');
    const run = async (model: Awaited<ReturnType<typeof open>>): Promise<number> => {
      const { stats } = await model.generate('Tom has a red ball.', { maxTokens: TOKENS, ignoreEos: true, seed: 1 })
        .result;
      return stats.tokens_per_second;
    };
    for (const ms of DELAYS) {
      const link = await slowLink(server.url, ms);
      const far = new RankProcess('b', link, ['--adapter', adapter]);
      await far.ready();
      for (const plan of PLANS) {
        const model = await open(['a', 'b'], plan);
        const ratios: number[] = [];
        await run(model);
        for (let turn = 0; turn < TURNS; turn++) ratios.push((await run(model)) / (await run(one)));
        const { predicted } = (await model.generate('Tom', { maxTokens: TOKENS, ignoreEos: true }).result).stats;
        const { stages } = model.info.plan;
        console.log(
          JSON.stringify({
            delay_ms: ms,
            plan,
            ranks: model.info.plan.worldSize,
            stages: stages.length,
            of_one: Number(median(ratios).toFixed(3)),
            ...(predicted && { predicted: predicted.tokens_per_second, why: model.info.planReason }),
          }),
        );
        await model.dispose();
      }
      await far.stop();
      await link.close();
    }
    await one.dispose();
    for (const rank of near) await rank.stop();
    await server.stop();
  });

  // A step of several rows has the exchanges of one.
  test('tokens per second with drafts over those without', { timeout: 3_600_000 }, async () => {
    const adapter = (await testAdapters()).at(-1)!.name;
    const server = await startNats();
    const near = new RankProcess('a', server, ['--adapter', adapter]);
    await near.ready();
    for (const ms of [0, 5, 20]) {
      const link = await slowLink(server.url, ms);
      const far = new RankProcess('b', link, ['--adapter', adapter]);
      await far.ready();
      for (const plan of ['pp', 'tp']) {
        const cluster = { servers: server.url };
        const model = await load('models/tiny-gqa', {
          cluster,
          contextLength: 640,
          speculate: 'ngram',
          ranks: ['a', 'b'],
          plan,
        });
        for (const [text, prompt] of Object.entries({ story: STORY, code: CODE })) {
          const run = (speculate: 'off' | 'ngram') =>
            model.generate(prompt, { maxTokens: 64, ignoreEos: true, cachePrompt: false, speculate }).result;
          const { tokens } = await run('off');
          const ratios: number[] = [];
          let accepted = 0;
          for (let turn = 0; turn < TURNS; turn++) {
            const [drafted, plain] = [await run('ngram'), await run('off')];
            for (const answer of [drafted, plain]) expect(answer.tokens, `${plan}, ${text}`).toEqual(tokens);
            // The first one times what steps of several rows cost.
            if (turn > 0) ratios.push(drafted.stats.tokens_per_second / plain.stats.tokens_per_second);
            const { speculation } = drafted.stats;
            accepted = (speculation?.accepted ?? 0) / Math.max(1, speculation?.drafted ?? 0);
          }
          const ratio = Number(median(ratios).toFixed(2));
          console.log(JSON.stringify({ delay_ms: ms, plan, text, with_drafts: ratio, accepted }));
        }
        await model.dispose();
      }
      await far.stop();
      await link.close();
    }
    await near.stop();
    await server.stop();
  });
});
