import type { Command } from '../command.js';
import type { OptionSpecs } from '../options.js';
import type { Style } from './style.js';

export interface CommandEntry {
  readonly group: string;
  readonly summary: string;
}

/** More than twice as many are not told at once. */
const MOST_OPTIONS = 10;
/** The options that are used most, in the order in which they are told. */
const OFTEN = [
  'prompt',
  'suite',
  'port',
  'system',
  'max-tokens',
  'temperature',
  'json-schema',
  'tools',
  'api-key',
  'slots',
  'kv-memory',
  'weights',
  'context',
  'images',
  'ranks',
  'plan',
  'adapter',
  'host',
];
const LEAST_TEXT = 30;
/** Longer names stand on a line of their own. */
const MOST_NAME = 26;

export function mainHelp(commands: Readonly<Record<string, CommandEntry>>, style: Style, columns: number): string {
  const all = Object.entries(commands);
  const width = Math.max(...all.map(([name]) => name.length));
  const parts = [...new Set(all.map(([, { group }]) => group))].map((group) => {
    const own = all.filter(([, each]) => each.group === group);
    const rows = own.map(([name, { summary }]) => row(name, summary, width, columns, style));
    return `${style('bold', group)}\n${rows.join('\n')}`;
  });
  return [
    'splitkv: small language models on WebGPU, on one GPU or split over several',
    `${style('bold', 'Usage')}\n  splitkv COMMAND [options]`,
    ...parts,
    `${style('bold', 'Begin with')}\n  splitkv chat smollm2-360m-instruct     ${style('dim', '# downloads it first')}\n  splitkv doctor                         ${style('dim', '# whether this machine is ready')}`,
    "splitkv help COMMAND lists a command's options; splitkv --version says the version.\n",
  ].join('\n\n');
}

/** Of a command with many options those that are used most, unless `whole`. */
export function commandHelp(name: string, command: Command, style: Style, columns: number, whole: boolean): string {
  const { summary, usage, examples = [], options } = command;
  const names = Object.keys(options);
  const most = [...new Set([...OFTEN.filter((option) => option in options), ...names])].slice(0, MOST_OPTIONS);
  const rows = most.map((option) => [option, { ...options[option]!, group: 'Options used most' }] as const);
  const shown =
    whole || names.length <= 2 * MOST_OPTIONS
      ? optionHelp(options, style, columns)
      : `${optionHelp(Object.fromEntries(rows), style, columns)}\n\nAll ${names.length} options: splitkv help ${name} --all`;
  return [
    wrapped(summary, columns).join('\n'),
    `${style('bold', 'Usage')}\n  splitkv ${usage.replaceAll('\n', '\n  ')}`,
    ...(examples.length > 0 ? [`${style('bold', 'Examples')}\n${examples.map((line) => `  ${line}`).join('\n')}`] : []),
    `${shown}\n`,
  ].join('\n\n');
}

/** Options by group; those of none come first, as what the command itself has. */
export function optionHelp(specs: OptionSpecs, style: Style, columns: number): string {
  const rows = Object.entries(specs).map(([name, { value, help, group = 'Options' }]) => ({
    name: `--${name}${value === undefined ? '' : ` ${value}`}`,
    help,
    group,
  }));
  const width = Math.max(...rows.map(({ name }) => name.length).filter((length) => length <= MOST_NAME));
  const groups = new Set(['Options', ...rows.map(({ group }) => group).filter((group) => group !== LAST), LAST]);
  const parts = [...groups].flatMap((group) => {
    const own = rows.filter((each) => each.group === group);
    const lines = own.map(({ name, help }) => row(name, help, width, columns, style));
    return own.length > 0 ? [`${style('bold', group)}\n${lines.join('\n')}`] : [];
  });
  return parts.join('\n\n');
}

/** The group at the end of every command's help. */
export const LAST = 'Output and help';

/** A name, and its text beside it in lines of their own. */
function row(name: string, text: string, width: number, columns: number, style: Style): string {
  const indent = ' '.repeat(width + 4);
  const lines = wrapped(text, Math.max(LEAST_TEXT, columns - indent.length));
  const shown = `  ${style('cyan', name)}`;
  const first = name.length > width ? `${shown}\n${indent}` : `${shown}${' '.repeat(width - name.length + 2)}`;
  return `${first}${lines.join(`\n${indent}`)}`;
}

/** A text's own lines, cut at spaces. */
export function wrapped(text: string, columns: number): string[] {
  return text.split('\n').flatMap((line) => {
    const indent = ' '.repeat(line.length - line.trimStart().length);
    const lines: string[] = [];
    let current = indent;
    for (const word of line.trim().split(' ')) {
      const longer = current.trim() === '' ? `${indent}${word}` : `${current} ${word}`;
      if (longer.length <= columns || current.trim() === '') {
        current = longer;
        continue;
      }
      lines.push(current);
      current = `${indent}${word}`;
    }
    return [...lines, current];
  });
}
