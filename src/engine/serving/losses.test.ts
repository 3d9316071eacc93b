import { queryObjects } from 'node:v8';
import { expect, test } from 'vitest';
import { formatBytes } from '../../base/math.js';
import { Random } from '../../base/random.js';
import { RankCommunicator } from '../../distributed/rank_communicator.js';
import { Buffer, Device } from '../../gpu/device.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn, drawSeed } from '../../gpu/testing/draw.js';
import { RankRunner } from '../ranks/rank_runner.js';
import { Runner } from '../ranks/runner.js';
import { openRunner } from '../testing/open_runner.js';
import { Engine } from './engine.js';
import { placing } from './loop/rank_balance.js';

/** What a loss could leave behind: each holds GPU memory, or what does. */
const kinds = () => [GPUDevice, GPUBuffer, Device, Buffer, RankRunner, Runner, RankCommunicator] as const;
/** How many of each are alive after a garbage collection. */
const counts = (): Record<string, number> =>
  Object.fromEntries(kinds().map((kind) => [kind.name, queryObjects(kind, { format: 'count' })]));

const SLOTS = 4;
const TOKENS = 24;

// A hundred on one rank and on two, with the memory of every ten: SPLITKV_LOSSES=100 npx vitest run src/engine/serving/losses.test.ts
const asked = Number(process.env['SPLITKV_LOSSES'] ?? 0);

test.each(asked > 0 ? [1, 2] : drawn([1, 2], 1, 'losses'))(
  'devices lost again and again, %i ranks: every answer is as without, and nothing is left of what was lost',
  { timeout: 3_600_000 },
  async (ranks) => {
    const random = new Random(drawSeed);
    const { group } = await openRunner({
      adapter: (await testAdapters()).at(-1)!.name,
      model: { seed: 31, config: { max_position_embeddings: 2048 } },
      ...(ranks > 1 && { plan: 'tp', ranks }),
      contextLength: 640,
      slots: SLOTS,
      kvBlocks: 64,
    });
    const engine = new Engine(group, { placing, slots: SLOTS, tokensPerIteration: 96 });
    const prompts = Array.from({ length: SLOTS }, (_, index) =>
      Array.from({ length: 5 + 60 * index }, () => random.integer(320)),
    );
    /** All prompts at once; `onToken` is told how many tokens there are. */
    const answers = async (onToken: (count: number) => void): Promise<number[][]> => {
      let count = 0;
      return Promise.all(
        prompts.map(async (prompt, seed) => {
          const tokens: number[] = [];
          const take = (token: number): boolean => {
            tokens.push(token);
            onToken(++count);
            return false;
          };
          const temperature = seed % 2;
          const { ended } = engine.submit({ prompt, maxTokens: TOKENS, seed, temperature, eosIds: [], onToken: take });
          expect(await ended).toBe('length');
          return tokens;
        }),
      );
    };
    const expected = await answers(() => {});
    let settled: Record<string, number> | undefined;
    const losses = asked || 2;
    for (let loss = 1; loss <= losses; loss++) {
      const at = 1 + random.integer(SLOTS * TOKENS - 20);
      const rank = random.integer(ranks);
      expect(
        await answers((count) => {
          if (count === at) group.devices[rank]!.gpu.destroy();
        }),
        `loss ${loss}: rank ${rank} at token ${at}`,
      ).toEqual(expected);
      expect(engine.metrics.recoveriesTotal).toBe(loss);
      if (loss === 1) settled = counts();
      if (asked > 0 && loss % 10 === 0) {
        const { rss, heapUsed } = process.memoryUsage();
        console.log(
          JSON.stringify({ ranks, losses: loss, memory: formatBytes(rss), heap: formatBytes(heapUsed), ...counts() }),
        );
      }
    }
    expect(counts()).toEqual(settled);
    await engine.dispose();
  },
);
