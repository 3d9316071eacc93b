import { usageError } from '../../base/errors.js';
import { clusterOptions, readCluster } from '../cluster/cluster_options.js';
import { type Command, commonOptions } from '../command.js';
import { endingOf, frontOptions, frontSpecs, interrupted, isTerminated, seconds } from '../front_options.js';
import { defined } from '../options.js';
import { version } from '../version.js';

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
    'restart-stream': {
      help: 'where a replica goes away and another one would not say the same, begin the stream again; default: an error',
    },
    patience: { value: 'SECONDS', help: 'that a request whose replica went away waits for another one; default 15' },
    'hang-after': { value: 'SECONDS', help: 'of work without a word a replica is taken for hung; default 30' },
    ...clusterOptions,
    ...commonOptions,
  },
  async run(options, terminal) {
    const front = await frontOptions(options, terminal);
    const where = await readCluster(options);
    if (!where) throw usageError('--cluster is missing: name its NATS server, --cluster nats://HOST:4222');
    const { drain, grace } = endingOf(options);
    const times = {
      patienceMs: milliseconds(seconds(options, 'patience')),
      hangMs: milliseconds(seconds(options, 'hang-after')),
    };
    const { signal } = terminal;
    const { connectCluster } = await import('../../cluster/connect.js');
    const { Gateway } = await import('../../server/gateway/gateway.js');
    const cluster = await connectCluster({ ...where, signal });
    try {
      const gateway = await Gateway.listen({
        ...front,
        ...defined(times),
        cluster,
        version: await version(),
        restartStream: options.has('restart-stream'),
        onNote: (line) => terminal.note(`splitkv: ${line}`),
      });
      try {
        const { url } = gateway;
        const facts = { url, cluster: cluster.name };
        await terminal.write(
          options.has('json')
            ? `${JSON.stringify(facts)}\n`
            : `Gateway of cluster ${cluster.name} at ${url}/v1. Ctrl-C ends.\n`,
        );
        await interrupted(signal);
        if (isTerminated(signal) && drain > 0) {
          terminal.note(`splitkv: no longer ready; requests are taken for another ${drain} s`);
          await gateway.drain(drain * 1000);
        }
        if (gateway.live > 0) terminal.note(`splitkv: ending; ${gateway.live} requests get ${grace} s to finish`);
        await gateway.close(grace * 1000);
      } finally {
        await gateway.close();
      }
    } finally {
      await cluster.close();
    }
    return 0;
  },
};

const milliseconds = (value: number | undefined): number | undefined =>
  value === undefined ? undefined : value * 1000;
