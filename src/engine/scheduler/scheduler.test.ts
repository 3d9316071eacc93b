import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Scheduler, type SchedulerOptions } from './index.js';
import { drive, generatedOf } from './testing/drive.js';
import { randomRun } from './testing/random_trace.js';

const one: SchedulerOptions = {
  ranks: [{ numBlocks: 64, slots: 4 }],
  blockTokens: 4,
  contextLength: 64,
  maxTokensPerIteration: 32,
};

/** Runs until nothing is left; the rows of each iteration as [id, position] in words. */
function rows(scheduler: Scheduler, iterations = Infinity): string[][] {
  const all: string[][] = [];
  for (let i = 0; i < iterations; i++) {
    const iteration = scheduler.schedule();
    if (!iteration) break;
    all.push(
      iteration.ranks.flatMap(({ prefills, decodes, preempted }) => [
        ...prefills.map(({ sequence, start, count }) => `${sequence.id}:${start}+${count}`),
        ...decodes.map(({ id, computed }) => `${id}@${computed - 1}`),
        ...preempted.map(({ id }) => `-${id}`),
      ]),
    );
    scheduler.complete(iteration);
  }
  return all;
}

const prompt = (length: number): ArrayLike<number> => ({ length });

describe('random traces', () => {
  test('every request finishes with its own tokens; blocks, slots and budgets hold; attention sees only its own tokens', () => {
    let preemptions = 0;
    let cached = 0;
    let moves = 0;
    let shifts = 0;
    let restored = 0;
    let handed = 0;
    let restoredPrompts = 0;
    fc.assert(
      fc.property(randomRun, (run) => {
        const result = drive(run);
        preemptions += result.preemptions;
        cached += result.cachedTokens;
        moves += result.moves;
        shifts += result.shifts;
        restored += result.restored;
        handed += result.handed;
        restoredPrompts += result.restoredPrompts;
        for (const [index, { maxTokens, endsAfter, abortedAfter }] of run.requests.entries()) {
          const { reason, generated } = result.outcomes.get(String(index))!;
          expect(generated).toEqual(generatedOf(index, generated.length));
          if (run.requests[index]!.prefillOnly) {
            expect(generated).toEqual([]);
            expect(['length', 'aborted']).toContain(reason);
            continue;
          }
          if (reason === 'aborted') expect(abortedAfter).toBeGreaterThanOrEqual(0);
          else {
            expect(generated.length).toBe(Math.min(maxTokens, endsAfter));
            expect(reason).toBe(endsAfter <= maxTokens ? 'ended' : 'length');
          }
        }
      }),
      { numRuns: 500, seed: 1 },
    );
    // The traces do what they are for.
    expect(preemptions).toBeGreaterThan(50);
    expect(cached).toBeGreaterThan(100);
    expect(moves).toBeGreaterThan(50);
    expect(shifts).toBeGreaterThan(10);
    expect(restored).toBeGreaterThan(20);
    expect(handed).toBeGreaterThan(50);
    expect(restoredPrompts).toBeGreaterThan(20);
  });

  test('the same calls give the same decisions', () => {
    fc.assert(
      fc.property(randomRun, (run) => {
        expect(drive(run).decisions).toEqual(drive(run).decisions);
      }),
      { numRuns: 40, seed: 2 },
    );
  });
});

