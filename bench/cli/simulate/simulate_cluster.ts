import { defined } from '../../../src/base/options.js';
import { setImmediate } from 'node:timers/promises';
import { didYouMean, formatError, throwIfAborted, usageError } from '../../../src/base/errors.js';
import { BOUND } from '../../../src/cluster/routing/choose_replica.js';
import { type ClusterStudyOptions, studyCluster } from '../../cluster/cluster_study.js';
import { Conversations, DEFAULT_CONVERSATIONS, meanPrompt } from '../../cluster/conversations.js';
import type { PrefixSource } from '../../cluster/prefix_source.js';
import { parsePrefixTrace, type PrefixTrace, recordedRate, Replay } from '../../cluster/prefix_trace.js';
import { POLICIES, type PolicyName } from '../../cluster/routers.js';
import { assumedBatchTps, DEFAULT_SPEED, type ServiceSpeed } from '../../cluster/service_time.js';
import { type Command, commonOptions, say } from '../../../src/cli/command.js';
import { inGroup, type Options, readGiven } from '../../../src/cli/options.js';
import { describeCluster } from './cluster_text.js';

const DEFAULTS = {
  replicas: 16,
  gateways: 2,
  requests: 20_000,
  load: 0.9,
  slots: 16,
  queue: 128,
  cacheTokens: 65_536,
  tellMs: 500,
  delayMs: 1,
} as const;

const traceOptions = inGroup('Requests: conversations below system prompts (assumed lengths), or a trace', {
  requests: { value: 'M', help: `requests that arrive; default ${DEFAULTS.requests}, of a trace all of it` },
  trace: {
    value: 'FILE',
    help: 'a trace with prefixes as Mooncake publishes them: a JSON object in each line, with timestamp (ms), input_length, output_length, hash_ids',
  },
  load: {
    value: 'L',
    help: `requests a second, as a share of what the replicas could do if nothing were cached; default ${DEFAULTS.load}, of a trace as recorded`,
  },
  rate: { value: 'R', help: 'the same in requests a second' },
  seed: { value: 'S', help: 'default 1' },
  tenants: { value: 'N', help: `system prompts; default ${DEFAULT_CONVERSATIONS.tenants}` },
  zipf: {
    value: 'Z',
    help: `how unequal tenants are: the k-th is asked in proportion to 1 / k^Z; default ${DEFAULT_CONVERSATIONS.zipf}`,
  },
  'system-tokens': { value: 'TOKENS', help: `mean; default ${DEFAULT_CONVERSATIONS.systemTokens}` },
  turns: { value: 'N', help: `mean questions of a conversation; default ${DEFAULT_CONVERSATIONS.turns}` },
  'user-tokens': { value: 'TOKENS', help: `mean of a question; default ${DEFAULT_CONVERSATIONS.userTokens}` },
  'answer-tokens': { value: 'TOKENS', help: `mean of an answer; default ${DEFAULT_CONVERSATIONS.answerTokens}` },
  'think-seconds': {
    value: 'S',
    help: `mean from an answer to the next question; default ${DEFAULT_CONVERSATIONS.thinkSeconds}`,
  },
} as const);
const CONVERSATION_OPTIONS = [
  'tenants',
  'zipf',
  'system-tokens',
  'turns',
  'user-tokens',
  'answer-tokens',
  'think-seconds',
] as const;

const replicaOptions = inGroup('A replica (assumed: a small model on one GPU)', {
  slots: { value: 'N', help: `requests that it computes side by side; default ${DEFAULTS.slots}` },
  queue: { value: 'N', help: `requests that may wait there; default ${DEFAULTS.queue}` },
  'cache-tokens': { value: 'TOKENS', help: `prompts and answers that it keeps; default ${DEFAULTS.cacheTokens}` },
  'prefill-tps': { value: 'N', help: `prompt tokens a second; default ${DEFAULT_SPEED.prefillTps}` },
  'decode-tps': {
    value: 'N',
    help: `generated tokens a second of one request alone; default ${DEFAULT_SPEED.decodeTps}`,
  },
  'batch-tps': {
    value: 'N',
    help: 'of full slots together; default: each further request makes a step 4% longer, which is 600 for 16 slots',
  },
  'chunk-tokens': { value: 'N', help: `prompt tokens of a step; default ${DEFAULT_SPEED.chunkTokens}` },
  'tell-ms': { value: 'MS', help: `from one telling of its state to the next; default ${DEFAULTS.tellMs}` },
  'delay-ms': { value: 'MS', help: `from a replica to a gateway and back, each; default ${DEFAULTS.delayMs}` },
} as const);

