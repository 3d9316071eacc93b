import { parseArgs } from 'node:util';
import { didYouMean, usageError } from '../base/errors.js';

export interface OptionSpec {
  /** What the value is, for the help text; undefined for a switch. */
  readonly value?: string;
  readonly multiple?: boolean;
  readonly help: string;
}
export type OptionSpecs = Readonly<Record<string, OptionSpec>>;

/** The options a user gave, read by type. Every method throws `usage` with the value, what was expected and what to do. */
export class Options {
  constructor(private readonly values: ReadonlyMap<string, readonly string[]>) {}

  has(name: string): boolean {
    return this.values.has(name);
  }

  /** The last value given. */
  text(name: string): string | undefined {
    return this.values.get(name)?.at(-1);
  }

  texts(name: string): readonly string[] {
    return this.values.get(name) ?? [];
  }

  required(name: string, what: string): string {
    const value = this.text(name);
    if (value === undefined) throw usageError(`--${name} is missing: ${what}`);
    return value;
  }

  oneOf<T extends string>(name: string, choices: readonly T[]): T | undefined {
    const value = this.text(name);
    if (value === undefined || choices.includes(value as T)) return value as T | undefined;
    throw usageError(`--${name} ${value}: expected ${choices.join(', ')}.${didYouMean(value, choices)}`);
  }

  integer(name: string, low: number, high = Number.MAX_SAFE_INTEGER): number | undefined {
    const range =
      high === Number.MAX_SAFE_INTEGER ? `an integer of at least ${low}` : `an integer from ${low} to ${high}`;
    return this.#number(name, range, (n) => Number.isSafeInteger(n) && n >= low && n <= high);
  }

  number(name: string, expected: string, accept: (value: number) => boolean): number | undefined {
    return this.#number(name, expected, (n) => Number.isFinite(n) && accept(n));
  }

  #number(name: string, expected: string, accept: (value: number) => boolean): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : Number.NaN;
    if (!accept(value)) throw usageError(`--${name} ${text}: expected ${expected}`);
    return value;
  }
}

/**
 * Reads a command's arguments; unknown options and stray words are refused with the nearest known name.
 * @param argument what the one word is called that may stand among them
 */
export function parseOptions(command: string, specs: OptionSpecs, argv: readonly string[], argument?: string): Options {
  const { tokens } = parseArgs({
    args: [...argv],
    options: Object.fromEntries(
      Object.entries(specs).map(([name, { value, multiple }]) => [
        name,
        { type: value === undefined ? ('boolean' as const) : ('string' as const), multiple: multiple ?? false },
      ]),
    ),
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const values = new Map<string, string[]>();
  for (const token of tokens) {
    if (token.kind === 'positional') {
      if (argument !== undefined && !values.has(argument)) {
        values.set(argument, [token.value]);
        continue;
      }
      throw usageError(`${command}: unexpected argument '${token.value}'; options look like --name value`);
    }
    if (token.kind !== 'option') continue;
    const { name, rawName, value, inlineValue } = token;
    const spec = Object.hasOwn(specs, name) ? specs[name] : undefined;
    if (!spec || !rawName.startsWith('--')) {
      throw usageError(
        `${command}: unknown option ${rawName}.${didYouMean(name, Object.keys(specs)).replace("'", "'--")}`,
      );
    }
    if (spec.value === undefined && value !== undefined) throw usageError(`--${name} takes no value (given: ${value})`);
    // `--seed --json` is a forgotten value, not the value '--json'.
    if (spec.value !== undefined && (value === undefined || (value.startsWith('--') && !inlineValue))) {
      throw usageError(`--${name} needs a value: --${name} ${spec.value} (--${name}=... for one that begins with --)`);
    }
    const given = values.get(name) ?? [];
    if (given.length > 0 && spec.multiple !== true) throw usageError(`--${name} was given twice; give it once`);
    values.set(name, [...given, value ?? '']);
  }
  return new Options(values);
}

/** Lines of help for a table of options. */
export function optionHelp(specs: OptionSpecs): string {
  const rows = Object.entries(specs).map(
    ([name, { value, help }]) => [`--${name}${value ? ` ${value}` : ''}`, help] as const,
  );
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, help]) => `  ${left.padEnd(width)}  ${help}`).join('\n');
}
