import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runHere } from '../../cli/testing/run_here.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { load, type LoadOptions } from '../../index.js';
import type { NatsServer } from '../node_nats_server.js';
import { hostRank, type RankHost } from '../ranks/rank_host.js';
import { natsServer, startNats } from '../testing/nats_server.js';

const PROMPT = 'Tom has a red ball. Who has a ball?';

describe.skipIf(!natsServer)('ranks of a model that the cluster keeps', () => {
  let server: NatsServer;
  let adapter: string;
  let ranks: RankHost[];
  const options = (more: LoadOptions): LoadOptions => ({
    cluster: { servers: server.url, patience: 1 },
    contextLength: 256,
    ...more,
  });
  beforeAll(async () => {
    adapter = (await testAdapters()).at(-1)!.name;
    server = await startNats();
    // Neither has a folder of models.
    ranks = [];
    for (const name of ['a', 'b']) {
      ranks.push(await hostRank({ cluster: { servers: server.url }, name, adapter: { adapterName: adapter } }));
    }
  }, 60_000);
  afterAll(async () => {
    for (const rank of ranks) await rank.close();
    await server.stop();
  });

  test('splitkv push, then each reads its slice from there: the same text', { timeout: 120_000 }, async () => {
    const run = (...args: string[]) => runHere(['push', ...args, '--cluster', server.url]);
    expect(await run('--list')).toMatchObject({
      code: 0,
      stdout: '',
      stderr: expect.stringContaining('has no models'),
    });
    expect(await run()).toMatchObject({ code: 2, stderr: expect.stringContaining('name a model to push') });
    expect(await run('./none')).toMatchObject({ code: 1, stderr: expect.stringContaining('no such folder') });
    expect(await run('models/tiny-gqa')).toMatchObject({
      code: 0,
      stdout: 'cluster:tiny-gqa\n',
      stderr: expect.stringMatching(/tiny-gqa \(\w{12}\) in cluster main: \d files, .* sent/),
    });
    expect(await run('models/tiny-gqa')).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('all of it was there'),
    });
    expect((await run('--list')).stdout).toMatch(/^model .*\ncluster:tiny-gqa +\w{12} +\d{4}-.* MiB\n$/);

    const one = await load('models/tiny-gqa', { adapter, contextLength: 256 });
    const generate = { maxTokens: 24, seed: 5, temperature: 1, ignoreEos: true };
    const expected = await one.generate(PROMPT, generate).result;
    await one.dispose();
    const model = await load('cluster:tiny-gqa', options({ ranks: 2, plan: 'tp' }));
    expect(model.info).toMatchObject({ name: 'tiny-gqa', plan: { policy: 'tp' } });
    const { tokens } = await model.generate(PROMPT, generate).result;
    expect(tokens).toEqual(expected.tokens);

    // Removed meanwhile, it goes on; a rank that is lost can't be made whole from what is gone.
    expect((await run('--remove', 'tiny-gqa')).stderr).toMatch(/tiny-gqa is removed from cluster main: .* freed/);
    expect(await run('--remove', 'tiny-gqa')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has no model'),
    });
    expect((await model.generate(PROMPT, generate).result).tokens).toEqual(expected.tokens);
    await ranks.pop()!.close();
    await expect(model.generate(PROMPT, generate).result).rejects.toMatchObject({ code: 'peer_lost' });
    await expect(model.recover()).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining('has no model of that name: push it'),
    });
    // Once it is there again it is the same one.
    await run('models/tiny-gqa');
    await model.recover();
    expect(model.info.plan).toMatchObject({ policy: 'single' });
    expect((await model.generate(PROMPT, generate).result).tokens).toEqual(expected.tokens);
    await model.dispose();
  });

  test('what is no model of a cluster', async () => {
    const refused = (where: string, code: string, message: string, more: LoadOptions = options({ ranks: 1 })) =>
      expect(load(where, more)).rejects.toMatchObject({ code, message: expect.stringContaining(message) });
    await refused('cluster:tiny-gqa', 'usage', 'name the cluster, too', {});
    await refused('cluster:none', 'io', 'has no model of that name');
    await refused('cluster:no/ne', 'usage', 'has a name of up to');
  });
});
