import { usageError } from '../../base/errors.js';
import { isObject, partAt, show, typeOf } from '../../base/json.js';
import { valueIn } from '../../base/lists.js';
import { gcd } from '../../base/math.js';
import { ANY_TEXT, type Automaton, both, except, includes, listed, spend } from '../automaton.js';
import { textsWith } from '../expressions.js';
import { pointed } from './schema_places.js';
import { STRING_FORMATS } from './string_formats.js';

/**
 * A schema without references and combinations: every keyword holds. Patterns and formats may be several; texts that are
 * of a form in `unlike` aren't of this one. Of `Named` schemas, `each` property with such a name is of the schema, and `some` one is.
 */
export type Form = Readonly<Record<string, unknown>>;
/** A schema of properties whose names match a pattern, or aren't these and match none of the others. */
export interface Named {
  readonly of: unknown;
  readonly like?: string;
  readonly besides?: readonly string[];
  readonly unlike?: readonly string[];
}
type Schema = boolean | Readonly<Record<string, unknown>>;

/** Forms that one schema may come to. */
const MAX_FORMS = 256;

/** Keywords that change what is valid in ways that aren't done, by what stands in for them. */
const REFUSED = new Map([
  ['$dynamicRef', 'use $ref'],
  ['$recursiveRef', 'use $ref'],
  ['contentSchema', 'leave it out'],
]);

const AS_IS = ['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties'] as const;
const AT_MOST = ['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties'] as const;
const LISTS = ['patterns', 'formats', 'unlike', 'contains', 'each', 'some'] as const;
/** Schemas looked at for one grammar. */
const MAX_LOOKS = 50_000;
/** What keywords must be, where their values are taken apart. */
const KINDS: readonly (readonly [keyword: string, isRight: (value: unknown) => boolean, expected: string])[] = [
  ['enum', Array.isArray, 'a list of values'],
  ['required', (value) => Array.isArray(value) && value.every((name) => typeof name === 'string'), 'a list of names'],
  ['properties', isObject, 'an object of schemas'],
  ['patternProperties', isObject, 'an object of schemas'],
  ['prefixItems', Array.isArray, 'a list of schemas'],
  ['multipleOf', (value) => typeof value === 'number' && value > 0, 'a number above 0'],
];
/** Keywords that a form has as its schema does. */
const KEYWORDS: readonly string[] = [
  ...AS_IS,
  ...AT_MOST,
  'type',
  'enum',
  'multipleOf',
  'properties',
  'patternProperties',
  'additionalProperties',
  'required',
  'propertyNames',
  'prefixItems',
  'items',
  'uniqueItems',
];

/** Keywords for what no other keyword of a schema speaks of. */
interface Unevaluated {
  readonly keyword: string;
  /** Whether a schema's own keywords speak of all; and otherwise of which. */
  readonly all: (own: Readonly<Record<string, unknown>>) => boolean;
  readonly own: (own: Readonly<Record<string, unknown>>) => readonly string[];
  /** That others than these are of a schema. */
  readonly form: (spoken: readonly string[], of: Schema) => Form;
}

const UNEVALUATED: readonly Unevaluated[] = [
  {
    keyword: 'unevaluatedProperties',
    all: (own) => own['additionalProperties'] !== undefined || own['unevaluatedProperties'] !== undefined,
    own: ({ properties = {}, patternProperties = {} }) => [
      ...Object.keys(properties as object).map((name) => `=${name}`),
      ...Object.keys(patternProperties as object).map((pattern) => `/${pattern}`),
    ],
    form: (spoken, of) => {
      const named = (mark: string): Form =>
        Object.fromEntries(spoken.filter((name) => name.startsWith(mark)).map((name) => [name.slice(1), true]));
      return { properties: named('='), patternProperties: named('/'), additionalProperties: of };
    },
  },
  {
    keyword: 'unevaluatedItems',
    all: (own) => {
      if (own['contains'] !== undefined) throw usageError('schema: unevaluatedItems beside contains is not done');
      const rest = Array.isArray(own['items']) ? own['additionalItems'] : own['items'];
      return rest !== undefined || own['unevaluatedItems'] !== undefined;
    },
    own: ({ items, prefixItems = items ?? [] }) => Object.keys(prefixItems as object),
    form: (spoken, of) => ({ prefixItems: spoken.map(() => true), items: of }),
  },
];

