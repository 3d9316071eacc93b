import { dirname, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { didYouMean, ioError, usageError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import { defined, isWithin, type NumberRange, rangeText } from '../base/options.js';
import { parseSize } from '../engine/contracts/options/read_texts.js';
import { helpText, isSwitch, type OptionRow, type OptionTable, rowsAt } from '../engine/contracts/options/row.js';

export { defined };

export interface OptionSpec {
  /** What the value is, for the help text; undefined for a switch. */
  readonly value?: string;
  readonly multiple?: boolean;
  readonly help: string;
  /** Its heading in the help; undefined: the command's own. */
  readonly group?: string;
}
export type OptionSpecs = Readonly<Record<string, OptionSpec>>;

/** Options under one heading of the help. */
export const inGroup = <T extends OptionSpecs>(group: string, specs: T): T =>
  Object.fromEntries(Object.entries(specs).map(([name, spec]) => [name, { ...spec, group }])) as T;

/** Some of another command's options. */
export const only = (specs: OptionSpecs, ...names: readonly string[]): OptionSpecs =>
  Object.fromEntries(Object.entries(specs).filter(([name]) => names.includes(name)));

/** Another command's options but these. */
export const without = (specs: OptionSpecs, ...names: readonly string[]): OptionSpecs =>
  Object.fromEntries(Object.entries(specs).filter(([name]) => !names.includes(name)));

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

  /** The same, but for one value. */
  with(name: string, value: string): Options {
    return new Options(new Map([...this.values, [name, [value]]]));
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

  integer(name: string, low: number, high?: number): number | undefined {
    return this.within(name, { integer: true, low, ...(high !== undefined && { high }) });
  }

  within(name: string, range: NumberRange): number | undefined {
    return this.number(name, rangeText(range), (value) => isWithin(value, range));
  }

  /** One size in bytes, above 0. */
  bytes(name: string): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    return parseSize(text, `--${name} ${text}`);
  }

  number(name: string, expected: string, accept: (value: number) => boolean): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : Number.NaN;
    if (!(Number.isFinite(value) && accept(value))) throw usageError(`--${name} ${text}: expected ${expected}`);
    return value;
  }
}

/**
 * Reads a command's arguments; unknown options and stray words are refused with the nearest known name.
 * @param words what words that stand among them are, in order: values of these options, as far as those aren't given
 */
export function parseOptions(
  command: string,
  specs: OptionSpecs,
  argv: readonly string[],
  words: readonly string[] = [],
): Options {
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
  const stray: string[] = [];
  for (const token of tokens) {
    if (token.kind === 'positional') stray.push(token.value);
    if (token.kind !== 'option') continue;
    const { name, rawName, value, inlineValue, index } = token;
    const spec = Object.hasOwn(specs, name) ? specs[name] : undefined;
    if (!spec || !rawName.startsWith('--')) {
      // What a command is mostly told comes first.
      throw unknownOption(command, argv[index]!, [...new Set([...words, ...Object.keys(specs)])]);
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
  // Whatever order they stand in: `generate "a prompt" --model M`.
  const open = words.filter((name) => !values.has(name));
  for (const [at, word] of stray.entries()) {
    const name = open[at];
    if (name === undefined) {
      throw usageError(`${command}: unexpected argument '${word}'; options look like --name value`);
    }
    values.set(name, [word]);
  }
  return new Options(values);
}

/** What other servers call some options. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  tp: 'tensor',
  'tensor-parallel-size': 'tensor',
  pp: 'pipeline',
  'pipeline-parallel-size': 'pipeline',
};

/** Of `-m` those that begin with the letter are named, of anything else the nearest. */
function unknownOption(command: string, given: string, names: readonly string[]): Error {
  const shown = given.replace(/=.*/s, '');
  const word = shown.replace(/^-+/, '');
  const likely = names.filter((name) => name.startsWith(word)).slice(0, 3);
  const here = ELSEWHERE[word];
  if (here !== undefined && names.includes(here))
    return usageError(`${command}: unknown option ${shown}: it is --${here} here`);
  const hint =
    word.length === 1 && likely.length > 0
      ? ` Options have two dashes: ${likely.map((name) => `--${name}`).join(', ')}`
      : didYouMean(word, names).replace("'", "'--");
  return usageError(`${command}: unknown option ${shown}.${hint}`);
}

/** What the command line has of a table, for its help. */
export const specsOf = (table: OptionTable): OptionSpecs =>
  Object.fromEntries(
    rowsAt(table, 'cli').map(([own, , row]): [string, OptionSpec] => {
      const { value = row.range ? 'N' : row.choices ? 'WHICH' : 'TEXT', group } = row;
      const spec = { help: helpText(row, table, 'cli'), ...(group !== undefined && { group }) };
      return [own, isSwitch(row) ? spec : { value, ...spec }];
    }),
  );

/**
 * What the options of a table were given.
 * @param readers of those that the command line reads in a way of its own, by their names
 * @throws SplitkvError `usage`
 */
export async function readRows<Values extends object>(
  table: OptionTable,
  options: Options,
  readers: { readonly [Name in keyof Values]?: (text: string) => unknown } = {},
): Promise<Values> {
  const values: Record<string, unknown> = {};
  for (const [own, name, row] of rowsAt(table, 'cli')) {
    const reader = readers[name as keyof Values];
    if (options.has(own)) values[name] = reader ? await reader(options.text(own) ?? '') : valueOf(options, own, row);
  }
  return defined(values) as Values;
}

function valueOf(options: Options, own: string, row: OptionRow): unknown {
  const { range, choices, read } = row;
  if (isSwitch(row)) return !row.isOn;
  const text = options.text(own) ?? '';
  if (read) return read(text, `--${own} ${text}`);
  if (choices) return options.oneOf(own, choices);
  return range ? options.within(own, range) : text;
}

/**
 * A file that an option names, as text.
 * @param mark what stands before the file's name on the command line
 * @throws SplitkvError `io`
 */
export async function readGiven(
  option: string,
  path: string,
  mark = '',
  encoding: BufferEncoding = 'utf8',
): Promise<string> {
  const { readFile } = await import('node:fs/promises');
  try {
    return await readFile(path, encoding);
  } catch (cause) {
    throw ioError(`--${option} ${mark}${path}: can't be read: ${(cause as Error).message}`, cause);
  }
}

/** The same as JSON. @throws SplitkvError `io`, `format` */
export const readGivenJson = async (option: string, path: string, mark = ''): Promise<unknown> =>
  parseJson(await readGiven(option, path, mark), `--${option} ${mark}${path}`);

const notWritten = (option: string, path: string, cause: unknown): Error =>
  ioError(`--${option} ${path}: can't be written: ${(cause as Error).message}`, cause);

/** The file that an option names, looked at before anything is computed for it. @throws SplitkvError `io` where it can't be written */
export async function writableGiven(options: Options, option: string): Promise<string | undefined> {
  const path = options.text(option);
  if (path === undefined) return undefined;
  const { access, constants, stat } = await import('node:fs/promises');
  try {
    await access(dirname(resolve(path)), constants.W_OK);
    if ((await stat(path).catch(() => undefined))?.isDirectory()) throw new Error('it is a folder');
  } catch (cause) {
    throw notWritten(option, path, cause);
  }
  return path;
}

/** Writes the file that an option names. @throws SplitkvError `io` */
export async function writeGiven(option: string, path: string, text: string): Promise<void> {
  const { writeFile } = await import('node:fs/promises');
  try {
    await writeFile(path, text);
  } catch (cause) {
    throw notWritten(option, path, cause);
  }
}
