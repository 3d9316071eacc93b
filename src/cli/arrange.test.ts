import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { MODES, parseArrangementFile, type Placement } from '../arrangement/index.js';
import { lognormalLoads } from '../arrangement/testing/loads.js';
import { command } from './commands/arrange.js';
import { parseOptions } from './options.js';
import { runCli } from './testing/run_cli.js';

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-arrange-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const file = (name: string, value: unknown): string => {
  writeFileSync(join(scratch, name), typeof value === 'string' ? value : JSON.stringify(value));
  return join(scratch, name);
};

const layers = lognormalLoads(21, 4, 8);
const profile = file('profile.json', { model: 'test-model', kv_budget: 0.2, layers, spread: [] });
const common = ['--profile', profile, '--ranks', '4'];

/** Runs the command in this process; what it wrote to stdout. */
async function run(...args: readonly string[]): Promise<string> {
  let out = '';
  const terminal = {
    write: (text: string): Promise<void> => {
      out += text;
      return Promise.resolve();
    },
    note: (): void => {},
    progress: (): void => {},
    signal: new AbortController().signal,
  };
  expect(await command.run(parseOptions('arrange', command.options, args), terminal)).toBe(0);
  return out;
}

interface Document {
  readonly makespan: number;
  readonly copies: number;
  readonly placement: Placement;
}

const document = async (...args: readonly string[]): Promise<Document> =>
  JSON.parse(await run(...common, '--json', ...args)) as Document;

describe('--json', () => {
  test.each(MODES)('%s prints the document and nothing else', async (mode) => {
    const found = await document('--mode', mode, '--copies', '1');
    expect(Object.keys(found)).toEqual([
      'mode',
      'makespan',
      'lower_bound',
      'gap',
      'optimal',
      'utilisation',
      'copies',
      'seconds',
      'placement',
    ]);
    expect(found).toMatchObject({ mode, seconds: expect.any(Number) as number });
    expect(found.placement.map((heads) => heads.length)).toEqual([8, 8, 8, 8]);
    expect(Object.keys(found.placement[0]![0]![0]!)).toEqual(['rank', 'share']);
  });

  test('limits reach the search', async () => {
    const [none, one, memory] = [
      await document('--mode', 'exact'),
      await document('--copies', '1'),
      await document('--memory', '9'),
    ];
    expect(none.copies).toBe(0);
    expect(one.copies).toBeGreaterThan(0);
    expect(one.makespan).toBeLessThan(none.makespan);
    expect(memory.copies).toBeGreaterThan(0);
    expect(memory.copies).toBeLessThanOrEqual(4);
    const wrapped = await document('--mode', 'wrap', '--batch', '4');
    for (const { share } of wrapped.placement.flat(2)) expect((share * 4) % 1).toBe(0);
  });
});

test('--out writes what --json shows, as a file that can be read again', async () => {
  const out = join(scratch, 'plan.json');
  const found = await document('--mode', 'wrap', '--out', out);
  const plan = parseArrangementFile(readFileSync(out, 'utf8'), out);
  expect(plan).toMatchObject({ version: 1, policy: 'arranged', model: 'test-model', ranks: 4, mode: 'wrap' });
  expect(plan.placement).toEqual(found.placement);
});

test('the text shows before and after, the proof, and who holds what', async () => {
  const simple = file('simple.json', { model: 'm', kv_budget: 0.5, layers: [[6, 2, 2, 2]] });
  const text = await run('--profile', simple, '--ranks', '2', '--copies', '1');
  expect(text).toContain('m, KV budget 0.5: 1 layers of 4 kv heads on 2 ranks');
  expect(text).toContain('mode exact, at most 1 copy per layer, no limit of memory, real shares');
  expect(text).toMatch(/^static +8\.000 +0\.750$/m);
  expect(text).toMatch(/^exact +6\.000 +1\.000$/m);
  expect(text).toMatch(/^no makespan is lower within these limits; copies 0; [\d.]+ s$/m);
  expect(text).toMatch(/^0 +0\.750 +1\.000 +0 +1 2 3$/m);
  const wrap = (load: number, ...more: string[]) => {
    const profiled = file('one.json', { model: 'm', kv_budget: 1, layers: [[load]] });
    return run('--profile', profiled, '--ranks', '2', '--mode', 'wrap', ...more);
  };
  const wrapped = await wrap(5);
  expect(wrapped).toMatch(/^0 +0\.500 +1\.000 +0:0\.5 +0:0\.5$/m);
  // What of the copies runs for one request at a time.
  expect(text).not.toContain('layers with copies');
  expect(wrapped).toContain('with these loads each head is whole on one of its ranks');
  expect(await wrap(5000)).toContain('shared out in 1 of the 1 layers with copies');
  expect(await wrap(5, '--sharing', 'lanes')).not.toContain('layers with copies');
});

