import { helpText, isSwitch, type OptionRow, type OptionTable, rowsAt } from '../engine/contracts/options/row.js';
import { defined, type Options, type OptionSpec, type OptionSpecs } from './options.js';

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
  readers: { readonly [Name in keyof Values]?: (own: string) => unknown } = {},
): Promise<Values> {
  const values: Record<string, unknown> = {};
  for (const [own, name, row] of rowsAt(table, 'cli')) {
    const reader = readers[name as keyof Values];
    if (options.has(own)) values[name] = reader ? await reader(own) : valueOf(options, own, row);
  }
  return defined(values) as Values;
}

function valueOf(options: Options, own: string, row: OptionRow): unknown {
  const { range, choices, read } = row;
  if (isSwitch(row)) return !row.isOn;
  if (read) return read(options.text(own)!, `--${own} ${options.text(own)}`);
  if (choices) return options.oneOf(own, choices);
  return range ? options.within(own, range) : options.text(own);
}
