import { readFileSync } from 'node:fs';
import { format, type FormatOptions } from 'oxfmt';
import { camel, snake } from '../src/base/names.js';
import { rangeText } from '../src/base/options.js';
import { CHAT_ROWS, ELEMENT_ROWS } from '../src/app/chat/chat_rows.js';
import { LOAD_ROWS } from '../src/engine/contracts/options/load_rows.js';
import {
  helpText,
  isSwitch,
  type OptionRow,
  type OptionTable,
  rowsAt,
  spelling,
} from '../src/engine/contracts/options/row.js';
import { SAMPLING_ROWS } from '../src/engine/contracts/options/sampling_rows.js';

/** Files that are made of the tables of options: `npm run options` writes them, a test compares. */
export async function optionFiles(): Promise<Readonly<Record<string, string>>> {
  return {
    'generated/option_types.ts': await formatted('option_types.ts', optionTypes()),
    'generated/chat_properties.ts': await formatted('chat_properties.ts', chatProperties()),
    'docs/library.md': await page('docs/library.md', loadTable()),
    'docs/sampling.md': await page('docs/sampling.md', samplingTable()),
    'docs/chat.md': await page('docs/chat.md', attributeTable()),
    'docs/serving.md': await page('docs/serving.md', fieldTable()),
  };
}

const MADE = '// Made of src/engine/contracts/options by `npm run options`: change the rows there.\n';

/** A type of an option, in TypeScript. */
const typeOf = ({ type, range, choices }: OptionRow): string =>
  type ?? (range ? 'number' : (choices ?? []).map((each) => `'${each}'`).join(' | '));

/** What a value may be, for people. */
function expectedText({ range, choices, type }: OptionRow): string {
  if (range) return rangeText(range);
  if (choices) return choices.join(', ');
  return type === 'boolean' ? 'true or false' : (type ?? 'a text');
}

const memberType = (row: OptionRow): string => (typeOf(row).includes('=>') ? `(${typeOf(row)})` : typeOf(row));

const sentence = (text: string): string => text[0]!.toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');

/** All that is to be said of an option to users of the library. */
function documentation(row: OptionRow): string {
  const { help, more, range, type, isOn, default: preset = isSwitch(row) ? isOn === true : undefined } = row;
  const what = range && type === undefined ? [sentence(expectedText(row))] : [];
  const otherwise = preset === undefined ? [] : [`Default: ${preset}.`];
  return [sentence(help), ...what, ...(more === undefined ? [] : [more]), ...otherwise].join(' ');
}

/** A comment before a member, wrapped as the rest of the source. */
function comment(text: string, columns = 115): string {
  if (text.length <= columns) return `/** ${text} */`;
  const lines = [''];
  for (const word of text.split(' ')) {
    if (`${lines.at(-1)} ${word}`.length > columns) lines.push('');
    lines.push(`${lines.pop()} ${word}`);
  }
  return `/**\n${lines.map((line) => ` *${line}`).join('\n')}\n */`;
}

const members = (table: OptionTable): string =>
  Object.entries(table)
    .map(([name, row]) => `${comment(documentation(row))}\nreadonly ${name}?: ${memberType(row)} | undefined;`)
    .join('\n');

/** generated/option_types.ts */
export function optionTypes(load: OptionTable = LOAD_ROWS, sampling: OptionTable = SAMPLING_ROWS): string {
  const recommended = Object.keys(sampling).filter((name) => sampling[name]!.recommended !== undefined);
  return `${MADE}
import type { Profile } from '../src/arrangement/index.js';
import type { PlanFile } from '../src/placement/index.js';
import type { AdapterGiven, AttentionDpOptions, LoadProgress, PrefillOptions } from '../src/engine/contracts/api.js';
import type { KvFolder } from '../src/engine/contracts/kv_folder.js';
import type { ClusterRanksOptions } from '../src/engine/contracts/cluster_options.js';

/** What \`load\` takes. */
export interface LoadOptions {
${members(load)}
}

/** How a token is chosen. */
export interface SamplingOptions {
${members(sampling)}
}

/** What a model's makers may recommend. */
export type RecommendedSampling = Pick<SamplingOptions, ${recommended.map((name) => `'${name}'`).join(' | ')}>;
`;
}

/** Types of what a property takes, where text, number or switch doesn't say it. */
function wideType({ type }: OptionRow): string | undefined {
  if (type === undefined || type === 'boolean' || type === 'string') return undefined;
  if (type.includes('readonly ')) return 'TextList';
  if (type.includes('URL')) return type.startsWith('boolean') ? type : 'string | URL';
  return /^\w+Options$/.test(type) ? `string | ${type}` : undefined;
}