describe('bad usage', () => {
  test.each<[string, string[], string]>([
    ['no profile', ['--ranks', '2'], '--profile is missing: name a file that `splitkv profile` wrote'],
    ['no ranks', ['--profile', profile], '--ranks is missing: give the number of ranks'],
    [
      'names for ranks',
      ['--profile', profile, '--ranks', 'low-power'],
      '--ranks low-power: expected an integer from 1',
    ],
    [
      'an unknown mode',
      [...common, '--mode', 'exakt'],
      "--mode exakt: expected static, exact, greedy, fair-copy, wrap. Did you mean 'exact'?",
    ],
    ['an unknown option', [...common, '--copied', '1'], "unknown option --copied. Did you mean '--copies'?"],
    ['fewer than no copies', [...common, '--copies', '-1'], '--copies -1: expected an integer of at least 0'],
    ['half a request', [...common, '--batch', '0.5'], '--batch 0.5: expected an integer of at least 1'],
    [
      'too little memory',
      [...common, '--memory', '7'],
      '4 ranks of 7 hold 28 heads, but 4 layers of 8 are 32; give at least 8',
    ],
    [
      'a broken profile',
      ['--profile', file('odd.json', { model: 'm', kv_budget: 1, layers: [[1], []] }), '--ranks', '1'],
      'odd.json.layers[1] is []',
    ],
  ])('%s', async (_what, args, message) => {
    const failed = run(...args);
    await expect(failed).rejects.toThrow(message);
    await expect(failed).rejects.toMatchObject({ code: 'usage' });
  });

  test('files that cannot be read or written are named', async () => {
    await expect(run('--profile', join(scratch, 'none.json'), '--ranks', '2')).rejects.toMatchObject({
      code: 'io',
      message: expect.stringContaining("none.json: can't be read") as string,
    });
    await expect(run(...common, '--out', join(scratch, 'no', 'plan.json'))).rejects.toMatchObject({ code: 'io' });
    await expect(run('--profile', file('text.json', '{'), '--ranks', '2')).rejects.toMatchObject({ code: 'format' });
  });

  test('the command line knows the command', async () => {
    const { code, stdout, stderr } = await runCli(['arrange', '--profile', profile, '--ranks', '0', '--json']);
    expect(stderr).toBe('splitkv: --ranks 0: expected an integer from 1 to 1024\n');
    expect(stdout).toBe('');
    expect(code).toBe(2);
  });
});

describe('--costs', () => {
  const measured = (head_costs: unknown): string => file('plan.json', { model: 'test-model', head_costs });
  const seconds_per_head = [1e-7, 1e-7, 1e-7, 1e-7];

  test('the least latency: a rank that is three times as fast has most', async () => {
    const costs = measured({ seconds_per_entry: [1e-7, 3e-7, 3e-7, 3e-7], seconds_per_head });
    const { placement, makespan } = await document('--costs', costs, '--batch', '8');
    const held = (rank: number): number =>
      placement.flat().reduce((sum, copies) => sum + (copies.find((copy) => copy.rank === rank)?.share ?? 0), 0);
    expect(held(0)).toBeGreaterThan(1.5 * Math.max(held(1), held(2), held(3)));
    // Seconds, of all layers.
    expect(makespan).toBeLessThan(1);
    expect(await run(...common, '--costs', costs, '--batch', '8')).toMatch(/static +[\d.]+ ms/);
  });

  test.each([
    ['no document of plan', { layers: [] }],
    ['nothing in it', {}],
    ['a number for a list', { seconds_per_entry: 1, seconds_per_head }],
    ['no JSON', undefined],
  ])('%s is refused', async (_name, costs) => {
    const given = costs ? measured(costs) : file('plan.json', 'hello');
    await expect(run(...common, '--costs', given)).rejects.toThrow(/isn't what `splitkv plan MODEL/);
  });

  test('of another number of ranks', async () => {
    const costs = measured({ seconds_per_entry: [1e-7], seconds_per_head });
    await expect(run(...common, '--costs', costs)).rejects.toThrow(
      /secondsPerEntry has 1 numbers; expected one per rank, 4/,
    );
  });
});
