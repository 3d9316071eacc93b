import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { type BenchDocument, SOFTWARE_NOTE } from '../document.js';
import type { DecodeResult } from '../suites/decode.js';
import type { KernelResult } from '../suites/kernels.js';
import type { RanksResult } from '../suites/ranks.js';
import type { ServeResult } from '../suites/serve.js';
import type { ProfileResult } from '../suites/profile.js';
import type { ThroughputResult } from '../suites/throughput.js';
import { testAdapters } from '../../src/gpu/testing/adapters.js';
import { runCli } from '../../src/cli/testing/run_cli.js';
import { runHere } from '../../src/cli/testing/run_here.js';
import type { SpeculateResult } from '../suites/speculate.js';
import type { VisionResult } from '../suites/vision.js';
import { readSubmission } from '../submissions.js';
import type { LoadResult } from './load_suite.js';
import { drawn } from '../../src/gpu/testing/draw.js';

const suites = drawn(
  ['decode', 'kernels', 'serve', 'throughput', 'profile', 'speculate', 'vision', 'against', 'gpu', 'scale'],
  1,
  'suites',
);

// Each starts processes that compile their kernels anew; on a software adapter that takes its time.
vi.setConfig({ testTimeout: 180_000 });

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-bench-test-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const tiny = ['--model', 'models/tiny-gqa'];
const { name: adapter } = (await testAdapters()).at(-1)!;
const inNode = ['--host', 'node', '--adapter', adapter, '--json'];

describe('bad usage: exit code 2, one line on stderr, nothing on stdout', () => {
  test.each<[string, string[], string]>([
    [
      'an unknown suite',
      ['--suite', 'scales'],
      "--suite scales: expected decode, speculate, prefill, vision, kernels, check, gpu, compile, ranks, seeds, arranged, throughput, profile, serve, compression, peers, planner, scale, load. Did you mean 'scale'?",
    ],
    ['unknown weights', ['--weights', 'f16,q5'], "--weights f16,q5: 'q5' is none of f32, f16, q8, q4"],
    ['weights twice', ['--weights', 'q8,q8'], '--weights q8,q8: expected each type once'],
    ['lengths that are none', ['--prompt-tokens', '8,many'], '--prompt-tokens 8,many: expected integers of at least 1'],
    ['no runs', ['--runs', '0'], '--runs 0: expected an integer of at least 1'],
    ['runs of scale', ['--suite', 'scale', '--runs', '3'], '--runs has no meaning for --suite scale'],
    ['clients of kernels', ['--suite', 'kernels', '--clients', '2'], '--clients has no meaning for --suite kernels'],
    [
      'an unknown part',
      ['--suite', 'gpu', '--parts', 'bits,bytes'],
      "--parts bits,bytes: 'bytes' is none of overheads",
    ],
    ['no other splitkv', ['--against', 'models'], '--against models: expected a checkout of splitkv'],
    ['one rank', ['--suite', 'ranks', '--ranks', '2,1'], '--ranks 2,1: expected integers of at least 2'],
    [
      'an unknown kernel',
      ['--suite', 'kernels', '--host', 'node', '--kernel', 'soft'],
      "--kernel soft: no kernel's folder contains it; there are attention/attention_append,",
    ],
    [
      'an unknown kernel to compile',
      ['--suite', 'compile', '--kernel', 'soft'],
      "--kernel soft: no kernel's folder contains it; there are attention/attention_append,",
    ],
    [
      'an unknown family',
      ['--suite', 'compile', '--family', 'navi99'],
      "--family navi99: expected gfx1200, navi31, navi21, navi10, vega10, polaris10. Did you mean 'navi",
    ],
    ['compiling in Chrome', ['--suite', 'compile', '--host', 'chrome'], '--host chrome: --suite compile runs in Node'],
    [
      "a budget of a latent's cache",
      ['--suite', 'planner', '--model', 'models/tiny-mla', '--kv-budget', '0.2'],
      "models/tiny-mla: a compressed cache (kvBudget) can't be had with a latent cache (MLA)",
    ],
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
    const { code, stdout, stderr } = await runHere(['bench', ...args, '--json']);
    expect(stderr).toContain(message);
    expect(stderr).toMatch(/^splitkv: [^\n]+\n$/);
    expect(stdout).toBe('');
    expect(code).toBe(2);
  });

  test('a missing model is a failure, not bad usage', async () => {
    for (const suite of ['decode', 'scale', 'load']) {
      const { code, stderr } = await runHere(['bench', '--suite', suite, '--model', join(scratch, 'none'), '--json']);
      expect(stderr).toContain('no such folder');
      expect(code).toBe(1);
    }
  });
});