export const command: Command = {
  summary:
    'Runs gateways and replicas on a clock: which replica takes a request, by the policy that the gateway has (prefix; session: the ' +
    'same with a session id in each request) and by random, round_robin, least_loaded and two_choices.',
  usage: 'simulate cluster [options]',
  examples: [
    'splitkv simulate cluster --replicas 100 --gateways 4 --requests 100000',
    'splitkv simulate cluster --policy least_loaded,prefix --load 1.5 --json',
    'splitkv simulate cluster --trace conversation_trace.jsonl --rate 10',
  ],
  options: {
    replicas: { value: 'N', help: `up to 10000; default ${DEFAULTS.replicas}` },
    gateways: { value: 'N', help: `they don't see each other's requests; up to 256; default ${DEFAULTS.gateways}` },
    policy: { value: 'NAME[,NAME]', help: `all (default), or of ${POLICIES.join(', ')}` },
    bound: {
      value: 'B',
      help: `of prefix and session: how much more load, in requests per slot, a cached prefix is worth; default ${BOUND}`,
    },
    ...traceOptions,
    ...replicaOptions,
    ...commonOptions,
  },
  async run(options, terminal) {
    const policies = policiesOf(options);
    const speed = speedOf(options);
    const { source, ...requests } = await requestsOf(options, speed);
    const cacheBlocks = Math.floor((options.integer('cache-tokens', 1) ?? DEFAULTS.cacheTokens) / source().blockTokens);
    const study: ClusterStudyOptions = {
      replicas: replicasOf(options),
      gateways: options.integer('gateways', 1, 256) ?? DEFAULTS.gateways,
      requests: requests.count,
      seed: options.integer('seed', 0) ?? 1,
      slots: slotsOf(options),
      queue: options.integer('queue', 0) ?? DEFAULTS.queue,
      cacheBlocks,
      speed,
      tellSeconds: (options.number('tell-ms', POSITIVE, (ms) => ms > 0) ?? DEFAULTS.tellMs) / 1000,
      delaySeconds: (options.number('delay-ms', AT_LEAST_0, (ms) => ms >= 0) ?? DEFAULTS.delayMs) / 1000,
      bound: options.number('bound', AT_LEAST_0, (bound) => bound >= 0) ?? BOUND,
    };
    const rows = await studyCluster(policies, source, study, async (policy, arrived) => {
      terminal.progress(`simulating ${policy}`, { what: policy, done: arrived, total: study.requests, bytes: false });
      await setImmediate(); // lets Ctrl-C through
      throwIfAborted(terminal.signal, 'the simulation');
    });
    const parameters = { ...study, ...requests.parameters };
    await say(options, terminal, { rows, parameters }, describeCluster(rows, parameters));
    return 0;
  },
};

/** Fewer say nothing of a quantile. */
const FEWEST_REQUESTS = 100;

const POSITIVE = 'a number above 0';
const AT_LEAST_0 = 'a number of at least 0';
const positive = (options: Options, name: string): number | undefined => options.number(name, POSITIVE, (n) => n > 0);
const replicasOf = (options: Options): number => options.integer('replicas', 1, 10_000) ?? DEFAULTS.replicas;
const slotsOf = (options: Options): number => options.integer('slots', 1, 4096) ?? DEFAULTS.slots;

function policiesOf(options: Options): readonly PolicyName[] {
  const text = options.text('policy') ?? 'all';
  if (text === 'all') return POLICIES;
  const names = text.split(',');
  const wrong = names.find((name) => !(POLICIES as readonly string[]).includes(name));
  if (wrong !== undefined) {
    throw usageError(
      `--policy ${text}: '${wrong}' is none.${didYouMean(wrong, POLICIES)} Expected all, or some of ${POLICIES.join(', ')}`,
    );
  }
  return [...new Set(names as PolicyName[])];
}

