import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { runCli } from '../testing/run_cli.js';
import type { DecodeResult } from './decode_suite.js';
import type { BenchDocument } from './environment.js';
import { SOFTWARE_NOTE } from './environment.js';
import type { LoadResult } from './load_suite.js';
import { alignedTable } from './table.js';

// Each starts processes that compile their kernels anew; on a software adapter that takes its time.
vi.setConfig({ testTimeout: 180_000 });

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-bench-test-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const tiny = ['--model', 'models/tiny-gqa'];

describe('bad usage: exit code 2, one line on stderr, nothing on stdout', () => {
  test.each<[string, string[], string]>([
    [
      'an unknown suite',
      ['--suite', 'scales'],
      "--suite scales: expected decode, ranks, planner, scale, load, kernels. Did you mean 'scale'?",
    ],
    ['unknown weights', ['--weights', 'f16,q5'], "--weights f16,q5: 'q5' is none of f32, f16, q8, q4"],
    ['weights twice', ['--weights', 'q8,q8'], '--weights q8,q8: expected each type once'],
    ['lengths that are none', ['--prompt-tokens', '8,many'], '--prompt-tokens 8,many: expected integers of at least 1'],
    ['no runs', ['--runs', '0'], '--runs 0: expected an integer of at least 1'],
    ['runs of scale', ['--suite', 'scale', '--runs', '3'], '--runs has no meaning for --suite scale'],
    ['a host for kernels', ['--suite', 'kernels', '--host', 'chrome'], '--host has no meaning for --suite kernels'],
    ['several lengths for scale', ['--suite', 'scale', '--prompt-tokens', '8,9'], '--suite scale takes one length'],
    ['several weights for load', ['--suite', 'load', ...tiny, '--weights', 'f16,q8'], '--suite load takes one type'],
    ['load without a model', ['--suite', 'load'], '--model is missing'],
    [
      'a context too short',
      ['--suite', 'scale', '--context', '40'],
      '--context 40: expected room for 32 prompt tokens and 16 more',
    ],
    ['an adapter in Chrome', ['--host', 'chrome', '--adapter', 'x'], '--adapter needs --host node'],
  ])('%s', async (_what, args, message) => {
    const { code, stdout, stderr } = await runCli(['bench', ...args, '--json']);
    expect(stderr).toContain(message);
    expect(stderr).toMatch(/^splitkv: [^\n]+\n$/);
    expect(stdout).toBe('');
    expect(code).toBe(2);
  });

  test('a missing model is a failure, not bad usage', async () => {
    for (const suite of ['decode', 'scale', 'load']) {
      const { code, stderr } = await runCli(['bench', '--suite', suite, '--model', join(scratch, 'none')]);
      expect(stderr).toContain('no such folder');
      expect(code).toBe(1);
    }
  });
});

test('decode: weights side by side, medians of their samples, the same document on stdout and in a file', async () => {
  const settings = ['--weights', 'f16,q8', '--prompt-tokens', '9,40', '--max-tokens', '2', '--runs', '2'];
  const args = ['bench', ...tiny, ...settings, '--context', '64', '--json', '--out', scratch];
  const { code, stdout, stderr } = await runCli(args);
  expect(code, stderr).toBe(0);
  const document = JSON.parse(stdout) as BenchDocument<DecodeResult>;
  expect(JSON.parse(readFileSync(join(scratch, 'decode-node.json'), 'utf8'))).toEqual(document);
  expect(document.suite).toBe('decode');
  const { environment, results } = document;
  expect(environment).toMatchObject({ host: 'node', node: process.version });
  expect(environment.adapters).toHaveLength(1);
  expect(environment.note).toBe(environment.adapters[0]!.software ? SOFTWARE_NOTE : undefined);
  expect(results.map((result) => [result.weights, result.prompt_tokens])).toEqual([
    ['f16', 9],
    ['q8', 9],
    ['f16', 40],
    ['q8', 40],
  ]);
  for (const [index, result] of results.entries()) {
    const [a, b, ...more] = result.samples.map((sample) => sample.tokens_per_second);
    expect(more).toEqual([]);
    expect(Math.min(a!, b!)).toBeGreaterThan(0);
    expect(result.tokens_per_second).toBeCloseTo((a! + b!) / 2, 9);
    expect(result.ttft_ms).toBeGreaterThan(0);
    expect(result.generated_tokens).toBe(2);
    expect(result.speed_ratio).toBe(result.tokens_per_second / results[index - (index % 2)]!.tokens_per_second);
  }
  const table = readFileSync(join(scratch, 'decode-node.txt'), 'utf8');
  expect(table).toMatch(/^tiny-gqa +q8 +40 .*$/m);
  expect(table.includes(SOFTWARE_NOTE)).toBe(environment.note !== undefined);
});

test('decode refuses a prompt that leaves no room', async () => {
  const { code, stderr } = await runCli([
    'bench',
    ...tiny,
    '--context',
    '64',
    '--prompt-tokens',
    '63',
    '--max-tokens',
    '4',
  ]);
  expect(stderr).toContain('--prompt-tokens 63: with 4 tokens after it, a context of 64 holds at most 60');
  expect(code).toBe(2);
});

test('scale: each load in its own process; a load that fails is told and the others go on', async () => {
  const settings = ['--weights', 'q8,q4', '--prompt-tokens', '5', '--max-tokens', '2', '--context', '16'];
  const { code, stdout, stderr } = await runCli(['bench', '--suite', 'scale', ...tiny, ...settings, '--json']);
  expect(code, stderr).toBe(0);
  const { results } = JSON.parse(stdout) as BenchDocument<LoadResult>;
  expect(results.map(({ weights }) => weights)).toEqual(['q8', 'q4']);
  expect(results[1]!.weight_bytes).toBeLessThan(results[0]!.weight_bytes);
  for (const { memory, tokens, model, adapter, ttft_ms: ttft, first_ttft_ms: first } of results) {
    expect(model).toBe('tiny-gqa');
    expect(tokens).toHaveLength(2);
    expect(Math.min(ttft, first)).toBeGreaterThan(0);
    expect(memory.peak_bytes).toBeGreaterThanOrEqual(memory.loading_peak_bytes!);
    expect(memory.loading_peak_bytes).toBeGreaterThanOrEqual(memory.before_bytes!);
    expect(memory.gpu_in_process).toBe(adapter.software);
    expect(memory.bar_bytes).toBe(memory.largest_tensor_bytes + 256e6);
    expect(memory.largest_tensor_bytes).toBeLessThan(statSync('models/tiny-gqa/model.safetensors').size);
  }

  writeFileSync(join(scratch, 'config.json'), '{}');
  const failed = await runCli(['bench', '--suite', 'scale', '--model', scratch, '--weights', 'q8', '--json']);
  expect(failed.code).toBe(1);
  const [failure] = (JSON.parse(failed.stdout) as BenchDocument<{ error: string }>).results;
  expect(failure).toMatchObject({ model: scratch, weights: 'q8' });
  expect(failed.stderr).toContain(failure!.error);
});

test('a table has its numbers to the right', () => {
  const rows = [
    ['name', 'n'],
    ['a', '1.5'],
    ['longer', '10'],
  ];
  expect(alignedTable(rows, 1)).toBe('name      n\na       1.5\nlonger   10\n');
});