test.runIf(suites.includes('decode'))(
  'decode: weights side by side, medians of their samples, a report, and what changed since',
  async () => {
    const settings = ['--weights', 'f16,q8', '--prompt-tokens', '9,40', '--max-tokens', '2', '--runs', '3'];
    const args = ['bench', ...tiny, ...inNode, ...settings, '--context', '64'];
    const { code, stdout, stderr } = await runCli([...args, '--out', scratch]);
    expect(code, stderr).toBe(0);
    const document = JSON.parse(stdout) as BenchDocument<DecodeResult>;
    const file = join(scratch, 'decode-node.json');
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(document);
    expect(document.suite).toBe('decode');
    const { environment, results, measurements } = document;
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
      const speeds = result.samples.map((sample) => sample.tokens_per_second);
      expect(speeds).toHaveLength(3);
      expect(Math.min(...speeds)).toBeGreaterThan(0);
      expect(result.tokens_per_second).toBe(speeds.toSorted((a, b) => a - b)[1]);
      expect(result.ttft_ms).toBeGreaterThan(0);
      expect(result.generated_tokens).toBe(2);
      const first = results[index - (index % 2)]!;
      const ratios = speeds.map((speed, run) => speed / first.samples[run]!.tokens_per_second);
      expect(result.speed_ratio.value).toBe(ratios.toSorted((a, b) => a - b)[1]);
      expect(measurements!.filter(({ metric }) => metric === 'decode')[index]!.samples).toEqual(speeds);
    }
    const table = readFileSync(join(scratch, 'decode-node.txt'), 'utf8');
    expect(table).toMatch(/^tiny-gqa +q8 +40 .*$/m);
    expect(table.includes(SOFTWARE_NOTE)).toBe(environment.note !== undefined);
    expect(readFileSync(join(scratch, 'decode-node.html'), 'utf8')).toContain('<svg');

    // As if everything had been a thousand times as slow then.
    const slower = measurements!.map((measurement) => ({
      ...measurement,
      samples: measurement.samples.map((sample) => (measurement.better === 'higher' ? sample / 1e3 : sample * 1e3)),
    }));
    writeFileSync(join(scratch, 'old.json'), JSON.stringify({ ...document, measurements: slower }));
    const again = await runCli([...args, '--compare', join(scratch, 'old.json')]);
    expect(again.code, again.stderr).toBe(0);
    const { comparison } = JSON.parse(again.stdout) as BenchDocument<DecodeResult>;
    expect(comparison!.date).toBe(environment.date);
    expect(comparison!.changes.map(({ verdict }) => verdict)).toEqual(measurements!.map(() => 'better'));

    const wrong = await runCli(['bench', '--suite', 'prefill', ...inNode, '--compare', file]);
    expect(wrong.stderr).toContain("a document of suite 'decode', this run is of 'prefill'");
    expect(wrong.code).toBe(1);
    const nowhere = await runCli(['bench', ...inNode, '--out', file]);
    expect(nowhere.stderr).toMatch(/^splitkv: --out .*: can't be written: EEXIST/m);
    expect(nowhere.stderr).not.toContain('tokens');
  },
);

test.runIf(suites.includes('kernels'))('kernels: times against what the adapter can do', async () => {
  const args = ['--suite', 'kernels', '--kernel', 'norm/rms_norm', '--runs', '2'];
  const { code, stdout, stderr } = await runCli(['bench', ...args, ...inNode]);
  expect(code, stderr).toBe(0);
  const { results } = JSON.parse(stdout) as BenchDocument<KernelResult>;
  expect(results.length).toBeGreaterThan(1);
  expect(new Set(results.map(({ kernel }) => kernel))).toEqual(new Set(['rms_norm']));
  for (const { us, gbps, copy_share: copy, fma_share: fma, samples } of results) {
    expect(samples).toHaveLength(2);
    expect(us).toBeGreaterThan(0);
    expect(copy).toBeGreaterThan(0);
    expect(fma).toBeGreaterThan(0);
    // Peaks are what every kernel's numbers are divided by.
    expect(gbps / copy).toBeCloseTo(results[0]!.gbps / results[0]!.copy_share, 6);
  }
});

