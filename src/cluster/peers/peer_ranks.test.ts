import { expect, test } from 'vitest';
import { conformance } from '../../distributed/testing/conformance.js';
import { workerLinks } from '../../distributed/testing/worker_links.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { load } from '../../index.js';
import { connectCluster } from '../connect.js';
import { hostRank } from '../ranks/rank_host.js';
import { clusterPorts } from '../testing/cluster_links.js';
import { busesOf, peersOf } from '../testing/fake_channels.js';
import type { PeerBus } from './bus.js';

const adapter = (await testAdapters()).at(-1)!.name;
const hubs = busesOf(2);
conformance(
  '3 ranks over channels',
  workerLinks([adapter, adapter, adapter], false, () => clusterPorts(clusters)),
);
const clusters = await Promise.all([hubs.hub, ...hubs.leaves].map((bus) => connectCluster(peersOf(bus))));

test('a model on a rank here and one behind a channel: the same tokens, a rank that goes, and the rest', async () => {
  const prompt = 'Tom has a red ball. Who has a ball?';
  const options = { contextLength: 256 };
  const one = await load('models/tiny-gqa', { ...options, adapter });
  const { tokens } = await one.generate(prompt, { maxTokens: 20, ignoreEos: true }).result;
  await one.dispose();
  const { hub, leaves, channels } = busesOf(1);
  const models = new URL('../../../models/', import.meta.url).href;
  const host = (bus: PeerBus, name: string) =>
    hostRank({ cluster: peersOf(bus), name, adapter: { adapterName: adapter }, models });
  const [here, there] = [await host(hub, 'here'), await host(leaves[0]!, 'tab')];
  await expect(host(leaves[0]!, 'here')).rejects.toThrow('another rank of this cluster has that name');
  const cluster = { ...peersOf(hub), patience: 0 };
  await expect(load('cluster:tiny-gqa', { cluster, ranks: 2 })).rejects.toThrow(
    'pages without a server keep no models',
  );
  const model = await load('models/tiny-gqa', { ...options, cluster, ranks: ['here', 'tab'], plan: 'tp' });
  const answer = async (): Promise<readonly number[]> =>
    (await model.generate(prompt, { maxTokens: 20, ignoreEos: true }).result).tokens;
  expect(await answer()).toEqual(tokens);
  channels[0]![0].close();
  await expect(
    (async () => {
      for (;;) await answer();
    })(),
  ).rejects.toMatchObject({ code: 'peer_lost', message: expect.stringContaining('tab of the cluster') as string });
  await model.recover();
  expect(model.info.plan.worldSize).toBe(1);
  expect(await answer()).toEqual(tokens);
  await model.dispose();
  await expect(load('models/tiny-gqa', { cluster, ranks: 2 })).rejects.toThrow('Invite a tab');
  await here.close();
  await there.close();
});
