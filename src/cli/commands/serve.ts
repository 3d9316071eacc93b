import { readFile } from 'node:fs/promises';
import { parseMemory } from '../../app/ranks/rank_options.js';
import { progressLine } from '../../app/shared/progress.js';
import { SplitkvError, usageError } from '../../base/errors.js';
import { grouped } from '../../base/math.js';
import type { ServingModel } from '../../index.js';
import { ApiServer, type RequestRecord, type ServerOptions } from '../../server/api_server.js';
import { isLoopback } from '../../server/http/hosts.js';
import { type Command, type Terminal, TERMINATED } from '../command.js';
import { modelOptions, modelRequest } from '../model_options.js';
import { version } from '../version.js';
import { defined, type Options } from '../options.js';

const DEFAULT_PORT = 8000;
const DEFAULT_GRACE_SECONDS = 30;
const DEFAULT_DRAIN_SECONDS = 5;
const { host: _host, 'steps-in-flight': _steps, ...ownModelOptions } = modelOptions;

export const command: Command = {
  summary: 'Serves a model by the OpenAI API over HTTP, many requests at once. Runs in Node, until Ctrl-C or SIGTERM.',
  words: ['model'],
  examples: [
    'splitkv serve smollm2-360m-instruct --port 8000',
    'splitkv serve ./my-model --listen 0.0.0.0 --api-key-file keys.txt --slots 32',
  ],
  usage: 'serve MODEL [--port P] [options]',
  options: {
    port: { value: 'P', help: `default ${DEFAULT_PORT}; 0 takes a free one` },
    listen: { value: 'ADDRESS', help: 'default 127.0.0.1: nobody but this machine; 0.0.0.0 or :: for everybody' },
    'api-key': {
      value: 'KEY',
      multiple: true,
      help: 'let in only clients that have it; may be given several times; also from SPLITKV_API_KEY',
    },
    'api-key-file': { value: 'FILE', help: 'more keys, one on each line' },
    'no-auth': { help: 'let in everybody, also from other machines' },
    'protect-metrics': { help: '/metrics needs a key, too' },
    'allowed-host': {
      value: 'NAME',
      multiple: true,
      help: "a host name that requests may ask for, or '*'; default: localhost where only this machine may connect, else any",
    },
    'allow-origin': { value: 'ORIGIN', multiple: true, help: "let pages of this origin ask, or '*'; default none" },
    strict: { help: 'refuse request fields that are unknown here; default: ignore them, and name them in a header' },
    'served-name': { value: 'NAME', help: "what clients call the model; default: its folder's or file's name" },
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
    'remote-ranks': {
      help: "--cluster: the model's ranks are the cluster's (splitkv rank), named or counted by --ranks",
    },
    'no-prefix-caching': { help: 'compute every prompt whole' },
    'max-queue': { value: 'N', help: 'answers that may wait; beyond them clients get 429; default 128' },
    'max-body': { value: 'SIZE', help: "a request's bytes; default 1MiB" },
    'max-bodies': { value: 'SIZE', help: "all requests' bytes at once, one client's up to half; default 64MiB" },
    'max-connections': { value: 'N', help: 'connections at once; more are closed; default 1024' },
    'max-per-client': {
      value: 'N',
      help: 'answers that one key or address may have under way; default: half of all places',
    },
    'keep-alive': { value: 'SECONDS', help: 'that a connection waits for its next request; default 75' },
    'drain-delay': {
      value: 'SECONDS',
      help: `between SIGTERM, from when on /readyz says 503, and the last request taken; default ${DEFAULT_DRAIN_SECONDS}`,
    },
    'exit-on-failure': {
      help: 'end with code 1 when the GPU is lost for good, so that a supervisor starts the server again; default: go on and say 503',
    },
    grace: { value: 'SECONDS', help: `what requests under way get at the end; default ${DEFAULT_GRACE_SECONDS}` },
    ...ownModelOptions,
    context: { value: 'N', help: "tokens of a request, prompt and answer; default: the model's maximum, at most 4096" },
  },
  async run(options, terminal) {
    const own = {
      ...(await serverOptions(options, terminal)),
      version: await version(),
      strict: options.has('strict'),
    };
    const drain = seconds(options, 'drain-delay') ?? DEFAULT_DRAIN_SECONDS;
    const grace = seconds(options, 'grace') ?? DEFAULT_GRACE_SECONDS;
    const serving = defined({
      slots: options.integer('slots', 1, 256),
      kvMemory: size(options, 'kv-memory'),
      tokensPerIteration: options.integer('tokens-per-iteration', 1),
      microBatches: microBatches(options),
      prefixCaching: options.has('no-prefix-caching') ? false : undefined,
    });
    const { model: where, options: load, onProgress, onWarning, signal } = await modelRequest(options, terminal);
    if (load.cluster && !options.has('remote-ranks')) {
      throw usageError(
        "serve --cluster: add --remote-ranks, with --ranks and --plan, for a model on the cluster's ranks",
      );
    }
    // A port in use is told before the engine is read.
    const server = await ApiServer.listen(own);
    const failed = new AbortController();
    failed.signal.addEventListener('abort', () => {
      terminal.note(`splitkv: the model failed for good: ${messageOf(failed.signal.reason)}`);
    });
    const over = options.has('exit-on-failure') ? AbortSignal.any([signal, failed.signal]) : signal;
    let model: ServingModel | undefined;
    try {
      const { serve } = await import('../../index.js');
      model = await serve(where, {
        ...load,
        ...serving,
        signal,
        onFailure: (error) => failed.abort(error),
        onWarning,
        onProgress: (progress) => onProgress(progressLine(progress)),
      });
      server.open(model);
      await terminal.write(options.has('json') ? `${JSON.stringify(document(server, model))}\n` : ready(server, model));
      await interrupted(over);
      // Who has requests here is told; there is nothing to wait for.
      if (over.aborted && !signal.aborted) {
        await server.close();
        return 1;
      }
      // Whoever presses Ctrl-C waits for it; whoever sends SIGTERM may have a balancer that must notice first.
      if (isTerminated(signal) && drain > 0) {
        terminal.note(`splitkv: no longer ready; requests are taken for another ${drain} s`);
        await server.drain(drain * 1000);
      }
      if (server.live > 0) terminal.note(`splitkv: ending; ${server.live} requests get ${grace} s to finish`);
      await server.close(grace * 1000);
    } finally {
      await server.close();
      await model?.dispose();
    }
    return 0;
  },
};

