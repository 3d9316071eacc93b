import { progressLine } from '../../app/shared/progress.js';
import { messageOf, usageError } from '../../base/errors.js';
import { grouped } from '../../base/math.js';
import { snakeOf } from '../../base/names.js';
import { checkName, type ClusterOptions } from '../../cluster/connect.js';
import { isStored } from '../../engine/contracts/cluster_options.js';
import type { ServingModel } from '../../index.js';
import type { Source } from '../../loader/index.js';
import { ApiServer, type ServerOptions } from '../../server/api_server.js';
import { isLoopback } from '../../server/http/access.js';
import type { Replica } from '../../server/replicas/replica.js';
import { machineName, readCluster } from '../cluster/cluster_options.js';
import { type Command, interrupted, say, type Terminal } from '../command.js';
import { endGently, endingOf, frontOptions, frontSpecs } from '../front_options.js';
import { hubNameOf, pull } from '../model_path.js';
import { loraSpecs, servedAdapters } from '../lora_options.js';
import { modelOptions, modelRequest, networkOptions } from '../model_options.js';
import { defined, type Options, without } from '../options.js';

export const command: Command = {
  summary: 'Serves a model by the OpenAI API over HTTP, many requests at once. Runs in Node, until Ctrl-C or SIGTERM.',
  words: ['model'],
  examples: [
    'splitkv serve smollm2-360m-instruct --port 8000',
    'splitkv serve ./my-model --listen 0.0.0.0 --api-key-file keys.txt --slots 32',
    'splitkv serve ./my-model --cluster nats://10.0.0.1:4222 --replica a',
  ],
  usage: 'serve MODEL [--port P] [options]',
  options: {
    ...frontSpecs,
    strict: { help: 'refuse request fields that are unknown here; default: ignore them, and name them in a header' },
    'served-name': { value: 'NAME', help: "what clients call the model; default: its folder's or file's name" },
    replica: {
      value: 'NAME',
      help: "--cluster: its name among those that take gateways' requests (splitkv gateway); default: this machine's and a number. It listens only with --port",
    },
    'remote-ranks': {
      help: "--cluster: the model's ranks are the cluster's (splitkv rank), named or counted by --ranks; a replica only with --replica",
    },
    slots: { value: 'N', help: 'answers generated side by side; default 16' },
    'kv-memory': {
      value: 'SIZE',
      help: "each rank's KV cache, such as 500MB; default: what the slots can use, up to 1GiB",
    },
    'tokens-per-iteration': {
      value: 'N',
      help: 'prompt and generated tokens computed in one go; more is sooner for prompts, fewer is steadier; default 512',
    },
    'micro-batches': {
      value: 'N',
      help: 'answers in N groups whose steps run side by side, so that ranks wait less for each other; default auto: pipelines and token plans',
    },
    'no-prefix-caching': { help: 'compute every prompt whole' },
    'max-queue': { value: 'N', help: 'answers that may wait; beyond them clients get 429; default 128' },
    'max-per-client': {
      value: 'N',
      help: 'answers that one key or address may have under way; default: half of all places',
    },
    'exit-on-failure': {
      help: 'end with code 1 when the GPU is lost for good, so that a supervisor starts the server again; default: go on and say 503',
    },
    ...loraSpecs,
    ...without(modelOptions, 'host', 'steps-in-flight'),
    context: { value: 'N', help: 'tokens of a request, prompt and answer; default: as for generate' },
  },
  async run(options, terminal) {
    const front = await frontOptions(options, terminal);
    const own: ServerOptions = {
      ...front,
      ...defined({
        modelName: options.text('served-name'),
        maxQueue: options.integer('max-queue', 0),
        maxPerClient: options.integer('max-per-client', 1),
      }),
      strict: options.has('strict'),
      // Whoever may ask from elsewhere doesn't fill this machine's disk.
      ...(isLoopback(front.host ?? '127.0.0.1') && !options.has('no-auth') && { pull: pullFor(options) }),
    };
    const place = await replicaPlace(options);
    const adapters = servedAdapters(options);
    const ending = endingOf(options);
    if (options.has('prefix-caching') && options.has('no-prefix-caching')) {
      throw usageError('--prefix-caching and --no-prefix-caching: leave one of them out');
    }
    const serving = defined({
      slots: options.integer('slots', 1, 256),
      kvMemory: options.bytes('kv-memory'),
      tokensPerIteration: options.integer('tokens-per-iteration', 1),
      microBatches:
        options.text('micro-batches') === 'auto' ? ('auto' as const) : options.integer('micro-batches', 1, 256),
      prefixCaching: options.has('no-prefix-caching') ? false : undefined,
    });
    const {
      model: where,
      options: load,
      onProgress,
      onWarning,
      signal,
    } = await modelRequest(options, terminal, true, options.has('remote-ranks'));
    // A port in use is told before the engine is read. A replica is asked by gateways, and listens where it is told to.
    const listens = !place || options.has('port');
    const server = listens ? await new ApiServer(own).listen() : undefined;
    const failed = new AbortController();
    failed.signal.addEventListener('abort', () => {
      terminal.note(`splitkv: the model failed for good: ${messageOf(failed.signal.reason)}`);
    });
    const over = options.has('exit-on-failure') ? AbortSignal.any([signal, failed.signal]) : signal;
    let model: ServingModel | undefined;
    let joined: Replica | undefined;
    try {
      const { serve } = await import('../../index.js');
      model = await withFiles(where, load.cluster ? undefined : place, signal, (files) =>
        serve(files, {
          ...load,
          ...adapters,
          ...serving,
          signal,
          onFailure: (error) => failed.abort(error),
          onWarning,
          onProgress: (progress) => onProgress(progressLine(progress)),
        }),
      );
      server?.open(model);
      if (place) joined = await join(place, own, model, terminal);
      const facts = { name: own.modelName ?? model.info.name, url: server?.url, replica: place?.name };
      await say(options, terminal, document(facts, model), ready(facts, model));
      await interrupted(over);
      // Who has requests here is told; there is nothing to wait for.
      if (over.aborted && !signal.aborted) {
        await joined?.close(0);
        await server?.close();
        return 1;
      }
      await endGently(ending, terminal, [joined ?? [], server ?? []].flat());
    } finally {
      await joined?.close(0);
      await server?.close();
      await model?.dispose();
    }
    return 0;
  },
};

