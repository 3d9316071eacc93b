import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { drawn } from '../../gpu/testing/draw.js';
import { parsePlan } from '../../placement/index.js';
import { type Finished, runCli } from '../testing/run_cli.js';

// Each of these starts a process that measures the adapter; on a software adapter that takes its time.
vi.setConfig({ testTimeout: 180_000 });

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-plan-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const env = { SPLITKV_CACHE_DIR: join(scratch, 'cache') };
const model = ['--model', 'models/tiny-gqa', '--context', '512'];
const plan = (...args: readonly string[]): Promise<Finished> => runCli(['plan', ...model, ...args], { env });

interface PlanDocument {
  readonly adapters: readonly string[];
  readonly candidates: readonly {
    readonly policy: string;
    readonly ranks: number;
    readonly refused?: string;
    readonly tokens_per_second?: number;
    readonly ttft_ms?: number;
    readonly exchanges_per_token?: number;
    readonly memory?: readonly { readonly total_bytes: number }[];
  }[];
  readonly pick: { readonly policy: string; readonly ranks: number; readonly plan: unknown } | null;
  readonly why: string;
}

describe('the planner on the command line', () => {
  test('with a KV budget: heads arranged by what they keep are a plan like the others', async () => {
    const profile = join(scratch, 'profile.json');
    const layers = Array.from({ length: 4 }, () => [400, 10, 10, 10]);
    writeFileSync(profile, JSON.stringify({ model: 'tiny-gqa', kv_budget: 0.2, layers }));
    const budget = ['--kv-budget', '0.2', '--kv-policy', 'static', '--kv-profile', profile];
    const { code, stdout, stderr } = await plan('--ranks', '2', '--virtual-ranks', '--json', ...budget);
    expect(stderr).toBe('');
    const { candidates } = JSON.parse(stdout) as PlanDocument;
    expect(candidates.find(({ policy }) => policy === 'arranged')).toMatchObject({
      ranks: 2,
      tokens_per_second: expect.any(Number),
    });
    expect(candidates.find(({ policy }) => policy === 'sp')?.refused).toContain('with kvBudget');
    expect(code).toBe(0);
  });

  test('a config.json alone, before there are weights, takes the memory that the model takes', async () => {
    const own = ['--context', '512', '--ranks', '1', '--weights', 'q4', '--json'];
    const alone = await runCli(['plan', '--config', 'models/tiny-gqa/config.json', ...own], { env });
    expect(alone.stderr).toBe('');
    const [of, whole] = [alone, await plan(...own.slice(2))].map(({ stdout }) => JSON.parse(stdout) as PlanDocument);
    expect(of!.pick).toMatchObject({ policy: 'single', ranks: 1 });
    expect(of!.candidates[0]!.memory).toEqual(whole!.candidates[0]!.memory);
    const both = await plan('--config', 'models/tiny-gqa/config.json');
    expect(both.stderr).toContain('--config FILE takes the place of MODEL');
  });

  test('every plan with its numbers, the pick, and its file, which runs', async () => {
    const out = join(scratch, 'plan.json');
    const { code, stdout } = await plan('--json', '--out', out);
    const document = JSON.parse(stdout) as PlanDocument;
    expect(document).toMatchObject({ model: 'tiny-gqa', context: 512, prompt_tokens: 256, new_tokens: 128, batch: 1 });
    expect(document.adapters).toHaveLength(2);
    const made = document.candidates.filter(({ refused }) => refused === undefined);
    expect(made.map(({ policy }) => policy)).toEqual(['single', 'tp', 'sp', 'tp+sp', 'pp']);
    for (const { ranks, tokens_per_second: speed, ttft_ms: ttft, memory } of made) {
      expect(speed).toBeGreaterThan(0);
      expect(ttft).toBeGreaterThan(0);
      expect(memory).toHaveLength(ranks);
    }
    expect(made.map(({ exchanges_per_token: exchanges }) => exchanges === 0)).toEqual([
      true,
      false,
      false,
      false,
      false,
    ]);
    expect(made).toContainEqual(
      expect.objectContaining({ policy: document.pick!.policy, ranks: document.pick!.ranks }),
    );
    expect(code).toBe(0);

    const file: unknown = JSON.parse(readFileSync(out, 'utf8'));
    expect(parsePlan(file)).toEqual(document.pick!.plan);
    const tokens = ['logits', ...model, '--tokens', '1,5,9', '--output', 'argmax', '--json'];
    const [own, usual] = await Promise.all([runCli([...tokens, '--plan', out]), runCli(tokens)]);
    const digest = ({ stdout: text }: Finished): unknown =>
      (JSON.parse(text) as { results: { sha256: string }[] }).results[0]!.sha256;
    expect(digest(own)).toBe(digest(usual));
  });

  test('a table for people, from what was measured before', async () => {
    const { code, stdout } = await plan('--prompt-tokens', '64', '--max-tokens', '16');
    expect(stdout).toContain('a request of 64 + 16 tokens');
    expect(stdout).toMatch(/^\* \S+ /m);
    expect(stdout).toMatch(/^pick: /m);
    expect(code).toBe(0);
  });

  test('where nothing fits: what each needs, and no plan', async () => {
    const { code, stdout, stderr } = await plan('--memory', '100KB', '--json');
    const document = JSON.parse(stdout) as PlanDocument;
    expect(document.pick).toBeNull();
    expect(document.candidates.every(({ refused }) => refused !== undefined)).toBe(true);
    expect(stderr).toMatch(/^splitkv: no plan fits; needed on the fullest rank: single /);
    expect(code).toBe(1);
  });

  const refused: [string, string[], string][] = [
    ['no such option', ['--rank', '2'], "unknown option --rank. Did you mean '--ranks'?"],
    ['a batch of none', ['--batch', '0'], '--batch 0: expected an integer from 1 to 256'],
    ['too long a request', ['--prompt-tokens', '500', '--max-tokens', '50'], 'exceed the context of 512'],
    ['budgets of another number', ['--ranks', '2', '--memory', '1GB,1GB,1GB'], 'memory: 3 budgets for 2 ranks'],
    ['no ranks', ['--ranks', '0'], 'ranks 0: expected a number of ranks from 1 to 64'],
  ];
  test.each(drawn(refused, 2, 'refused by plan'))('%s', async (_what, args, message) => {
    const { code, stdout, stderr } = await plan(...args);
    expect(stderr).toContain(message);
    expect(stdout).toBe('');
    expect(code).toBe(2);
  });
});

describe('adapters', () => {
  test('what each measured, and what they take to tell each other', async () => {
    const { code, stdout } = await runCli(['adapters', '--json']);
    const { adapters, exchanges } = JSON.parse(stdout) as {
      adapters: { request: string; measured: Record<string, number> }[];
      exchanges: { between: [string, string]; us: number; bytes_per_second: number }[];
    };
    for (const { measured } of adapters) {
      expect(measured['copy_bytes_per_second']).toBeGreaterThan(0);
      expect(measured['matvec_bytes_per_second']).toBeGreaterThan(0);
    }
    const n = adapters.length;
    expect(exchanges).toHaveLength((n * (n + 1)) / 2);
    for (const { between, us } of exchanges) {
      for (const name of between) expect(adapters.map(({ request }) => request)).toContain(name);
      expect(us).toBeGreaterThan(0);
    }
    expect(code).toBe(0);
  });

  test('--quick measures nothing', async () => {
    const { stdout } = await runCli(['adapters', '--json', '--quick']);
    const document = JSON.parse(stdout) as { adapters: object[]; exchanges?: unknown };
    expect(document.exchanges).toBeUndefined();
    for (const adapter of document.adapters) expect(adapter).not.toHaveProperty('measured');
  });
});