const microBatches = (options: Options): number | 'auto' | undefined =>
  options.text('micro-batches') === 'auto' ? 'auto' : options.integer('micro-batches', 1, 256);

const seconds = (options: Options, name: string): number | undefined =>
  options.number(name, 'seconds of at least 0', (value) => value >= 0);

/**
 * Keys that let clients in: of --api-key, --api-key-file and SPLITKV_API_KEY.
 * @throws SplitkvError `usage` for one that no client can send, and where a place that should have keys has none: an open door must be
 *   asked for
 */
async function apiKeys(options: Options): Promise<string[]> {
  const keys: [place: string, key: string][] = options.texts('api-key').map((key) => ['--api-key', key]);
  const fromEnvironment = process.env['SPLITKV_API_KEY'];
  if (fromEnvironment !== undefined) {
    const key = fromEnvironment.trim();
    if (key === '') throw usageError('SPLITKV_API_KEY is empty; put a key there, or unset it');
    keys.push(['SPLITKV_API_KEY', key]);
  }
  const file = options.text('api-key-file');
  if (file !== undefined) {
    const lines = (await keyFile(file)).split('\n').map((line) => line.trim());
    const found = lines.filter((line) => line !== '');
    if (found.length === 0) throw usageError(`--api-key-file ${file}: there is no key in it`);
    keys.push(...found.map((key): [string, string] => [`--api-key-file ${file}`, key]));
  }
  for (const [place, key] of keys) {
    if (!/^[\x21-\x7e]+$/.test(key)) {
      throw usageError(`${place}: expected letters, digits and signs without blanks, at least one`);
    }
  }
  return keys.map(([, key]) => key);
}

async function keyFile(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    throw usageError(
      `--api-key-file ${file}: can't be read (${(error as NodeJS.ErrnoException).code ?? String(error)})`,
    );
  }
}