function speedOf(options: Options): ServiceSpeed {
  const slots = slotsOf(options);
  const decodeTps = positive(options, 'decode-tps') ?? DEFAULT_SPEED.decodeTps;
  const speed = {
    prefillTps: positive(options, 'prefill-tps') ?? DEFAULT_SPEED.prefillTps,
    decodeTps,
    batchTps: positive(options, 'batch-tps') ?? assumedBatchTps(decodeTps, slots),
    chunkTokens: options.integer('chunk-tokens', 1) ?? DEFAULT_SPEED.chunkTokens,
  };
  const most = decodeTps * slots;
  if (speed.batchTps < decodeTps || speed.batchTps > most) {
    throw usageError(
      `--batch-tps ${speed.batchTps}: expected from ${decodeTps} (one request alone, --decode-tps) to ${most} (as fast in each of the slots)`,
    );
  }
  return speed;
}

interface Requests {
  readonly source: () => PrefixSource;
  readonly count: number;
  readonly parameters: Readonly<Record<string, unknown>>;
}

async function requestsOf(options: Options, speed: ServiceSpeed): Promise<Requests> {
  const rate = positive(options, 'rate');
  const load = positive(options, 'load');
  if (rate !== undefined && load !== undefined) throw usageError('--rate and --load say the same: give one of them');
  const most = options.integer('requests', FEWEST_REQUESTS, 10_000_000);
  const trace = await readTrace(options, most ?? Infinity);
  const perReplica = (input: number, output: number): number =>
    1 / (input / speed.prefillTps + output / speed.batchTps);
  const rateOf = (share: number, input: number, output: number): number =>
    share * replicasOf(options) * perReplica(input, output);
  if (!trace) {
    const lengths = conversationOptions(options);
    const perSecond = rate ?? rateOf(load ?? DEFAULTS.load, meanPrompt(lengths), lengths.answerTokens);
    const shape = { ...lengths, rate: perSecond / lengths.turns, seed: options.integer('seed', 0) ?? 1 };
    return {
      source: () => new Conversations(shape),
      count: most ?? DEFAULTS.requests,
      parameters: { ...lengths, rate: perSecond },
    };
  }
  const extra = CONVERSATION_OPTIONS.find((name) => options.has(name));
  if (extra !== undefined) throw usageError(`--${extra} is for conversations: leave it out, or --trace`);
  const mean = (of: 'inputTokens' | 'outputTokens'): number =>
    trace.requests.reduce((sum, { request }) => sum + request[of], 0) / trace.requests.length;
  const asked = rate ?? (load && rateOf(load, mean('inputTokens'), mean('outputTokens')));
  if (recordedRate(trace) === Infinity && asked !== undefined) {
    throw usageError('all requests of the trace come at once, at no rate: leave --rate and --load out');
  }
  return {
    source: () => new Replay(trace, asked),
    count: trace.requests.length,
    parameters: { mean_in: mean('inputTokens'), mean_out: mean('outputTokens'), rate: asked ?? recordedRate(trace) },
  };
}

function conversationOptions(options: Options): typeof DEFAULT_CONVERSATIONS {
  const given = {
    tenants: options.integer('tenants', 1, 1_000_000),
    zipf: options.number('zipf', AT_LEAST_0, (n) => n >= 0),
    systemTokens: options.number('system-tokens', AT_LEAST_0, (n) => n >= 0),
    turns: options.number('turns', 'a number of at least 1', (n) => n >= 1),
    userTokens: positive(options, 'user-tokens'),
    answerTokens: positive(options, 'answer-tokens'),
    thinkSeconds: options.number('think-seconds', AT_LEAST_0, (n) => n >= 0),
  };
  return { ...DEFAULT_CONVERSATIONS, ...defined(given) };
}

async function readTrace(options: Options, most: number): Promise<PrefixTrace | undefined> {
  const file = options.text('trace');
  if (file === undefined) return undefined;
  const text = await readGiven('trace', file);
  const trace = parsePrefixTrace(text, file, most);
  if (trace.requests.length >= FEWEST_REQUESTS) return trace;
  throw formatError(`--trace ${file} has ${trace.requests.length} requests: expected at least ${FEWEST_REQUESTS}`);
}
