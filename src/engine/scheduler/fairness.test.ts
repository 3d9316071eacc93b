import { describe, expect, test } from 'vitest';
import { contextPolicy, type Iteration, Scheduler, type SchedulerOptions } from './index.js';

const options: SchedulerOptions = {
  ranks: [{ numBlocks: 4000, slots: 16 }],
  contextLength: 8000,
  maxTokensPerIteration: 128,
};

/** Rounds of a scheduler whose iterations take a fixed time and one for each row. */
class Run {
  readonly scheduler: Scheduler;
  readonly #count = new Map<string, number>();
  /** Clients of sequences in the order in which they were admitted. */
  readonly admitted: string[] = [];
  /** Requests, by id, in the order in which they ended. */
  readonly ended: string[] = [];
  readonly tokens = new Map<string, number>();
  preempted: string[] = [];
  iterations = 0;
  readonly #slots = new Set<string>();

  constructor(
    overrides: Partial<SchedulerOptions> = {},
    public times = { fixed: 1, row: 0 },
  ) {
    this.scheduler = new Scheduler({ ...options, ...overrides }, contextPolicy);
  }

  submit(client: string, length: number, maxTokens: number, priority = 0): string {
    const number = this.#count.get(client) ?? 0;
    this.#count.set(client, number + 1);
    const id = `${client}${number}`;
    this.scheduler.submit({ id, prompt: { length }, maxTokens, client, priority });
    return id;
  }

  many(count: number, client: string, length: number, maxTokens: number, priority = 0): void {
    for (let i = 0; i < count; i++) this.submit(client, length, maxTokens, priority);
  }

