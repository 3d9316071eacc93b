import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { QUESTIONS, STORY } from '../../models/example.js';
import type { GenerateResult, RunStats } from '../index.js';
import { drawn } from '../gpu/testing/draw.js';
import { runCli } from './testing/run_cli.js';

// Each of these starts a process that compiles its kernels anew; on a software adapter that takes its time.
vi.setConfig({ testTimeout: 180_000 });

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-cli-'));
afterAll(() => rmSync(scratch, { recursive: true }));

const model = ['--model', 'models/tiny-gqa'];
const ask = `${STORY} ${QUESTIONS[0].question}`;

interface LogitsDocument {
  readonly results: readonly {
    readonly positions: readonly number[];
    readonly argmax: readonly number[];
    readonly sha256: string;
    readonly logits?: readonly (readonly number[])[];
    readonly top?: readonly (readonly (readonly [number, number])[])[];
  }[];
  readonly stats: RunStats;
}

async function logits(...args: readonly string[]): Promise<LogitsDocument> {
  const { code, stdout, stderr } = await runCli(['logits', ...model, '--json', ...args]);
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout) as LogitsDocument;
}

const parts = drawn(['limits', 'controls'], 1, 'parts of generate');

describe('generate', () => {
  test('streams the answer to stdout and says how it went on stderr', async () => {
    const { code, stdout, stderr } = await runCli(['generate', ...model, '--prompt', ask]);
    expect(code, stderr).toBe(0);
    expect(stdout.trim()).toBe(QUESTIONS[0].answer);
    expect(stderr).toMatch(/^5 tokens, [\d.]+ tokens\/s, first after \d+ ms, [\d.]+ dispatches per token/);
  });

  test('--prompt-cache: the next process begins with what the first one kept, and answers alike', async () => {
    const path = join(scratch, 'prompt.kv');
    const told: GenerateResult[] = [];
    for (const more of [[], ['--ranks', '2', '--plan', 'tp', '--virtual-ranks']]) {
      const args = ['generate', ...model, '--prompt', ask, '--json', '--prompt-cache', path, ...more];
      const { code, stdout, stderr } = await runCli(args);
      expect(code, stderr).toBe(0);
      told.push(JSON.parse(stdout) as GenerateResult);
    }
    expect(told.map(({ stats }) => stats.cached_tokens)).toEqual([0, 64]);
    expect(told[1]!.tokens).toEqual(told[0]!.tokens);
  });

  test('prefix make: a prompt that begins with the text takes its blocks, and answers alike', async () => {
    const [path, manual] = [join(scratch, 'manual.kv'), join(scratch, 'manual.txt')];
    const story = 'lena hid the red needle in the garden box . mark put the blue key under the old chair . '.repeat(4);
    writeFileSync(manual, story);
    const made = await runCli(['prefix', 'make', ...model, '--prompt', manual, '--out', path, '--json']);
    expect(made.code, made.stderr).toBe(0);
    const { tokens, bytes, digest } = JSON.parse(made.stdout) as Record<'tokens' | 'bytes' | 'digest', number>;
    expect([tokens, bytes]).toEqual([64, statSync(path).size]);
    const asked = `${story}${'where is the red needle ?'}`;
    const told: GenerateResult[] = [];
    for (const more of [[], ['--prefixes', `${path}#${digest}`]]) {
      const { code, stdout, stderr } = await runCli(['generate', ...model, '--prompt', asked, '--json', ...more]);
      expect([code, stderr]).toEqual([0, '']);
      told.push(JSON.parse(stdout) as GenerateResult);
    }
    expect(told.map(({ stats }) => stats.cached_tokens)).toEqual([0, 64]);
    expect(told[1]!.tokens).toEqual(told[0]!.tokens);
    const short = await runCli(['prefix', 'make', ...model, '--prompt', 'lena hid it', '--system', '--out', path]);
    expect([short.code, short.stderr]).toEqual([2, expect.stringMatching(/whole blocks of 64|chat template/)]);
  });

  test('--json prints the document; the prompt may come from stdin', async () => {
    const { code, stdout, stderr } = await runCli(['generate', ...model, '--prompt', '-', '--json', '--seed', '7'], {
      stdin: ask,
    });
    expect(code, stderr).toBe(0);
    const result = JSON.parse(stdout) as GenerateResult;
    expect(result).toMatchObject({ finish_reason: 'stop', finish_detail: 'eos', seed: 7 });
    expect(result.text.trim()).toBe(QUESTIONS[0].answer);
    expect(result.tokens.length).toBe(5);
    expect(result.prompt_tokens).toBeGreaterThan(80);
    expect(Object.keys(result.stats).sort()).toEqual(
      [
        'adapter',
        'cached_tokens',
        'dispatches_per_token',
        'exchanges_per_token',
        'plan',
        'precision',
        'ranks',
        'speculation',
        'tokens_per_second',
        'ttft_ms',
        'tuning',
        'variants',
      ].sort(),
    );
    expect(Object.keys(result.stats.ranks[0]!).sort()).toEqual([
      'adapter',
      'bytes_per_token',
      'compute_ms_per_token',
      'exchange_ms_per_token',
      'kv_bytes',
      'us_per_exchange',
      'wait_ms_per_token',
      'weight_bytes',
    ]);
    expect(stderr).toBe('');
  });

  test.runIf(parts.includes('limits'))('limits and stop texts are kept', async () => {
    const limited = await runCli(['generate', ...model, '--prompt', ask, '--max-tokens', '2', '--json']);
    expect(JSON.parse(limited.stdout)).toMatchObject({
      text: ' in the',
      finish_reason: 'length',
      finish_detail: 'max_tokens',
    });
    const stopped = await runCli([
      'generate',
      ...model,
      '--prompt',
      ask,
      '--stop',
      'zebra',
      '--stop',
      ' bag',
      '--json',
    ]);
    expect(JSON.parse(stopped.stdout)).toMatchObject({
      text: ' in the workshop',
      finish_reason: 'stop',
      finish_detail: 'stop_string',
    });
  });

  test.runIf(parts.includes('controls'))('controls of what is sampled', async () => {
    const free = JSON.parse((await runCli(['generate', ...model, '--prompt', ask, '--json'])).stdout) as GenerateResult;
    const [first, second] = free.tokens;
    const banned = await runCli(['generate', ...model, '--prompt', ask, '--json', '--logit-bias', `${first}:-100`]);
    expect((JSON.parse(banned.stdout) as GenerateResult).tokens).not.toContain(first);
    const biases = join(scratch, 'biases.json');
    writeFileSync(biases, JSON.stringify({ [String(second)]: 100 }));
    const penalties = ['--frequency-penalty', '0.5', '--presence-penalty', '-0.5', '--min-p', '0.1'];
    const stops = ['--min-tokens', '3', '--stop-token-ids', `${first},${second}`];
    const ended = await runCli([
      'generate',
      ...model,
      '--prompt',
      ask,
      '--json',
      ...penalties,
      ...stops,
      '--logit-bias',
      `@${biases}`,
    ]);
    expect(ended.code, ended.stderr).toBe(0);
    expect(JSON.parse(ended.stdout)).toMatchObject({ finish_reason: 'stop', finish_detail: 'stop_token' });
    expect((JSON.parse(ended.stdout) as GenerateResult).tokens).toHaveLength(3);
    const outside = await runCli(['generate', ...model, '--prompt', ask, '--logit-bias', '99999:1']);
    expect(outside).toMatchObject({ code: 2, stdout: '' });
    expect(outside.stderr).toContain('logit_bias: token 99999');
  });

  test('Ctrl-C ends it cleanly with 130', async () => {
    const { code, stderr } = await runCli(['generate', ...model, '--raw', '--prompt', ask, '--max-tokens', '3000'], {
      interruptAt: 'bag',
    });
    expect(stderr).toContain('interrupted');
    expect(code).toBe(130);
  });
});

