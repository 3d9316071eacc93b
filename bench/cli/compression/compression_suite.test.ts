import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { BUDGETS, type CompressionResult, compressionTable, POLICIES } from './compression_suite.js';
import { compressionSvg } from './compression_svg.js';
import { readQuestions } from './questions.js';

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-questions-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const file = (text: string): string => {
  writeFileSync(join(scratch, 'questions.jsonl'), text);
  return join(scratch, 'questions.jsonl');
};

test("a policy's right answers are a column, a budget's a row; without compression there is one answer for all", () => {
  const of = (policy: CompressionResult['policy'], budget: number, right: number): CompressionResult => ({
    context: 1024,
    policy,
    budget,
    window: 32,
    kernel: 7,
    right,
    asked: 9,
    bytes_before: 0,
    bytes_after: 0,
  });
  const results = [of('none', 1, 9), ...POLICIES.map((policy, i) => of(policy, 0.25, i))];
  const rows = compressionTable(results)
    .trimEnd()
    .split('\n')
    .map((line) => line.trim().split(/\s{2,}/));
  expect(rows[0]).toEqual(['budget', 'snap, 1024', 'ada, 1024', 'static, 1024']);
  expect(rows[1 + BUDGETS.indexOf(1)]).toEqual(['100%', '9/9', '9/9', '9/9']);
  expect(rows[1 + BUDGETS.indexOf(0.25)]).toEqual(['25%', '0/9', '1/9', '2/9']);
  expect(rows[1 + BUDGETS.indexOf(0.05)]).toEqual(['5%', '-', '-', '-']);
});

test('questions are read by length; what is none is refused', async () => {
  const question = (context: number, answer: string): string => JSON.stringify({ context, prompt: 'p', answer });
  const path = file([question(8, 'a'), question(16, 'b'), question(8, 'c'), ''].join('\n'));
  expect((await readQuestions(path, { contexts: [8] })).map(({ answer }) => answer)).toEqual(['a', 'c']);
  expect((await readQuestions(path, { contexts: [16, 8], most: 1 })).map(({ answer }) => answer)).toEqual(['b', 'a']);
  await expect(readQuestions(path, { contexts: [32] })).rejects.toThrow(
    /no such questions; it has some of 8, 16 tokens/,
  );
  await expect(readQuestions(file('{"prompt": "p"}'), { contexts: [8] })).rejects.toThrow(/line 1: expected/);
  await expect(readQuestions(join(scratch, 'none'), { contexts: [8] })).rejects.toThrow(/can't be read/);
});

test('the plot has a panel a length and a point for every answer, without compression one for each policy', () => {
  const results = [1024, 2048].flatMap((context) =>
    [7, 13].flatMap((kernel) => [
      {
        context,
        policy: 'none',
        budget: 1,
        window: 8,
        kernel,
        right: 4,
        asked: 4,
        bytes_before: 0,
        bytes_after: 0,
      } as const,
      ...POLICIES.map((policy) => ({ ...none, context, policy, kernel, budget: 0.5, right: 1 })),
    ]),
  );
  const svg = compressionSvg(results);
  expect(svg.match(/prompts of about \d+ tokens/g)).toEqual([
    'prompts of about 1024 tokens',
    'prompts of about 2048 tokens',
  ]);
  expect(svg.match(/<title>/g)).toHaveLength(2 * 2 * 2 * 3);
  expect(svg).toContain('ada, window 8, kernel 13, budget 50%: 1 of 4');
  expect(svg).not.toMatch(/NaN|undefined/);
});

const none = { window: 8, asked: 4, bytes_before: 0, bytes_after: 0 };
