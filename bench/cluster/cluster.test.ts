import { describe, expect, test } from 'vitest';
import { Random } from '../../src/base/random.js';
import { mixed } from '../../src/cluster/routing/prefixes.js';
import type { ClusterFigures } from './cluster_meter.js';
import { studyCluster } from './cluster_study.js';
import { Conversations, DEFAULT_CONVERSATIONS, meanPrompt } from './conversations.js';
import type { Arrival, PrefixRequest, PrefixSource } from './prefix_source.js';
import { parsePrefixTrace, Replay } from './prefix_trace.js';
import { POLICIES, type PolicyName } from './routers.js';
import { assumedBatchTps, DEFAULT_SPEED, StepTime } from './service_time.js';
import { type ClusterOptions, ClusterRun } from './simulate_cluster.js';
import { type Job, SimulatedReplica } from './simulated_replica.js';

const options: ClusterOptions = {
  policy: 'random',
  replicas: 1,
  gateways: 1,
  requests: 60_000,
  seed: 1,
  slots: 1,
  queue: 1e9,
  cacheBlocks: 1,
  speed: { ...DEFAULT_SPEED, batchTps: assumedBatchTps(DEFAULT_SPEED.decodeTps, 1) },
  tellSeconds: 1,
  delaySeconds: 0,
};

function run(source: PrefixSource, given: Partial<ClusterOptions>): ClusterFigures {
  const cluster = new ClusterRun(source, { ...options, ...given });
  expect(cluster.advance(Infinity)).toBe(false);
  return cluster.figures;
}

const plain = (inputTokens: number, outputTokens: number, prefix = new Uint32Array(0)): PrefixRequest => ({
  inputTokens,
  outputTokens,
  prefix,
  whole: prefix,
  seenTokens: 0,
  session: 'x',
});

/** Requests that have nothing in common, at random moments. */
class Poisson implements PrefixSource {
  readonly blockTokens = 64;
  readonly #random = new Random(7);
  #clock = 0;

  constructor(
    private readonly rate: number,
    private readonly make: (exponential: (mean: number) => number) => PrefixRequest,
  ) {}

