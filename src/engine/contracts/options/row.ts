/**
 * Room: every option of a load (load_rows.ts) and of sampling (sampling_rows.ts), a row each. What a row is (here) is read by
 * the library's checks, the command line, the chat's attributes, pages' addresses and the server; `npm run options` writes
 * the types of options and of the chat's properties (generated/) and the tables in docs/ from the rows. Read sampling_rows.ts next.
 */

import { didYouMean, usageError } from '../../../base/errors.js';
import { dashed } from '../../../base/names.js';
import {
  isWithin,
  type NumberRange,
  oneOf,
  type OptionRule,
  type OptionsSchema,
  rangeText,
  within,
} from '../../../base/options.js';

/** Where an option can be given beside the library: `cli`, the chat's `attribute`, the address of the ranks `page`. */
export type Face = 'cli' | 'attribute' | 'page';

/** An option. Its name is its key in the table, as the library has it; other spellings follow from it. */
export interface OptionRow {
  /** A sentence for people, without its end: what it is. Other options in backticks are shown as the face spells them. */
  readonly help: string;
  /** What only users of the library read. */
  readonly more?: string;
  /** What holds where it isn't given; a text is for people. */
  readonly default?: number | string;
  /** A number that may be these. */
  readonly range?: NumberRange;
  /** A text that is one of these. */
  readonly choices?: readonly string[];
  /** Its type in TypeScript, where neither of the two is there; `boolean` is a switch. */
  readonly type?: string;
  /** Reads it from a text; default: by its type. `given` is the option with its text, as messages show it. */
  readonly read?: (text: string, given: string) => unknown;
  /** What else holds of a value. */
  readonly rule?: OptionRule;
  /** Where it can be given; default everywhere. */
  readonly at?: readonly Face[];
  /** Of a switch: it is on unless this says otherwise, so that the command line and the attribute turn it off (`no-tune`). */
  readonly isOn?: true;
  /** Its name on the command line, and as an attribute and in an address, where they don't follow from its own. */
  readonly flag?: string;
  readonly attribute?: string;
  /** What its value is called in the command line's help, and the heading there. */
  readonly value?: string;
  readonly group?: string;
  /** Nobody may see its value: no attribute, no address, no message. */
  readonly isSecret?: true;
  /** The page of docs/ that says more. */
  readonly page?: string;
  /** Predictions of plans don't ask for it. */
  readonly isOfRunsOnly?: true;

  /** Of sampling: what a server's field may be at most, where that is less. */
  readonly most?: number;
  /** Of sampling: a field of -1 means none. */
  readonly hasNone?: true;
  /** Of sampling: a model's makers may recommend it: its name among GGUF's `general.sampling`. */
  readonly recommended?: string;
  /** Of sampling: people may change it in the chat's settings: its label there, and the field's limits. */
  readonly sheet?: { readonly label: string; readonly min?: number; readonly max: number };
}
export type OptionTable = Readonly<Record<string, OptionRow>>;

/** Rows under one heading of the command line's help, and of one page of docs/ where they name no other. */
export const inGroup = <Table extends OptionTable>(group: string, page: string | undefined, table: Table): Table =>
  Object.fromEntries(
    Object.entries(table).map(([name, row]) => [name, { ...(page !== undefined && { page }), ...row, group }]),
  ) as Table;

/** What a face calls an option; undefined: it has none. */
export function spelling(name: string, row: OptionRow, face: Face): string | undefined {
  if (!(row.at?.includes(face) ?? true) || (row.isSecret && face !== 'cli')) return undefined;
  const own = (face === 'cli' ? row.flag : row.attribute) ?? dashed(name);
  return row.isOn && face !== 'page' ? `no-${own}` : own;
}

/** The rows that a face has, by its own names. */
export const rowsAt = (
  table: OptionTable,
  face: Face,
): readonly (readonly [own: string, name: string, row: OptionRow])[] =>
  Object.entries(table).flatMap(([name, row]) => {
    const own = spelling(name, row, face);
    return own === undefined ? [] : [[own, name, row] as const];
  });

export const isSwitch = ({ type }: OptionRow): boolean => type === 'boolean';

/** What a row says to people, as a face spells other options; the library's own spelling without one. */
export function helpText(row: OptionRow, table: OptionTable, face?: Face): string {
  const { help, default: preset = isSwitch(row) ? 'off' : undefined, isOn } = row;
  const turnsOff = isOn && face !== 'page' && face !== undefined;
  const text = turnsOff ? `turns off ${help}` : preset === undefined ? help : `${help}; default ${preset}`;
  if (face === undefined) return text;
  return text.replace(/`(\w+)`/g, (quoted, name: string) => {
    const own = table[name] && spelling(name, table[name], face);
    return own === undefined ? quoted : face === 'cli' ? `--${own}` : own;
  });
}

const trueOrFalse: OptionRule = (value) =>
  typeof value === 'boolean' ? undefined : `${String(value)}: expected true or false`;

function ruleOf(row: OptionRow): OptionRule | true {
  if (row.rule) return row.rule;
  if (row.range) return within(row.range);
  if (row.choices) return oneOf(row.choices);
  return isSwitch(row) ? trueOrFalse : true;
}

/** What `checkOptions` checks by. */
export const schemaOf = <Options>(table: OptionTable): OptionsSchema<Options> =>
  Object.fromEntries(Object.entries(table).map(([name, row]) => [name, ruleOf(row)])) as OptionsSchema<Options>;

/**
 * An option's value, read from an attribute or an address.
 * @param given the option with its text, as messages show it: `top-p="2"`
 * @throws SplitkvError `usage`
 */
export function readOption(row: OptionRow, text: string, given: string): unknown {
  if (row.read) return row.read(text, given);
  if (row.choices && !row.choices.includes(text)) {
    throw usageError(`${given}: expected ${row.choices.join(', ')}.${didYouMean(text, row.choices)}`);
  }
  if (!row.range) return text;
  const value = (row.range.integer ? /^-?\d+$/ : /^-?(\d+\.?\d*|\.\d+)$/).test(text) ? Number(text) : Number.NaN;
  if (!isWithin(value, row.range)) throw usageError(`${given}: expected ${rangeText(row.range)}`);
  return value;
}
