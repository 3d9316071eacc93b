import { afterAll, test } from 'vitest';
import { conformance } from '../../distributed/testing/conformance.js';
import { workerLinks } from '../../distributed/testing/worker_links.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { connectCluster } from '../connect.js';
import { clusterPorts } from '../testing/cluster_links.js';
import { natsServer, startNats } from '../testing/nats_server.js';

if (natsServer === undefined) test('links over NATS', (context) => context.skip());
else {
  const { name } = (await testAdapters()).at(-1)!;
  const server = await startNats();
  const clusters = await Promise.all([0, 1, 2].map(() => connectCluster({ servers: server.url })));
  conformance(
    '3 ranks over NATS',
    workerLinks([name, name, name], false, () => clusterPorts(clusters)),
  );
  afterAll(async () => {
    for (const cluster of clusters) await cluster.close();
    await server.stop();
  });
}
