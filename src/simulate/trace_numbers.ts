import { formatError } from '../base/errors.js';
import { show } from '../base/json.js';

/** Reads numbers of a trace's row. `where` names the row; all throw SplitkvError `format`. */
export function traceNumbers<Field extends string>(row: Readonly<Partial<Record<Field, unknown>>>, where: string) {
  const number = (field: Field, expected: string, accept: (value: number) => boolean): number => {
    const value = row[field];
    if (typeof value === 'number' && accept(value)) return value;
    throw formatError(`${where}: ${field} is ${value === undefined ? 'missing' : show(value)}: expected ${expected}`);
  };
  return {
    number,
    tokens: (field: Field): number =>
      number(field, 'an integer of at least 1', (value) => Number.isSafeInteger(value) && value >= 1),
  };
}
