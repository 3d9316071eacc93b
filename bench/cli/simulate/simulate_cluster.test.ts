import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import type { ClusterRow } from '../../cluster/cluster_study.js';
import { runHere } from '../../../src/cli/testing/run_here.js';

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-simulate-cluster-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const file = (name: string, text: string): string => {
  writeFileSync(join(scratch, name), text);
  return join(scratch, name);
};
const line = (timestamp: number, ids: readonly number[]): string =>
  JSON.stringify({ timestamp, input_length: 512 * ids.length, output_length: 20, hash_ids: ids });
const trace = file(
  'trace.jsonl',
  Array.from({ length: 150 }, (_, index) => line(index * 100, [0, 1, index + 2])).join('\n'),
);

const small = ['simulate', 'cluster', '--requests', '500', '--replicas', '4'];

interface Document {
  readonly rows: readonly ClusterRow[];
  readonly parameters: Readonly<Record<string, unknown>>;
}

async function simulated(args: readonly string[]): Promise<Document> {
  const { code, stdout, stderr } = await runHere([...args, '--json']);
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout) as Document;
}

test('--json: a row for each policy, parameters; the seed decides', async () => {
  const args = [...small, '--gateways', '3', '--policy', 'random,prefix', '--slots', '4', '--cache-tokens', '8000'];
  const document = await simulated(args);
  expect(document.rows.map(({ policy }) => policy)).toEqual(['random', 'prefix']);
  expect(document.rows[1]!.hitRate).toBeGreaterThan(document.rows[0]!.hitRate);
  const { parameters } = document;
  expect(parameters).toMatchObject({ replicas: 4, gateways: 3, requests: 500, slots: 4, cacheBlocks: 125, bound: 1 });
  // What the replicas could do if nothing were cached: prompts of 1850 tokens, answers of 150.
  expect(parameters['rate']).toBeCloseTo((0.9 * 4) / (1850 / 5000 + (150 * 1.12) / (4 * 60)), 9);
  expect(await simulated(args)).toEqual(document);
  expect((await simulated([...args, '--seed', '2'])).rows).not.toEqual(document.rows);
  expect((await simulated([...args, '--rate', '3'])).parameters['rate']).toBe(3);
});

test('a table that says what it is', async () => {
  const { code, stdout, stderr } = await runHere(small);
  expect(code, stderr).toBe(0);
  expect(stdout).toMatch(/^4 replicas, 2 gateways, 500 requests, 5\.81 a second\n/);
  for (const name of ['random', 'round_robin', 'least_loaded', 'two_choices', 'prefix', 'session'])
    expect(stdout).toMatch(new RegExp(`^${name} +\\d+\\.\\d% +\\d+\\.\\d%( +[\\d,]+){4} +\\d+\\.\\d% +0\\.0%$`, 'm'));
  expect(stdout).toContain('A simulation: nothing here is measured');
  expect(stdout).not.toMatch(/NaN|Infinity|undefined/);
});

test('a trace, as recorded and at another rate', async () => {
  const args = ['simulate', 'cluster', '--trace', trace, '--policy', 'prefix', '--replicas', '2'];
  const recorded = await simulated(args);
  expect(recorded.parameters).toMatchObject({ requests: 150, mean_in: 1536, mean_out: 20 });
  expect(recorded.parameters['rate']).toBeCloseTo(150 / 14.9, 9);
  // Two of three blocks are those of every request.
  expect(recorded.rows[0]!.mostHitRate).toBeCloseTo(2 / 3, 9);
  expect(recorded.rows[0]!.hitRate).toBeGreaterThan(0.6);
  expect((await simulated([...args, '--requests', '100'])).parameters['requests']).toBe(100);
  const slow = await simulated([...args, '--rate', '1']);
  expect(slow.rows[0]!.busy).toBeLessThan(recorded.rows[0]!.busy / 4);
});

describe('bad usage', () => {
  const burst = file('burst.jsonl', Array.from({ length: 100 }, () => line(0, [1])).join('\n'));
  test.each<[string, string[], string]>([
    ['a policy that is none', [...small, '--policy', 'random,prefx'], "'prefx' is none. Did you mean 'prefix'?"],
    ['too few requests', ['simulate', 'cluster', '--requests', '5'], '--requests 5: expected an integer from 100'],
    ['no replica', [...small.slice(0, 4), '--replicas', '0'], '--replicas 0: expected an integer from 1 to 10000'],
    ['a batch slower than one request', [...small, '--batch-tps', '10'], '--batch-tps 10: expected from 60'],
    ['two rates', [...small, '--rate', '1', '--load', '1'], '--rate and --load say the same'],
    ['a bound below none', [...small, '--bound', '-1'], '--bound -1: expected a number of at least 0'],
    [
      'a length beside a trace',
      ['simulate', 'cluster', '--trace', trace, '--turns', '2'],
      '--turns is for conversations: leave it out, or --trace',
    ],
    [
      'a rate of a burst',
      ['simulate', 'cluster', '--trace', burst, '--rate', '2'],
      'all requests of the trace come at once',
    ],
    [
      'an option of the other simulation',
      [...small, '--max-batch', '3'],
      'simulate cluster: unknown option --max-batch',
    ],
  ])('%s', async (_what, args, message) => {
    const { code, stdout, stderr } = await runHere(args);
    expect(stderr).toContain(message);
    expect(stdout).toBe('');
    expect(code).toBe(2);
  });

  test('traces that cannot be read or understood: exit code 1', async () => {
    for (const [name, message] of [
      [join(scratch, 'none.jsonl'), "can't be read"],
      [file('short.jsonl', line(0, [1])), 'has 1 requests: expected at least 100'],
      [file('bad.jsonl', '{"timestamp": 1}'), 'line 1: hash_ids is undefined: expected a list'],
    ] as const) {
      const { code, stderr } = await runHere(['simulate', 'cluster', '--trace', name]);
      expect(stderr).toContain(message);
      expect(code).toBe(1);
    }
  });
});

test('help: of each simulation, and of both', async () => {
  const [cluster, both] = await Promise.all([
    runHere(['simulate', 'cluster', '--help']),
    runHere(['help', 'simulate']),
  ]);
  expect(cluster.stdout).toContain('splitkv simulate cluster [options]');
  expect(cluster.stdout).not.toContain('splitkv simulate adp');
  expect(await runHere(['help', 'simulate', 'cluster'])).toEqual(cluster);
  for (const name of ['adp', 'cluster']) expect(both.stdout).toContain(`splitkv simulate ${name} [options]`);
});
