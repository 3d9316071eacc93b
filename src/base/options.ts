import { didYouMean, usageError } from './errors.js';

/** Says what is wrong with an option's value, in words that follow its name; undefined: nothing. */
export type OptionRule = (value: unknown) => string | undefined;

/** Every option that there is, with what it may be; `true`: whatever its type says, or what is checked elsewhere. */
export type OptionsSchema<Options> = { readonly [Name in keyof Required<Options>]: OptionRule | true };

/** A whole number from `low` to `high`; without `high`, as large as numbers are exact. */
export const wholeNumber =
  (low: number, high = Number.MAX_SAFE_INTEGER): OptionRule =>
  (value) => {
    if (Number.isSafeInteger(value) && (value as number) >= low && (value as number) <= high) return undefined;
    const range = high === Number.MAX_SAFE_INTEGER ? `of at least ${low}` : `from ${low} to ${high}`;
    return `${String(value)}: expected an integer ${range}`;
  };

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
  const names = Object.keys(schema);
  for (const [name, value] of Object.entries(options)) {
    const rule = Object.hasOwn(schema, name) ? schema[name as keyof Options] : undefined;
    if (rule === undefined) throw usageError(`${what}: unknown option '${name}'.${didYouMean(name, names)}`);
    const wrong = rule === true || value === undefined ? undefined : rule(value);
    if (wrong !== undefined) throw usageError(`${name} ${wrong}`);
  }
}