function same(a: unknown, b: unknown): boolean {
  if (a === b || typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return a === b;
  const keys = Object.keys(a);
  if (Array.isArray(a) !== Array.isArray(b) || keys.length !== Object.keys(b).length) return false;
  return keys.every((key) => Object.hasOwn(b, key) && same(a[key as never], b[key as never]));
}

/** As JSON with the keys in order. */
export const canonical = (value: unknown): string => inOrder(value, canonical);

/** @param part writes what is within it */
export function inOrder(value: unknown, part: (of: unknown) => string): string {
  if (Array.isArray(value)) return `[${value.map((of) => part(of)).join()}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const entries = Object.keys(value).sort();
  return `{${entries.map((key) => `${JSON.stringify(key)}:${part(value[key])}`).join()}}`;
}

const tooManyForms = (): Error =>
  usageError(`schema: anyOf, oneOf and allOf together come to more than ${MAX_FORMS} forms`);

/** Takes a schema's references and combinations apart. */
export class SchemaForms {
  readonly #known = new Map<object, Form[]>();
  #looks = 0;

  readonly #root: unknown;

  constructor(private readonly given: unknown) {
    this.#root = pointed(given);
  }

  /** A schema that was given, as it is read. */
  own(schema: unknown): Schema {
    return schemaOf(schema === this.given ? this.#root : schema);
  }

  /** What a reference within the schema says. @throws SplitkvError `usage` for another */
  resolve(reference: unknown): Schema {
    if (typeof reference !== 'string' || !/^#(\/|$)/.test(reference)) {
      throw usageError(`$ref ${show(reference)}: only references within the schema are done, such as "#/$defs/name"`);
    }
    const at = partAt(this.#root, reference);
    if (at === undefined) throw usageError(`$ref ${show(reference)}: the schema has no such part`);
    return schemaOf(at);
  }

  /** The forms of which a valid value has at least one; none where nothing is valid. */
  of(schema: unknown, within: readonly string[] = []): Form[] {
    const own = this.own(schema);
    if (typeof own === 'boolean') return own ? [{}] : [];
    return valueIn(this.#known, own, () => this.#formsOf(own, within));
  }

  #formsOf(own: Readonly<Record<string, unknown>>, within: readonly string[]): Form[] {
    // References within references.
    if (++this.#looks > MAX_LOOKS || within.length > 200)
      throw usageError('schema: its parts refer to one another in too many ways: make it smaller');
    for (const [keyword, instead] of REFUSED) {
      if (Object.hasOwn(own, keyword)) throw usageError(`schema: ${keyword} is not done: ${instead}`);
    }
    let forms: Form[] = ownForm(own);
    const cross = (others: readonly Form[]): void => void (forms = crossed(forms, others));
    if (own['$ref'] !== undefined) {
      const reference = own['$ref'];
      const target = this.resolve(reference);
      if (typeof reference === 'string' && within.includes(reference))
        throw usageError(`$ref ${show(reference)}: it refers to itself and to nothing else`);
      cross(this.of(target, [...within, reference as string]));
    }
    for (const part of listOf(own, 'allOf')) cross(this.of(part, within));
    if (own['anyOf'] !== undefined) cross(listOf(own, 'anyOf').flatMap((part) => this.of(part, within)));
    for (const [name, more] of dependenciesOf(own)) {
      const given = { type: ['object'], required: [name] };
      cross([{ properties: { [name]: false } }, ...this.of({ allOf: [more, given] }, within)]);
    }
    // Where a condition is said alone it limits nothing.
    if (own['if'] !== undefined && (own['then'] !== undefined || own['else'] !== undefined)) {
      const otherwise = crossed(this.#not(own['if'], forms, within), this.of(own['else'] ?? true, within));
      cross([...this.of({ allOf: [own['if'], own['then'] ?? true] }, within), ...otherwise]);
    }
    if (own['oneOf'] !== undefined) {
      const parts = listOf(own, 'oneOf');
      const options = parts.map((part) =>
        this.of(part, within).filter((form) => forms.some((outer) => merged(outer, form) !== undefined)),
      );
      if (options.flat().length > MAX_FORMS) throw tooManyForms();
      // Where two may hold at once, each without the other.
      cross(
        options.flatMap((some, i) =>
          options.reduce(
            (left, others, j) =>
              i === j || some.every((one) => others.every((other) => disjoint(one, other)))
                ? left
                : crossed(left, this.#not(parts[j], crossed(forms, left), within)),
            some,
          ),
        ),
      );
    }
    if (own['not'] !== undefined) cross(this.#not(own['not'], forms, within));
    for (const what of UNEVALUATED) {
      if (own[what.keyword] !== undefined && own[what.keyword] !== true) cross([this.#unevaluated(own, what)]);
    }
    return forms;
  }

  /** That properties, or items, of which nothing else in the schema speaks are of the schema of this keyword. */
  #unevaluated(own: Readonly<Record<string, unknown>>, what: Unevaluated): Form {
    const { [what.keyword]: of, ...rest } = own;
    const spoken = this.#spokenOf(rest, what);
    return spoken === undefined ? {} : what.form([...spoken], schemaOf(of));
  }

  /**
   * Of which names, patterns (as `/PATTERN`) or places a schema speaks; undefined where of all.
   * @throws SplitkvError `usage` where that depends on the value
   */
  #spokenOf(schema: unknown, what: Unevaluated): ReadonlySet<string> | undefined {
    const own = this.own(schema);
    if (typeof own === 'boolean') return new Set();
    if (what.all(own)) return undefined;
    const reference = own['$ref'] === undefined ? [] : [this.resolve(own['$ref'])];
    const always = [...reference, ...listOf(own, 'allOf')].map((part) => this.#spokenOf(part, what));
    if (always.includes(undefined)) return undefined;
    const spoken = new Set([...what.own(own), ...always.flatMap((part) => [...(part ?? [])])]);
    const maybe: [keyword: string, part: unknown][] = [
      ...['anyOf', 'oneOf'].flatMap((keyword) =>
        listOf(own, keyword).map((part): [string, unknown] => [keyword, part]),
      ),
      ...['if', 'then', 'else'].map((keyword): [string, unknown] => [keyword, own[keyword] ?? true]),
      ...dependenciesOf(own).map(([, part]): [string, unknown] => ['dependentSchemas', part]),
    ];
    for (const [keyword, part] of maybe) {
      const more = this.#spokenOf(part, what);
      if (!more || [...more].some((name) => !spoken.has(name)))
        throw usageError(
          `schema: ${what.keyword} beside ${keyword} that speaks of others is not done: list them outside`,
        );
    }
    return spoken;
  }

  /** The forms of values, of the types of these forms, that a schema doesn't allow. */
  #not(schema: unknown, among: readonly Form[], within: readonly string[]): Form[] {
    const types = new Set(among.flatMap(typesOf));
    return this.of(schema, within).reduce<Form[]>((left, form) => crossed(left, without(form, types)), [{}]);
  }
}

/** The forms in which two hold, one of each. */
function crossed(some: readonly Form[], others: readonly Form[]): Form[] {
  spend(10 * some.length * others.length);
  const forms = some.flatMap((form) => others.map((other) => merged(form, other)).filter((both) => both !== undefined));
  if (forms.length > MAX_FORMS) throw tooManyForms();
  return forms;
}

/** What must hold where an object has a property. */
function dependenciesOf(schema: Readonly<Record<string, unknown>>): [name: string, more: unknown][] {
  return ['dependentRequired', 'dependentSchemas', 'dependencies'].flatMap((keyword) => {
    const given = schema[keyword] ?? {};
    if (!isObject(given)) throw usageError(`schema: ${keyword} ${show(given)}: expected an object`);
    return Object.entries(given).map(([name, more]): [string, unknown] => [
      name,
      Array.isArray(more) ? { required: more } : more,
    ]);
  });
}

function schemaOf(value: unknown): Schema {
  if (typeof value === 'boolean' || isObject(value)) return value;
  throw usageError(`schema: ${show(value)}: expected an object, true or false`);
}

function listOf(schema: Readonly<Record<string, unknown>>, keyword: string): readonly unknown[] {
  const list = schema[keyword] ?? [];
  if (!Array.isArray(list)) throw usageError(`schema: ${keyword}: expected a list of schemas`);
  return list as readonly unknown[];
}

const TYPES = ['null', 'boolean', 'number', 'string', 'array', 'object'];

/** The keywords that a form has, in their newest spelling. */
function ownForm(schema: Readonly<Record<string, unknown>>): Form[] {
  const form: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(schema)) {
    if (KEYWORDS.includes(key)) form[key] = value;
  }
  for (const [keyword, isRight, expected] of KINDS) {
    if (form[keyword] !== undefined && !isRight(form[keyword]))
      throw usageError(`schema: ${keyword} ${show(form[keyword])}: expected ${expected}`);
  }
  const { type } = schema;
  if (type !== undefined) {
    const types = Array.isArray(type) ? type : [type];
    for (const of of types) {
      if (of !== 'integer' && !TYPES.includes(of as string)) {
        throw usageError(`schema: type ${show(of)}: use one of ${TYPES.join(', ')} or integer`);
      }
    }
    form['type'] = schema['nullable'] === true && !types.includes('null') ? [...(types as unknown[]), 'null'] : types;
  }
  if ('const' in schema) {
    const values = [schema['const']];
    if (form['enum'] !== undefined && !(form['enum'] as unknown[]).some((value) => same(value, values[0]))) return [];
    form['enum'] = values;
  }
  if (schema['pattern'] !== undefined) form['patterns'] = [textOf(schema, 'pattern')];
  if (schema['format'] !== undefined) form['formats'] = [textOf(schema, 'format')];
  // As drafts before 2020-12 wrote tuples.
  if (Array.isArray(schema['items'])) {
    form['prefixItems'] = schema['items'];
    if (schema['additionalItems'] === undefined) delete form['items'];
    else form['items'] = schema['additionalItems'];
  }
  // As draft 4 wrote them.
  for (const [flag, of] of [
    ['exclusiveMinimum', 'minimum'],
    ['exclusiveMaximum', 'maximum'],
  ] as const) {
    if (typeof form[flag] !== 'boolean') continue;
    if (form[flag] && form[of] !== undefined) [form[flag], form[of]] = [form[of], undefined];
    else delete form[flag];
    if (form[of] === undefined) delete form[of];
  }
  for (const keyword of [...AS_IS, ...AT_MOST]) numberOf(form, keyword);
  countContained(form, schema);
  return [form];
}

/** How many items of an array are of a schema. */
export interface Contained {
  readonly of: unknown;
  readonly least: number;
  readonly most: number;
}

/** Where any item, or none, is what an array is to contain, that is a number of items. */
function countContained(form: Record<string, unknown>, schema: Readonly<Record<string, unknown>>): void {
  if (schema['contains'] === undefined) return;
  const of = schemaOf(schema['contains']);
  const [least, most] = [numberOf(schema, 'minContains') ?? 1, numberOf(schema, 'maxContains') ?? Infinity];
  if (of === false) {
    if (least > 0) Object.assign(form, { minItems: 1, maxItems: 0 });
  } else if (not(of) === false) {
    form['minItems'] = Math.max(least, numberOf(form, 'minItems') ?? 0);
    if (most !== Infinity) form['maxItems'] = Math.min(most, numberOf(form, 'maxItems') ?? Infinity);
  } else if (least > 0 || most !== Infinity) {
    form['contains'] = [{ of, least, most }];
  }
}

/** A value in an error. */
function textOf(schema: Readonly<Record<string, unknown>>, keyword: string): string {
  const value = schema[keyword];
  if (typeof value !== 'string') throw usageError(`schema: ${keyword} ${show(value)}: expected a text`);
  return value;
}

/** A keyword that is a number; undefined without it. */
export function numberOf(form: Form, keyword: string): number | undefined {
  const value = form[keyword];
  if (value === undefined) return undefined;
  const isCount = /(Length|Items|Properties|Contains)$/.test(keyword);
  if (typeof value !== 'number' || !Number.isFinite(value) || (isCount && !(Number.isInteger(value) && value >= 0))) {
    throw usageError(
      `schema: ${keyword} ${show(value)}: expected ${isCount ? 'a whole number from 0 on' : 'a number'}`,
    );
  }
  return value;
}

/** The types that a form's values have; 'integer' where numbers must be whole. */
export function typesOf(form: Form): readonly string[] {
  return (form['type'] as readonly string[] | undefined) ?? TYPES;
}

/** What holds where both hold; undefined where nothing does. */
function merged(a: Form, b: Form): Form | undefined {
  const form: Record<string, unknown> = { ...a };
  for (const [key, value] of Object.entries(b)) {
    const own = a[key];
    if (own === undefined || same(own, value)) {
      form[key] = value;
      continue;
    }
    if ((AS_IS as readonly string[]).includes(key)) form[key] = Math.max(own as number, value as number);
    else if ((AT_MOST as readonly string[]).includes(key)) form[key] = Math.min(own as number, value as number);
    else if (key === 'required' || (LISTS as readonly string[]).includes(key))
      form[key] = [...new Set([...(own as []), ...(value as [])])];
    else if (key === 'multipleOf' && [own, value].every(Number.isInteger))
      form[key] = ((own as number) / gcd(own as number, value as number)) * (value as number);
    else if (key === 'type') form[key] = bothTypes(typesOf(a), typesOf(b));
    else if (key === 'enum') form[key] = inBoth(own as unknown[], value as unknown[]);
    else if (key === 'uniqueItems') form[key] = true;
    else if (key === 'propertyNames') form[key] = { allOf: [own, value] };
    else if (key === 'patternProperties')
      form[key] = {
        ...(own as object),
        ...Object.fromEntries(
          Object.entries(value as object).map(([name, of]) => [
            name,
            together(Object.hasOwn(own as Form, name) ? (own as Form)[name] : true, of),
          ]),
        ),
      };
    else if (!['properties', 'additionalProperties', 'prefixItems', 'items'].includes(key)) {
      throw usageError(`schema: ${key} that is given twice, by allOf or $ref, is not done`);
    }
  }
  if (form['type'] !== undefined && (form['type'] as []).length === 0) return undefined;
  if (form['enum'] !== undefined && (form['enum'] as []).length === 0) return undefined;
  const [hasA, hasB] = [a, b].map((of) =>
    ['properties', 'additionalProperties', 'patternProperties'].some((keyword) => of[keyword] !== undefined),
  );
  if (hasA && hasB) mergeProperties(form, a, b);
  withoutForbidden(form);
  if ((form['type'] as [] | undefined)?.length === 0) return undefined;
  const [listA, listB] = [a, b].map((of) => of['prefixItems'] !== undefined || of['items'] !== undefined);
  if (listA && listB) mergeItems(form, a, b);
  return form;
}

function inBoth(a: readonly unknown[], b: readonly unknown[]): unknown[] {
  const others = new Set(b.map(canonical));
  return a.filter((one) => others.has(canonical(one)));
}

function bothTypes(a: readonly string[], b: readonly string[]): string[] {
  const has = (list: readonly string[], type: string): boolean =>
    list.includes(type) || (type === 'integer' && list.includes('number'));
  return [...new Set([...a, ...b])].filter((type) => has(a, type) && has(b, type));
}

const listedIn = (of: Readonly<Record<string, unknown>>): unknown[] | undefined =>
  'const' in of ? [of['const']] : (of['enum'] as unknown[] | undefined);
const isAlone = (of: object): boolean => Object.keys(of).length === 1;

/** What two schemas say; false where their lists of values have none in common. */
export function together(a: unknown, b: unknown): unknown {
  if (a === false || b === false) return false;
  if (b === true || same(a, b)) return a;
  if (a === true) return b;
  const partsOf = (of: unknown): unknown[] =>
    isObject(of) && isAlone(of) && Array.isArray(of['allOf']) ? (of['allOf'] as unknown[]) : [of];
  const parts = [...partsOf(a), ...partsOf(b)].filter(isObject);
  let values: unknown[] | undefined;
  for (const part of parts) {
    const own = listedIn(part);
    if (Array.isArray(own)) values = values ? inBoth(values, own) : own;
  }
  if (!values) return { allOf: parts };
  const rest = parts.filter((part) => {
    const forbidden = isObject(part['not']) && isAlone(part['not']) ? listedIn(part['not']) : undefined;
    if (Array.isArray(forbidden)) values = values?.filter((value) => !forbidden.some((other) => same(value, other)));
    return !isAlone(part) || !(forbidden ?? listedIn(part));
  });
  if (values.length === 0) return false;
  return rest.length === 0 ? { enum: values } : { allOf: [{ enum: values }, ...rest] };
}

/** Where a property must be there that may not, no object is of the form. */
function withoutForbidden(form: Record<string, unknown>): void {
  const properties = (form['properties'] ?? {}) as Record<string, unknown>;
  const rest = form['patternProperties'] !== undefined || form['additionalProperties'];
  const isNever = ((form['required'] ?? []) as string[]).some(
    (name) => (Object.hasOwn(properties, name) ? properties[name] : (rest ?? true)) === false,
  );
  if (isNever) form['type'] = typesOf(form).filter((type) => type !== 'object');
}

function mergeProperties(form: Record<string, unknown>, a: Form, b: Form): void {
  const sides = [a, b].map((of) => ({
    properties: (of['properties'] ?? {}) as Record<string, unknown>,
    patterns: (of['patternProperties'] ?? {}) as Record<string, unknown>,
    rest: of['additionalProperties'] ?? true,
  }));
  const patterns = sides.map((side) => Object.keys(side.patterns));
  const isOther =
    !same(patterns[0], patterns[1]) && sides.some(({ rest }, at) => rest !== true && patterns[1 - at]?.length);
  const names = new Set(sides.flatMap(({ properties }) => Object.keys(properties)));
  form['properties'] = Object.fromEntries(
    [...names].map((name) => [
      name,
      sides
        .map(({ properties, patterns: own, rest }) => {
          if (Object.hasOwn(properties, name)) return properties[name];
          return Object.keys(own).some((pattern) => includes(textsWith(pattern), name)) ? true : rest;
        })
        .reduce<unknown>(together, true),
    ]),
  );
  // What one side says of others is so of those, too, that the other side has a pattern for.
  if (isOther) {
    const each = [a, b].flatMap((of) => restOf(of) ?? []);
    form['each'] = [...((form['each'] ?? []) as Named[]), ...each];
    form['additionalProperties'] = true;
    return;
  }
  const said = [a, b].flatMap((of) => of['additionalProperties'] ?? []);
  if (said.length > 0) form['additionalProperties'] = said.reduce<unknown>(together, true);
}

/** What a form says of properties that it doesn't list. */
function restOf(form: Form): Named | undefined {
  const {
    properties = {},
    patternProperties = {},
    additionalProperties: of,
  } = form as Readonly<Record<string, object>>;
  return of === undefined
    ? undefined
    : { of, besides: Object.keys(properties), unlike: Object.keys(patternProperties) };
}

/** Whether a schema is of the properties of a name. */
export const isNamed = ({ like, besides = [], unlike = [] }: Named, name: string): boolean =>
  like === undefined
    ? !besides.includes(name) && !unlike.some((pattern) => includes(textsWith(pattern), name))
    : includes(textsWith(like), name);

/** All such names. */
export const namesLike = ({ like, besides = [], unlike = [] }: Named): Automaton =>
  like === undefined
    ? [...(besides.length > 0 ? [listed(besides)] : []), ...unlike.map((pattern) => textsWith(pattern))]
        .map(except)
        .reduce(both, ANY_TEXT)
    : textsWith(like);

function mergeItems(form: Record<string, unknown>, a: Form, b: Form): void {
  const [ofA, ofB] = [a, b].map((of) => (of['prefixItems'] ?? []) as unknown[]) as [unknown[], unknown[]];
  const [restA, restB] = [a['items'] ?? true, b['items'] ?? true];
  form['prefixItems'] = Array.from({ length: Math.max(ofA.length, ofB.length) }, (_, at) =>
    together(at < ofA.length ? ofA[at] : restA, at < ofB.length ? ofB[at] : restB),
  );
  form['items'] = together(restA, restB);
}

/** Whether no value has both forms, as far as that is plain to see. */
function disjoint(a: Form, b: Form): boolean {
  if (merged(a, b) === undefined) return true;
  const [listA, listB] = [a['enum'], b['enum']] as (unknown[] | undefined)[];
  if (listA && listB) return inBoth(listA, listB).length === 0;
  const types = bothTypes(typesOf(a), typesOf(b));
  if (types.length === 0) return true;
  if (types.some((type) => type !== 'object')) return false;
  // Objects that a property tells apart, which both must have.
  const required = (of: Form): readonly unknown[] => (of['required'] as unknown[] | undefined) ?? [];
  const properties = (of: Form): Record<string, unknown> =>
    (of['properties'] as Record<string, unknown> | undefined) ?? {};
  return [...required(a), ...required(b)].some((name) => {
    const key = String(name);
    const [one, other] = [properties(a)[key], properties(b)[key]];
    const closed = (of: Form, own: unknown): boolean =>
      own === false ||
      (own === undefined && of['additionalProperties'] === false && of['patternProperties'] === undefined);
    if (closed(a, one) || closed(b, other)) return true;
    if (!required(a).includes(name) && !required(b).includes(name)) return false;
    if (!isObject(one) || !isObject(other)) return false;
    const isSimple = (of: object): boolean =>
      Object.keys(of).every((keyword) => !/^(\$ref|allOf|anyOf|oneOf|not)$/.test(keyword));
    if (!isSimple(one) || !isSimple(other)) return false;
    return ownForm(one).every((x) => ownForm(other).every((y) => disjoint(x, y)));
  });
}

/** Keywords of a type's values. */
export const OF_TYPES: Readonly<Record<string, RegExp>> = {
  number: /imum|multipleOf|fraction/i,
  string: /^(patterns|formats|unlike)$|Length/,
  array: /Items|items|contains|inPart/,
  object: /ropert|required|^(each|some)$/,
};
/** Keywords of a type whose opposite is none of the keywords. */
const UNDONE: Readonly<Record<string, readonly string[]>> = {
  number: ['multipleOf', 'fraction'],
  object: ['propertyNames', 'some'],
  array: ['inPart'],
};
/** Keywords of a type, what holds where they don't, and how far from the same number. */
const OPPOSITES: Readonly<Record<string, readonly (readonly [keyword: string, opposite: string, by: number])[]>> = {
  number: [
    ['minimum', 'exclusiveMaximum', 0],
    ['maximum', 'exclusiveMinimum', 0],
    ['exclusiveMinimum', 'maximum', 0],
    ['exclusiveMaximum', 'minimum', 0],
  ],
  array: [
    ['minItems', 'maxItems', -1],
    ['maxItems', 'minItems', 1],
  ],
  object: [
    ['minProperties', 'maxProperties', -1],
    ['maxProperties', 'minProperties', 1],
  ],
};

/** The forms of values of these types that aren't of a form. @throws SplitkvError `usage` where they can't be told */
function without(form: Form, types: ReadonlySet<string>): Form[] {
  const own = typesOf(form);
  const isNumber = types.has('number') || types.has('integer');
  const asked = TYPES.filter((type) => types.has(type) || (type === 'number' && isNumber));
  const whole = asked.filter((type) => !own.includes(type) && !(type === 'number' && own.includes('integer')));
  const parts = asked
    .filter((type) => !whole.includes(type))
    .flatMap((type) => {
      if (form['enum'] !== undefined) return unlisted(form, type);
      const isWhole = type === 'number' && !own.includes(type) && types.has(type);
      return [...unlike(form, type), ...(isWhole ? [{ type: [type], fraction: 1 }] : [])];
    });
  return whole.length > 0 ? [{ type: whole }, ...parts] : parts;
}

/** Keywords that schemas have no word for. */
const SAID: Readonly<Record<string, string>> = {
  inPart: 'uniqueItems',
  some: 'additionalProperties',
  fraction: 'type integer',
};

const undone = (what: string): Error =>
  usageError(
    `schema: not, else or oneOf where ${SAID[what] ?? what} doesn't hold is not done: use anyOf of what may be`,
  );

/** Values of a type that a form doesn't list. */
function unlisted(form: Form, type: string): Form[] {
  const values = (form['enum'] as unknown[]).filter((value) => typeOf(value) === type);
  if (values.length === 0) return [{ type: [type] }];
  const beside = Object.keys(form).find((keyword) => OF_TYPES[type]?.test(keyword));
  if (beside !== undefined) throw undone(`enum beside ${beside}`);
  switch (type) {
    case 'null':
      return [];
    case 'boolean':
      return [true, false].filter((value) => !values.includes(value)).map((value) => ({ enum: [value] }));
    case 'string':
      return [{ type: ['string'], unlike: [{ enum: values }] }];
    case 'number': {
      const sorted = [...new Set(values as number[])].sort((a, b) => a - b);
      return [...sorted, Infinity].map((value, at) => ({
        type: ['number'],
        ...(at > 0 && { exclusiveMinimum: sorted[at - 1] }),
        ...(value !== Infinity && { exclusiveMaximum: value }),
      }));
    }
    default: {
      if (values.some((value) => Object.keys(value as object).length > 0)) throw undone(`enum of ${type}s`);
      return [{ type: [type], [type === 'array' ? 'minItems' : 'minProperties']: 1 }];
    }
  }
}

/** Values of a type of which a keyword of the form doesn't hold. */
function unlike(form: Form, type: string): Form[] {
  const beside = UNDONE[type]?.find((keyword) => form[keyword] !== undefined && not(form[keyword]) !== false);
  if (beside !== undefined) throw undone(beside);
  const forms = (OPPOSITES[type] ?? []).flatMap(([keyword, opposite, by]): Form[] => {
    const value = numberOf(form, keyword);
    return value === undefined || value + by < 0 ? [] : [{ type: [type], [opposite]: value + by }];
  });
  if (type === 'string') {
    const said = Object.entries(form).filter(([keyword]) => /^(patterns|unlike|m..Length)$/.test(keyword));
    if (((form['formats'] ?? []) as string[]).some((name) => STRING_FORMATS.has(name))) throw undone('format');
    return said.length > 0 ? [{ type: [type], unlike: [Object.fromEntries(said)] }] : [];
  }
  if (type === 'array') {
    // Of items of which two are the same nothing can be told: they are left out, and it mustn't be taken for all.
    if (form['uniqueItems'] === true) forms.push({ type: [type], minItems: 1, maxItems: 0, inPart: 1 });
    const contain = (of: unknown, least: number, most = Infinity): void =>
      void forms.push({ type: [type], contains: [{ of, least, most }] });
    for (const { of, least, most } of (form['contains'] ?? []) as Contained[]) {
      if (least > 0) contain(of, 0, least - 1);
      if (most !== Infinity) contain(of, most + 1);
    }
    const rest = not(form['items'] ?? true);
    if (rest !== false && form['prefixItems'] !== undefined) throw undone('items beside prefixItems');
    if (rest === true) forms.push({ type: [type], minItems: 1 });
    else if (rest !== false) contain(rest, 1);
    for (const [at, item] of ((form['prefixItems'] ?? []) as unknown[]).entries())
      forms.push({ type: [type], minItems: at + 1, prefixItems: [...Array<true>(at).fill(true), not(item)] });
  }
  if (type === 'object') {
    for (const name of (form['required'] ?? []) as string[])
      forms.push({ type: [type], properties: { [name]: false } });
    for (const [name, of] of Object.entries((form['properties'] ?? {}) as Form))
      if (not(of) !== false) forms.push({ type: [type], required: [name], properties: { [name]: not(of) } });
    const patterns = Object.entries((form['patternProperties'] ?? {}) as Form);
    const named: (Named | undefined)[] = [...patterns.map(([like, of]) => ({ like, of })), restOf(form)];
    for (const one of [...named, ...((form['each'] ?? []) as Named[])])
      if (one && not(one.of) !== false) forms.push({ type: [type], some: [{ ...one, of: not(one.of) }] });
  }
  return forms;
}

export function not(schema: unknown): unknown {
  if (typeof schema === 'boolean') return !schema;
  if (isObject(schema) && Object.keys(schema).length === 0) return false;
  return isObject(schema) && isAlone(schema) && 'not' in schema ? schema['not'] : { not: schema };
}