test.runIf(suites.includes('serve'))('serve: clients side by side; ranks: several numbers of them', async () => {
  const short = ['--prompt-tokens', '12', '--max-tokens', '2', '--runs', '1', ...tiny, ...inNode];
  const groups = ['--micro-batches', '1,2'];
  const serve = await runCli(['bench', '--suite', 'serve', '--clients', '1,3', '--requests', '1', ...groups, ...short]);
  expect(serve.code, serve.stderr).toBe(0);
  const served = JSON.parse(serve.stdout) as BenchDocument<ServeResult>;
  expect(served.results.map(({ micro_batches: count, clients, requests }) => [count, clients, requests])).toEqual([
    [1, 1, 1],
    [1, 3, 3],
    [2, 1, 1],
    [2, 3, 3],
  ]);
  for (const { ttft_ms: ttft } of served.results) expect(ttft.p95).toBeGreaterThanOrEqual(ttft.p50);

  const args = ['--suite', 'ranks', '--plan', 'tp', '--ranks', '2,4', '--batch', '1', ...short];
  const ranks = await runCli(['bench', ...args]);
  expect(ranks.code, ranks.stderr).toBe(0);
  const { results } = JSON.parse(ranks.stdout) as BenchDocument<RanksResult>;
  expect(results.map(({ task, plan, ranks: count }) => `${task} ${plan} ${count}`)).toEqual([
    'prefill single 1',
    'prefill tp 2',
    'prefill tp 4',
    'decode single 1',
    'decode tp 2',
    'decode tp 4',
  ]);
});

test.runIf(suites.includes('throughput'))(
  'throughput: plans and micro-batches by batch and context, beside replicas of one rank',
  async () => {
    const setting = [
      '--plan',
      'token',
      '--batch',
      '1,3',
      '--prompt-tokens',
      '9,70',
      '--max-tokens',
      '2',
      '--runs',
      '1',
    ];
    const { code, stdout, stderr } = await runCli(['bench', '--suite', 'throughput', ...setting, ...tiny, ...inNode]);
    expect(code, stderr).toBe(0);
    const { results } = JSON.parse(stdout) as BenchDocument<ThroughputResult>;
    const told = results.map(({ plan, ranks, micro_batches: count, batch, context }) =>
      [plan, ranks, count, batch, context].join(' '),
    );
    const rivals = (batch: number, context: number): string[] =>
      ['single 1 1', ...(batch > 1 ? ['replicas 2 1'] : []), 'token 2 1', ...(batch > 1 ? ['token 2 2'] : [])].map(
        (rival) => `${rival} ${batch} ${context}`,
      );
    expect(told).toEqual([...rivals(1, 9), ...rivals(1, 70), ...rivals(3, 9), ...rivals(3, 70)]);
    for (const { speedup, samples } of results) {
      expect(samples[0]).toBeGreaterThan(0);
      expect(speedup.value).toBeGreaterThan(0);
    }
  },
);

test.runIf(suites.includes('profile'))("profile: attention's part of a step by batch and context", async () => {
  const setting = ['--batch', '1,2', '--prompt-tokens', '40,1100', '--max-tokens', '2', '--runs', '2'];
  const { code, stdout, stderr } = await runCli(['bench', '--suite', 'profile', ...setting, ...tiny, ...inNode]);
  expect(code, stderr).toBe(0);
  const { results } = JSON.parse(stdout) as BenchDocument<ProfileResult>;
  expect(results.map(({ batch, context }) => [batch, context])).toEqual([
    [1, 40],
    [1, 1100],
    [2, 40],
    [2, 1100],
  ]);
  for (const { step_ms: step, attention_ms: attention, attention_share: share, samples } of results) {
    expect(samples).toHaveLength(2);
    expect(share).toBeCloseTo(attention / step);
    expect(attention).toBeLessThanOrEqual(step);
  }
});

