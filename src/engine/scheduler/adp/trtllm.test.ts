import { describe, expect, test } from 'vitest';
import { checkOptions, type SchedulerOptions } from '../config.js';
import { contextPolicy, Scheduler } from '../index.js';
import { RankState } from '../rank_state.js';
import { Sequence } from '../sequence.js';
import { WaitingQueue } from '../waiting_queue.js';
import { parseAttentionDpConfig } from './config.js';
import { routeLeastLoaded, WaitGate } from './policy.js';

const options: SchedulerOptions = {
  ranks: Array.from({ length: 3 }, () => ({ numBlocks: 1000, slots: 4 })),
  contextLength: 4000,
  maxTokensPerIteration: 1000,
  chunkedPrefill: false,
};

describe('router, by hand', () => {
  const config = checkOptions(options);
  let ordinal = 0;
  const request = (id: string, length: number): Sequence =>
    new Sequence({ id, prompt: { length }, maxTokens: 5 }, ordinal++, 0, 5, 50);
  const route = (ranks: readonly RankState[], requests: readonly Sequence[]): string[] => {
    const waiting = new WaitingQueue();
    for (const each of requests) waiting.insert(each);
    routeLeastLoaded(waiting, ranks);
    return [...requests.map(({ id, rank }) => `${id}>${rank}`), `left ${waiting.length}`];
  };
  const makeRanks = (): RankState[] => config.ranks.map((limits, index) => new RankState(index, limits, config));

  test('longest first, to the least tokens; ties to the fewest requests, then the lowest rank', () => {
    // expected = ceil(5 / 3) = 2. Sorted: c 90, e 60, a 50, d 40, b 10.
    // c > 0 (0 tokens each: lowest rank) 90; e > 1: 60; a > 2: 50; d > 2 (50 is least): 90, full at 2; b > 1 (60): 70.
    const requests = [request('a', 50), request('b', 10), request('c', 90), request('d', 40), request('e', 60)];
    expect(route(makeRanks(), requests)).toEqual(['a>2', 'b>1', 'c>0', 'd>2', 'e>1', 'left 0']);
  });

  test('tokens of active requests count as they came; a rank at the expected number takes no more', () => {
    const ranks = makeRanks();
    for (const length of [10, 10, 10]) ranks[1]!.bind(request('x', length));
    ranks[0]!.bind(request('y', 500));
    // 4 active and 2 new: max(ceil(6 / 3), most active 3) = 3. Rank 1 (30 tokens) has 3 already.
    // q 20 > 2 (0 tokens), p 15 > 2 (20 of 500).
    expect(route(ranks, [request('p', 15), request('q', 20)])).toEqual(['p>2', 'q>2', 'left 0']);
  });

  test('no more than there are slots', () => {
    const requests = Array.from({ length: 14 }, (_, i) => request(`r${i}`, 10));
    const ranks = makeRanks();
    expect(route(ranks, requests).at(-1)).toBe('left 2');
    expect(ranks.map((rank) => rank.numActive)).toEqual([4, 4, 4]);
    // The queue's order decides who waits.
    expect(requests.slice(12).map(({ rank }) => rank)).toEqual([-1, -1]);
  });
});

describe('balancer, by hand', () => {
  /** Decode rows of each rank, a * where a context could run; slots 4. */
  const run = (timeoutIters: number, batchingWaitIters: number, steps: readonly string[]): string[] => {
    const gate = new WaitGate({ timeoutIters, batchingWaitIters });
    return steps.map((step) => {
      const ranks = step.split(' ').map((rank) => ({
        generations: Number.parseInt(rank, 10),
        hasContext: rank.endsWith('*'),
        slots: 4,
      }));
      return `${gate.opens(ranks) ? 'run' : 'hold'} ${gate.wait} ${gate.batch}`;
    });
  };

  test('waits for every rank, then batching_wait_iters more', () => {
    const steps = ['3 3*', '3 3*', '3* 3*', '3* 3*', '3* 3*', '3 3'];
    expect(run(50, 2, steps)).toEqual(['hold 1 0', 'hold 2 0', 'hold 0 1', 'hold 0 2', 'run 0 0', 'hold 1 0']);
  });

  test('timeout', () => {
    expect(run(3, 0, ['3 3*', '3 3*', '3 3*', '3 3*'])).toEqual(['hold 1 0', 'hold 2 0', 'run 0 0', 'hold 1 0']);
  });

  test('runs at once where a rank generates nothing', () => {
    expect(run(50, 10, ['0* 0*', '0 3*', '0* 3*', '3* 3*'])).toEqual(['run 0 0', 'run 0 0', 'run 0 0', 'hold 0 1']);
  });

  test('its quirks: waits with nobody waiting; a full rank blocks; batch outlives a lost synchronisation', () => {
    expect(run(3, 0, ['3 3', '3 3', '3* 3'])).toEqual(['hold 1 0', 'hold 2 0', 'run 0 0']);
    expect(run(3, 0, ['4* 3*', '4* 3*', '4* 3*'])).toEqual(['hold 1 0', 'hold 2 0', 'run 0 0']);
    expect(run(50, 2, ['3* 3*', '3 3*', '3* 3*', '3* 3*'])).toEqual(['hold 0 1', 'hold 1 1', 'hold 0 2', 'run 0 0']);
  });
});

