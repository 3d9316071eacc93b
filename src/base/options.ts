import { didYouMean, usageError } from './errors.js';
import { show } from './json.js';

/** Says what is wrong with an option's value, in words that follow its name; undefined: nothing. */
export type OptionRule = (value: unknown) => string | undefined;

/** Every option that there is, with what it may be; `true`: whatever its type says, or what is checked elsewhere. */
export type OptionsSchema<Options> = { readonly [Name in keyof Required<Options>]: OptionRule | true };

/** Numbers that an option may be. */
export interface NumberRange {
  readonly integer?: true;
  readonly low?: number;
  /** Instead of `low`, which is allowed itself. */
  readonly above?: number;
  readonly high?: number;
}

/** 'a number above 0 and at most 1'. */
export function rangeText({ integer, low, above, high }: NumberRange): string {
  const what = integer ? 'an integer' : 'a number';
  if (above !== undefined) return `${what} above ${above}${high === undefined ? '' : ` and at most ${high}`}`;
  if (low === undefined) return what;
  return high === undefined ? `${what} of at least ${low}` : `${what} from ${low} to ${high}`;
}

export const isWithin = (value: unknown, { integer, low, above, high }: NumberRange): value is number =>
  (integer ? Number.isSafeInteger(value) : Number.isFinite(value)) &&
  !((value as number) < (low ?? -Infinity)) &&
  !((value as number) <= (above ?? -Infinity)) &&
  !((value as number) > (high ?? Infinity));

export const within =
  (range: NumberRange): OptionRule =>
  (value) =>
    isWithin(value, range) ? undefined : `${String(value)}: expected ${rangeText(range)}`;

/** A whole number from `low` to `high`; without `high`, as large as numbers are exact. */
export const wholeNumber = (low: number, high?: number): OptionRule =>
  within({ integer: true, low, ...(high !== undefined && { high }) });

export const oneOf =
  (allowed: readonly string[]): OptionRule =>
  (value) =>
    allowed.includes(value as string)
      ? undefined
      : `'${String(value)}': use ${allowed.join(', ')}.${didYouMean(String(value), allowed)}`;

/**
 * Checks the names and values of options; one that is undefined is left out.
 * @param what takes them: the function's name
 * @throws SplitkvError `usage`
 */
export function checkOptions<Options extends object>(
  what: string,
  options: Options,
  schema: OptionsSchema<Options>,
): void {
  // Of a program without types.
  if (typeof options !== 'object' || options === null)
    throw usageError(`${what}: expected an object of options, not ${show(options)}`);
  const names = Object.keys(schema);
  for (const [name, value] of Object.entries(options)) {
    const rule = Object.hasOwn(schema, name) ? schema[name as keyof Options] : undefined;
    if (rule === undefined) throw usageError(`${what}: unknown option '${name}'.${didYouMean(name, names)}`);
    const wrong = rule === true || value === undefined ? undefined : rule(value);
    if (wrong !== undefined) throw usageError(`${name} ${wrong}`);
  }
}

/** Without what isn't given: entries that are undefined, or null, which clients send for what they leave out. */
export const defined = <T extends object>(values: T): { [Name in keyof T]?: NonNullable<T[Name]> } =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value != null)) as never;
