import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormatsOf from 'ajv-formats';
import { describe, expect, test } from 'vitest';
import { Random } from '../base/random.js';
import { drawn } from '../gpu/testing/draw.js';
import { Constraints } from './constraints.js';
import type { Vocabulary } from './masks.js';
import { usage } from './testing/accepts.js';
import type { TextForm } from './text_form.js';

const END = 0;
const encoder = new TextEncoder();
/** Bytes, and pieces that JSON is often made of: boundaries of tokens fall anywhere. */
const PIECES = [
  '{"|":|": |,"|, "|"}|"]|[]|{}|true|false|null|\n  |\n    |: |, ',
  '00|12|2026|-0|.5|e+|1e|\\"|\\n|\\u00|\\\\|é|你好|😀|a|ab|name|id|x',
  'T12:|-01|@|.com|http|://|::|/|Z|+00:00|"a":|"b":|"kind":|"x"|"y"|[1|,1',
].flatMap((pieces) => pieces.split('|'));
const TOKENS: readonly (Uint8Array | undefined)[] = [
  undefined, // ends a text
  undefined, // special
  ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
  ...PIECES.map((piece) => encoder.encode(piece)),
];
const vocabulary: Vocabulary = { size: TOKENS.length, bytesOf: (id) => TOKENS[id], endIds: [END] };
const constraints = new Constraints(vocabulary);
const isAllowed = (allowed: Uint32Array, id: number): boolean => ((allowed[id >>> 5]! >>> (id & 31)) & 1) === 1;

