/** What somebody else sent, as far as it is looked at. */
export type Check = (value: unknown) => boolean;

export const isText: Check = (value) => typeof value === 'string';
export const isNumber: Check = (value) => Number.isFinite(value);
export const isFlag: Check = (value) => typeof value === 'boolean';

export const oneOf =
  (...values: readonly unknown[]): Check =>
  (value) =>
    values.includes(value);

export const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value);

/** An object, of which these fields are looked at. */
export const fields =
  (checks: Readonly<Record<string, Check>>): Check =>
  (value) =>
    typeof value === 'object' &&
    value !== null &&
    Object.entries(checks).every(([name, check]) => check((value as Readonly<Record<string, unknown>>)[name]));

/** An object of one of these kinds, which its `type` names. */
export const kindOf =
  (kinds: Readonly<Record<string, Check>>): Check =>
  (value) => {
    const { type } = (value ?? {}) as { readonly type?: unknown };
    return typeof type === 'string' && Object.hasOwn(kinds, type) && kinds[type]?.(value) === true;
  };