/** A sentence that fits on a line, or its first clause; docs/ has the whole. */
const inShort = (text: string): string => (text.length <= 100 ? text : text.split(/[;:(]/)[0]!.trim());

/** generated/chat_properties.ts */
export function chatProperties(table: OptionTable = ELEMENT_ROWS): string {
  const properties = rowsAt(table, 'attribute').map(([own, , row]) => ({ name: camel(own), row }));
  const isNumber = ({ range, type }: OptionRow): boolean => range !== undefined && type === undefined;
  const readType = (row: OptionRow): string => {
    if (isSwitch(row)) return 'boolean';
    if (isNumber(row)) return 'number | undefined';
    // Secrets are no text of an attribute.
    return `${row.type === 'number | string' || row.type === 'ClusterRanksOptions' ? (wideType(row) ?? row.type) : 'string'} | undefined`;
  };
  const wide = properties.filter(({ row }) => wideType(row) !== undefined);
  return `${MADE}
import type { AttentionDpOptions } from '../src/index.js';
import type { ClusterRanksOptions } from '../src/engine/contracts/cluster_options.js';

export type Gone = null | undefined;
/** A list is written with commas between. */
type TextList = number | string | readonly (number | string)[];

/**
 * A property for each attribute, named in camel case (\`maxTokens\` is \`max-tokens\`): what is set becomes the attribute,
 * undefined takes it away. Frameworks set properties where an element has them.
 */
export interface ChatProperties {
${properties
  .map(({ name, row }) => {
    const text = inShort(helpText(row, table, 'attribute'));
    const said =
      row.type === 'ClusterRanksOptions'
        ? `${text}; a text is the attribute, an object may have a token, which markup never shows`
        : text;
    const own = readType(row);
    const wider = wideType(row);
    const member = wider ? `get ${name}(): ${own};\nset ${name}(value: ${wider} | Gone);` : `${name}: ${own};`;
    return `${comment(sentence(said))}\n${member}`;
  })
  .join('\n')}
}

/** What properties take that are more than a text, a number or a switch. */
export interface WideProperties {
${wide.map(({ name, row }) => `readonly ${name}: ${wideType(row)};`).join('\n')}
}
`;
}

/** As the formatter leaves it. */
async function formatted(path: string, text: string): Promise<string> {
  const { overrides, printWidth, singleQuote } = JSON.parse(readFileSync('.oxfmtrc.json', 'utf8')) as FormatOptions & {
    readonly overrides: readonly { readonly options: FormatOptions }[];
  };
  const usual = { printWidth, singleQuote } as FormatOptions;
  const own = path.endsWith('.md') ? { ...usual, ...overrides[0]!.options } : usual;
  const { code: made, errors } = await format(path, text, own);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]!.message}`);
  return made;
}

const cell = (text: string): string => text.replaceAll('|', '\\|');
const code = (text: string | undefined): string => (text === undefined ? '' : `\`${cell(text)}\``);

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

const linked = (text: string, { page: at }: OptionRow): string => (at === undefined ? text : `${text}: [more](${at})`);
/** What stands in a table's last column: default and range are columns of their own. */
const said = (row: OptionRow): string => linked(cell(row.help), row);
const presetOf = (row: OptionRow): string =>
  row.default === undefined ? (isSwitch(row) ? (row.isOn ? 'on' : 'off') : '') : cell(String(row.default));
const rangeOf = (row: OptionRow): string =>
  row.type !== undefined && row.type !== 'boolean' ? code(row.type) : cell(expectedText(row));

export const loadTable = (rows: OptionTable = LOAD_ROWS): string =>
  table(
    ['option', 'command line', 'may be', 'default', 'what it is'],
    Object.entries(rows).map(([name, row]) => {
      const flag = spelling(name, row, 'cli');
      return [code(name), code(flag && `--${flag}`), rangeOf(row), presetOf(row), said(row)];
    }),
  );

export const samplingTable = (rows: OptionTable = SAMPLING_ROWS): string =>
  table(
    ['library', 'command line, element', 'server', 'may be', 'default', 'what it is'],
    Object.entries(rows).map(([name, row]) => {
      const attribute = spelling(name, row, 'attribute');
      const most = row.most === undefined ? '' : ` (the server: to ${row.most})`;
      const own = attribute ?? `--${spelling(name, row, 'cli')}`;
      return [code(name), code(own), code(snake(name)), rangeOf(row) + most, presetOf(row), said(row)];
    }),
  );

/** The chat's own attributes, and the names of those that are options of the library. */
export function attributeTable(load: OptionTable = LOAD_ROWS, sampling: OptionTable = SAMPLING_ROWS): string {
  const own = rowsAt(CHAT_ROWS, 'attribute').map(([name, , row]) => [
    code(name),
    linked(cell(helpText(row, ELEMENT_ROWS, 'attribute')), row),
  ]);
  const names = (rows: OptionTable): string =>
    rowsAt(rows, 'attribute')
      .map(([name]) => code(name))
      .join(', ');
  return table(
    ['attribute', 'what it is'],
    [
      ...own,
      [names(load), 'as the [options of `load`](library.md#load); `ranks="auto"` makes a rank of each GPU'],
      [names(sampling), "as [sampling](sampling.md#options) says; default: as the model's makers recommend"],
    ],
  );
}

export const fieldTable = (rows: OptionTable = SAMPLING_ROWS): string =>
  table(
    ['field', 'may be', 'default'],
    Object.entries(rows).map(([name, row]) => {
      const { range, most = range?.high, hasNone } = row;
      const own = range
        ? expectedText({ ...row, range: { ...range, ...(most !== undefined && { high: most }) } })
        : rangeOf(row);
      return [code(snake(name)), own + (hasNone ? ', or -1: none' : ''), presetOf(row)];
    }),
  );

/** A page with another table between its marks. */
async function page(path: string, made: string): Promise<string> {
  const text = readFileSync(path, 'utf8');
  const marks = /(<!-- npm run options -->\n)[\s\S]*?(\n<!-- end -->)/;
  if (!marks.test(text)) throw new Error(`${path} has no <!-- npm run options --> ... <!-- end -->`);
  return formatted(
    path,
    text.replace(marks, (_, head: string, tail: string) => `${head}\n${made}\n${tail}`),
  );
}