describe('continuous batching', () => {
  test('requests join and leave each iteration', () => {
    const scheduler = new Scheduler(one);
    scheduler.submit({ id: 'a', prompt: prompt(5), maxTokens: 3 });
    expect(rows(scheduler, 1)).toEqual([['a:0+5']]);
    scheduler.submit({ id: 'b', prompt: prompt(2), maxTokens: 2 });
    expect(rows(scheduler)).toEqual([
      ['b:0+2', 'a@5'],
      ['a@6', 'b@2'],
    ]);
    expect(scheduler.numUnfinished).toBe(0);
  });

  test('long prompts run in chunks beside decode rows, within the budget', () => {
    const scheduler = new Scheduler({ ...one, maxTokensPerIteration: 8, maxChunkTokens: 6 });
    scheduler.submit({ id: 'a', prompt: prompt(2), maxTokens: 5 });
    scheduler.submit({ id: 'b', prompt: prompt(15), maxTokens: 1 });
    expect(rows(scheduler)).toEqual([['a:0+2', 'b:0+6'], ['b:6+6', 'a@2'], ['b:12+3', 'a@3'], ['a@4'], ['a@5']]);
  });

  test('one prefill an iteration, for a runner that takes one', () => {
    const scheduler = new Scheduler({ ...one, maxPrefillSequences: 1 });
    for (const id of ['a', 'b', 'c']) scheduler.submit({ id, prompt: prompt(4), maxTokens: 1 });
    expect(rows(scheduler)).toEqual([['a:0+4'], ['b:0+4'], ['c:0+4']]);
  });

  test('a later prompt does not overtake one that lacks room', () => {
    const scheduler = new Scheduler({ ...one, ranks: [{ numBlocks: 5, slots: 4 }], watermark: 0 });
    scheduler.submit({ id: 'a', prompt: prompt(12), maxTokens: 2 });
    scheduler.submit({ id: 'b', prompt: prompt(12), maxTokens: 1 });
    scheduler.submit({ id: 'c', prompt: prompt(1), maxTokens: 1 });
    expect(rows(scheduler)).toEqual([['a:0+12'], ['a@12'], ['b:0+12', 'c:0+1']]);
  });

  test('iterations in flight: the end of one is known late, what ran past it is dropped', () => {
    const scheduler = new Scheduler(one);
    const sequence = scheduler.submit({ id: 'a', prompt: prompt(3), maxTokens: 9 });
    const flight = [scheduler.schedule()!, scheduler.schedule()!, scheduler.schedule()!];
    scheduler.complete(flight[0]!, { ids: [[7, 0, 0, 0]] });
    expect(sequence.generated).toEqual([7]);
    const [finished] = scheduler.complete(flight[1]!, { ids: [[8, 0, 0, 0]], ended: ['a'] });
    expect(finished).toMatchObject({ id: 'a', endReason: 'ended', blocks: [] });
    expect(scheduler.complete(flight[2]!, { ids: [[9, 0, 0, 0]] })).toEqual([]);
    expect(sequence.generated).toEqual([7, 8]);
    expect(scheduler.schedule()).toBeUndefined();
  });

  test('abort frees at once', () => {
    const scheduler = new Scheduler({ ...one, ranks: [{ numBlocks: 4, slots: 1 }] });
    scheduler.submit({ id: 'a', prompt: prompt(16), maxTokens: 1 });
    scheduler.submit({ id: 'b', prompt: prompt(16), maxTokens: 1 });
    const running = scheduler.schedule()!;
    expect(scheduler.abort('a')).toBe(true);
    expect(scheduler.abort('a')).toBe(false);
    const next = scheduler.schedule()!;
    expect(next.ranks[0]!.prefills[0]!.sequence.id).toBe('b');
    expect(scheduler.complete(running)).toEqual([]);
    expect(scheduler.complete(next).map(({ id }) => id)).toEqual(['b']);
  });
});

test('the lowest free slot is taken: a step computes rows up to the highest slot in use', () => {
  const scheduler = new Scheduler(one);
  const submit = (id: string, maxTokens: number) => scheduler.submit({ id, prompt: prompt(3), maxTokens });
  for (const [index, id] of ['a', 'b', 'c', 'd'].entries()) submit(id, 1 + index);
  rows(scheduler);
  const [next, after] = [submit('e', 2), submit('f', 2)];
  scheduler.complete(scheduler.schedule()!);
  expect([next.slot, after.slot]).toEqual([0, 1]);
});

