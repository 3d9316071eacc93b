import { expect, test } from 'vitest';
import { SplitkvError } from '../base/errors.js';
import { Random } from '../base/random.js';
import { begin, both, except, includes, listed, stepsLeft } from './automaton.js';
import { textsOf } from './expressions.js';
import { networkOf } from './network.js';
import { TestForms, usage } from './testing/accepts.js';
import { grammarOf } from './text_form.js';

const forms = new TestForms(['aa', 'ab', 'ba', 'é']);

/** An expression of drawn parts; JavaScript runs it, too. */
function drawnExpression(random: Random, depth: number): string {
  const atoms = ['a', 'b', '[ab]', '[^a]', 'é', '.', '\\w', '\\p{Lu}', '(?:ab|b)', ''];
  if (depth === 0) return atoms[random.integer(atoms.length)]!;
  const inner = (): string => drawnExpression(random, depth - 1);
  switch (random.integer(4)) {
    case 0:
      return `(?:${inner()}|${inner()})`;
    case 1:
      return `(?:${inner()})${['*', '+', '?', '{2}', '{1,3}', '{2,}'][random.integer(6)]}`;
    default:
      return inner() + inner();
  }
}

test('drawn expressions, together and turned round: the texts that JavaScript finds, in the fewest states', () => {
  const random = new Random(5);
  for (let i = 0; i < 300; i++) {
    begin();
    const [one, other] = [drawnExpression(random, 3), drawnExpression(random, 2)];
    const [a, b] = [textsOf(one, true), textsOf(other, true)];
    const [ofOne, ofOther] = [new RegExp(`^(?:${one})$`, 'u'), new RegExp(`^(?:${other})$`, 'u')];
    const [together, rest] = [both(a, b), except(a)];
    for (let j = 0; j < 40; j++) {
      const text = Array.from({ length: random.integer(7) }, () => 'abéÄ1'[random.integer(5)]).join('');
      expect(includes(a, text), `${one} ${text}`).toBe(ofOne.test(text));
      expect(includes(together, text), `${one} ${other} ${text}`).toBe(ofOne.test(text) && ofOther.test(text));
      expect(includes(rest, text), `not ${one} ${text}`).toBe(!ofOne.test(text));
    }
    // Twice turned round, and with itself, nothing is left to join.
    expect(except(rest).states.length).toBe(a.states.length);
    expect(both(a, a).states.length).toBe(a.states.length);
  }
});

test('drawn lists: these texts alone, in the fewest states; and all others', () => {
  const random = new Random(6);
  const drawnText = (): string =>
    Array.from({ length: random.integer(5) }, () => ['a', 'b', 'é', '😀', '\ue000'][random.integer(5)]).join('');
  for (let i = 0; i < 200; i++) {
    begin();
    const texts = Array.from({ length: random.integer(12) }, drawnText);
    const [list, rest] = [listed(texts), except(listed(texts))];
    for (const text of [...texts, ...Array.from({ length: 20 }, drawnText)]) {
      expect(includes(list, text), text).toBe(texts.includes(text));
      expect(includes(rest, text), text).toBe(!texts.includes(text));
    }
    if (texts.length > 0) expect(list.states.length).toBe(textsOf(texts.join('|'), true).states.length);
    expect(except(rest).states.length).toBe(list.states.length);
  }
});

/** Steps to read a schema, and nodes of its network. */
function workOf(schema: unknown): { steps: number; nodes: number } {
  begin();
  const before = stepsLeft();
  const form = grammarOf({ responseFormat: { type: 'json_object', schema: schema as never } })!;
  const steps = before - stepsLeft();
  return { steps, nodes: networkOf(form.root)!.ends.length };
}

const NAMES = Array.from({ length: 300 }, (_, i) => `name${(i * 7919) % 1000}of${i}`);

test('names of properties, and all others, take steps and nodes as their letters', () => {
  const letters = NAMES.join('').length;
  const properties = Object.fromEntries(NAMES.map((name) => [name, { type: 'boolean' }]));
  const { steps, nodes } = workOf({ type: 'object', properties });
  expect(steps).toBeLessThan(2 * letters);
  // Each is there once as a member, and once at most in what others are told from.
  expect(nodes).toBeLessThan(3 * letters);
});

test('objects with the same names tell others from them once', () => {
  const named = (count: number): unknown => ({
    anyOf: Array.from({ length: count }, (_, i) => ({
      type: 'object',
      properties: { kind: { const: i }, name: {}, of: {} },
      patternProperties: { '^x-[a-z]+$': { type: 'integer' }, '^y-.*[0-9]$': { type: 'integer' } },
      additionalProperties: { type: 'boolean' },
    })),
  });
  // But for the patterns, which are read again for each.
  expect(workOf(named(40)).steps).toBeLessThan(100_000);
});

test('values are told from others without automata of all that there are', () => {
  const of = (count: number): unknown => ({
    allOf: Array.from({ length: count }, (_, i) => ({ not: { enum: [`value ${i}`] } })),
    type: 'string',
    enum: ['value 3', 'another', 'a third'],
  });
  expect(workOf(of(60)).steps).toBeLessThan(3 * 60 * 100);
});

test('a text that is nested deep is read once', () => {
  const deep = JSON.parse(`${'{"items":'.repeat(150)}{"title":"${'x'.repeat(400_000)}"}${'}'.repeat(150)}`);
  expect(workOf(deep).nodes).toBeGreaterThan(150);
});

