import { usageError } from '../../base/errors.js';
import { alignedTable } from '../../base/aligned_table.js';
import { formatBytes } from '../../base/math.js';
import { type Command, commonOptions, say, tell, type Terminal } from '../command.js';
import { hubOptions, networkOptions, tellingOf } from '../model_options.js';
import { inGroup, type Options, type OptionSpecs } from '../options.js';
import { clusterOptions, neededCluster } from './cluster_options.js';
import type { Cluster } from '../../cluster/connect.js';

export const command: Command = {
  summary:
    "Puts a model's files into a cluster once, where its NATS server keeps them: every rank then reads its slice from there, " +
    'by the name cluster:NAME. What the cluster has already is not sent, and what broke off goes on. Needs a server with JetStream.',
  usage: 'push MODEL --cluster nats://HOST [options]\nsplitkv push --list|--remove NAME --cluster nats://HOST',
  words: ['MODEL'],
  examples: [
    'splitkv push smollm2-360m-instruct --cluster nats://10.0.0.1:4222 --token-file token.txt',
    'splitkv push ./my-model --name chat-2 --cluster nats://10.0.0.1:4222',
    'splitkv generate cluster:chat-2 "Why is the sky blue?" --cluster nats://10.0.0.1:4222 --ranks 2',
  ],
  options: {
    ...inGroup('Push', {
      name: { value: 'NAME', help: "of the model in the cluster; default: its folder's, file's or repository's" },
      list: { help: 'the models that the cluster has' },
      remove: {
        value: 'NAME',
        help: 'remove a model; models that are loaded go on, but ranks that are lost then find it gone',
      },
    } as const satisfies OptionSpecs),
    ...hubOptions,
    ...clusterOptions,
    ...commonOptions,
  },
  async run(options, terminal) {
    const where = await neededCluster(options, 'push');
    const given = ['MODEL', 'list', 'remove'].filter((name) => options.has(name));
    if (given.length !== 1) throw usageError('push: name a model to push, or give --list, or --remove NAME');
    if (options.has('name') && given[0] !== 'MODEL') throw usageError('--name is of a model that is pushed');
    const { connectCluster } = await import('../../cluster/connect.js');
    const cluster = await connectCluster({ ...where, signal: terminal.signal });
    try {
      if (given[0] === 'list') await list(cluster, options, terminal);
      else if (given[0] === 'remove') await remove(cluster, options, terminal);
      else await push(cluster, options, terminal);
    } finally {
      await cluster.close();
    }
    return 0;
  },
};

const waiting = (terminal: Terminal) => (): void =>
  terminal.note("splitkv: somebody else changes the cluster's models: waiting");

async function push(cluster: Cluster, options: Options, terminal: Terminal): Promise<void> {
  const { signal } = terminal;
  const { modelPath } = await import('../model_path.js');
  const path = await modelPath(options.text('MODEL')!, {
    network: networkOptions(options),
    pull: true,
    ...tellingOf(options, terminal),
  });
  const { openSource } = await import('../../loader/index.js');
  const { pushModel } = await import('../../cluster/store/push.js');
  const pushed = await pushModel(cluster, await openSource(path, signal), {
    name: options.text('name'),
    signal,
    onWait: waiting(terminal),
    onProgress: (done, total) => {
      const line = `pushing: ${formatBytes(done)} of ${formatBytes(total)}`;
      terminal.progress(line, { what: 'pushing', done, total, bytes: true });
    },
  });
  const { name, digest, files, bytes, sentBytes } = pushed;
  const model = `cluster:${name}`;
  await say(options, terminal, { model, digest, files, bytes, sent_bytes: sentBytes }, `${model}\n`);
  if (options.has('json')) return;
  const sent = sentBytes === 0 ? 'all of it was there' : `${formatBytes(sentBytes)} sent`;
  terminal.note(
    `${name} (${digest.slice(0, 12)}) in cluster ${cluster.name}: ${files} files, ${formatBytes(bytes)}; ${sent}`,
  );
}

async function list(cluster: Cluster, options: Options, terminal: Terminal): Promise<void> {
  const { listStored } = await import('../../cluster/store/model_store.js');
  const models = await listStored(cluster, terminal.signal);
  if (options.has('json')) return terminal.write(`${JSON.stringify(models)}\n`);
  if (models.length === 0) return terminal.note(`cluster ${cluster.name} has no models: splitkv push MODEL`);
  const rows = models.map(({ name, bytes, pushed, digest }) => {
    const time = pushed.slice(0, 16).replace('T', ' ');
    return [`cluster:${name}`, digest.slice(0, 12), time, formatBytes(bytes)];
  });
  await tell(terminal, alignedTable([['model', 'digest', 'pushed (UTC)', 'size'], ...rows], 3));
}

async function remove(cluster: Cluster, options: Options, terminal: Terminal): Promise<void> {
  const name = options.text('remove')!;
  const { removeStored } = await import('../../cluster/store/push.js');
  const freed = await removeStored(cluster, name, { signal: terminal.signal, onWait: waiting(terminal) });
  if (options.has('json')) return terminal.write(`${JSON.stringify({ removed: name, freed_bytes: freed })}\n`);
  terminal.note(`${name} is removed from cluster ${cluster.name}: ${formatBytes(freed)} freed`);
}