/** A text that the form allows, of tokens drawn among those that are allowed; undefined where it wasn't whole in time. */
async function walk(form: TextForm, seed: number): Promise<string | undefined> {
  const random = new Random(seed);
  const compiled = constraints.compile(form)!;
  const answer = compiled.start();
  const bytes: number[] = [];
  let next: ReturnType<typeof answer.next> = answer.first;
  for (let steps = 0; steps < 1500; steps++) {
    const { allowed } = next!;
    const ids = Array.from({ length: TOKENS.length - 1 }, (_, id) => id + 1).filter((id) => isAllowed(allowed, id));
    if (isAllowed(allowed, END) && (ids.length === 0 || steps > 150 || random.integer(3) === 0)) {
      return new TextDecoder('utf-8', { fatal: true }).decode(Uint8Array.from(bytes));
    }
    // Rarely what makes it long; after a while whatever ends strings, lists and objects.
    const closing = ids.filter((id) => /^["}\]]+$/.test(new TextDecoder().decode(TOKENS[id])));
    const ascii = ids.filter((id) => TOKENS[id]!.every((byte) => byte >= 0x20 && byte < 0x7f));
    const from =
      closing.length > 0 && (steps > 100 || random.integer(4) === 0)
        ? closing
        : ascii.length > 0 && random.integer(8) > 0
          ? ascii
          : ids;
    const id = from[random.integer(from.length)]!;
    answer.accept(id);
    bytes.push(...TOKENS[id]!);
    next = answer.next();
  }
  return undefined;
}

/** Whether the form allows the text, cut into tokens at random. */
async function accepts(form: TextForm, text: string, seed = 1): Promise<boolean> {
  const random = new Random(seed);
  const answer = constraints.compile(form)!.start();
  try {
    let { allowed } = answer.first;
    const rest = encoder.encode(text);
    for (let at = 0; at < rest.length;) {
      const fits = TOKENS.flatMap((bytes, id) =>
        bytes && bytes.length > 0 && bytes.every((byte, i) => rest[at + i] === byte) ? [id] : [],
      );
      const id = fits[random.integer(fits.length)]!;
      if (!isAllowed(allowed, id)) return false;
      answer.accept(id);
      at += TOKENS[id]!.length;
      const next = answer.next();
      if (!next) return at === rest.length;
      ({ allowed } = next);
    }
    return isAllowed(allowed, END);
  } finally {
  }
}

const jsonOf = (schema: unknown): TextForm => ({
  responseFormat: { type: 'json_schema', json_schema: { name: 'a', schema: schema as Record<string, unknown> } },
});

const string = { type: 'string' };
const integer = { type: 'integer' };
const LETTERS = Array.from('abcdefghijklmnopqrstuvwxyz');
/** Of `if`, `then` and `else`. */
const conditional = (condition: unknown, holds: unknown, otherwise: unknown = true): object =>
  JSON.parse(
    `{"if": ${JSON.stringify(condition)}, "then": ${JSON.stringify(holds)}, "else": ${JSON.stringify(otherwise)}}`,
  ) as object;
const person = {
  type: 'object',
  properties: {
    name: string,
    age: { type: 'integer', minimum: 0, maximum: 150 },
    tags: { type: 'array', items: string },
  },
  required: ['name', 'age'],
  additionalProperties: false,
};

/** By feature: a schema, values that it allows, and values that it doesn't. */
const SCHEMAS: readonly (readonly [
  feature: string,
  schema: unknown,
  valid: readonly unknown[],
  invalid: readonly unknown[],
])[] = [
  ['anything', {}, [1, 'a', null, [[]], { a: { b: [true, -1.5e-7] } }, '\u0000"\\/', 1e21, 5e-324, 1.75e307], []],
  ['true', true, [0, {}], []],
  ['types', { type: ['integer', 'null'] }, [0, -7, null], [0.5, 'a', true, {}]],
  ['numbers', { type: 'number' }, [0, -0.125, 1e21, 1e-7, 123456789.123], ['1', null]],
  ['integers', integer, [0, -12, 99999999999999], [1.5]],
  ['minimum', { type: 'number', minimum: 0.5 }, [0.5, 0.51, 1, 1000], [0.49, 0, -1, -0.5]],
  ['maximum', { type: 'number', maximum: -1.25 }, [-1.25, -1.3, -20], [-1.2, 0, 1]],
  ['range across 0', { type: 'number', minimum: -2.5, exclusiveMaximum: 10 }, [-2.5, -1, 0, 9.99], [-2.51, 10, 11]],
  [
    'exclusive bounds',
    { type: 'number', exclusiveMinimum: 0, exclusiveMaximum: 1 },
    [0.5, 0.001, 0.999],
    [0, 1, -0.5, 1.5],
  ],
  [
    'integers between',
    { type: 'integer', minimum: -17, maximum: 231 },
    [-17, -9, 0, 99, 100, 231, 200],
    [-18, 232, 300, -20, 1000],
  ],
  ['integers above', { type: 'integer', exclusiveMinimum: 99 }, [100, 101, 5000, 123456], [99, 9, 0, -100]],
  ['integers below', { type: 'integer', maximum: -10 }, [-10, -11, -100], [-9, 0, 10]],
  ['draft 4 bounds', { type: 'integer', minimum: 3, exclusiveMinimum: true, maximum: 9 }, [4, 9], [3, 10]],
  [
    'unevaluatedProperties: what $ref, allOf and patterns list is not meant',
    {
      type: 'object',
      $defs: { base: { properties: { a: integer }, allOf: [{ properties: { b: integer } }] } },
      $ref: '#/$defs/base',
      patternProperties: { '^x': string },
      anyOf: [{ required: ['a'] }, { required: ['b'] }],
      unevaluatedProperties: { type: 'boolean' },
    },
    [{ a: 1 }, { b: 2 }, { a: 1, b: 1, xs: 'x' }, { a: 1, other: true }],
    [{ xs: 'x' }, { a: 1, other: 2 }, { a: 1, xs: 2 }, { a: true }],
  ],
  [
    'unevaluatedProperties: others that a part allows are meant by nothing',
    {
      type: 'object',
      allOf: [{ properties: { a: integer }, additionalProperties: integer }],
      unevaluatedProperties: false,
    },
    [{ a: 1, b: 2 }],
    [{ b: 'x' }],
  ],
  [
    'unevaluatedProperties within a part: of what it lists itself',
    {
      type: 'object',
      properties: { a: integer },
      allOf: [{ properties: { b: integer }, unevaluatedProperties: false }],
    },
    [{ b: 1 }, {}],
    [{ a: 1 }, { c: 1 }],
  ],
  [
    'unevaluatedItems: behind the longest list of places',
    {
      type: 'array',
      prefixItems: [integer],
      allOf: [{ prefixItems: [true, string] }],
      unevaluatedItems: { type: 'null' },
    },
    [[], [1], [1, 'a'], [1, 'a', null, null]],
    [['a'], [1, 2], [1, 'a', 3]],
  ],
  [
    'multiples of two numbers',
    { type: 'integer', allOf: [{ multipleOf: 4 }, { multipleOf: 6 }] },
    [0, 12, -24],
    [4, 6, 8],
  ],
  ['multiples', { type: 'integer', multipleOf: 7 }, [0, 7, 14, -21, 700], [1, 8, -20]],
  [
    'multiples within bounds',
    { type: 'integer', multipleOf: 25, minimum: 1, maximum: 200 },
    [25, 200, 175],
    [0, 225, 30],
  ],
  ['lengths', { type: 'string', minLength: 2, maxLength: 4 }, ['ab', 'a"\\', '😀é\n你'], ['a', 'abcde', '']],
  ['least length', { type: 'string', minLength: 3 }, ['abc', 'abcdefgh'], ['ab', '']],
  [
    'pattern',
    { type: 'string', pattern: '^[a-c]+-\\d{2,3}$' },
    ['a-12', 'abc-123'],
    ['d-12', 'a-1', 'a-1234', 'xa-12'],
  ],
  ['pattern anywhere', { type: 'string', pattern: '[b-y]\\s?"' }, ['b "', 'xxb\n"yy'], ['z"', 'b ']],
  [
    'pattern with lookaheads',
    { type: 'string', pattern: '^(?!\\.)(?!.*\\.\\.)[a-z.]+$' },
    ['a.b', 'abc'],
    ['.a', 'a..b', ''],
  ],
  [
    'pattern and length',
    { type: 'string', pattern: '^a*b*$', minLength: 2, maxLength: 3 },
    ['aab', 'bb'],
    ['a', 'aabb', 'ba'],
  ],
  [
    'pattern of alternatives',
    { type: 'string', pattern: '^(yes|no)$|^maybe' },
    ['yes', 'no', 'maybe so'],
    ['yesno', 'so maybe'],
  ],
  ['classes of letters', { type: 'string', pattern: '^\\p{Lu}[^\\d\\s]*$' }, ['Äx', 'Ω"'], ['ä', 'A1']],
  ['date', { type: 'string', format: 'date' }, ['2026-11-22', '2024-02-29'], ['2026-02-29', '2026-13-01', '2026-1-1']],
  ['time', { type: 'string', format: 'time' }, ['23:59:59Z', '00:00:00.5+01:00'], ['24:00:00Z', '12:00:00']],
  [
    'date-time',
    { type: 'string', format: 'date-time' },
    ['2026-11-22T21:00:00Z'],
    ['2026-11-22', '2026-11-22T21:00:00'],
  ],
  ['uuid', { type: 'string', format: 'uuid' }, ['123e4567-e89b-12d3-a456-426614174000'], ['123e4567']],
  ['email', { type: 'string', format: 'email' }, ['a.b@example.com'], ['a@b', '@example.com', 'a b@c.de']],
  ['ipv4', { type: 'string', format: 'ipv4' }, ['0.0.0.0', '255.1.20.199'], ['256.1.1.1', '1.2.3']],
  [
    'ipv6',
    { type: 'string', format: 'ipv6' },
    ['::1', '::', '2001:db8::1', '1:2:3:4:5:6:7:8'],
    ['1:2', ':::', '1::2::3'],
  ],
  ['uri', { type: 'string', format: 'uri' }, ['https://example.com/a?b=c#d', 'urn:isbn:12'], ['example.com', '//a']],
  ['hostname', { type: 'string', format: 'hostname' }, ['a.example.com'], ['-a', 'a..b']],
  ['duration', { type: 'string', format: 'duration' }, ['P1Y2M3DT4H', 'PT5M', 'P2W'], ['P', '1Y']],
  ['json-pointer', { type: 'string', format: 'json-pointer' }, ['', '/a/0~1'], ['a', '/~2']],
  [
    'format that zod has beside a pattern',
    {
      type: 'string',
      format: 'email',
      pattern:
        "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
    },
    ['a.b@example.com'],
    ['a..b@example.com', 'a@b.c'],
  ],
  ['enum', { enum: ['a"b', 1, null, [1, 'x'], { a: 1 }] }, ['a"b', 1, null, [1, 'x'], { a: 1 }], ['a', 2, [1]]],
  ['enum of a type', { type: 'string', enum: ['a', 'b', 3] }, ['a', 'b'], [3, 'c']],
  ['const', { const: { a: [true] } }, [{ a: [true] }], [{}, { a: [] }]],
  [
    'object',
    person,
    [
      { name: 'a', age: 0 },
      { name: '', age: 150, tags: ['x', ''] },
    ],
    [{ name: 'a' }, { name: 'a', age: 151 }, { name: 'a', age: 1, more: 1 }],
  ],
  [
    'properties that may be left out',
    { type: 'object', properties: { a: integer, b: integer, c: integer }, additionalProperties: false },
    [{}, { a: 1 }, { b: 2 }, { a: 1, c: 3 }, { b: 1, c: 2 }],
    [{ d: 1 }, { a: 'x' }],
  ],
  [
    'additional properties',
    { type: 'object', properties: { a: integer }, additionalProperties: string },
    [{}, { a: 1 }, { b: 'x' }, { a: 1, ab: 'y', '': 'z', é: '' }],
    [{ a: 'x' }, { b: 1 }],
  ],
  [
    'other properties are allowed',
    { type: 'object', properties: { id: integer }, required: ['id'] },
    [{ id: 1 }, { id: 1, x: [null] }],
    [{}, { id: 'x' }],
  ],
  ['required that isn’t listed', { type: 'object', required: ['a'] }, [{ a: null }, { a: 1, b: 2 }], [{}, { b: 1 }]],
  [
    'least and most properties',
    {
      type: 'object',
      properties: { a: integer, b: integer, c: integer },
      additionalProperties: false,
      minProperties: 1,
      maxProperties: 2,
    },
    [{ a: 1 }, { b: 1, c: 2 }],
    [{}, { a: 1, b: 2, c: 3 }],
  ],
  [
    'map of at least one',
    { type: 'object', additionalProperties: integer, minProperties: 1, maxProperties: 3 },
    [{ a: 1 }, { a: 1, b: 2, c: 3 }],
    [{}, { a: 1, b: 2, c: 3, d: 4 }],
  ],
  [
    'names by a pattern',
    { type: 'object', propertyNames: { pattern: '^[a-b]+$' }, additionalProperties: integer },
    [{ a: 1, ab: 2 }, {}],
    [{ c: 1 }],
  ],
  [
    'names of a list',
    { type: 'object', propertyNames: { enum: ['a', 'cc', 1], maxLength: 1 }, properties: { a: integer, b: integer } },
    [{ a: 1 }, {}],
    [{ b: 1 }, { cc: 1 }],
  ],
  [
    'properties by patterns',
    {
      type: 'object',
      properties: { x: string },
      patternProperties: { '^i': integer, d$: { minimum: 5 } },
      additionalProperties: false,
    },
    [{ x: 'a' }, { i: 1, id: 7 }, { d: 6 }],
    [{ id: 3 }, { a: 1 }, { i: 'x' }],
  ],
  ['array', { type: 'array', items: integer }, [[], [1], [1, 2, 3]], [['a'], [1, null]]],
  [
    'least and most items',
    { type: 'array', items: integer, minItems: 2, maxItems: 3 },
    [
      [1, 2],
      [1, 2, 3],
    ],
    [[], [1], [1, 2, 3, 4]],
  ],
  [
    'tuple',
    { type: 'array', prefixItems: [integer, string], items: false, minItems: 1 },
    [[1], [1, 'a']],
    [[], ['a'], [1, 'a', 2]],
  ],
  [
    'tuple that goes on',
    { type: 'array', prefixItems: [integer, string], items: { type: 'null' } },
    [[], [1], [1, 'a', null, null]],
    [[1, 'a', 1]],
  ],
  ['unique item', { type: 'array', items: integer, uniqueItems: true, maxItems: 1 }, [[], [1]], [[1, 2]]],
  [
    'contains',
    { type: 'array', contains: { type: 'number', minimum: 5 }, maxItems: 3 },
    [[5], ['a', 7], [6, 7, 8]],
    [[], [4], ['a'], [5, 5, 5, 5]],
  ],
  [
    'contains, counted',
    {
      type: 'array',
      prefixItems: [string],
      items: { enum: ['x', 1, 2] },
      contains: { const: 'x' },
      minContains: 2,
      maxContains: 3,
    },
    [
      ['x', 'x'],
      ['y', 'x', 1, 'x', 2, 'x', 1],
      ['x', 1, 'x'],
    ],
    [['x'], ['x', 'x', 'x', 'x'], [1, 'x', 'x'], ['y', 'x']],
  ],
  [
    'not of items',
    { type: 'array', not: { items: { enum: [1, 'a'] } }, allOf: [{ items: { enum: [1, 'a', 'b'] } }] },
    [['b'], [1, 'b', 'a']],
    [[], [1], ['a', 'a']],
  ],
  ['anyOf', { anyOf: [integer, { type: 'string', maxLength: 1 }] }, [1, 'a'], ['ab', null]],
  ['oneOf by types', { oneOf: [{ type: 'null' }, person] }, [null, { name: 'x', age: 3 }], [1, {}]],
  [
    'oneOf by a property',
    {
      oneOf: [
        {
          type: 'object',
          properties: { kind: { const: 'x' }, a: integer },
          required: ['kind', 'a'],
          additionalProperties: false,
        },
        { type: 'object', properties: { kind: { const: 'y' } }, required: ['kind'], additionalProperties: false },
      ],
    },
    [{ kind: 'x', a: 1 }, { kind: 'y' }],
    [{ kind: 'x' }, { kind: 'z' }],
  ],
  [
    'allOf',
    {
      allOf: [
        { type: 'object', properties: { a: { type: 'number', minimum: 1 } }, required: ['a'] },
        { properties: { a: { maximum: 3 }, b: string }, additionalProperties: false },
      ],
    },
    [{ a: 2 }, { a: 3, b: 'x' }],
    [{ a: 4 }, {}, { a: 1, c: 1 }],
  ],
  ['keywords beside anyOf', { type: 'integer', anyOf: [{ minimum: 10 }, { maximum: -10 }] }, [10, -10], [0, 9]],
  ['not of types', { not: { type: ['object', 'array', 'string'] } }, [1, null, true], ['a', {}, []]],
  [
    '$ref',
    { $defs: { p: person }, type: 'array', items: { $ref: '#/$defs/p' } },
    [[], [{ name: 'a', age: 1 }]],
    [[{}]],
  ],
  [
    'recursion',
    {
      $defs: {
        tree: {
          type: 'object',
          properties: { v: integer, kids: { type: 'array', items: { $ref: '#/$defs/tree' } } },
          required: ['v'],
          additionalProperties: false,
        },
      },
      $ref: '#/$defs/tree',
    },
    [{ v: 1 }, { v: 1, kids: [{ v: 2, kids: [] }] }],
    [{ kids: [] }, { v: 1, kids: [1] }],
  ],
  [
    'recursion of the whole',
    {
      type: 'object',
      properties: { next: { anyOf: [{ $ref: '#' }, { type: 'null' }] } },
      required: ['next'],
      additionalProperties: false,
    },
    [{ next: null }, { next: { next: null } }],
    [{}, { next: 1 }],
  ],
  ['$ref with more', { $defs: { a: { type: 'integer', minimum: 3 } }, $ref: '#/$defs/a', maximum: 5 }, [3, 5], [2, 6]],
  [
    '$ref by id, as draft 4 called it',
    {
      $schema: 'http://json-schema.org/draft-04/schema#',
      id: 'http://x/y.json',
      properties: { a: { $ref: 'z.json' }, id: string },
      definitions: { z: { id: 'z.json', type: 'integer' } },
    },
    [{ a: 1, id: 'a' }],
    [{ a: 'x' }, { id: 1 }],
  ],
  [
    '$ref by $anchor and by relative $id',
    {
      $id: 'https://example.com/schemas/root',
      $defs: {
        a: { $id: 'part', $anchor: 'here', $defs: { 'x/y~z': { type: 'null' } }, type: 'integer' },
        b: { $id: 'sub/b', $anchor: 'here', $ref: 'c', $defs: { c: { $id: 'c', enum: ['c'] } } },
        c: { $anchor: 'c', $ref: 'part#/$defs/x~1y~0z' },
        d: { $id: 'urn:uuid:a', items: { $ref: '#/$defs/e' }, $defs: { e: string }, type: 'array' },
      },
      prefixItems: [
        { $ref: 'part' },
        { $ref: 'sub/b#here' },
        { $ref: '#c' },
        { $ref: 'https://example.com/schemas/part#here' },
        { $ref: 'urn:uuid:a', maxItems: 1 },
      ],
      items: { type: 'array', maxItems: 1, items: { $ref: 'root' } },
      type: 'array',
    },
    [[1, 'c', null, 2, ['a']], [], [1, 'c', null, 2, [], [[1]]]],
    [
      ['c'],
      [1, 1],
      [1, 'c', 1],
      [1, 'c', null, 'c'],
      [1, 'c', null, 2, ['a', 'b']],
      [1, 'c', null, 2, [1]],
      [1, 'c', null, 2, [], [['c']]],
    ],
  ],
  [
    'what looks like $id and $ref and is none',
    {
      $defs: { a: { properties: { $id: { const: 'b' }, $ref: integer } }, b: { $id: 'b', type: 'boolean' } },
      type: 'object',
      properties: { e: { enum: [{ $id: 'b', $ref: 'c' }] }, a: { $ref: '#/$defs/a' }, b: { $ref: 'b' } },
      additionalProperties: false,
    },
    [{ e: { $id: 'b', $ref: 'c' }, a: { $id: 'b', $ref: 1 }, b: true }],
    [{ a: { $ref: 'b' } }, { b: 1 }],
  ],
  [
    '$dynamicRef to the only place of its name',
    {
      $dynamicAnchor: 'node',
      type: 'object',
      properties: { kids: { type: 'array', items: { $dynamicRef: '#node' } } },
      additionalProperties: false,
    },
    [{}, { kids: [{}, { kids: [] }] }],
    [{ kids: [1] }],
  ],
  [
    'dependentRequired',
    {
      properties: { a: integer, b: integer, c: integer },
      dependentRequired: { a: ['b'], b: ['c'] },
      additionalProperties: false,
    },
    [{}, { c: 1 }, { b: 1, c: 1 }, { a: 1, b: 1, c: 1 }, 'a', []],
    [{ a: 1 }, { a: 1, b: 1 }, { b: 1 }, { a: 1, c: 1 }],
  ],
  [
    'dependentSchemas',
    {
      type: 'object',
      properties: { a: integer, b: { type: ['integer', 'string'] } },
      dependentSchemas: { a: { properties: { b: string }, required: ['b'] } },
    },
    [{}, { b: 1 }, { a: 1, b: 'x' }, { b: 'x', c: 1 }],
    [{ a: 1 }, { a: 1, b: 1 }],
  ],
  [
    'dependencies, as draft 7 wrote them',
    {
      type: 'object',
      properties: { a: integer, b: integer, c: integer },
      dependencies: { a: ['b'], c: { maxProperties: 1 } },
      additionalProperties: false,
    },
    [{}, { b: 1 }, { a: 1, b: 1 }, { c: 1 }],
    [{ a: 1 }, { b: 1, c: 1 }],
  ],
  [
    'if, then and else',
    {
      type: 'object',
      properties: { kind: { enum: ['x', 'y', 'z'] }, n: { type: ['integer', 'string'] } },
      required: ['kind'],
      ...conditional(
        { properties: { kind: { const: 'x' } } },
        { properties: { n: integer }, required: ['n'] },
        { properties: { n: string } },
      ),
      additionalProperties: false,
    },
    [{ kind: 'x', n: 1 }, { kind: 'y' }, { kind: 'z', n: 'a' }],
    [{ kind: 'x' }, { kind: 'x', n: 'a' }, { kind: 'y', n: 1 }],
  ],
  [
    'if of numbers, of texts and of items',
    {
      allOf: [
        conditional({ type: 'number', minimum: 10 }, { maximum: 20 }, { not: { type: 'number', minimum: 5 } }),
        conditional(
          { type: 'string', pattern: '^a' },
          { maxLength: 2 },
          { type: ['string', 'number', 'array'], minLength: 2 },
        ),
        conditional({ prefixItems: [{ const: 1 }], minItems: 1 }, true, { maxItems: 1 }),
      ],
      items: { enum: [1, 2] },
    },
    [10, 20, 4, -1.5, 'a', 'ab', 'bcd', [], [2], [1, 2, 2]],
    [5, 21, 9.5, 'abc', 'b', '', [2, 1], null, true, {}],
  ],
  [
    'many ifs, of a property each',
    {
      type: 'object',
      properties: { kind: { enum: ['k0', 'k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7'] }, v: true },
      required: ['kind', 'v'],
      additionalProperties: false,
      allOf: Array.from({ length: 7 }, (_, i) =>
        conditional(
          { properties: { kind: { const: `k${i}` } }, required: ['kind'] },
          { properties: { v: { const: i } } },
        ),
      ),
    },
    [
      { kind: 'k0', v: 0 },
      { kind: 'k6', v: 6 },
      { kind: 'k7', v: [] },
    ],
    [
      { kind: 'k0', v: 1 },
      { kind: 'k6', v: 0 },
      { kind: 'k8', v: 1 },
    ],
  ],
  ['if alone', { type: 'integer', if: { minimum: 3 } }, [1, 4], ['a']],
  [
    'not of values',
    { not: { enum: ['a', 1, 3, true, null, [], {}] } },
    ['', 'ab', 'b', 0, 2, 1.5, 4, false, [1], { a: 1 }],
    ['a', 1, 3, true, null, [], {}],
  ],
  [
    'not of properties',
    { type: 'object', properties: { a: true, b: true }, not: { required: ['a'], properties: { b: { const: 1 } } } },
    [{}, { b: 1 }, { a: 1, b: 2 }, { b: 2, c: 3 }],
    [{ a: 1 }, { a: 1, b: 1 }],
  ],
  [
    'not of several, of counts and of texts',
    {
      allOf: [
        { not: { anyOf: [{ type: 'boolean' }, { type: 'array', minItems: 2 }, { type: 'object', maxProperties: 0 }] } },
        { not: { type: 'string', maxLength: 2, pattern: 'a' } },
        { not: { not: { type: ['array', 'object', 'string'] } } },
      ],
    },
    [[], [1], { a: 1 }, 'bc', 'abc'],
    [true, [1, 2], {}, 'a', 'ba', 1],
  ],
  [
    'oneOf of properties that exclude one another',
    {
      type: 'object',
      properties: { a: integer, b: integer },
      oneOf: [{ required: ['a'] }, { required: ['b'] }],
      additionalProperties: false,
    },
    [{ a: 1 }, { b: 1 }],
    [{}, { a: 1, b: 1 }],
  ],
  ['oneOf of ranges that overlap', { type: 'integer', oneOf: [{ minimum: 1 }, { maximum: 3 }] }, [0, 4], [1, 2, 3]],
  [
    'oneOf of three',
    { oneOf: [{ enum: ['a', 'b'] }, { enum: ['b', 'c'] }, { enum: ['c', 'b', 'd'] }] },
    ['a', 'd'],
    ['b', 'c', 'e'],
  ],
  [
    'allOf of properties by patterns',
    {
      type: 'object',
      patternProperties: { '^x': integer },
      allOf: [
        { properties: { xa: { maximum: 3 } } },
        { patternProperties: { '^x': { minimum: 0 }, y$: { minimum: 2 } } },
      ],
    },
    [{ xa: 3, xb: 7 }, { xy: 2 }, { z: 'a' }],
    [{ xa: 4 }, { xb: -1 }, { xy: 1 }, { xb: 'a' }],
  ],
  [
    'unique items',
    { type: 'array', items: { enum: ['a', 'b', 1, 'c'] }, uniqueItems: true, minItems: 1, maxItems: 3 },
    [['a'], ['b', 'a'], [1, 'c', 'b']],
    [[], ['a', 'a'], ['b', 'a', 'b'], ['a', 'b', 'c', 1], ['d']],
  ],
  [
    'unique items of a tuple',
    {
      type: 'array',
      prefixItems: [{ type: 'boolean' }, { enum: [true, 'x'] }],
      items: { type: ['null', 'boolean'] },
      uniqueItems: true,
    },
    [[], [true], [false, true, null], [true, 'x', null, false]],
    [[true, true], ['x'], [false, true, null, null], [false, 'x', false]],
  ],
  [
    'many unique items, in the order of the schema',
    { type: 'array', items: { enum: LETTERS }, uniqueItems: true, minItems: 2 },
    [['a', 'b'], LETTERS, ['c', 'z']],
    [['a'], ['a', 'a'], ['a', 'b', 'b']],
  ],
  [
    'unique texts, which answers remember',
    {
      type: 'array',
      items: { anyOf: [{ enum: ['a', 'b'] }, { type: 'string', minLength: 1 }] },
      uniqueItems: true,
      minItems: 1,
      maxItems: 3,
    },
    [['a'], ['b', 'a', 'aa'], ['a"', 'a\\', '\\"a'], ['é', 'e', 'ée'], [']', '],', ',']],
    [
      [],
      ['a', 'a'],
      ['b', 'a', 'b'],
      ['a"', 'a"'],
      ['\\', 'x', '\\'],
      ['é', 'e', 'é'],
      ['', 'a'],
      ['a', 'b', 'c', 'd'],
    ],
  ],
  [
    'unique texts within one another, and beside',
    {
      type: 'array',
      items: {
        properties: {
          tags: { type: 'array', items: string, uniqueItems: true },
          name: string,
          as: { type: 'array', items: string, uniqueItems: true },
        },
        type: 'object',
        required: ['name'],
      },
      uniqueItems: true,
    },
    [
      [
        { tags: ['a', 'b'], name: 'a', as: ['a', 'b'] },
        { tags: ['a', 'b'], name: 'b', as: ['b', 'a'] },
      ],
      [{ name: 'a' }, { name: '}]', x: ['a', 'a', { y: ']' }] }, { name: '[' }],
    ],
    [
      [{ name: 'a' }, { name: 'b' }, { name: 'a' }],
      [{ tags: ['x'], name: 'a', as: ['y'] }, { name: '}' }, { tags: ['x'], name: 'a', as: ['y'] }],
      [{ tags: ['a', 'a'], name: 'a' }],
      [{ tags: ['a'], name: 'a', as: ['b', 'b'] }],
      [{ name: 'a' }, { name: 'b', as: ['c', 'd', 'c'] }],
    ],
  ],
  [
    'unique texts behind a switch',
    { type: 'array', prefixItems: [{ type: 'boolean' }], items: { type: ['string', 'number'] }, uniqueItems: true },
    [[true], [true, 'a', 'b'], []],
    [[true, 'a', 'a'], ['a'], [true, 1, 1]],
  ],
  [
    'unique texts that contain another',
    { type: 'array', items: string, contains: { minLength: 2 }, uniqueItems: true },
    [['a', 'bb'].reverse(), ['bb']],
    [['bb', 'bb'], [], ['a']],
  ],
  [
    'unique texts beside objects',
    {
      type: 'array',
      items: { oneOf: [string, { type: 'object', properties: { url: string }, required: ['url'] }] },
      uniqueItems: true,
    },
    [['a', { url: 'a' }, 'b', { url: 'b' }], []],
    [
      ['a', { url: 'a' }, 'a'],
      [{ url: 'a' }, 'a', { url: 'a' }],
    ],
  ],
  [
    'patterns beside what another part says of others',
    {
      allOf: [
        { properties: { a: string }, additionalProperties: integer },
        { patternProperties: { '^b': { minimum: 3 } }, properties: { c: { maximum: 1 } } },
      ],
    },
    [{ a: 'x', c: 1, b: 3, d: 0 }, { ba: 7 }],
    [{ b: 2 }, { b: 'x' }, { c: 2 }, { c: 'x' }, { d: 'x' }, { a: 1 }],
  ],
  [
    'some property that another part forbids',
    {
      type: 'object',
      not: { properties: { a: integer }, patternProperties: { '^b': integer }, additionalProperties: false },
      maxProperties: 2,
    },
    [{ a: 'x' }, { b: 'x' }, { c: 1 }, { a: 1, c: 1 }, { b: 1, bb: 'x' }],
    [{}, { a: 1 }, { b: 1, bb: 2 }, { a: 1, b: 2 }],
  ],
  [
    'one of two closed objects',
    {
      type: 'object',
      oneOf: [
        { properties: { a: integer, b: integer }, additionalProperties: false },
        { properties: { b: integer, c: integer }, additionalProperties: false },
      ],
    },
    [{ a: 1 }, { a: 1, b: 2 }, { c: 1 }, { b: 1, c: 2 }],
    [{}, { b: 1 }, { a: 1, c: 1 }, { d: 1 }],
  ],
  ['nullable', { type: 'integer', nullable: true }, [1, null], ['a']],
  [
    'names that need escapes',
    {
      type: 'object',
      properties: { 'a"b\\': integer, 'é/~': integer },
      required: ['a"b\\'],
      additionalProperties: false,
    },
    [{ 'a"b\\': 1 }, { 'a"b\\': 1, 'é/~': 2 }],
    [{}],
  ],
  [
    'an option that nothing fits',
    { anyOf: [{ type: 'object', properties: { a: false }, required: ['a'] }, { const: 1 }] },
    [1],
    [{}, { a: 1 }],
  ],
];

const ajv = new Ajv2020({ strict: false, unicodeRegExp: true });
(addFormatsOf as unknown as (to: Ajv2020) => void)(ajv);

/** Without keywords of older drafts. */
const modern = (schema: unknown): unknown =>
  JSON.parse(
    JSON.stringify(schema)
      .replace('"minimum":3,"exclusiveMinimum":true', '"exclusiveMinimum":3')
      .replace('"$schema":"http://json-schema.org/draft-04/schema#",', '')
      .replaceAll(/"id":"(http|z)/g, '"$id":"$1'),
  );

describe('JSON of a schema', () => {
  test.each(SCHEMAS)('%s', async (_feature, schema, valid, invalid) => {
    const form = jsonOf(schema);
    const validate = ajv.compile(modern(schema) as object);
    for (const [at, value] of valid.entries()) {
      expect(validate(value), `${JSON.stringify(value)} is valid`).toBe(true);
      for (const indent of [0, 2]) {
        const text = JSON.stringify(value, null, indent);
        expect(await accepts(form, text, at + indent), text).toBe(true);
      }
    }
    for (const value of invalid) {
      expect(validate(value), `${JSON.stringify(value)} isn't valid`).toBe(false);
      expect(await accepts(form, JSON.stringify(value)), JSON.stringify(value)).toBe(false);
    }
    let whole = 0;
    for (let seed = 0; seed < 12; seed++) {
      const text = await walk(form, seed);
      if (text === undefined) continue;
      whole++;
      expect(validate(JSON.parse(text)), text).toBe(true);
    }
    expect(whole).toBeGreaterThan(0);
  });

  test.each([
    ['contains twice', { type: 'array', contains: integer, allOf: [{ contains: string }] }, 'contains'],
    ['contains beside uniqueItems', { type: 'array', contains: integer, uniqueItems: true }, 'contains'],
    ['uniqueItems', { type: 'array', uniqueItems: true }, 'uniqueItems'],
    ['if of unique items', { if: { uniqueItems: true }, else: { maxItems: 2 } }, 'uniqueItems'],
    ['not of a format', { not: { format: 'date' } }, 'format'],
    ['dependencies of no object', { dependentRequired: ['a'] }, 'dependentRequired'],
    ['an anchor that is nowhere', { $ref: '#a' }, '$ref "#a"'],
    [
      '$dynamicRef to one of several',
      { $dynamicAnchor: 'a', $defs: { b: { $id: 'b', $dynamicAnchor: 'a' } }, items: { $dynamicRef: '#a' } },
      '$dynamicRef',
    ],
    [
      'unique items of texts with an end',
      { type: 'array', items: { type: 'string', pattern: '^a+b$' }, uniqueItems: true },
      'uniqueItems',
    ],
    [
      'unique objects of no text',
      { type: 'array', items: { properties: { a: integer } }, uniqueItems: true },
      'uniqueItems',
    ],
    [
      'unevaluatedProperties beside options',
      { properties: { a: integer }, anyOf: [{ properties: { b: integer } }, true], unevaluatedProperties: false },
      'unevaluatedProperties beside anyOf',
    ],
    [
      'unevaluatedItems beside contains',
      { allOf: [{ contains: integer }], unevaluatedItems: false },
      'unevaluatedItems beside contains',
    ],
    ['remote $ref', { $ref: 'https://example.com/a' }, '$ref "https://example.com/a"'],
    ['$ref to nothing', { $ref: '#/$defs/a' }, 'no such part'],
    ['$ref to itself', { $ref: '#' }, 'refers to itself'],
    ['oneOf that overlaps', { type: 'integer', oneOf: [{ multipleOf: 2 }, { minimum: 3 }] }, 'oneOf'],
    ['multipleOf of fractions', { type: 'number', multipleOf: 0.1 }, 'multipleOf'],
    ['lookbehind', { type: 'string', pattern: '(?<=a)b' }, "'(?<=a)b'".slice(0, 7)],
    ['word boundary', { type: 'string', pattern: '\\bb' }, 'word boundaries'],
    ['back-reference', { type: 'string', pattern: '(a)\\1' }, 'references to groups'],
    ['a wrong pattern', { type: 'string', pattern: '(' }, 'regular expression'],
    ['a wrong type', { type: 'text' }, 'type "text"'],
    ['a wrong bound', { type: 'integer', minimum: '3' }, 'minimum'],
    ['nothing', false, 'no value is allowed'],
    ['an empty enum', { enum: [] }, 'no value is allowed'],
    ['bounds that cross', { type: 'integer', minimum: 4, maximum: 3 }, 'no value is allowed'],
    [
      'a recursion without end',
      { type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] },
      'no value is allowed',
    ],
    ['no schema', 3, 'expected an object'],
    ['a large schema', { enum: Array.from({ length: 40_000 }, (_, i) => `value ${i}`) }, 'letters'],
  ])('refused by name: %s', (_what, schema, message) => {
    const wrong = (): unknown => constraints.compile(jsonOf(schema));
    expect(wrong).toThrow(usage(message));
  });

  test('strict: no other properties than those listed', async () => {
    const schema = { type: 'object', properties: { a: integer }, required: ['a'] };
    const strict: TextForm = { responseFormat: { type: 'json_schema', json_schema: { schema, strict: true } } };
    expect(await accepts(strict, '{"a": 1}')).toBe(true);
    expect(await accepts(strict, '{"a": 1, "b": 2}')).toBe(false);
    expect(await accepts(jsonOf(schema), '{"a": 1, "b": 2}')).toBe(true);
  });

  test('json_object is any object', async () => {
    const form: TextForm = { responseFormat: { type: 'json_object' } };
    expect(await accepts(form, '{"a": [1, {"b": null}]}')).toBe(true);
    expect(await accepts(form, '[1]')).toBe(false);
    expect(await accepts(form, '{"a" 1}')).toBe(false);
  });
});

describe('other forms', () => {
  const EXPRESSIONS = [
    'yes|no',
    '(a|b)*c',
    '[^a-z]{3}',
    '\\d{3}-\\d{4}',
    'x{0,3}y+?',
    '(?:ab?){2,}',
    '.\\.',
    'é+\\u00e9?',
    '[\\w-]+@[\\w-]+',
    '(a*)*b',
    '\\S\\s\\D',
    '^abc$',
  ];

  test.each(EXPRESSIONS)('regex %s: as JavaScript has it', async (source) => {
    const whole = new RegExp(`^(?:${source})$`, 'u');
    for (let seed = 0; seed < 8; seed++) {
      const text = await walk({ regex: source }, seed);
      if (text !== undefined) expect(text).toMatch(whole);
    }
    const random = new Random(9);
    for (let i = 0; i < 60; i++) {
      const text = Array.from({ length: random.integer(8) }, () => 'abcxy019-@.é A'[random.integer(14)]).join('');
      if (text !== '') expect(await accepts({ regex: source }, text, i), text).toBe(whole.test(text));
    }
  });

  test('choice: one of the texts', async () => {
    const form: TextForm = { choice: ['yes', 'no', 'yes, "but"\n'] };
    for (const one of form.choice!) expect(await accepts(form, one)).toBe(true);
    expect(await accepts(form, 'yes,')).toBe(false);
    const seen = new Set<string>();
    for (let seed = 0; seed < 20; seed++) seen.add((await walk(form, seed))!);
    expect(form.choice).toEqual(expect.arrayContaining([...seen]));
    expect(seen.size).toBeGreaterThan(1);
  });

  test('grammar: EBNF; what is wrong is told, and others go on', async () => {
    const grammar = 'root ::= "[" item ("," item)* "]"\nitem ::= [0-9]+ | root\n';
    expect(await accepts({ grammar }, '[1,[23,4]]')).toBe(true);
    expect(await accepts({ grammar }, '[1,]')).toBe(false);
    expect(() => constraints.compile({ grammar: 'root ::= missing' })).toThrow(/^grammar: .*missing/);
    expect(() => constraints.compile({ grammar: 'root ::= "a' })).toThrow(usage('grammar: '));
    expect(await accepts({ grammar: 'root ::= "ab" [0-9]+' }, 'ab12')).toBe(true);
  });

  test.each([
    [{ regex: 'a', choice: ['b'] }, 'regex and choice: give one of them'],
    [{ choice: [] }, 'choice: expected a list'],
    [{ grammar: ' ' }, 'grammar: expected rules'],
    [{ responseFormat: { type: 'xml' } }, 'response_format: type "xml"'],
    [{ responseFormat: { type: 'json_schema' } }, 'response_format: expected {type'],
    [{ regex: '(a{1000}){1000}' }, 'states'],
  ])('%o is refused', (form, message) => {
    const wrong = (): unknown => constraints.compile(form as TextForm);
    expect(wrong).toThrow(usage(message));
  });

  test('nothing is limited where nothing is asked for', () => {
    expect(constraints.compile({})).toBeUndefined();
    expect(constraints.compile({ responseFormat: { type: 'text' } })).toBeUndefined();
  });

  test('a token that is the only one is told; without tokens that end a text it ends by itself', () => {
    const open = new Constraints({ ...vocabulary, endIds: [] });
    const answer = open.compile({ regex: '[ab]\\n' })!.start();
    expect(answer.first.only).toBeUndefined();
    answer.accept(2 + 97);
    const next = answer.next();
    expect(next!.only).toBe(2 + 10);
    answer.accept(next!.only!);
    expect(answer.next()).toBeUndefined();
    answer.reset();
    expect(answer.next()).toEqual(answer.first);
  });
});

test('schemas of drawn parts: what is generated is valid', { timeout: 300_000 }, async () => {
  const seeds = drawn([...Array(60).keys()], 10, 'drawn schemas');
  for (const seed of seeds) {
    const random = new Random(1000 + seed);
    const part = (depth: number): unknown => {
      const leaf = [
        string,
        integer,
        { type: 'boolean' },
        { enum: ['a', 2, null] },
        { type: 'string', format: 'date' },
        { type: 'number', minimum: random.integer(100) / 8, maximum: 20 + random.integer(1000) / 7 },
        { type: 'string', maxLength: 5 },
      ];
      if (depth === 0) return leaf[random.integer(leaf.length)];
      const kind = random.integer(4);
      if (kind === 0)
        return { type: 'array', items: part(depth - 1), minItems: random.integer(2), maxItems: 2 + random.integer(2) };
      if (kind === 1) return { anyOf: [part(depth - 1), part(0)] };
      const names = ['a', 'b', 'name', 'é"x'].slice(0, 1 + random.integer(4));
      const properties = Object.fromEntries(names.map((name) => [name, part(depth - 1)]));
      return {
        type: 'object',
        properties,
        required: names.filter(() => random.integer(2) === 0),
        additionalProperties: kind === 2 ? false : { type: 'null' },
      };
    };
    const schema = part(3);
    const validate = ajv.compile(schema as object);
    for (let walkSeed = 0; walkSeed < 4; walkSeed++) {
      const text = await walk(jsonOf(schema), walkSeed);
      if (text !== undefined) expect(validate(JSON.parse(text)), `${JSON.stringify(schema)}\n${text}`).toBe(true);
    }
  }
});

/** A value as JSON, an object with its properties in each order. */
function ordersOf(value: unknown): string[] {
  const orders = <T>(of: readonly T[]): T[][] =>
    of.length === 0
      ? [[]]
      : of.flatMap((one) => orders(of.filter((other) => other !== one)).map((rest) => [one, ...rest]));
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [JSON.stringify(value)];
  return orders(Object.entries(value)).map((entries) => JSON.stringify(Object.fromEntries(entries)));
}

test(
  'conditions drawn at random: what is accepted is valid, and what is valid is accepted',
  { timeout: 300_000 },
  async () => {
    const names = ['a', 'b', 'kind'];
    const values = [0, 1, 2.5, 3, 'x', 'xy', 'y', '', null, true, false, [], ['x'], [1, 2], [1, 1], [true, 'x', 1]];
    let compiled = 0;
    for (const seed of drawn([...Array(300).keys()], 40, 'drawn conditions')) {
      const random = new Random(7000 + seed);
      const pick = <T>(of: readonly T[]): T => of[random.integer(of.length)]!;
      const some = <T>(of: readonly T[]): T[] => of.filter(() => random.integer(2) === 0);
      const leaf = (): unknown =>
        pick<unknown>([
          true,
          string,
          { type: ['integer', 'null'] },
          { const: pick(values) },
          { enum: [...new Set([pick(values), 'x', 1])] },
          { minimum: random.integer(3) },
          { exclusiveMaximum: 2, maximum: 3 },
          { minLength: 1 },
          { maxLength: 1, pattern: 'x' },
          { type: 'array', minItems: random.integer(3), maxItems: 2 },
          { type: 'boolean' },
          { prefixItems: [{ enum: ['x', 1] }] },
          { type: 'array', items: { enum: ['x', 1, true] }, uniqueItems: true },
          { contains: { enum: ['x', 1] }, maxContains: 1 },
          { items: { type: ['string', 'number'] } },
        ]);
      const part = (depth: number): unknown => {
        if (depth === 0) return leaf();
        const inner = (): unknown => part(depth - 1);
        const object = (): unknown => ({
          properties: Object.fromEntries(some(names).map((name) => [name, inner()])),
          ...(random.integer(2) === 0 && { required: some(names) }),
          ...(random.integer(3) === 0 && { additionalProperties: pick<unknown>([false, leaf()]) }),
          ...(random.integer(4) === 0 && { dependentRequired: { [pick(names)]: some(names) } }),
          ...(random.integer(6) === 0 && { dependentSchemas: { [pick(names)]: inner() } }),
          ...(random.integer(6) === 0 && { patternProperties: { [pick(['a', '^k', 'b|d'])]: inner() } }),
          ...(random.integer(6) === 0 && { minProperties: random.integer(2), maxProperties: 2 }),
        });
        return pick([
          object,
          object,
          object,
          () => ({ not: inner() }),
          () => ({ oneOf: [inner(), inner()] }),
          () => ({ anyOf: [inner(), inner()] }),
          () => ({ allOf: [object(), conditional(inner(), inner(), inner())] }),
          () => conditional(object(), inner(), object()),
        ])();
      };
      const schema = part(2) as object;
      const form = jsonOf(schema);
      try {
        constraints.compile(form);
      } catch {
        continue;
      }
      compiled++;
      const validate = ajv.compile(schema);
      const objects = Array.from({ length: 40 }, () =>
        Object.fromEntries(some([...names, 'other']).map((name) => [name, pick(values)])),
      );
      for (const value of [...values, ...objects]) {
        const what = `${JSON.stringify(schema)}\n${JSON.stringify(value)}`;
        const isValid = validate(value);
        let isOf = false;
        for (const text of ordersOf(value)) {
          isOf = await accepts(form, text, seed);
          if (isOf || !isValid) break;
        }
        // Of items that aren't unique none is told.
        if (isOf || !what.includes('uniqueItems')) expect(isOf, what).toBe(isValid);
      }
    }
    expect(compiled).toBeGreaterThan(5);
  },
);