test('a whole trace, by hand', () => {
  const scheduler = new Scheduler(
    {
      ...options,
      ranks: Array.from({ length: 2 }, () => ({ numBlocks: 1000, slots: 2 })),
      attentionDpConfig: { mode: 'trtllm', enable_balance: true, timeout_iters: 3, batching_wait_iters: 1 },
    },
    contextPolicy,
  );
  const submit = (id: string, length: number, maxTokens: number): void =>
    void scheduler.submit({ id, prompt: { length }, maxTokens });
  const step = (): string => {
    const iteration = scheduler.schedule()!;
    scheduler.complete(iteration);
    return iteration.ranks
      .map(({ prefills, decodes }) =>
        [...prefills.map(({ sequence }) => `*${sequence.id}`), ...decodes.map(({ id }) => id)].join(' '),
      )
      .join(' | ');
  };

  submit('a', 100, 9);
  submit('b', 80, 5);
  submit('c', 30, 4);
  submit('d', 20, 9);
  // a > 0, b > 1, c > 1 (80 of 100), full at 2; d > 0. Nobody generates: run.
  expect(step()).toBe('*a *d | *b *c');
  submit('e', 50, 2);
  submit('f', 10, 2);
  submit('g', 10, 2);
  // Both ranks are full: wait 1, 2; then the timeout, with nothing to run.
  expect(step()).toBe('a d | b c');
  expect(step()).toBe('a d | b c');
  expect(step()).toBe('a d | b c'); // c has its 4 tokens
  // e > 1. Rank 0 has no slot: wait 1; b gets its 5th token.
  expect(step()).toBe('a d | b');
  // f > 1 behind e; rank 1 generates nothing: run.
  expect(step()).toBe('a d | *e *f');
  expect(step()).toBe('a d | e f'); // both done; wait 1
  // g > 1, but nothing generates there: run.
  expect(step()).toBe('a d | *g');
  expect(step()).toBe('a d | g'); // a and d have 9 tokens, g 2
  expect(scheduler.schedule()).toBeUndefined();
});

test('the rules of TensorRT-LLM leave what runs where it is; ours, and token parallel pools, move it', () => {
  const movesOf = (more: Partial<SchedulerOptions>): boolean =>
    contextPolicy(checkOptions({ ...options, ...more })).move !== undefined;
  expect(movesOf({ attentionDpConfig: { mode: 'trtllm' } })).toBe(false);
  expect(movesOf({ attentionDpConfig: { mode: 'cost' } })).toBe(true);
  expect(movesOf({ sharedRows: true })).toBe(true);
});

describe('attention_dp_config', () => {
  const message = (config: object): string | undefined => {
    try {
      parseAttentionDpConfig(config);
      return undefined;
    } catch (error) {
      return (error as Error).message;
    }
  };

  test("TensorRT-LLM's keys of cached prefixes are refused by name, and taken where they change nothing", () => {
    expect(message({ kv_cache_routing_max_sessions: 64 })).toMatch(/kv_cache_routing_max_sessions 64 isn't followed/);
    expect(message({ mode: 'trtllm', enable_kv_cache_aware_routing: true })).toMatch(/leave it out: mode "cost" sends/);
    expect(message({ kv_cache_routing_conversation_affinity: false })).toBeUndefined();
    expect(message({ mode: 'trtllm', enable_kv_cache_aware_routing: false })).toBeUndefined();
    expect(message({ mode: 'cost', enable_kv_cache_aware_routing: true })).toBeUndefined();
    expect(message({ enable_kv_cache_aware_routing: true })).toBeUndefined();
    expect(message({ kv_cache_routing_warmup: true })).toMatch(/unknown key 'kv_cache_routing_warmup'/);
  });
});