  step(): Iteration | undefined {
    const iteration = this.scheduler.schedule(this.iterations);
    if (!iteration) return undefined;
    this.iterations++;
    for (const { tables, decodes, prefills, preempted } of iteration.ranks) {
      for (const { id } of preempted) {
        this.#slots.delete(id);
        this.preempted.push(id);
      }
      for (const { id } of tables) {
        if (!this.#slots.has(id)) this.admitted.push(id[0]!);
        this.#slots.add(id);
      }
      const sampling = prefills.filter(({ samples }) => samples).map(({ sequence }) => sequence);
      for (const { id } of [...decodes, ...sampling]) this.tokens.set(id[0]!, (this.tokens.get(id[0]!) ?? 0) + 1);
    }
    const rows = Math.max(...iteration.ranks.map(({ tokens }) => tokens));
    const seconds = this.times.fixed + rows * this.times.row;
    for (const { id } of this.scheduler.complete(iteration, { seconds })) {
      this.#slots.delete(id);
      this.ended.push(id);
    }
    return iteration;
  }

  steps(count: number): void {
    for (let i = 0; i < count && this.step(); i++);
  }

  /** Iterations until a request has ended. */
  until(id: string, most: number): number {
    const start = this.iterations;
    while (!this.ended.includes(id) && this.iterations - start < most && this.step());
    return this.ended.includes(id) ? this.iterations - start : Infinity;
  }

  slotsOf(client: string): number {
    return [...this.#slots].filter((id) => id.startsWith(client)).length;
  }
}

/** Every way in which sequences are picked from what waits. */
const FORMS: readonly (readonly [string, Partial<SchedulerOptions>])[] = [
  ['one pool', {}],
  ['one slot', { ranks: [{ numBlocks: 4000, slots: 1 }] }],
  ['token parallel', { ranks: [4, 4].map((slots) => ({ numBlocks: 2000, slots })), sharedRows: true }],
  [
    'attention data parallel by cost',
    { ranks: [4, 4].map((slots) => ({ numBlocks: 2000, slots })), attentionDpConfig: { mode: 'cost' } },
  ],
  [
    "attention data parallel by TensorRT-LLM's rules",
    { ranks: [4, 4].map((slots) => ({ numBlocks: 2000, slots })), attentionDpConfig: { mode: 'trtllm' } },
  ],
];

describe('rounds by client', () => {
  test.each(FORMS)('two hundred of one wait: the one of another is next (%s)', (_form, overrides) => {
    const run = new Run(overrides);
    run.many(200, 'a', 10, 12);
    run.steps(5);
    const before = run.admitted.length;
    run.submit('b', 10, 4);
    run.until('b0', 200);
    // Those whose turn had come when it came, at most as many as there are places.
    expect(run.admitted.slice(before).indexOf('b')).toBeLessThanOrEqual(2);
    expect(run.ended).toContain('b0');
    while (run.step());
    expect(run.ended).toHaveLength(201);
  });

  test.each(FORMS)('clients take turns, each in the order in which it asked (%s)', (form, overrides) => {
    const run = new Run(overrides);
    for (const client of ['a', 'b', 'c']) run.many(20, client, 5, 3);
    while (run.step());
    const slots = (overrides.ranks ?? options.ranks!).reduce((sum, rank) => sum + rank.slots, 0);
    for (let start = 0; start + 12 <= 60; start += 12) {
      const share = run.admitted.slice(0, start + 12).filter((client) => client === 'c').length;
      expect(Math.abs(share - (start + 12) / 3)).toBeLessThanOrEqual(slots / 2 + 3);
    }
    if (form === 'one slot') {
      for (const client of ['a', 'b', 'c']) {
        const own = run.ended.filter((id) => id.startsWith(client));
        expect(own).toEqual(own.toSorted((x, y) => Number(x.slice(1)) - Number(y.slice(1))));
      }
    }
  });

  test('with one slot it is a round robin', () => {
    const run = new Run({ ranks: [{ numBlocks: 100, slots: 1 }] });
    run.many(3, 'a', 5, 1);
    run.many(3, 'b', 5, 1);
    run.many(1, 'c', 5, 1);
    while (run.step());
    expect(run.admitted.join('')).toBe('abcabab');
  });

  test('clients that come back at once do not keep one waiting', () => {
    const run = new Run({ ranks: [{ numBlocks: 100, slots: 2 }] });
    run.many(1, 'x', 5, 3);
    for (const client of 'pqrst') run.submit(client, 5, 3);
    run.many(1, 'x', 5, 3);
    for (let i = 0; i < 60 && !run.ended.includes('x1'); i++) {
      const before = run.ended.length;
      run.step();
      // Whoever has ended asks again.
      for (const id of run.ended.slice(before)) if (!id.startsWith('x')) run.submit(id[0]!, 5, 3);
    }
    expect(run.ended).toContain('x1');
  });

  test('those without a name are one client', () => {
    const run = new Run({ ranks: [{ numBlocks: 100, slots: 1 }] });
    for (const id of ['1', '2', '3']) run.scheduler.submit({ id, prompt: { length: 3 }, maxTokens: 1 });
    run.submit('b', 3, 1);
    while (run.step());
    expect(run.admitted.join('')).toBe('1b23');
  });

  test('a higher priority goes first, and rounds are within one', () => {
    const run = new Run({ ranks: [{ numBlocks: 100, slots: 1 }] });
    run.many(4, 'a', 5, 1);
    run.many(2, 'b', 5, 1);
    run.many(2, 'c', 5, 1, 3);
    run.many(1, 'd', 5, 1, 3);
    while (run.step());
    expect(run.admitted.join('')).toBe('cdcababaa');
  });

  test("a stream of another client's urgent requests starves nobody", () => {
    const run = new Run({ ranks: [{ numBlocks: 100, slots: 1 }], agingIterations: 10 });
    run.submit('a', 5, 1);
    for (let i = 0; i < 100 && !run.ended.includes('a0'); i++) {
      run.submit('b', 5, 1, 2);
      run.step();
    }
    expect(run.iterations).toBeLessThanOrEqual(22);
  });
});

describe('prompts', () => {
  test("many long ones of one client don't keep another's first token", () => {
    const run = new Run();
    run.many(50, 'a', 4000, 4);
    run.steps(3);
    const before = run.iterations;
    run.submit('b', 100, 1);
    // A long prompt takes 32 iterations.
    expect(run.until('b0', 60)).toBeLessThanOrEqual(3);
    run.submit('b', 1000, 1);
    run.until('b1', 60);
    // Rows of both, in turns.
    expect(run.iterations - before).toBeLessThanOrEqual(3 + 2 * 8 + 3);
    while (run.step());
    expect(run.ended).toHaveLength(52);
  });

  test('the prompt worker takes clients in turn', () => {
    const run = new Run({ handover: true });
    run.many(30, 'a', 20, 4);
    const order: string[] = [];
    for (let i = 0; i < 60; i++) {
      if (i === 5) run.submit('b', 20, 4);
      const next = run.scheduler.nextToHand(new Map());
      if (next) {
        run.scheduler.hand(next.id);
        order.push(next.id);
      }
      run.step();
    }
    expect(order.indexOf('b0')).toBeLessThanOrEqual(6);
  });
});

describe('shares of the slots', () => {
  test.each(FORMS.filter(([form]) => form !== 'one slot'))(
    'long answers of one client make room for others, and come back (%s)',
    (_form, overrides) => {
      const run = new Run(overrides);
      const slots = (overrides.ranks ?? options.ranks!).reduce((sum, rank) => sum + rank.slots, 0);
      run.many(72, 'a', 10, 300);
      run.steps(40);
      expect(run.slotsOf('a')).toBe(slots);
      for (const client of 'pqrs') run.submit(client, 10, 16);
      // With iterations whose rows cost nothing: a slot each, and then 16 tokens.
      for (const client of 'pqrs') expect(run.until(`${client}0`, 100)).toBeLessThan(100);
      while (run.step());
      expect(run.ended).toHaveLength(76);
    },
  );

  test('as many as others have, and no more than that is given up', () => {
    const run = new Run();
    run.many(72, 'a', 10, 2000);
    run.steps(20);
    run.many(72, 'b', 10, 2000);
    run.steps(200);
    expect([run.slotsOf('a'), run.slotsOf('b')]).toEqual([8, 8]);
    expect(run.preempted.every((id) => id.startsWith('a'))).toBe(true);
    const { length } = run.preempted;
    run.steps(500);
    expect(run.preempted).toHaveLength(length);
  });

  test('others that ask one thing after the other: few are sent back, as a slot waits for who has just had it', () => {
    const run = new Run();
    run.many(72, 'a', 10, 4000);
    run.steps(20);
    for (const client of 'pqrs') run.submit(client, 10, 16);
    let answers = 0;
    const due: { readonly at: number; readonly client: string }[] = [];
    while (run.iterations < 3000) {
      const before = run.ended.length;
      run.step();
      for (const id of run.ended.slice(before)) {
        answers++;
        due.push({ at: run.iterations + 5, client: id[0]! });
      }
      while (due[0] && due[0].at <= run.iterations) run.submit(due.shift()!.client, 10, 16);
    }
    // 16 iterations each, 5 in between and some to begin: alone it would be 560.
    expect(answers).toBeGreaterThan(400);
    expect(run.preempted.length).toBeLessThan(20);
    expect(run.slotsOf('a')).toBeGreaterThanOrEqual(12);
  });

  test('a sequence that was sent back goes on before it is sent back again', () => {
    const run = new Run({ ranks: [{ numBlocks: 4000, slots: 3 }] });
    run.many(6, 'a', 10, 600);
    run.steps(10);
    let sent = 0;
    while (run.scheduler.numUnfinished > 0 && run.iterations < 20_000) {
      // Always another client.
      if (sent < 30 && run.iterations % 60 === 0) run.submit(String.fromCharCode(200 + sent++), 10, 4);
      run.step();
    }
    expect(run.scheduler.numUnfinished).toBe(0);
    expect(run.preempted.length).toBeGreaterThan(3);
    for (const id of ['a0', 'a1', 'a2', 'a3', 'a4', 'a5']) {
      expect(run.preempted.filter((one) => one === id).length).toBeLessThanOrEqual(1 + 600 / 16);
    }
  });

  test('a client that is alone has all slots, at once again when the others have gone', () => {
    const run = new Run();
    run.many(40, 'a', 10, 3000);
    run.steps(10);
    run.submit('b', 10, 5);
    run.until('b0', 100);
    run.steps(40);
    expect(run.slotsOf('a')).toBe(16);
  });

  test('a lower priority makes room, a higher one does not', () => {
    for (const [priority, makesRoom] of [
      [0, true],
      [5, false],
    ] as const) {
      const run = new Run({ agingIterations: 1000 });
      run.many(20, 'a', 10, 400, priority);
      run.steps(5);
      run.submit('b', 10, 4);
      run.steps(50);
      expect(run.ended.includes('b0')).toBe(makesRoom);
    }
  });

  test('blocks, too: a client that has them all gives some up', () => {
    const run = new Run({ ranks: [{ numBlocks: 32, slots: 16 }] });
    run.many(4, 'a', 400, 1000);
    run.steps(30);
    run.submit('b', 200, 4);
    expect(run.until('b0', 100)).toBeLessThan(30);
    while (run.step());
    expect(run.ended).toHaveLength(5);
  });

  test('blocks run out: whoever has few sequences keeps them', () => {
    const run = new Run({ ranks: [{ numBlocks: 20, slots: 16 }], watermark: 0 });
    run.many(8, 'a', 60, 400);
    run.steps(3);
    run.submit('b', 60, 400);
    run.until('b0', 1000);
    expect(run.ended).toContain('b0');
    expect(run.preempted.filter((id) => id === 'b0')).toEqual([]);
    while (run.step());
    expect(run.ended).toHaveLength(9);
  });
});

describe('rows', () => {
  /** Time that a client's answer takes beside one with long answers on all slots, and alone. */
  function times(fixed: number, row: number, polite: number): number {
    const seconds = (greedy: boolean): number => {
      const run = new Run({}, { fixed, row });
      if (greedy) run.many(72, 'a', 10, 4000);
      run.steps(30);
      // What rows cost is learned as they come and go.
      for (let round = 0; round < 5; round++) {
        for (let i = 0; i < polite; i++) run.submit('pqrs'[i]!, 10, 16);
        for (let i = 0; i < polite; i++) run.until(`${'pqrs'[i]!}${round}`, 500);
      }
      let spent = 0;
      for (let i = 0; i < polite; i++) run.submit('pqrs'[i]!, 10, 100);
      while (!run.ended.includes('p5')) {
        const iteration = run.step()!;
        spent += fixed + row * iteration.ranks[0]!.tokens;
      }
      return spent;
    };
    return seconds(false) / seconds(true);
  }

  test.each([
    [1, 1, 4],
    [1, 1, 1],
    [0, 1, 4],
    [8, 1, 2],
    [100, 1, 4],
  ])(
    'an iteration of %d and %d a row: %d clients go on at half their pace at least beside a greedy one',
    (fixed, row, polite) => {
      expect(times(fixed, row, polite)).toBeGreaterThanOrEqual(0.45);
    },
  );

  test.each([
    [0, 1],
    [8, 1],
    [100, 1],
    [1, 0.01],
  ])('long prompts of one: others go on at half their pace (an iteration of %d and %d a row)', (fixed, row) => {
    const pace = (greedy: boolean): number => {
      const run = new Run({ maxTokensPerIteration: 2048 }, { fixed, row });
      if (greedy) run.many(40, 'a', 7000, 1);
      let [spent, answers] = [0, 0];
      for (const client of 'pqrs') run.submit(client, 3, 16);
      // What rows cost is learned in the first ones.
      while (run.iterations < 1000) {
        const iteration = run.step()!;
        if (run.iterations === 100) [spent, answers] = [0, 0];
        spent += fixed + row * iteration.ranks[0]!.tokens;
        const over = run.ended.splice(0).filter((id) => !id.startsWith('a'));
        answers += over.length;
        for (const [client] of over) run.submit(client!, 3, 16);
      }
      // And the greedy one's prompts go on.
      if (greedy) expect(run.scheduler.numWaiting).toBeLessThan(40);
      return answers / spent;
    };
    expect(pace(true) / pace(false)).toBeGreaterThanOrEqual(0.5);
  });

  test('what rows cost is learned where there have always been as many, after a slow beginning', () => {
    const run = new Run({}, { fixed: 2, row: 1 });
    // The first iterations take long: kernels are compiled.
    run.times = { fixed: 100, row: 0 };
    run.submit('a', 10, 10);
    run.until('a0', 20);
    run.times = { fixed: 2, row: 1 };
    run.many(72, 'a', 10, 4000);
    run.steps(30);
    run.submit('b', 10, 2000);
    run.steps(700);
    const before = [run.tokens.get('a')!, run.tokens.get('b')!];
    run.steps(192);
    expect(run.tokens.get('b')! - before[1]!).toBe(192);
    // 3 rows, and 15 in one iteration of 64.
    expect(run.tokens.get('a')! - before[0]!).toBeLessThan(192 * 5);
  });

  test('where rows cost nothing much nobody rests, and otherwise all of a client take their turns', () => {
    const cheap = new Run({}, { fixed: 100, row: 1 });
    cheap.many(15, 'a', 10, 500);
    cheap.submit('b', 10, 500);
    cheap.steps(200);
    const before = cheap.tokens.get('a')!;
    cheap.steps(100);
    expect(cheap.tokens.get('a')! - before).toBeGreaterThan(1400);

    const dear = new Run({}, { fixed: 0, row: 1 });
    dear.many(15, 'a', 10, 900);
    dear.submit('b', 10, 900);
    dear.steps(60);
    const sampled = (): number[] => Array.from({ length: 15 }, (_, i) => dear.scheduler.sequence(`a${i}`)!.sampled);
    const then = sampled();
    dear.steps(600);
    const gained = sampled().map((count, i) => count - then[i]!);
    expect(Math.max(...gained) - Math.min(...gained)).toBeLessThanOrEqual(18);
    expect(Math.min(...gained)).toBeGreaterThan(15);
  });

  test.each([16, 900])('those that rest have the highest slots (%d tokens of the others)', (maxTokens) => {
    const run = new Run({}, { fixed: 0, row: 1 });
    run.many(72, 'a', 10, 4000);
    run.steps(60);
    let [iterations, few] = [0, 0];
    while (run.iterations < 400) {
      // Each asks one thing after the other, and is back in the iteration after next.
      if (run.iterations % 3 === 0) {
        for (const client of 'pqrs') {
          if (run.slotsOf(client) === 0) run.submit(client, 10, maxTokens);
        }
      }
      const { decodes } = run.step()!.ranks[0]!;
      if (run.iterations < 150) continue;
      iterations++;
      // A step computes rows up to the highest one.
      if (Math.max(...decodes.map(({ slot }) => slot)) < 8) few++;
    }
    expect(few / iterations).toBeGreaterThan(0.9);
  });

  test('beside prompts of others that are back, and for a moment when they have gone, a client has few rows', () => {
    const run = new Run({}, { fixed: 0, row: 1 });
    run.many(72, 'a', 10, 4000);
    run.steps(60);
    let most = 0;
    for (let round = 0; round < 20; round++) {
      for (const client of 'pqrs') run.submit(client, 10, 16);
      for (let i = 0; i < 18; i++) {
        const { decodes } = run.step()!.ranks[0]!;
        const own = decodes.filter(({ id }) => id.startsWith('a')).length;
        // In one iteration of 64 nobody rests: what rows cost is learned.
        if (round > 8 && run.iterations % 64 !== 1) most = Math.max(most, own);
      }
      for (const client of 'pqrs') run.until(`${client}${round}`, 40);
    }
    expect(most).toBeLessThanOrEqual(2);
  });
});

test('blocks run out: one that waits for its last token alone is left', () => {
  const scheduler = new Scheduler({
    ranks: [{ numBlocks: 3, slots: 4 }],
    blockTokens: 4,
    contextLength: 64,
    maxTokensPerIteration: 32,
    watermark: 0,
  });
  for (const [id, maxTokens] of [
    ['a', 5],
    ['b', 5],
    ['c', 1],
  ] as const)
    scheduler.submit({ id, prompt: { length: 4 }, maxTokens });
  const first = scheduler.schedule()!;
  // The token of c is on its way when a needs a block.
  const second = scheduler.schedule()!;
  expect(second.ranks[0]!.preempted.map(({ id }) => id)).toEqual(['b']);
  expect(second.ranks[0]!.decodes.map(({ id }) => id)).toEqual(['a']);
  expect(scheduler.complete(first).map(({ id }) => id)).toEqual(['c']);
});