describe('logits', () => {
  test('the digest is over the f32 logits, and the argmax is theirs', async () => {
    const { results, stats } = await logits('--tokens', '1,300,301', '--all');
    const [result] = results;
    expect(results.length).toBe(1);
    expect(result!.positions).toEqual([0, 1, 2]);
    const rows = result!.logits!.map((row) => Float32Array.from(row));
    expect(rows.map((row) => row.length)).toEqual([933, 933, 933]);
    expect(rows.map((row) => row.indexOf(Math.max(...row)))).toEqual(result!.argmax);
    const hash = createHash('sha256');
    for (const row of rows) hash.update(new Uint8Array(row.buffer));
    expect(hash.digest('hex')).toBe(result!.sha256);
    expect(stats.ranks.length).toBe(1);
  });

  test('a file of lists gives their results in order, the same as one by one, whatever the chunk', async () => {
    const path = join(scratch, 'lists.json');
    writeFileSync(path, '[[1,300,301],[1,302],[1,300,301]]');
    const many = await logits('--tokens', `@${path}`, '--output', 'argmax', '--prefill-chunk', '2');
    expect(many.results.map(({ positions }) => positions)).toEqual([[2], [1], [2]]);
    expect(many.results[0]).toEqual(many.results[2]);
    const single = await logits('--tokens', '1,302', '--output', 'top', '--top', '3');
    expect(single.results[0]!.sha256).toBe(many.results[1]!.sha256);
    const [top] = single.results[0]!.top!;
    expect(top!.length).toBe(3);
    expect(top![0]![0]).toBe(many.results[1]!.argmax[0]);
    expect(top!.map(([, logit]) => logit)).toEqual(top!.map(([, logit]) => logit).sort((a, b) => b - a));
    expect(many.results[0]).not.toHaveProperty('logits');
  });

  test('an id outside the vocabulary is refused with nothing on stdout', async () => {
    const { code, stdout, stderr } = await runCli(['logits', ...model, '--json', '--tokens', '1,99999']);
    expect(stderr).toContain('99999');
    expect(stdout).toBe('');
    expect(code).toBe(2);
  });
});

test('adapters lists what Dawn finds, and each can be chosen by name', async () => {
  const { code, stdout, stderr } = await runCli(['adapters', '--json']);
  expect(code, stderr).toBe(0);
  const { host, adapters } = JSON.parse(stdout) as {
    host: string;
    adapters: { name: string; limits: object; features: string[] }[];
  };
  expect(host).toBe('node');
  expect(adapters.length).toBeGreaterThan(0);
  for (const adapter of adapters) {
    expect(adapter).toMatchObject({ software: expect.any(Boolean) as boolean, vendor: expect.any(String) as string });
    expect(adapter.limits).toMatchObject({ maxBufferSize: expect.any(Number) as number });
  }
  const { name } = adapters.at(-1)!;
  const chosen = ['--tokens', '1', '--output', 'argmax', '--json', '--adapter', name];
  const { stdout: document } = await runCli(['logits', ...model, ...chosen]);
  expect((JSON.parse(document) as LogitsDocument).results.length).toBe(1);
});
