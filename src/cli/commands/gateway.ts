import { clusterOptions, neededCluster } from '../cluster/cluster_options.js';
import { type Command, commonOptions, interrupted, say } from '../command.js';
import { endGently, endingOf, frontOptions, frontSpecs, milliseconds } from '../front_options.js';
import { defined } from '../options.js';

export const command: Command = {
  summary:
    'The OpenAI API in front of all replicas of a cluster (splitkv serve --replica). It keeps nothing: run as many as you like.',
  examples: [
    'splitkv gateway --cluster nats://10.0.0.1:4222 --port 8000',
    'splitkv gateway --cluster nats://10.0.0.1:4222 --listen 0.0.0.0 --api-key-file keys.txt',
  ],
  usage: 'gateway --cluster nats://HOST:4222 [--port P] [options]',
  options: {
    ...frontSpecs,
    patience: { value: 'SECONDS', help: 'that a request whose replica went away waits for another one; default 15' },
    'hang-after': { value: 'SECONDS', help: 'of work without a word a replica is taken for hung; default 30' },
    ...clusterOptions,
    ...commonOptions,
  },
  async run(options, terminal) {
    const front = await frontOptions(options, terminal);
    const where = await neededCluster(options, 'gateway');
    const ending = endingOf(options);
    const times = { patienceMs: milliseconds(options, 'patience'), hangMs: milliseconds(options, 'hang-after') };
    const { signal } = terminal;
    const { connectCluster } = await import('../../cluster/connect.js');
    const { Gateway } = await import('../../server/gateway/gateway.js');
    const cluster = await connectCluster({ ...where, signal });
    try {
      const gateway = await new Gateway({
        ...front,
        ...defined(times),
        cluster,
        onNote: (line) => terminal.note(`splitkv: ${line}`),
      }).listen();
      try {
        const { url } = gateway;
        const text = `Gateway of cluster ${cluster.name} at ${url}/v1. Ctrl-C ends.\n`;
        await say(options, terminal, { url, cluster: cluster.name }, text);
        await interrupted(signal);
        await endGently(ending, terminal, [gateway]);
      } finally {
        await gateway.close();
      }
    } finally {
      await cluster.close();
    }
    return 0;
  },
};
