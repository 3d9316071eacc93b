import { tried } from '../../base/errors.js';
import { isObject } from '../../base/json.js';

/** Keywords with a schema, or a list of them; and with schemas by name. */
const SCHEMAS = new Set([
  'additionalItems',
  'additionalProperties',
  'allOf',
  'anyOf',
  'contains',
  'else',
  'if',
  'items',
  'not',
  'oneOf',
  'prefixItems',
  'propertyNames',
  'then',
  'unevaluatedItems',
  'unevaluatedProperties',
]);
const BY_NAME = new Set([
  '$defs',
  'definitions',
  'dependencies',
  'dependentSchemas',
  'patternProperties',
  'properties',
]);
/** Where a schema is that doesn't say. */
const NOWHERE = 'schema:///';

/** References by `$id` and `$anchor` as pointers into the schema; those that lead elsewhere as they are. */
export function pointed(root: unknown): unknown {
  if (!isObject(root)) return root;
  /** Pointers by address. */
  const places = new Map<string, string>([[NOWHERE, '']]);
  const bases = new Map<object, string>();
  const dynamic: string[] = [];
  // As draft 4 called it.
  const idKeyword = String(root['$schema']).includes('draft-04') ? 'id' : '$id';
  each(root, '', NOWHERE);
  return copied(root);

  function each(schema: Readonly<Record<string, unknown>>, pointer: string, within: string): void {
    const { $anchor, $dynamicAnchor } = schema;
    const $id = schema[idKeyword];
    const [id = '', own] = typeof $id === 'string' ? $id.split('#') : [];
    const base = id === '' ? within : (tried(() => new URL(id, within).href) ?? within);
    if (base !== within || pointer === '') places.set(base, pointer);
    // As draft 7 wrote anchors.
    for (const name of [$anchor, $dynamicAnchor, own])
      if (typeof name === 'string' && name !== '') places.set(`${base}#${name}`, pointer);
    if (typeof $dynamicAnchor === 'string') dynamic.push($dynamicAnchor);
    bases.set(schema, base);
    for (const [path, part] of partsOf(schema)) {
      const at = path.map((key) => `/${encodeURIComponent(key.replaceAll('~', '~0').replaceAll('/', '~1'))}`);
      each(part, pointer + at.join(''), base);
    }
  }

  function copied(schema: Readonly<Record<string, unknown>>): Record<string, unknown> {
    const copy: Record<string, unknown> = { ...schema };
    for (const [[keyword, name], part] of partsOf(schema)) {
      if (keyword === undefined) continue;
      if (name === undefined) {
        copy[keyword] = copied(part);
        continue;
      }
      if (copy[keyword] === schema[keyword])
        copy[keyword] = Array.isArray(copy[keyword])
          ? [...(copy[keyword] as unknown[])]
          : { ...(copy[keyword] as object) };
      Object.defineProperty(copy[keyword], name, {
        value: copied(part),
        enumerable: true,
        writable: true,
        configurable: true,
      });
    }
    const base = bases.get(schema) ?? NOWHERE;
    if (schema['$ref'] !== undefined) copy['$ref'] = pointer(schema['$ref'], base);
    const { $dynamicRef } = schema;
    // Where one place alone has the name, whoever refers to it.
    if (typeof $dynamicRef === 'string' && schema['$ref'] === undefined) {
      const name = $dynamicRef.split('#')[1] ?? '';
      const to = pointer($dynamicRef, base);
      if (to !== $dynamicRef && dynamic.filter((other) => other === name).length <= 1) {
        copy['$ref'] = to;
        delete copy['$dynamicRef'];
      }
    }
    return copy;
  }

  function pointer(reference: unknown, base: string): unknown {
    if (typeof reference !== 'string') return reference;
    const [path = '', part = ''] = reference.split('#');
    const to = path === '' ? base : tried(() => new URL(path, base).href);
    const place = to === undefined ? undefined : places.get(/^(\/|$)/.test(part) ? to : `${to}#${part}`);
    if (place === undefined) return reference;
    return `#${place}${part.startsWith('/') ? part : ''}`;
  }
}

function* partsOf(
  schema: Readonly<Record<string, unknown>>,
): Generator<[path: string[], part: Readonly<Record<string, unknown>>]> {
  for (const [keyword, value] of Object.entries(schema)) {
    if (SCHEMAS.has(keyword) && isObject(value)) yield [[keyword], value];
    else if (SCHEMAS.has(keyword) ? Array.isArray(value) : BY_NAME.has(keyword) && isObject(value)) {
      for (const [name, part] of Object.entries(value as object) as [string, unknown][])
        if (isObject(part)) yield [[keyword, name], part];
    }
  }
}
