import { createHash } from 'node:crypto';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { load, type LoadOptions, type Model } from '../../index.js';
import type { NatsServer } from '../node_nats_server.js';
import { natsServer, startNats } from '../testing/nats_server.js';
import { hostRank } from './rank_host.js';
import { RankProcess } from '../testing/rank_process.js';

const MODEL = 'models/tiny-gqa';
const PROMPT = 'Tom has a red ball. Who has a ball?';
const adapter = (await testAdapters()).at(-1)!.name;

/** Of the logits of every position of a prompt. */
async function digestOf(model: Model): Promise<string> {
  const hash = createHash('sha256');
  const tokens = Array.from({ length: 90 }, (_, at) => (at * 37) % 250);
  await model.logits(tokens, {
    all: true,
    onRow: (_position: number, row: Float32Array) => void hash.update(row),
  } as never);
  return hash.digest('hex');
}

describe.skipIf(!natsServer)('ranks of other processes', () => {
  let server: NatsServer;
  let ranks: RankProcess[];
  const options = (more: LoadOptions = {}): LoadOptions => ({
    cluster: { servers: server.url },
    contextLength: 256,
    ...more,
  });
  beforeAll(async () => {
    server = await startNats();
    ranks = ['a', 'b'].map((name) => new RankProcess(name, server, ['--adapter', adapter]));
    for (const rank of ranks) await rank.ready();
  });
  afterAll(async () => {
    for (const rank of ranks) await rank.stop();
    await server.stop();
  });

  test('give the bits of one rank, plan after plan', async () => {
    const one = await load(MODEL, { adapter, contextLength: 256 });
    const expected = await digestOf(one);
    const { tokens } = await one.generate(PROMPT, { maxTokens: 20, seed: 1 }).result;
    await one.dispose();
    for (const plan of drawn(['tp', 'pp', 'token', 'auto'] as const, 1, 'plans of a cluster')) {
      const model = await load(MODEL, options({ ranks: plan === 'tp' ? ['b', 'a'] : 2, plan }));
      expect(await digestOf(model), plan).toBe(expected);
      const answer = await model.generate(PROMPT, { maxTokens: 20, seed: 1 }).result;
      expect(answer.tokens, plan).toEqual(tokens);
      if (plan === 'auto') {
        expect(model.info.planReason).toMatch(/\d/);
        expect(answer.stats.predicted?.tokens_per_second).toBeGreaterThan(0);
      } else expect(answer.stats.ranks).toHaveLength(2);
      await model.dispose();
    }
  });

  test('prompts on a rank of their own: the same bits, by name or whichever is free', async () => {
    const one = await load(MODEL, { adapter, contextLength: 256 });
    const prompt = Array.from({ length: 150 }, (_, at) => (at * 37) % 250);
    const { tokens } = await one.generate(prompt, { maxTokens: 12, ignoreEos: true, seed: 1 }).result;
    await one.dispose();
    const [more] = drawn([{ adapter: 'a' }, {}], 1, 'prefill workers of a cluster');
    const model = await load(MODEL, options({ ranks: ['b'], plan: 'single', prefill: { kind: 'splitkv', ...more } }));
    expect(model.info.prefill).toMatchObject({ workers: 1, weightBytes: model.info.weightBytes });
    const answer = await model.generate(prompt, { maxTokens: 12, ignoreEos: true, seed: 1 }).result;
    expect(answer.tokens).toEqual(tokens);
    await model.dispose();
  });

  test('a rank that is killed, and a server: the generation fails, and recover() goes on with a spare', async () => {
    const warnings: string[] = [];
    const model = await load(
      MODEL,
      options({ ranks: ['a', 'b'], plan: 'pp', onWarning: (text) => warnings.push(text) }),
    );
    const run = async (onText = (): void => {}): Promise<readonly number[]> => {
      const generation = model.generate(PROMPT, { maxTokens: 120, ignoreEos: true, seed: 3, temperature: 1 });
      for await (const _piece of generation) onText();
      return (await generation.result).tokens;
    };
    const expected = await run();
    const spare = new RankProcess('c', server, ['--adapter', adapter]);
    ranks.push(spare);
    await spare.ready();
    let killed: Promise<unknown> | undefined;
    await expect(run(() => void (killed ??= ranks[1]!.stop('SIGKILL')))).rejects.toMatchObject({ code: 'peer_lost' });
    await expect(run()).rejects.toMatchObject({ code: 'peer_lost' });
    await model.recover();
    expect(warnings).toContain('rank c takes the place of b');
    expect(model.info.ranks.map(({ name }) => name)).toEqual(['a', 'c']);
    expect(await run()).toEqual(expected);

    let restarted: Promise<NatsServer> | undefined;
    const restart = async (): Promise<NatsServer> => {
      await server.stop('SIGKILL');
      return (server = await startNats({ port: Number(new URL(server.url).port) }));
    };
    await expect(run(() => void (restarted ??= restart()))).rejects.toMatchObject({ code: 'peer_lost' });
    await restarted;
    await model.recover();
    expect(await run()).toEqual(expected);
    await model.dispose();
  });

  test('what is refused, and why', async () => {
    const cluster = { servers: server.url, patience: 1 };
    const refused = async (more: LoadOptions, message: RegExp, model = MODEL): Promise<void> => {
      const loaded = load(model, options({ plan: 'pp', cluster, ...more }));
      await expect(loaded).rejects.toMatchObject({ name: 'SplitkvError', message: expect.stringMatching(message) });
    };
    await refused({ ranks: 2, workers: true }, /^workers with a cluster/);
    await refused({ ranks: 2, adapter }, /^adapter with a cluster/);
    const kind = 'splitkv';
    await refused(
      { ranks: ['a'], prefill: { kind, adapter: 'nobody' } },
      /^prefill: beside the model's ranks nobody: the/,
    );
    await refused({ ranks: 2, prefill: { kind } }, /^prefill: beside the model's ranks 1 free .* Start one/);
    await refused({ ranks: 2, cluster: { ...cluster, name: 'another' } }, /the cluster has none\. Start one/);

    const folder = mkdtempSync(join(tmpdir(), 'splitkv-rank-'));
    cpSync('models/tiny-mla', join(folder, 'tiny-gqa'), { recursive: true });
    const here = { cluster: { servers: server.url }, adapter: { adapterName: adapter } };
    await expect(hostRank({ ...here, name: 'a' })).rejects.toMatchObject({
      message: expect.stringContaining('has that name'),
    });
    const old = await hostRank({ ...here, name: 'old', version: '0.0.1' });
    await refused({ ranks: ['a', 'old'] }, /rank old runs splitkv 0\.0\.1, and this is \d/);
    await old.close();
    const bare = await hostRank({ ...here, name: 'bare' });
    await refused(
      { ranks: ['a', 'bare'] },
      /tiny-gqa is a folder, and this rank was given none: start it with --models/,
    );
    await bare.close();
    const other = await hostRank({ ...here, name: 'other', models: pathToFileURL(folder).href });
    await refused({ ranks: ['a', 'other'] }, /files of the model are others \(\w+\) than the coordinator's \(\w+\)/);
    await other.close();
    rmSync(folder, { recursive: true });

    // A rank has one model at a time, and is free after it.
    const first = await load(MODEL, options({ ranks: ['a', 'c'], plan: 'pp' }));
    await refused({ ranks: ['a'], plan: 'single' }, /the cluster has a \(.*busy\)/);
    await first.dispose();
    await (await load(MODEL, options({ ranks: ['a'], plan: 'single' }))).dispose();
  });
});