test.each([
  ['a{3990}', 0],
  ['(a?){19000}', 1],
  ['(a?){800}', 1],
  ['(a|b)*a(a|b){10}', 0],
  ['(a|b)*a(a|b){14}', 1],
  [`^${Array.from('abcdefghijk', (letter) => `(?=.*${letter})`).join('')}.*$`, 0],
  ['.{1000}', 0],
  ['\\p{L}{1,100}', 0],
  ['((a{0,50}){0,50}){0,50}', 1],
  ['(.*a){300}', 0],
  ['(' + 'x?'.repeat(2000) + ')+', 1],
  [
    Array.from({ length: 900 }, (_, i) => `[${String.fromCodePoint(256 + i)}-${String.fromCodePoint(4000 - i)}]`).join(
      '|',
    ),
    1,
  ],
])('a large expression is read, or refused, after a bounded number of steps: %#', (regex, refused) => {
  const read = (): unknown => forms.constraints.compile({ regex });
  if (refused) expect(read).toThrow(usage('smaller'));
  else read();
});

const nested = (depth: number): unknown => JSON.parse(`${'{"items":'.repeat(depth)}{}${'}'.repeat(depth)}`);
const doubled = Object.fromEntries(
  Array.from({ length: 40 }, (_, i) => [
    `a${i}`,
    i < 39 ? { allOf: [{ $ref: `#/$defs/a${i + 1}` }, { $ref: `#/$defs/a${i + 1}` }] } : { type: 'integer' },
  ]),
);
const many = (count: number): Record<string, unknown> =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`property${i}`, { type: 'integer' }]));

test.each([
  ['2000 properties', { type: 'object', properties: many(2000), additionalProperties: false }, undefined],
  ['400 properties and others', { type: 'object', properties: many(400) }, undefined],
  ['multipleOf 199', { type: 'integer', multipleOf: 199 }, undefined],
  ['10000 values', { enum: Array.from({ length: 10_000 }, (_, i) => `value ${i}`) }, undefined],
  [
    '10000 values twice',
    { allOf: [1, 2].map(() => ({ enum: Array.from({ length: 10_000 }, (_, i) => i) })) },
    undefined,
  ],
  ['100000 values', { enum: Array.from({ length: 100_000 }, () => 1) }, undefined],
  ['nested 20000 deep', nested(20_000), 'nested deeper than 500'],
  ['nested 300 deep', nested(300), 'nested deeper than 200'],
  ['references that double', { $defs: doubled, $ref: '#/$defs/a0' }, undefined],
  ['names of any 255 letters', { patternProperties: { '^.{1,255}$': {} } }, undefined],
  ['letters', { type: 'string', pattern: '^\\p{Letter}{1,20}$' }, undefined],
  [
    'many patterns',
    { anyOf: Array.from({ length: 60 }, (_, i) => ({ type: 'string', pattern: `(a|b)*a(a|b){${5 + (i % 5)}}${i}` })) },
    'a pattern, or patterns together',
  ],
] as const)('a large schema is read, or refused by what is too much: %s', (name, schema, refused) => {
  const responseFormat = { type: 'json_schema', json_schema: { schema: schema as never } } as const;
  const read = (): unknown => forms.constraints.compile({ responseFormat }, undefined, name);
  if (refused) expect(read).toThrow(usage(refused));
  else read();
});

test('drawn schemas, most of them wrong: usage errors and no others', () => {
  const random = new Random(11);
  const keywords = [
    'type',
    'enum',
    'const',
    'minimum',
    'exclusiveMinimum',
    'maximum',
    'multipleOf',
    'minLength',
    'maxLength',
    'pattern',
    'format',
    'items',
    'prefixItems',
    'minItems',
    'contains',
    'minContains',
    'maxContains',
    'uniqueItems',
    'properties',
    'required',
    'additionalProperties',
    'patternProperties',
    'propertyNames',
    'minProperties',
    'maxProperties',
    'anyOf',
    'allOf',
    'oneOf',
    'not',
    '$ref',
    'nullable',
    'if',
    'then',
    'else',
    'dependentRequired',
    'dependentSchemas',
    'dependencies',
    '$id',
    '$anchor',
    '$dynamicRef',
    '$dynamicAnchor',
    'additionalItems',
    '__proto__',
  ];
  const value = (depth: number): unknown => {
    const leaves = [
      null,
      true,
      false,
      0,
      -1,
      1.5,
      3,
      '',
      'a',
      'integer',
      'string',
      'object',
      'array',
      '#',
      '#/a',
      '(',
      '^a\\-b$',
      'date',
      [],
      {},
      ['a'],
      [1, 'a'],
    ];
    const kind = depth === 0 ? 0 : random.integer(4);
    if (kind === 0) return leaves[random.integer(leaves.length)];
    if (kind === 1) return Array.from({ length: random.integer(3) }, () => value(depth - 1));
    return Object.fromEntries(
      Array.from({ length: 1 + random.integer(4) }, () => [
        kind === 2 && random.integer(3) === 0 ? 'a' : keywords[random.integer(keywords.length)]!,
        value(depth - 1),
      ]),
    );
  };
  let taken = 0;
  for (let i = 0; i < 6000; i++) {
    const schema = value(4);
    try {
      grammarOf({ responseFormat: { type: 'json_schema', json_schema: { schema: schema as never } } });
      taken++;
    } catch (error) {
      if (!(error instanceof SplitkvError) || error.code !== 'usage')
        throw new Error(JSON.stringify(schema), { cause: error });
    }
  }
  expect(taken).toBeGreaterThan(300);
});
