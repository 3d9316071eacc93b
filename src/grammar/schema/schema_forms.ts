import { usageError } from '../../base/errors.js';
import { isObject, show } from '../../base/json.js';
import { valueIn } from '../../base/lists.js';

/** A schema without references and combinations: every keyword holds. Patterns and formats may be several. */
export type Form = Readonly<Record<string, unknown>>;
type Schema = boolean | Readonly<Record<string, unknown>>;

/** Forms that one schema may come to. */
const MAX_FORMS = 64;

/** Keywords that change what is valid in ways that aren't done, by what stands in for them. */
const REFUSED = new Map([
  ...['if', 'dependentSchemas', 'dependentRequired', 'dependencies'].map((keyword) => [keyword, 'use anyOf'] as const),
  ['unevaluatedProperties', 'use additionalProperties'],
  ['unevaluatedItems', 'use items'],
  ['$dynamicRef', 'use $ref'],
  ['$recursiveRef', 'use $ref'],
  ['contentSchema', 'leave it out'],
]);

const AS_IS = ['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties'] as const;
const AT_MOST = ['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties'] as const;
const LISTS = ['patterns', 'formats'] as const;
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
/** All keywords of a form. */
const KEYWORDS: readonly string[] = [
  ...AS_IS,
  ...AT_MOST,
  ...LISTS,
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
  'contains',
];

export const same = (a: unknown, b: unknown): boolean => canonical(a) === canonical(b);

/** As JSON with the keys in order. */
export const canonical = (value: unknown): string =>
  JSON.stringify(value, (_key, of: unknown) =>
    isObject(of) ? Object.fromEntries(Object.entries(of).sort(([a], [b]) => (a < b ? -1 : 1))) : of,
  );

const tooManyForms = (): Error =>
  usageError(`schema: anyOf, oneOf and allOf together come to more than ${MAX_FORMS} forms`);

/** Takes a schema's references and combinations apart. */
export class SchemaForms {
  readonly #known = new Map<object, Form[]>();
  #looks = 0;

  constructor(readonly root: unknown) {}

  /** What a reference within the schema says. @throws SplitkvError `usage` for another */
  resolve(reference: unknown): Schema {
    if (typeof reference !== 'string' || !/^#(\/|$)/.test(reference)) {
      throw usageError(`$ref ${show(reference)}: only references within the schema are done, such as "#/$defs/name"`);
    }
    let at: unknown = this.root;
    for (const part of reference.split('/').slice(1)) {
      let key = part;
      try {
        key = decodeURIComponent(part);
      } catch {
        // As it stands.
      }
      key = key.replaceAll('~1', '/').replaceAll('~0', '~');
      at =
        (isObject(at) || Array.isArray(at)) && Object.hasOwn(at, key)
          ? (at as Record<string, unknown>)[key]
          : undefined;
    }
    if (at === undefined) throw usageError(`$ref ${show(reference)}: the schema has no such part`);
    return schemaOf(at);
  }

  /** The forms of which a valid value has at least one; none where nothing is valid. */
  of(schema: unknown, within: readonly string[] = []): Form[] {
    const own = schemaOf(schema);
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
    const cross = (others: readonly Form[]): void => {
      forms = forms.flatMap((form) => others.map((other) => merged(form, other)).filter((both) => both !== undefined));
      if (forms.length > MAX_FORMS) throw tooManyForms();
    };
    if (own['$ref'] !== undefined) {
      const reference = own['$ref'];
      const target = this.resolve(reference);
      if (typeof reference === 'string' && within.includes(reference))
        throw usageError(`$ref ${show(reference)}: it refers to itself and to nothing else`);
      cross(this.of(target, [...within, reference as string]));
    }
    for (const part of listOf(own, 'allOf')) cross(this.of(part, within));
    if (own['anyOf'] !== undefined) cross(listOf(own, 'anyOf').flatMap((part) => this.of(part, within)));
    if (own['oneOf'] !== undefined) {
      const options = listOf(own, 'oneOf').map((part) =>
        this.of(part, within).filter((form) => forms.some((outer) => merged(outer, form) !== undefined)),
      );
      if (options.flat().length > MAX_FORMS) throw tooManyForms();
      for (const [i, some] of options.entries()) {
        for (const others of options.slice(i + 1)) {
          if (!some.every((a) => others.every((b) => disjoint(a, b)))) {
            throw usageError(
              'schema: oneOf whose options may hold at once is not done: use anyOf, or a const that tells them apart',
            );
          }
        }
      }
      cross(options.flat());
    }
    if (own['not'] !== undefined) cross(notForms(own['not']));
    return forms;
  }
}

export function schemaOf(value: unknown): Schema {
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
    if (KEYWORDS.includes(key) && !LISTS.includes(key as never)) form[key] = value;
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
    // prettier-ignore
    if (typeof form[flag] !== 'boolean') continue;
    if (form[flag] && form[of] !== undefined) [form[flag], form[of]] = [form[of], undefined];
    else delete form[flag];
    if (form[of] === undefined) delete form[of];
  }
  for (const keyword of [...AS_IS, ...AT_MOST]) numberOf(form, keyword);
  countContained(form, schema);
  return [form];
}

