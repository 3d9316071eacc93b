import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { arrange, parseProfile } from '../../arrangement/index.js';
import { runCli } from '../testing/run_cli.js';
import { measureProfile } from '../../engine/measure/measure_profile.js';
import { readPrompts } from '../prompt_files.js';
import { storyQuestion } from '../../engine/measure/story.js';

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-profile-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const file = (name: string, text: string): string => {
  writeFileSync(join(scratch, name), text);
  return join(scratch, name);
};

const hostOf = (kept: readonly { promptTokens: number; layers: number[][] }[], policy: 'ada' | 'snap' = 'ada') => {
  let next = 0;
  return {
    info: { name: '<tiny>', compression: { policy, budget: 0.2 } },
    kept: () => Promise.resolve(kept[next++ % kept.length]!),
  };
};
const two = [
  {
    promptTokens: 100,
    layers: [
      [10, 30],
      [25, 15],
    ],
  },
  {
    promptTokens: 200,
    layers: [
      [30, 50],
      [45, 35],
    ],
  },
];

describe('a profile', () => {
  test('means and spreads of what heads keep, in entries and as a part of each sample', async () => {
    const profile = await measureProfile(hostOf(two), ['a', 'b']);
    expect(profile).toEqual({
      model: '<tiny>',
      kv_budget: 0.2,
      policy: 'ada',
      layers: [
        [20, 40],
        [35, 25],
      ],
      std: [
        [10, 10],
        [10, 10],
      ],
      share: [
        [0.125, 0.275],
        [0.2375, 0.1625],
      ],
      share_std: [
        [0.025, 0.025],
        [0.0125, 0.0125],
      ],
      samples: 2,
      prompt_tokens: { mean: 150, least: 100, most: 200 },
    });
  });

  test('is what `arrange` arranges by', async () => {
    const profile = await measureProfile(hostOf(two), ['a', 'b']);
    const { layers } = parseProfile(JSON.stringify(profile), 'profile.json');
    const { makespan } = arrange({ loads: layers, ranks: 2, mode: 'exact' });
    expect(makespan).toBe(40 + 35);
  });

  test('of samples of which nothing is evicted is refused', async () => {
    const whole = hostOf([{ promptTokens: 20, layers: [[20, 20]] }], 'snap');
    await expect(measureProfile(whole, ['a'])).rejects.toThrow(
      /nothing of the sample was evicted: they have up to 20 tokens/,
    );
  });

  test('of no samples, or by a model that keeps everything, is refused', async () => {
    await expect(measureProfile(hostOf(two), [])).rejects.toThrow('a profile needs samples');
    const plain = { ...hostOf(two), info: { name: 'plain' } };
    await expect(measureProfile(plain, ['a'])).rejects.toThrow('load the model with a kvBudget');
  });
});

describe('samples', () => {
  test('stories are about as long as asked, end with a question about them, and follow from the seed', () => {
    for (let seed = 0; seed < 40; seed++) {
      const length = 40 + seed * 25;
      const prompt = storyQuestion(length, seed);
      expect(storyQuestion(length, seed)).toBe(prompt);
      expect(Math.abs(prompt.split(' ').length - length)).toBeLessThan(16);
      const subject = /(?:where is the|what is the code of|what does) (.*?)(?: like)? \?$/.exec(prompt)![1]!;
      const told = prompt.split(/(?<=\.) /).find((sentence) => sentence.includes(subject) && sentence.endsWith(' .'));
      expect(told, `${seed}: ${subject}`).toBeDefined();
    }
    expect(storyQuestion(100, 1)).not.toBe(storyQuestion(100, 2));
  });

  test('are read from lists, lines, texts, ids and objects', async () => {
    const lines = file('lines.jsonl', '"a text"\n\n{"prompt": "b", "answer": "c"}\n[1, 2]\n{"tokens": [3]}\n');
    expect(await readPrompts(lines)).toEqual(['a text', 'b', [1, 2], [3]]);
    expect(await readPrompts(lines, 2)).toEqual(['a text', 'b']);
    expect(await readPrompts(file('list.json', '["a", [1, 2]]'))).toEqual(['a', [1, 2]]);
    expect(await readPrompts(file('ids.json', '[4, 5]'))).toEqual([[4, 5]]);
  });

  test.each([
    ['{"text": "x"}', /entry 1: \{"text":"x"\} is no prompt/],
    ['[1, -2]', /is no prompt/],
    ['', /it holds no prompts/],
    ['"a"', /--samples 3: .* holds 1 prompts/],
    ['"a"\n{', /line 2: not valid JSON/],
  ])('%s is refused', async (text, message) => {
    await expect(readPrompts(file('bad.jsonl', text), text === '"a"' ? 3 : undefined)).rejects.toThrow(message);
  });
});

test('splitkv profile writes what splitkv arrange reads', { timeout: 180_000 }, async () => {
  const out = join(scratch, 'profile.json');
  const model = ['--model', 'models/tiny-gqa', '--context', '256'];
  const sampling = [
    '--samples',
    '3',
    '--prompt-tokens',
    '128',
    '--seed',
    '4',
    '--kv-budget',
    '0.4',
    '--kv-window',
    '8',
  ];
  const made = await runCli(['profile', ...model, ...sampling, '--out', out, '--json']);
  expect(made.code, made.stderr).toBe(0);
  const profile = parseProfile(JSON.parse(made.stdout));
  expect(readFileSync(out, 'utf8')).toBe(made.stdout);
  expect(profile.layers.map((heads) => heads.length)).toEqual([4, 4, 4, 4]);
  for (const heads of profile.layers) {
    // The budget is a layer's, but for rounding.
    expect(Math.abs(heads.reduce((a, b) => a + b, 0) - 4 * 0.4 * 128)).toBeLessThan(12);
  }
  const arranged = await runCli(['arrange', '--profile', out, '--ranks', '2', '--json']);
  expect(arranged.code, arranged.stderr).toBe(0);
  type Arranged = Record<'utilisation' | 'utilisation_of_prompts', number> & { readonly placement: unknown[] };
  const { placement, utilisation, utilisation_of_prompts: ofPrompts } = JSON.parse(arranged.stdout) as Arranged;
  expect(placement).toHaveLength(4);
  expect(ofPrompts).toBeGreaterThan(0.5);
  expect(ofPrompts).toBeLessThan(utilisation);
});
