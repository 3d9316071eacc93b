import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import type { AdpRow } from '../../simulate/adp_row.js';
import type { Pareto } from '../../simulate/pareto.js';
import { runHere } from '../../../src/cli/testing/run_here.js';

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-simulate-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const file = (name: string, text: string): string => {
  writeFileSync(join(scratch, name), text);
  return join(scratch, name);
};

const small = [
  'simulate',
  'adp',
  '--requests',
  '200',
  '--max-batch',
  '16',
  '--concurrency',
  '160',
  '--mean-out',
  '100',
];

interface Document {
  readonly rows: readonly AdpRow[];
  readonly published: readonly { readonly name: string; readonly tps: number }[];
  readonly parameters: Readonly<Record<string, unknown>>;
}

async function simulated(args: readonly string[]): Promise<Document> {
  const { code, stdout, stderr } = await runHere([...args, '--json']);
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout) as Document;
}

test('--json: rows, published rows, parameters; the seed decides', async () => {
  const document = await simulated([...small, '--ranks', '4', '--seed', '5']);
  expect(document.rows.map(({ name }) => name)).toEqual(['baseline', 'context_wait', 'full', 'cost']);
  for (const row of document.rows) {
    expect(row).toMatchObject({ tps: expect.any(Number) as number, iterations: expect.any(Number) as number });
    expect(row.balance).toBeGreaterThan(0);
    expect(row.balance).toBeLessThanOrEqual(1);
    expect(row.speedup).toBeCloseTo(row.tps / document.rows[0]!.tps, 9);
  }
  expect(document.published.map(({ name }) => name)).toEqual(['baseline', 'context_wait', 'full']);
  expect(document.parameters).toMatchObject({ seed: 5, ranks: 4, requests: 200, max_batch: 16, concurrency: 160 });
  expect(await simulated([...small, '--ranks', '4', '--seed', '5'])).toEqual(document);
  expect((await simulated([...small, '--ranks', '4'])).rows).not.toEqual(document.rows);
});

test('a table, and a report', async () => {
  const out = join(scratch, 'report.html');
  const { code, stdout, stderr } = await runHere([...small, '--out', out]);
  expect(code, stderr).toBe(0);
  expect(stdout).toMatch(/^baseline +[\d,]+ +\d+\.\d\d% +\d+\.\d\d% +\d+\.\d\d% +[\d,]+ +1\.00 /m);
  expect(stdout).not.toContain('published'); // another run than the published one
  expect(stdout).toContain(`report written to ${out}`);
  expect(readFileSync(out, 'utf8')).toMatch(/^<!doctype html>[\s\S]*<\/html>\n$/);
});

test('--pareto: points and fronts, of the loads that are asked for', async () => {
  const args = [...small, '--ranks', '2', '--pareto', '--loads', '8,160'];
  const document = (await simulated(args)) as Document & { readonly pareto: Pareto };
  const { points, fronts } = document.pareto;
  expect(points).toHaveLength(22);
  expect(points[0]).toEqual({
    policy: 'baseline',
    concurrency: 8,
    timeout_iters: null,
    batching_wait_iters: null,
    tps: expect.any(Number) as number,
    tps_per_rank: points[0]!.tps / 2,
    ttft_mean_s: expect.any(Number) as number,
    ttft_p95_s: expect.any(Number) as number,
  });
  expect(fronts.map(({ concurrency }) => concurrency)).toEqual([8, 160]);
  const { stdout } = await runHere(args);
  expect(stdout).toMatch(/^cost +160 +50 \/ 10 +[\d,]+ +[\d,]+ +\d+\.\d\d +\d+\.\d\d/m);
});

test('a trace file with arrivals and deadlines', async () => {
  const trace = file(
    'trace.csv',
    'input_tokens,output_tokens,arrival_s,ttft_deadline_s\n100,5,0,\n200,5,3,1\n50,1,9.5,\n',
  );
  const { rows, parameters } = await simulated(['simulate', 'adp', '--trace', trace, '--ranks', '2']);
  expect(parameters).toMatchObject({ requests: 3, mean_out: 11 / 3 });
  expect(parameters).not.toHaveProperty('seed');
  // The last one comes at 9.5 and takes one iteration of 50 tokens.
  for (const { elapsed_s } of rows) expect(elapsed_s).toBeCloseTo(9.5 + 0.0263 + 50 * 99e-6, 6);
});

describe('bad usage', () => {
  test.each<[string, string[], string]>([
    ['nothing to simulate', ['simulate'], 'what to simulate is missing. Use: simulate adp'],
    ['options only', ['simulate', '--seed', '1'], 'what to simulate is missing'],
    ['loads without points', [...small, '--loads', '8'], '--loads is for --pareto'],
    ['loads that are none', [...small, '--pareto', '--loads', '8,,9'], '--loads 8,,9: expected numbers of requests'],
    ['an unknown subject', ['simulate', 'apd'], "unknown subject 'apd'. Did you mean 'adp'?"],
    ['no room beside a batch', [...small, '--max-tokens-per-iteration', '16'], 'expected more than --max-batch 16'],
    ['a mean without room', [...small, '--mean-in', '5000'], '--mean-in 5000: prompts may have 4662 tokens'],
    ['a pool that no request fits', [...small, '--kv-tokens', '64'], '--kv-tokens 64: request 0 alone has'],
    [
      'a synthetic option beside a trace',
      ['simulate', 'adp', '--trace', file('one.json', '[{"input_tokens": 1, "output_tokens": 1}]'), '--seed', '3'],
      '--seed is for a synthetic trace',
    ],
    [
      'a prompt beyond the budget',
      ['simulate', 'adp', '--trace', file('long.json', '[{"input_tokens": 9000, "output_tokens": 1}]')],
      'request 0 has a prompt of 9000 tokens; an iteration takes 4678',
    ],
  ])('%s', async (_what, args, message) => {
    const { code, stdout, stderr } = await runHere(args);
    expect(stderr).toContain(message);
    expect(stdout).toBe('');
    expect(code).toBe(2);
  });

  test('files that cannot be read, understood or written: exit code 1', async () => {
    for (const args of [
      ['--trace', join(scratch, 'none.csv')],
      ['--trace', file('bad.csv', 'input_tokens\nx')],
    ]) {
      const { code, stderr } = await runHere(['simulate', 'adp', ...args]);
      expect(stderr).toMatch(/^splitkv: [^\n]+\n$/);
      expect(code).toBe(1);
    }
    const { code, stderr } = await runHere([...small, '--out', join(scratch, 'no/such/folder.html')]);
    expect(stderr).toContain("can't be written");
    expect(code).toBe(1);
  });
});