describe('preemption', () => {
  test('the last in order makes room, and is recomputed: prompt rows, then its generated rows at once', () => {
    const scheduler = new Scheduler({ ...one, ranks: [{ numBlocks: 5, slots: 4 }], watermark: 0 });
    scheduler.submit({ id: 'a', prompt: prompt(6), maxTokens: 8 });
    scheduler.submit({ id: 'b', prompt: prompt(6), maxTokens: 8 });
    expect(rows(scheduler)).toEqual([
      ['a:0+6', 'b:0+6'],
      ['a@6', 'b@6'],
      ['a@7', 'b@7'],
      ['a@8', '-b'], // a takes the last block
      ['a@9'],
      ['a@10'],
      ['a@11'],
      ['a@12'],
      ['b:0+6'],
      ['b:6+2'],
      ['b@8'],
      ['b@9'],
      ['b@10'],
      ['b@11'],
      ['b@12'],
    ]);
  });
});

describe('drafts', () => {
  const begin = (options: Partial<SchedulerOptions> = {}) => {
    const scheduler = new Scheduler({ ...one, ...options });
    scheduler.submit({ id: 'a', prompt: prompt(6), maxTokens: 9 });
    return scheduler;
  };
  /** The next iteration's row of the only sequence, and its drafts. */
  const next = (scheduler: Scheduler) => {
    const iteration = scheduler.schedule();
    const sequence = iteration?.ranks[0]!.decodes[0];
    return iteration && { iteration, at: sequence && sequence.computed - 1, drafts: sequence?.drafts ?? [] };
  };

  test('rows in flight are awaited, then it waits for what came; as many as are left of its tokens', () => {
    const scheduler = begin();
    const ahead = [next(scheduler)!, next(scheduler)!];
    scheduler.propose('a', [1, 2]);
    expect(scheduler.sequence('a')!.drafts).toBeUndefined();
    for (const { iteration } of ahead) scheduler.complete(iteration);
    scheduler.propose('a', [1, 2, 3]);
    const first = next(scheduler)!;
    expect(first).toMatchObject({ at: 7, drafts: [1, 2, 3] });
    expect(next(scheduler)).toBeUndefined();
    scheduler.complete(first.iteration, { verified: new Map([['a', [1, 2, 30]]]) });
    expect(scheduler.sequence('a')).toMatchObject({ sampled: 5, computed: 10, confirmed: 10, drafts: undefined });
    // Five are sampled: of nine three may be drafts beside the row's own.
    scheduler.propose('a', [1, 2, 3, 4, 5, 6]);
    const second = next(scheduler)!;
    expect(second).toMatchObject({ at: 10, drafts: [1, 2, 3] });
    const finished = scheduler.complete(second.iteration, { verified: new Map([['a', [1, 2, 3, 4]]]) });
    expect(finished).toMatchObject([{ id: 'a', endReason: 'length' }]);
  });

  test('they take no blocks that others grow into', () => {
    // Each has two blocks, and one is left, which is kept free.
    const scheduler = begin({ ranks: [{ numBlocks: 5, slots: 4 }], watermark: 0.2 });
    scheduler.submit({ id: 'b', prompt: prompt(6), maxTokens: 9, priority: 10 });
    scheduler.complete(scheduler.schedule()!);
    scheduler.propose('a', [1, 2, 3, 4]);
    const iteration = scheduler.schedule()!;
    expect(iteration.ranks[0]!.decodes.map(({ id, drafts }) => [id, drafts])).toEqual([
      ['b', undefined],
      ['a', [1]],
    ]);
    scheduler.complete(iteration, { verified: new Map([['a', [1, 5]]]) });
    expect(scheduler.sequence('a')).toMatchObject({ computed: 8, capacity: 8 });
  });

  test('with a state, wrong drafts take it back: what was right is computed again', () => {
    const scheduler = begin({ keptStates: 3, draftStates: 1 });
    scheduler.complete(scheduler.schedule()!);
    scheduler.propose('a', [1, 2, 3]);
    const { iteration } = next(scheduler)!;
    scheduler.complete(iteration, { verified: new Map([['a', [1, 20]]]) });
    expect(scheduler.sequence('a')).toMatchObject({ status: 'prefill', computed: 6, sampled: 3 });
    const again = scheduler.schedule()!;
    const [{ restored, prefills }] = again.ranks as [(typeof again.ranks)[number]];
    expect(restored).toMatchObject([{ place: 3 }]);
    expect(prefills).toMatchObject([{ start: 6, count: 2, role: 'generated', samples: false }]);
    scheduler.complete(again);
    expect(next(scheduler)).toMatchObject({ at: 8, drafts: [] });
  });

  test('of several with a state as many have drafts as there are places for it, until it is taken back', () => {
    const scheduler = begin({ keptStates: 3, draftStates: 2 });
    for (const id of ['b', 'c']) scheduler.submit({ id, prompt: prompt(6), maxTokens: 9 });
    scheduler.complete(scheduler.schedule()!);
    const propose = () => {
      for (const id of ['a', 'b', 'c']) scheduler.propose(id, [1, 2]);
      const iteration = scheduler.schedule()!;
      const [{ decodes, restored, prefills }] = iteration.ranks as [(typeof iteration.ranks)[number]];
      return {
        iteration,
        drafts: decodes.map(({ id, drafts, draftState }) => [id, drafts, draftState]),
        restored: restored.map(({ sequence, place }) => [sequence.id, place]),
        again: prefills.map(({ sequence, start, count }) => [sequence.id, start, count]),
      };
    };
    const first = propose();
    expect(first.drafts).toEqual([
      ['a', [1, 2], 3],
      ['b', [1, 2], 4],
      ['c', [], undefined],
    ]);
    const came = { a: [1, 2, 9], b: [1, 5], c: [7] };
    scheduler.complete(first.iteration, { verified: new Map(Object.entries(came)) });
    const second = propose();
    expect(second).toMatchObject({ restored: [['b', 4]], again: [['b', 6, 2]] });
    expect(second.drafts).toEqual([
      ['a', [1, 2], 3],
      ['c', [], undefined],
    ]);
    scheduler.complete(second.iteration, { verified: new Map(Object.entries({ a: [8], c: [7] })) });
    const third = propose();
    expect(third).toMatchObject({ restored: [['a', 3]], again: [['a', 9, 1]] });
    expect(third.drafts).toEqual([
      ['b', [1, 2], 4],
      ['c', [], undefined],
    ]);
  });
});

