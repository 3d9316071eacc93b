import { pathToFileURL } from 'node:url';
import { namedAdapter } from '../../engine/planning/rank_adapters.js';
import { clusterOptions, machineName, neededCluster } from '../cluster/cluster_options.js';
import { type Command, commonOptions, interrupted, say } from '../command.js';
import { defined, inGroup, type OptionSpecs } from '../options.js';

export const command: Command = {
  summary:
    'Joins a cluster as a rank: a GPU of this machine waits there for a coordinator (`splitkv generate --cluster ... --ranks ...`), runs a part of its model, ' +
    'and is free again when that ends. Whoever may use the cluster may load models on it: see docs/cluster.md.',
  usage: 'rank --cluster nats://HOST [options]',
  examples: [
    'splitkv rank --cluster nats://10.0.0.1:4222 --name gpu-a --token-file token.txt',
    'splitkv rank --cluster nats://10.0.0.1:4222 --models /srv/models --memory 6GB',
  ],
  options: {
    ...clusterOptions,
    ...inGroup('Rank', {
      name: { value: 'NAME', help: "of the rank in the cluster; default: this machine's name" },
      adapter: { value: 'NAME', help: "part of an adapter's name (see `splitkv adapters`); default: the fastest GPU" },
      models: {
        value: 'FOLDER',
        help: 'where this machine has models that the coordinator names by a folder; default: only models by URL and of the Hub',
      },
      memory: { value: 'SIZE', help: 'GPU memory that it gives, such as 6GB; default: no limit' },
    } as const satisfies OptionSpecs),
    ...commonOptions,
  },
  async run(options, terminal) {
    const cluster = await neededCluster(options, 'rank');
    const models = options.text('models');
    const memory = options.bytes('memory');
    const adapter = options.text('adapter');
    const { hostRank } = await import('../../cluster/ranks/rank_host.js');
    const host = await hostRank({
      cluster: { ...cluster, signal: terminal.signal },
      name: options.text('name') ?? machineName(63, 'rank'),
      adapter: adapter === undefined ? {} : namedAdapter(adapter),
      ...defined({ models: models === undefined ? undefined : pathToFileURL(models).href, memory }),
      note: (line) => terminal.note(`splitkv: ${line}`),
    });
    const { name, adapter: found, version } = host.card;
    const card = { name, adapter: found.name, version, cluster: cluster.name ?? 'main' };
    await say(
      options,
      terminal,
      card,
      `rank ${name} (${found.name}) waits in cluster ${card.cluster}; Ctrl-C ends it\n`,
    );
    await interrupted(terminal.signal);
    await host.close();
    return 0;
  },
};
