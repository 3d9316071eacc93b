import { parseMemory } from '../../app/ranks/rank_options.js';
import { progressLine } from '../../app/shared/progress.js';
import { SplitkvError, usageError } from '../../base/errors.js';
import { grouped } from '../../base/math.js';
import type { AttentionDpOptions, ServingModel } from '../../index.js';
import { ApiServer, type RequestRecord, type ServerOptions } from '../../server/api_server.js';
import type { Command, Terminal } from '../command.js';
import { defined, modelOptions, modelRequest } from '../model_options.js';
import { version } from '../version.js';
import type { Options } from '../options.js';

const DEFAULT_PORT = 8000;
const DEFAULT_GRACE_SECONDS = 30;
const { host: _host, 'steps-in-flight': _steps, ...ownModelOptions } = modelOptions;

export const command: Command = {
  summary: 'Serves a model by the OpenAI API over HTTP, many requests at once. Runs in Node, until Ctrl-C or SIGTERM.',
  usage: 'serve --model MODEL [--port P] [options]',
  options: {
    port: { value: 'P', help: `default ${DEFAULT_PORT}; 0 takes a free one` },
    listen: { value: 'ADDRESS', help: 'default 127.0.0.1: nobody but this machine; 0.0.0.0 or :: for everybody' },
    'api-key': {
      value: 'KEY',
      multiple: true,
      help: 'let in only clients that have it; may be given several times; also from SPLITKV_API_KEY',
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
    'attention-dp-mode': {
      value: 'MODE',
      help: 'with --plan adp or token, which rank a request goes to: cost (default; by measured times) or trtllm',
    },
    'enable-balance': { help: 'with these plans, prompts wait until running them keeps the ranks evenly busy' },
    'timeout-iters': { value: 'N', help: 'iterations that they wait for every rank to have one; default 50' },
    'batching-wait-iters': { value: 'N', help: 'iterations that they then wait for more; default 10' },
    'no-prefix-caching': { help: 'compute every prompt whole' },
    'max-queue': { value: 'N', help: 'answers that may wait; beyond them clients get 429; default 128' },
    'max-body': { value: 'SIZE', help: "a request's bytes; default 1MiB" },
    'max-bodies': { value: 'SIZE', help: "all requests' bytes at once, one client's up to half; default 64MiB" },
    'max-connections': { value: 'N', help: 'connections at once; more are closed; default 1024' },
    grace: { value: 'SECONDS', help: `what requests under way get at the end; default ${DEFAULT_GRACE_SECONDS}` },
    ...ownModelOptions,
    context: { value: 'N', help: "tokens of a request, prompt and answer; default: the model's maximum, at most 4096" },
  },
  async run(options, terminal) {
    const own = { ...serverOptions(options, terminal), version: await version(), strict: options.has('strict') };
    const grace = options.number('grace', 'seconds of at least 0', (value) => value >= 0) ?? DEFAULT_GRACE_SECONDS;
    const serving = defined({
      slots: options.integer('slots', 1, 256),
      kvMemory: size(options, 'kv-memory'),
      tokensPerIteration: options.integer('tokens-per-iteration', 1),
      microBatches: microBatches(options),
      prefixCaching: options.has('no-prefix-caching') ? false : undefined,
      attentionDpConfig: attentionDp(options),
    });
    const { model: where, options: load, onProgress, onWarning, signal } = await modelRequest(options, terminal);
    // A port in use is told before the engine is read.
    const server = await ApiServer.listen(own);
    let model: ServingModel | undefined;
    try {
      const { serve } = await import('../../index.js');
      model = await serve(where, {
        ...load,
        ...serving,
        signal,
        onWarning,
        onProgress: (progress) => onProgress(progressLine(progress)),
      });
      server.open(model);
      await terminal.write(options.has('json') ? `${JSON.stringify(document(server, model))}\n` : ready(server, model));
      warnOfOpenDoor(own, terminal);
      await interrupted(signal);
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

/** What the options say of `attention_dp_config`; undefined where they say nothing. */
function attentionDp(options: Options): AttentionDpOptions | undefined {
  const balance = options.has('enable-balance') || undefined;
  for (const name of ['timeout-iters', 'batching-wait-iters']) {
    if (options.has(name) && !balance) throw usageError(`--${name} is about waiting: give --enable-balance too`);
  }
  const config = defined({
    mode: options.oneOf('attention-dp-mode', ['cost', 'trtllm']),
    enable_balance: balance,
    timeout_iters: options.integer('timeout-iters', 0),
    batching_wait_iters: options.integer('batching-wait-iters', 0),
  });
  return Object.keys(config).length > 0 ? config : undefined;
}

function serverOptions(options: Options, terminal: Terminal): ServerOptions {
  const keys = options.texts('api-key');
  const fromEnvironment = process.env['SPLITKV_API_KEY'] ?? '';
  if (keys.some((key) => !/^[\x21-\x7e]+$/.test(key))) {
    throw usageError('--api-key: expected letters, digits and signs without blanks, at least one');
  }
  const verbose = options.has('verbose');
  return {
    port: options.integer('port', 0, 65535) ?? DEFAULT_PORT,
    host: options.text('listen') ?? '127.0.0.1',
    apiKeys: fromEnvironment === '' ? keys : [...keys, fromEnvironment],
    origins: options.texts('allow-origin').map(checkedOrigin),
    ...defined({
      modelName: options.text('served-name'),
      maxQueue: options.integer('max-queue', 0),
      maxBodyBytes: size(options, 'max-body'),
      maxBodiesBytes: size(options, 'max-bodies'),
      maxConnections: options.integer('max-connections', 1),
      onRequest: verbose ? (record: RequestRecord) => terminal.note(requestLine(record)) : undefined,
    }),
    onError: (error, id) => {
      const message = error instanceof Error ? (verbose && error.stack) || error.message : String(error);
      terminal.note(`splitkv: ${error instanceof SplitkvError ? '' : 'internal error: '}${message} (request ${id})`);
    },
  };
}

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

const requestLine = ({ id, method, path, status, outcome, seconds }: RequestRecord): string =>
  `${method} ${path.slice(0, 200)} ${status} ${outcome} ${seconds.toFixed(3)} s ${id}`;

function warnOfOpenDoor({ host = '', apiKeys = [] }: ServerOptions, terminal: Terminal): void {
  if (apiKeys.length > 0 || /^(127\.|::1$|localhost$)/.test(host)) return;
  terminal.note(`splitkv: warning: whoever reaches ${host} may use this server; --api-key keeps strangers out`);
}

function interrupted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