async function serverOptions(options: Options, terminal: Terminal): Promise<ServerOptions> {
  const keys = await apiKeys(options);
  const host = options.text('listen') ?? '127.0.0.1';
  const needsKeys = !isLoopback(host) && !options.has('no-auth');
  if (needsKeys && keys.length === 0) {
    throw usageError(
      `--listen ${host}: whoever reaches it could use this server; give --api-key (or --api-key-file, SPLITKV_API_KEY), or --no-auth`,
    );
  }
  if (options.has('no-auth') && keys.length > 0) throw usageError('--no-auth: leave out the keys, or this option');
  if (options.has('protect-metrics') && keys.length === 0) {
    throw usageError('--protect-metrics: there is no key; give --api-key');
  }
  const verbose = options.has('verbose');
  return {
    port: options.integer('port', 0, 65535) ?? DEFAULT_PORT,
    host,
    apiKeys: keys,
    protectMetrics: options.has('protect-metrics'),
    origins: options.texts('allow-origin').map(checkedOrigin),
    ...defined({
      modelName: options.text('served-name'),
      allowedHosts: options.texts('allowed-host').length > 0 ? options.texts('allowed-host') : undefined,
      maxPerClient: options.integer('max-per-client', 1),
      keepAliveMs: milliseconds(seconds(options, 'keep-alive')),
      maxQueue: options.integer('max-queue', 0),
      maxBodyBytes: size(options, 'max-body'),
      maxBodiesBytes: size(options, 'max-bodies'),
      maxConnections: options.integer('max-connections', 1),
      onRequest: verbose ? (record: RequestRecord) => terminal.note(requestLine(record)) : undefined,
    }),
    onError: (error, { id, trace }) => {
      const message = (verbose && error instanceof Error && error.stack) || messageOf(error);
      const request = `request ${id}${trace === undefined ? '' : `, trace ${trace}`}`;
      terminal.note(`splitkv: ${error instanceof SplitkvError ? '' : 'internal error: '}${message} (${request})`);
    },
  };
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const milliseconds = (value: number | undefined): number | undefined =>
  value === undefined ? undefined : value * 1000;

function checkedOrigin(text: string): string {
  if (text === '*') return text;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url && url.origin === text) return text;
  throw usageError(
    `--allow-origin ${text}: expected an origin such as ${url && url.origin !== 'null' ? url.origin : 'https://example.com'}, or *`,
  );
}

function size(options: Options, name: string): number | undefined {
  const text = options.text(name);
  if (text === undefined) return undefined;
  const bytes = parseMemory(text, `--${name} ${text}`);
  if (typeof bytes === 'number' && bytes > 0) return bytes;
  throw usageError(`--${name} ${text}: expected one size above 0, such as 500MB`);
}

/** One line for people. */
function ready({ url, modelName }: ApiServer, { info }: ServingModel): string {
  const room = `${info.slots} slots, KV cache for ${grouped(info.kvBlocks * 64)} tokens`;
  const where = `${info.plan.policy}, ${info.ranks.map(({ adapter }) => adapter).join(' + ')}`;
  return `${modelName} at ${url}/v1 (${room}; ${where}). Ctrl-C ends.\n`;
}

function document({ url, modelName }: ApiServer, { info }: ServingModel): object {
  return {
    url,
    model: modelName,
    context: info.contextLength,
    slots: info.slots,
    micro_batches: info.microBatches,
    kv_blocks: info.kvBlocks,
    plan: info.plan.policy,
    ranks: info.ranks.map(({ adapter, weightBytes, kvBytes }) => ({
      adapter,
      weight_bytes: weightBytes,
      kv_bytes: kvBytes,
    })),
  };
}

const requestLine = ({ id, trace, method, path, status, outcome, seconds }: RequestRecord): string =>
  `${method} ${path.slice(0, 200)} ${status} ${outcome} ${seconds.toFixed(3)} s ${id}${trace === undefined ? '' : ` ${trace}`}`;

/** By SIGTERM rather than by Ctrl-C. */
const isTerminated = ({ reason }: AbortSignal): boolean => reason instanceof Error && reason.message === TERMINATED;

function interrupted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