/** Where any item, or none, is what an array is to contain, that is a number of items. */
function countContained(form: Record<string, unknown>, schema: Readonly<Record<string, unknown>>): void {
  if (form['contains'] === undefined) return;
  const contained = schemaOf(form['contains']);
  const counts = { minItems: numberOf(schema, 'minContains') ?? 1, maxItems: numberOf(schema, 'maxContains') };
  const isAny = contained === true || (isObject(contained) && Object.keys(contained).length === 0);
  if (!isAny && contained !== false && (counts.minItems > 0 || counts.maxItems !== undefined)) return;
  delete form['contains'];
  if (contained === false) {
    if (counts.minItems > 0) Object.assign(form, { minItems: 1, maxItems: 0 });
  } else if (isAny) {
    form['minItems'] = Math.max(counts.minItems, numberOf(form, 'minItems') ?? 0);
    if (counts.maxItems !== undefined)
      form['maxItems'] = Math.min(counts.maxItems, numberOf(form, 'maxItems') ?? Infinity);
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
export function merged(a: Form, b: Form): Form | undefined {
  const form: Record<string, unknown> = { ...a };
  for (const [key, value] of Object.entries(b)) {
    const own = a[key];
    if (own === undefined || same(own, value)) {
      form[key] = value;
      continue;
    }
    if ((AS_IS as readonly string[]).includes(key)) form[key] = Math.max(own as number, value as number);
    else if ((AT_MOST as readonly string[]).includes(key)) form[key] = Math.min(own as number, value as number);
    else if ((LISTS as readonly string[]).includes(key)) form[key] = [...new Set([...(own as []), ...(value as [])])];
    else if (key === 'type') form[key] = bothTypes(typesOf(a), typesOf(b));
    else if (key === 'enum') form[key] = inBoth(own as unknown[], value as unknown[]);
    else if (key === 'required') form[key] = [...new Set([...(own as string[]), ...(value as string[])])];
    else if (key === 'uniqueItems') form[key] = true;
    else if (key === 'propertyNames') form[key] = { allOf: [own, value] };
    else if (!['properties', 'additionalProperties', 'prefixItems', 'items'].includes(key)) {
      throw usageError(`schema: ${key} that is given twice, by allOf or $ref, is not done`);
    }
  }
  if (form['type'] !== undefined && (form['type'] as []).length === 0) return undefined;
  if (form['enum'] !== undefined && (form['enum'] as []).length === 0) return undefined;
  const [hasA, hasB] = [a, b].map((of) => of['properties'] !== undefined || of['additionalProperties'] !== undefined);
  if (hasA && hasB) mergeProperties(form, a, b);
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

const together = (a: unknown, b: unknown): unknown => (same(a, b) ? a : { allOf: [a, b] });

function mergeProperties(form: Record<string, unknown>, a: Form, b: Form): void {
  if (a['patternProperties'] !== undefined || b['patternProperties'] !== undefined) {
    throw usageError('schema: patternProperties beside properties of another part of allOf is not done');
  }
  const [ofA, ofB] = [a, b].map((of) => (of['properties'] ?? {}) as Record<string, unknown>) as [Record<string, unknown>, Record<string, unknown>]; // prettier-ignore
  const [restA, restB] = [a['additionalProperties'] ?? true, b['additionalProperties'] ?? true];
  form['properties'] = Object.fromEntries(
    [...new Set([...Object.keys(ofA), ...Object.keys(ofB)])].map((name) => [
      name,
      together(Object.hasOwn(ofA, name) ? ofA[name] : restA, Object.hasOwn(ofB, name) ? ofB[name] : restB),
    ]),
  );
  form['additionalProperties'] = together(restA, restB);
}

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
    const simple = (of: Record<string, unknown>): boolean =>
      Object.keys(of).every(
        (keyword) =>
          KEYWORDS.includes(keyword) || keyword === 'const' || !/^(\$ref|allOf|anyOf|oneOf|not)$/.test(keyword),
      );
    if (!simple(one) || !simple(other)) return false;
    return ownForm(one).every((x) => ownForm(other).every((y) => disjoint(x, y)));
  });
}

function notForms(schema: unknown): Form[] {
  const own = schemaOf(schema);
  if (own === true || (isObject(own) && Object.keys(own).length === 0)) return [];
  if (own === false) return [{}];
  const keys = Object.keys(own).filter((key) => !['title', 'description', '$comment'].includes(key));
  if (keys.length === 1 && keys[0] === 'type') {
    const types = ([] as unknown[]).concat(own['type']);
    if (!types.includes('integer')) return [{ type: TYPES.filter((type) => !types.includes(type)) }];
  }
  throw usageError('schema: not is done of types alone: use anyOf of what may be');
}
