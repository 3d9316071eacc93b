import { expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { drawn } from '../../gpu/testing/draw.js';
import type { AnswerFrame } from '../answer_frame.js';
import { TestForms } from '../testing/accepts.js';

const forms = new TestForms(
  Array.from('0123456789').flatMap((digit) => [
    `${digit}0`,
    `-${digit}`,
    `9${digit}`,
    `1${digit}`,
    `.${digit}`,
    `00${digit}`,
  ]),
);

/** Exact: a number as so many units of 1e-30. */
function units(number: string): bigint {
  const [, sign, whole, fraction = '', exponent = '0'] = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/.exec(number)!;
  const shift = 30 + Number(exponent) - fraction.length;
  const digits = BigInt(whole! + fraction);
  const all = shift >= 0 ? digits * 10n ** BigInt(shift) : digits / 10n ** BigInt(-shift);
  return sign === '-' ? -all : all;
}

interface Range {
  readonly type: 'integer' | 'number';
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
  readonly multipleOf?: number;
}

function holds(range: Range, text: string): boolean {
  if (!/^-?(0|[1-9]\d*)(\.\d+)?$/.test(text) || (range.type === 'integer' && text.includes('.'))) return false;
  const value = units(text);
  return (
    (range.minimum === undefined || value >= units(String(range.minimum))) &&
    (range.maximum === undefined || value <= units(String(range.maximum))) &&
    (range.exclusiveMinimum === undefined || value > units(String(range.exclusiveMinimum))) &&
    (range.exclusiveMaximum === undefined || value < units(String(range.exclusiveMaximum))) &&
    (range.multipleOf === undefined || value % units(String(range.multipleOf)) === 0n)
  );
}

/** Bounds of all lengths and signs; every fifth has one alone. */
function rangeOf(seed: number): Range {
  const random = new Random(7000 + seed);
  const type = random.integer(4) === 0 ? 'number' : 'integer';
  const bound = (): number => {
    const length = 1 + random.integer(random.integer(3) === 0 ? 15 : 6);
    const sign = random.integer(3) === 0 ? -1 : 1;
    const digits = ['1', '10', '99', '5', '18', '65', '2147'][random.integer(8)] ?? '';
    const drawnDigits = Array.from({ length }, () => '0123456789'[random.integer(10)]).join('');
    const whole = Number((digits + drawnDigits).slice(0, length));
    return sign * (type === 'number' && random.integer(2) === 0 ? whole / 4 : whole);
  };
  const [a, b] = [bound(), bound()];
  const [low, high] = [Math.min(a, b), Math.max(a, b)];
  const strict = type === 'integer' || high - low > 1 ? random.integer(4) : 0;
  const from = strict & 1 ? { exclusiveMinimum: low - 1 } : { minimum: low };
  const to = strict & 2 ? { exclusiveMaximum: high + 1 } : { maximum: high };
  const sides = random.integer(5);
  return { type, ...(sides === 1 ? {} : from), ...(sides === 2 ? {} : to) };
}

const FIXED: readonly Range[] = [
  [10, 10_000],
  [18, 65_535],
  [50, 99_999],
  [100, 1_000_000],
  [1000, 2_147_483_647],
  [1970, 2_147_483_647],
  [1000, 1e9],
  [1, 100],
  [0, 255],
  [-128, 127],
  [-2_147_483_648, 2_147_483_647],
  [1024, 65_535],
  [18, 150],
  [-10_000, -10],
  [9, 9],
  [99, 101],
  [0, 9_007_199_254_740_991],
].map(([minimum, maximum]): Range => ({ type: 'integer', minimum: minimum!, maximum: maximum! }));
const STEPS: readonly Range[] = [
  [7, 10, 5000],
  [25, 1, 20_000],
  [100, -99_800, 100],
  [3, 0, 2999],
  [15, 90, 10_005],
].map(([multipleOf, minimum, maximum]): Range => ({
  type: 'integer',
  multipleOf: multipleOf!,
  minimum: minimum!,
  maximum: maximum!,
}));

/** Near the bounds, cut and lengthened ones, and any. */
function candidates(range: Range, random: Random): string[] {
  const texts = new Set<string>();
  for (const bound of [range.minimum, range.maximum, range.exclusiveMinimum, range.exclusiveMaximum, 0]) {
    if (bound === undefined) continue;
    const whole = BigInt(Math.trunc(bound));
    for (const by of [-11n, -10n, -1n, 0n, 1n, 10n, 11n]) texts.add(String(whole + by));
    texts
      .add(String(whole * 10n))
      .add(String(whole / 10n))
      .add(`${whole}00`)
      .add(`1${Math.abs(Number(whole))}`);
    if (Math.abs(bound) < 1e15)
      texts
        .add(String(bound + 0.25))
        .add(String(bound - 0.25))
        .add(String(bound));
  }
  for (let length = 1; length <= 16; length++) {
    const digits = Array.from({ length }, () => '0123456789'[random.integer(10)]).join('');
    texts.add(String(BigInt(digits))).add(`-${BigInt(digits)}`);
    if (range.type === 'number') texts.add(`${BigInt(digits)}.${random.integer(1000)}`);
  }
  return [...texts].filter((text) => text !== '-0' && !text.includes('e') && !text.includes('.0'));
}

test('numbers are within their bounds, whatever the bounds are', { timeout: 300_000 }, async () => {
  const ranges = [...FIXED, ...STEPS, ...drawn([...Array(600).keys()], 90, 'ranges').map(rangeOf)];
  let within = 0;
  for (const [at, range] of ranges.entries()) {
    const texts = candidates(range, new Random(at));
    const responseFormat = { type: 'json_schema', json_schema: { schema: range as never } } as const;
    const accepted = await forms.accepted({ responseFormat }, texts, at);
    const expected = texts.map((text) => holds(range, text));
    expect(
      texts.filter((_, i) => accepted[i] !== expected[i]),
      JSON.stringify(range),
    ).toEqual([]);
    within += expected.filter(Boolean).length;
  }
  expect(within).toBeGreaterThan(ranges.length);
});

test.each([
  ['hermes', '<tool_call>\n{"name": "f", "arguments": {"n": ', '}}\n</tool_call>'],
  ['qwen_xml', '<tool_call>\n<function=f>\n<parameter=n>\n', '\n</parameter>\n</function>\n</tool_call>'],
  ['gemma', '<|tool_call>call:f{n: ', '}<tool_call|>'],
  ['lfm2', '<|tool_call_start|>[f(n=', ')]<|tool_call_end|>'],
] as const)('and so in the calls of %s', async (format, before, behind) => {
  for (const range of [...FIXED.slice(0, 4), STEPS[0]!, rangeOf(3)]) {
    const parameters = { type: 'object', properties: { n: range }, required: ['n'] } as const;
    const tools = [{ type: 'function', function: { name: 'f', parameters, strict: true } }] as never;
    const frame: AnswerFrame = { format, calls: { tools, needed: true, several: false } };
    const texts = candidates(range, new Random(1)).slice(0, 40);
    const accepted = await forms.accepted(
      {},
      texts.map((text) => before + text + behind),
      1,
      frame,
    );
    const expected = texts.map((text) => holds(range, text));
    expect(
      texts.filter((_, i) => accepted[i] !== expected[i]),
      JSON.stringify(range),
    ).toEqual([]);
    expect(expected).toContain(true);
  }
});