describe('priorities and fairness', () => {
  const slot = { ...one, ranks: [{ numBlocks: 64, slots: 1 }], agingIterations: 10 };

  test('higher goes first, equals in order of submission', () => {
    const scheduler = new Scheduler(slot);
    for (const [id, priority] of Object.entries({ a: 0, b: 1, c: 0, d: 2 })) {
      scheduler.submit({ id, prompt: prompt(1), maxTokens: 1, priority });
    }
    expect(rows(scheduler).flat()).toEqual(['d:0+1', 'b:0+1', 'a:0+1', 'c:0+1']);
  });

  test('a stream of urgent requests does not starve one that came long before', () => {
    const scheduler = new Scheduler(slot);
    scheduler.submit({ id: 'patient', prompt: prompt(1), maxTokens: 1, priority: 0 });
    let served = 0;
    for (; served < 100; served++) {
      scheduler.submit({ id: `urgent ${served}`, prompt: prompt(1), maxTokens: 1, priority: 2 });
      if (rows(scheduler, 1).flat()[0] === 'patient:0+1') break;
    }
    // Two points of ten iterations each; then it goes by who came first.
    expect(served).toBe(20);
  });
});

describe('what is refused', () => {
  test.each<[string, () => unknown, string, string]>([
    ['an unknown option', () => new Scheduler({ ...one, slots: 2 } as never), 'usage', "unknown option 'slots'"],
    ['no ranks', () => new Scheduler({ ...one, ranks: [] }), 'usage', 'ranks is empty'],
    [
      'a budget without room for prompts',
      () => new Scheduler({ ...one, maxTokensPerIteration: 4 }),
      'usage',
      'expected more than',
    ],
    ['a fraction of a block', () => new Scheduler({ ...one, blockTokens: 0.5 }), 'usage', 'blockTokens 0.5'],
    ['a watermark of all', () => new Scheduler({ ...one, watermark: 1 }), 'usage', 'watermark 1'],
    ['an unknown mode', () => new Scheduler({ ...one, attentionDpConfig: { mode: 'x' } }), 'usage', 'mode "x"'],
    [
      'an unknown key',
      () => new Scheduler({ ...one, attentionDpConfig: { timeout_iter: 5 } }),
      'usage',
      "Did you mean 'timeout_iters'?",
    ],
    [
      'an empty prompt',
      () => new Scheduler(one).submit({ id: 'a', prompt: [], maxTokens: 1 }),
      'usage',
      'the prompt is empty',
    ],
    [
      'no number of tokens',
      () => new Scheduler(one).submit({ id: 'a', prompt: [1], maxTokens: -1 }),
      'usage',
      'maxTokens -1',
    ],
    [
      'a wild priority',
      () => new Scheduler(one).submit({ id: 'a', prompt: [1], maxTokens: 1, priority: 101 }),
      'usage',
      'priority 101',
    ],
    [
      'a prompt beyond the context',
      () => new Scheduler(one).submit({ id: 'a', prompt: prompt(65), maxTokens: 1 }),
      'context_full',
      '65 tokens > 64 maximum',
    ],
    [
      'a prompt beyond the pool',
      () =>
        new Scheduler({ ...one, ranks: [{ numBlocks: 2, slots: 1 }] }).submit({
          id: 'a',
          prompt: prompt(9),
          maxTokens: 1,
        }),
      'context_full',
      '9 tokens > 8 maximum',
    ],
    [
      'a whole prompt beyond the budget',
      () => new Scheduler({ ...one, chunkedPrefill: false }).submit({ id: 'a', prompt: prompt(33), maxTokens: 1 }),
      'context_full',
      "isn't cut into chunks",
    ],
  ])('%s', (_what, act, code, message) => {
    expect(act).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(message) as string }) as Error,
    );
  });

  test('an id in use, until its request finishes', () => {
    const scheduler = new Scheduler(one);
    scheduler.submit({ id: 'a', prompt: prompt(1), maxTokens: 1 });
    expect(() => scheduler.submit({ id: 'a', prompt: prompt(1), maxTokens: 1 })).toThrow("isn't finished yet");
    rows(scheduler);
    scheduler.submit({ id: 'a', prompt: prompt(1), maxTokens: 1 });
  });

  test('completing out of order', () => {
    const scheduler = new Scheduler(one);
    scheduler.submit({ id: 'a', prompt: prompt(1), maxTokens: 5 });
    scheduler.schedule();
    const second = scheduler.schedule()!;
    expect(() => scheduler.complete(second)).toThrow("isn't the oldest in flight");
  });

  test('prefix caching without ids', () => {
    const scheduler = new Scheduler({ ...one, prefixCaching: true });
    scheduler.submit({ id: 'a', prompt: [1], maxTokens: 1 });
    expect(() => scheduler.complete(scheduler.schedule()!)).toThrow('needs the sampled ids');
  });
});

test('a request too long for the context is cut, and says so', () => {
  const scheduler = new Scheduler({ ...one, ranks: [{ numBlocks: 2, slots: 1 }] });
  const sequence = scheduler.submit({ id: 'a', prompt: prompt(6), maxTokens: 100 });
  expect(rows(scheduler).flat()).toEqual(['a:0+6', 'a@6', 'a@7']);
  expect(sequence).toMatchObject({ endReason: 'context_full', sampled: 3 });
});