/** Downloads for /api/pull, as `splitkv pull` does: by the same options of the Hub. */
const pullFor =
  (options: Options): NonNullable<ServerOptions['pull']> =>
  async (given, onProgress, signal) => {
    const network = networkOptions(options);
    const name = await hubNameOf(given, network);
    if (name === undefined)
      throw usageError(
        `model '${given.slice(0, 200)}' not found: expected ORG/NAME, or a name that \`splitkv models\` lists`,
      );
    await pull(name, { network, signal, onFiles: onProgress, onProgress: () => {}, onWarning: () => {} });
  };

interface ReplicaPlace {
  readonly name: string;
  readonly cluster: ClusterOptions;
}

/** The cluster that it joins, where it does. @throws SplitkvError `usage` */
async function replicaPlace(options: Options): Promise<ReplicaPlace | undefined> {
  const cluster = await readCluster(options);
  const name = options.text('replica');
  const needed = ['replica', 'remote-ranks'].find((option) => options.has(option));
  if (!cluster && needed) throw usageError(`--${needed}: name the cluster, --cluster nats://HOST:4222`);
  if (!cluster || (options.has('remote-ranks') && name === undefined)) return undefined;
  return { name: checkName(name ?? `${machineName(50, 'replica')}-${process.pid}`, '--replica'), cluster };
}

/** Loads a model; one that the cluster's server keeps, on ranks of this machine, by a connection of its own. */
async function withFiles(
  where: string,
  place: ReplicaPlace | undefined,
  signal: AbortSignal,
  work: (files: string | Source) => Promise<ServingModel>,
): Promise<ServingModel> {
  if (!place || !isStored(where)) return work(where);
  const { connectCluster } = await import('../../cluster/connect.js');
  const { openStored } = await import('../../cluster/store/model_store.js');
  const cluster = await connectCluster({ ...place.cluster, signal });
  try {
    return await work(await openStored(cluster, where, signal));
  } finally {
    await cluster.close();
  }
}

async function join(
  { name, cluster }: ReplicaPlace,
  { apiKeys: _keys, priorityKeys: _priority, ...own }: ServerOptions,
  model: ServingModel,
  terminal: Terminal,
): Promise<Replica> {
  return (await import('../../server/replicas/replica.js')).Replica.join({
    cluster: { ...cluster, signal: terminal.signal },
    name,
    model,
    server: own,
    onStrange: (error) => terminal.note(`splitkv: a message that is none of a gateway's: ${messageOf(error)}`),
    onNote: (line) => terminal.note(`splitkv: ${line}`),
  });
}

interface Place {
  readonly name: string;
  readonly url: string | undefined;
  readonly replica: string | undefined;
}

/** One line for people. */
function ready({ name, url, replica }: Place, { info }: ServingModel): string {
  const room = `context of ${grouped(info.contextLength)} tokens, ${info.slots} slots, KV cache for ${grouped(info.kvBlocks * 64)} tokens`;
  const where = `${info.plan.policy}, ${info.ranks.map(({ adapter }) => adapter).join(' + ')}`;
  const at = [
    ...(url === undefined ? [] : [`at ${url}/v1`]),
    ...(replica === undefined ? [] : [`as replica ${replica}`]),
  ];
  return `${name} ${at.join(' and ')} (${room}; ${where}). Ctrl-C ends.\n`;
}

function document({ name, url, replica }: Place, { info }: ServingModel): object {
  return {
    ...defined({ url, replica }),
    model: name,
    context: info.contextLength,
    ...snakeOf(info, 'slots', 'microBatches', 'kvBlocks'),
    plan: info.plan.policy,
    ranks: info.ranks.map((rank) => snakeOf(rank, 'adapter', 'weightBytes', 'kvBytes')),
  };
}