  next(): Arrival {
    const exponential = (mean: number): number => -mean * Math.log(1 - this.#random.next());
    this.#clock += exponential(1 / this.rate);
    return { at: this.#clock, request: this.make(exponential) };
  }

  after(): undefined {}
}

/** Probability that one who comes waits, of c servers and a load of a (Erlang C), and that all are taken if nobody waits (Erlang B). */
function erlang(c: number, a: number): { readonly b: number; readonly c: number } {
  let b = 1;
  for (let servers = 1; servers <= c; servers++) b = (a * b) / (servers + a * b);
  return { b, c: b / (1 - (a / c) * (1 - b)) };
}

describe('waiting times are those of the theory', () => {
  const near = (value: number, expected: number, part = 0.05): void => {
    expect(Math.abs(value / expected - 1), `${value} instead of ${expected}`).toBeLessThan(part);
  };

  test.each([
    [1, 0.5],
    [1, 0.8],
    [10, 0.7],
  ])('M/D/1: prompts of one length, %d replicas at random, load %d', (replicas, load) => {
    const service = 1000 / DEFAULT_SPEED.prefillTps;
    const figures = run(new Poisson((load * replicas) / service, () => plain(1000, 1)), {
      replicas,
      requests: 100_000,
    });
    near(figures.ttft.meanSeconds, service + (load * service) / (2 * (1 - load)));
    near(figures.busy, load, 0.02);
    expect(figures.meanSeconds).toBeCloseTo(figures.ttft.meanSeconds, 9);
  });

  test('M/M/c: a slot each, answers of exponential length', () => {
    const [slots, load, mean] = [4, 0.8, 200];
    const speed = { ...DEFAULT_SPEED, prefillTps: 1e12, decodeTps: 100, batchTps: 400 };
    const service = mean / speed.decodeTps;
    const source = new Poisson((load * slots) / service, (exponential) => plain(1, 1 + exponential(mean)));
    const figures = run(source, { slots, speed });
    near(figures.ttft.meanSeconds, (erlang(slots, load * slots).c * service) / (slots * (1 - load)), 0.08);
    near(figures.meanSeconds - figures.ttft.meanSeconds, service, 0.02);
  });

  test('M/M/c/c: who finds no slot is refused (Erlang B)', () => {
    const [slots, load, mean] = [5, 0.9, 200];
    const speed = { ...DEFAULT_SPEED, prefillTps: 1e12, decodeTps: 100, batchTps: 500 };
    const rate = (load * slots * speed.decodeTps) / mean;
    const source = new Poisson(rate, (exponential) => plain(1, 1 + exponential(mean)));
    near(run(source, { slots, speed, queue: 0 }).refused, erlang(slots, load * slots).b);
  });

  test('processor sharing: a batch that is no faster than one request alone', () => {
    const [load, mean] = [0.7, 200];
    const speed = { ...DEFAULT_SPEED, prefillTps: 1e12, decodeTps: 100, batchTps: 100 };
    const service = mean / speed.decodeTps;
    const source = new Poisson(load / service, (exponential) => plain(1, 1 + exponential(mean)));
    near(run(source, { slots: 4096, speed }).meanSeconds, service / (1 - load));
  });
});

describe('a replica', () => {
  const job = (request: PrefixRequest): Job => ({
    request,
    index: 0,
    gateway: 0,
    arrivedAt: 0,
    refusedBy: undefined,
    replica: 0,
    cachedTokens: 0,
    leftTokens: 0,
  });
  const prefix = Uint32Array.from({ length: 4 }, (_, block) => mixed(block));

  test('by hand: prompts one after the other, generated rows beside them, then what is cached is not computed', () => {
    // A step: 0.1 s with a chunk of 100, 0.01 s and 0.01 s a row without.
    const speed = { prefillTps: 1000, decodeTps: 50, batchTps: 200 / 3, chunkTokens: 100 };
    const time = new StepTime(speed, 2);
    expect(time.decode(1)).toBeCloseTo(0.02, 12);
    expect(time.decode(2)).toBeCloseTo(0.03, 12);
    expect(time.withPrefill(1)).toBeCloseTo(0.11, 12);
    const replica = new SimulatedReplica({ slots: 2, room: 3, cacheBlocks: 100, blockTokens: 64 }, time);
    const [first, second, third] = [job(plain(256, 11, prefix)), job(plain(100, 2)), job(plain(256, 1, prefix))];
    expect([first, second, third, job(plain(1, 1))].map((each) => replica.take(each, 0))).toEqual([
      true,
      true,
      true,
      false,
    ]);
    const events: [at: number, first: Job | undefined, done: Job | undefined][] = [];
    while (replica.nextAt < Infinity) {
      const at = replica.nextAt;
      const event = replica.fire();
      events.push([at, event.first, event.done]);
    }
    // 2.56 steps of 0.1; one of 0.11 gives the second its first token and the first its second; then two rows for a step. The third
    // has a slot now, and all but the last token of its prompt in the cache: 0.01 steps of 0.11. What is left is the first's.
    const times = [0.256, 0.256 + 0.11, 0.366 + 0.03, 0.396 + 0.0011, 0.3971 + (10 - 2 - 0.01) * 0.02];
    expect(events.map(([at]) => at)).toEqual(times.map((at) => expect.closeTo(at, 9) as number));
    const happened: unknown[] = events.map(([, ...jobs]) => jobs);
    expect(happened).toEqual([
      [first, undefined],
      [second, undefined],
      [undefined, second],
      [third, third],
      [undefined, first],
    ]);
    expect(third.cachedTokens).toBe(255);
    expect(replica.busySeconds(99)).toBeCloseTo(times[4]!, 9);
  });
});

describe('conversations', () => {
  const shape = { ...DEFAULT_CONVERSATIONS, rate: 5, seed: 3 };

  test('have the lengths that are asked for, and popular tenants as Zipf says', () => {
    const source = new Conversations({ ...shape, contextTokens: 1e9 });
    const counts = new Map<number, number>();
    let [requests, prompt, answer, broken] = [0, 0, 0, 0];
    for (let conversation = 0; conversation < 20_000; conversation++) {
      let turn: Arrival | undefined = source.next();
      const tenant = turn.request.prefix[0]!;
      counts.set(tenant, (counts.get(tenant) ?? 0) + 1);
      let before: PrefixRequest | undefined;
      for (; turn; turn = source.after(turn.request, turn.at)) {
        const { request } = turn;
        if (before) {
          // All of the turn before is the beginning of this one.
          const has = before.whole.every((block, index) => request.prefix[index] === block);
          if (!has || request.seenTokens !== before.whole.length * 64) broken++;
        }
        before = request;
        requests++;
        prompt += request.inputTokens;
        answer += request.outputTokens;
      }
    }
    expect(broken).toBe(0);
    expect(requests / 20_000 / shape.turns).toBeCloseTo(1, 1);
    // System prompts are drawn once: a thousand of them, the popular ones counting most.
    expect(Math.abs(answer / requests / shape.answerTokens - 1)).toBeLessThan(0.03);
    expect(Math.abs(prompt / requests / meanPrompt(shape) - 1)).toBeLessThan(0.25);
    const [most, next] = [...counts.values()].sort((a, b) => b - a) as [number, number];
    let harmonic = 0;
    for (let tenant = 1; tenant <= shape.tenants; tenant++) harmonic += 1 / tenant;
    expect(Math.abs((most * harmonic) / 20_000 - 1)).toBeLessThan(0.1);
    expect(Math.abs((2 * next) / most - 1)).toBeLessThan(0.15);
  });
});

describe('policies', () => {
  const shape = { ...DEFAULT_CONVERSATIONS, tenants: 50, thinkSeconds: 5, rate: 4, seed: 3 };
  const cluster = {
    replicas: 12,
    gateways: 4,
    requests: 4000,
    slots: 8,
    speed: { ...DEFAULT_SPEED, batchTps: 375 },
    queue: 32,
    cacheBlocks: 512,
    tellSeconds: 0.5,
    delaySeconds: 0.001,
  };
  const figuresOf = (policy: PolicyName, given: Partial<ClusterOptions> = {}, rate = 4): ClusterFigures =>
    run(new Conversations({ ...shape, rate }), { ...cluster, ...given, policy });

  test('a cached prefix is worth it: more hits and an earlier first token than of any policy that does not look', async () => {
    const study = { ...options, ...cluster };
    const rows = await studyCluster(POLICIES, () => new Conversations(shape), study);
    expect(rows.map(({ policy }) => policy)).toEqual(POLICIES);
    for (const { policy, hitRate, mostHitRate, balance, ttft, busy, refused, requests } of rows) {
      expect(requests).toBe(3600);
      expect(hitRate).toBeLessThanOrEqual(mostHitRate);
      for (const share of [balance, busy]) expect(share).toBeLessThanOrEqual(1 + 1e-9);
      expect(ttft.p50Seconds).toBeLessThan(ttft.p99Seconds);
      expect(refused).toBe(0);
      if (policy === 'prefix' || policy === 'session') continue;
      for (const aware of rows.slice(-2)) {
        expect(aware.hitRate).toBeGreaterThan(hitRate + 0.2);
        expect(aware.ttft.meanSeconds).toBeLessThan(ttft.meanSeconds / 2);
      }
    }
    // The same seed is the same run.
    const [again] = await studyCluster(['prefix'], () => new Conversations(shape), study);
    expect(again).toEqual(rows[4]);
  });

  test('many gateways with old news do not all choose the same replica', () => {
    const blind = { gateways: 16, tellSeconds: 2, cacheBlocks: 0 };
    const [least, prefix] = [figuresOf('least_loaded', blind, 5), figuresOf('prefix', blind, 5)];
    expect(prefix.balance).toBeGreaterThan(least.balance);
    expect(prefix.ttft.p99Seconds).toBeLessThan(least.ttft.p99Seconds);
  });

  test('what is full refuses; another is tried before the client hears of it', () => {
    for (const policy of POLICIES) {
      const full = figuresOf(policy, { slots: 2, queue: 1 }, 60);
      expect(full.refused, policy).toBeGreaterThan(0.05);
      expect(full.refused, policy).toBeLessThan(1);
    }
    // Gateways that know who is full fill all; those that don't give up after three tries.
    const queue = { slots: 2, queue: 0, gateways: 1, tellSeconds: 0.1 };
    expect(figuresOf('least_loaded', queue, 1.5).refused).toBeLessThan(figuresOf('random', queue, 1.5).refused / 2);
  });
});

describe('a recorded trace', () => {
  const line = (timestamp: unknown, input_length: unknown, output_length: unknown, hash_ids: unknown): string =>
    JSON.stringify({ timestamp, input_length, output_length, hash_ids });

  test("is read in order of time; a block's length follows from the lengths", () => {
    const text = [line(2000, 1000, 5, [0, 1]), line(500, 513, 3, [0, 2]), line(3000, 700, 1, [0, 1])].join('\n');
    const trace = parsePrefixTrace(`${text}\n\n`, 'trace.jsonl', Infinity);
    expect(trace.blockTokens).toBe(512);
    expect(trace.requests.map(({ at, request }) => [at, request.inputTokens, request.seenTokens])).toEqual([
      [0.5, 513, 0],
      [2, 1000, 512],
      [3, 700, 699],
    ]);
    const [one, two, three] = trace.requests.map(({ request }) => request.prefix);
    expect(one![0]).toBe(two![0]);
    expect(three).toEqual(two);
    expect(parsePrefixTrace(text, 'trace.jsonl', 2).requests).toHaveLength(2);
    const replay = new Replay(trace, 2);
    expect([replay.next(), replay.next(), replay.next(), replay.next()].map((each) => each?.at)).toEqual([
      0.25,
      1,
      1.5,
      undefined,
    ]);
    expect(parsePrefixTrace(line(0, 100, 1, [1, 2]), 'small', Infinity).blockTokens).toBe(64);
  });

  test('a prompt that was there before is computed once', () => {
    const lines = Array.from({ length: 50 }, (_, index) => line(index * 10_000, 1024, 4, [7, 8]));
    const trace = parsePrefixTrace(lines.join('\n'), 'trace', Infinity);
    const figures = run(new Replay(trace, undefined), { requests: 50, cacheBlocks: 10 });
    expect(figures).toMatchObject({ requests: 45, hitRate: 1023 / 1024, mostHitRate: 1023 / 1024, refused: 0 });
  });

  test.each<[string, string, string]>([
    ['nothing', '\n', 'no requests'],
    ['no JSON', '{', 'line 1: not valid JSON'],
    ['a list', '[1]', 'line 1 is [1]: expected an object'],
    ['no time', line(undefined, 1, 1, [1]), 'timestamp is missing'],
    ['no tokens', line(0, 0, 1, []), 'input_length is 0: expected an integer of at least 1'],
    ['no ids', line(0, 1, 1, 'abc'), 'hash_ids is "abc": expected a list'],
    ['an id that is none', line(0, 1, 1, [1.5]), 'hash_ids is [1.5]'],
    ['more ids than blocks', line(0, 10, 1, [1, 2]), 'no length of a block'],
  ])('refused: %s', (_what, text, message) => {
    expect(() => parsePrefixTrace(text, 'trace', Infinity)).toThrow(message);
  });
});