test.runIf(suites.includes('speculate'))('speculate: the same answers with proposals, by text', async () => {
  const setting = ['--max-tokens', '40', '--runs', '2', '--context', '256', '--draft', 'models/tiny-gqa'];
  const { code, stdout, stderr } = await runCli(['bench', '--suite', 'speculate', ...setting, ...tiny, ...inNode]);
  expect(code, stderr).toBe(0);
  const { results } = JSON.parse(stdout) as BenchDocument<SpeculateResult>;
  const texts = ['story', 'code', 'JSON', 'random'];
  const together = ['JSON, at once', 'random, at once', 'random beside JSON'];
  const rows = [...[...texts, ...together].map((text) => `ngram ${text}`), ...texts.map((text) => `draft ${text}`)];
  expect(results.map(({ drafts, text }) => `${drafts} ${text}`)).toEqual(rows);
  for (const { prompt_tokens: prompt, acceptance, step_costs: costs } of results) {
    expect(prompt).toBeLessThanOrEqual(256 - 40);
    expect(acceptance).toBeLessThanOrEqual(1);
    expect(costs).toHaveLength(4);
    expect(Math.min(...costs)).toBeGreaterThan(0);
  }
});

test.runIf(suites.includes('vision'))('vision: an encoder, and prompts with a picture', async () => {
  const args = ['bench', '--suite', 'vision', '--runs', '2', '--context', '256', ...inNode];
  const { code, stdout, stderr } = await runCli(args);
  expect(code, stderr).toBe(0);
  const { results, left_out: leftOut } = JSON.parse(stdout) as BenchDocument<VisionResult>;
  expect(results.map(({ task, samples }) => [task, samples.length])).toEqual(
    ['encoder', 'new', 'again', 'text'].map((task) => [task, 2]),
  );
  // tiny-vlm's: 8 by 8 patches, 2 by 2 of them a row, between 16 tokens of text.
  for (const { rows, prompt_tokens: length = 32 } of results) expect([rows, length]).toEqual([16, 32]);
  expect(leftOut?.map(({ runtime }) => runtime)).toEqual(['transformers.js']);
});

test.runIf(suites.includes('against'))('against another checkout: runs in turns, paired', async () => {
  const settings = ['--weights', 'q4', '--prompt-tokens', '9', '--max-tokens', '3', '--runs', '2', '--context', '64'];
  const { code, stdout, stderr } = await runCli(['bench', ...tiny, ...inNode, ...settings, '--against', '.']);
  expect(code, stderr).toBe(0);
  const { measurements, comparison } = JSON.parse(stdout) as BenchDocument<never>;
  expect(measurements!.map(({ metric, samples }) => [metric, samples.length])).toEqual([
    ['decode', 2],
    ['time to first token', 2],
  ]);
  expect(comparison!.differences).toEqual([]);
  for (const { verdict, gain } of comparison!.changes) {
    expect(verdict).toBe('unclear'); // of two runs
    expect(gain!.value).toBeGreaterThan(0);
  }
});

test.runIf(suites.includes('gpu'))('gpu: parts in one document and a page that needs nothing beside it', async () => {
  const out = join(scratch, 'gpu');
  const asked = ['--parts', 'overheads,linear,attention', '--host', 'node', '--adapter', adapter, '--out', out];
  const { code, stdout, stderr } = await runCli(['bench', '--suite', 'gpu', ...asked]);
  expect(code, stderr).toBe(0);
  const { suite, environment, results } = readSubmission(readFileSync(join(out, 'gpu.json'), 'utf8'), 'gpu.json');
  expect(suite).toBe('gpu');
  expect(environment).toMatchObject({
    host: 'node',
    node: process.version,
    version: expect.stringMatching(/^\d+\.\d+/),
  });
  expect(results.map(({ part, host }) => `${part} ${host}`)).toEqual([
    'overheads node',
    'linear node',
    'attention node',
  ]);
  for (const { rows, left_out: why } of results) {
    expect(why).toBeUndefined();
    expect(rows.length).toBeGreaterThan(1);
    for (const { us } of rows) expect(us).toBeGreaterThanOrEqual(0);
  }
  const page = readFileSync(join(out, 'index.html'), 'utf8');
  expect(page).not.toMatch(/(?:src|href)="(?!data:)|@import|url\(/);
  expect(page.match(/<table>/g)).toHaveLength(3);
  const { software } = environment.adapters[0]!;
  for (const text of [page, stdout]) expect(text.includes(SOFTWARE_NOTE)).toBe(software);
});

test('decode refuses a prompt that leaves no room', async () => {
  const { code, stderr } = await runCli([
    'bench',
    ...tiny,
    ...inNode,
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

test.runIf(suites.includes('scale'))(
  'scale: each load in its own process; a load that fails is told and the others go on',
  async () => {
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
  },
);
