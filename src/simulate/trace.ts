import { didYouMean, formatError } from '../base/errors.js';
import { isObject, parseJson, show } from '../base/json.js';

/** One request of a trace. */
export interface TraceRequest {
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Seconds from the start; sent then, or as soon after as a client is free. */
  readonly arrivalSeconds: number;
  readonly priority: number;
  /** Seconds after it is sent by which the first token should be there. */
  readonly ttftDeadlineSeconds: number | undefined;
}

export type Trace = readonly TraceRequest[];

export const meanInput = (trace: Trace): number => mean(trace.map(({ inputTokens }) => inputTokens));
export const meanOutput = (trace: Trace): number => mean(trace.map(({ outputTokens }) => outputTokens));

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

const FIELDS = ['input_tokens', 'output_tokens', 'arrival_s', 'priority', 'ttft_deadline_s'] as const;
type Field = (typeof FIELDS)[number];
type Row = Partial<Record<Field, unknown>>;

/**
 * Reads a trace: JSON, a list of objects or `{ "requests": [...] }`, or CSV with a line of names first. Fields: input_tokens,
 * output_tokens (integers of at least 1); optional: arrival_s (seconds from the start, default 0), priority (-100 to 100,
 * default 0), ttft_deadline_s (seconds from being sent to the first token).
 * @throws SplitkvError `format` naming the request
 */
export function parseTrace(text: string, file: string): Trace {
  const rows = /^\uFEFF?\s*[[{]/.test(text) ? jsonRows(text, file) : csvRows(text, file);
  if (rows.length === 0) throw formatError(`${file}: no requests`);
  return rows.map(({ where, row }) => readRequest(row, `${file}: ${where}`));
}

interface PlacedRow {
  readonly where: string;
  readonly row: Row;
}

function jsonRows(text: string, file: string): PlacedRow[] {
  const document = parseJson(text, file);
  const list = isObject(document) ? document['requests'] : document;
  if (!Array.isArray(list)) throw formatError(`${file}: expected a list of requests, or {"requests": [...]}`);
  return list.map((row: unknown, index) => {
    if (!isObject(row)) throw formatError(`${file}: request ${index} is ${show(row)}: expected an object`);
    checkFields(Object.keys(row), `${file}: request ${index}`);
    return { where: `request ${index}`, row };
  });
}

function csvRows(text: string, file: string): PlacedRow[] {
  const lines = text.replace(/^\uFEFF/, '').split(/\r?\n/);
  const names = (lines[0] ?? '').split(',').map((name) => name.trim());
  checkFields(names, `${file}: line 1`);
  const rows: PlacedRow[] = [];
  for (const [index, line] of lines.entries()) {
    if (index === 0 || line.trim() === '') continue;
    const where = `line ${index + 1}`;
    const cells = line.split(',').map((cell) => cell.trim());
    if (cells.length !== names.length) {
      throw formatError(`${file}: ${where} has ${cells.length} cells; line 1 names ${names.length}`);
    }
    const given = names.map((name, column) => [name, cells[column]!] as const).filter(([, cell]) => cell !== '');
    // Text that is no number is left for the message.
    const valueOf = (cell: string): unknown => (Number.isNaN(Number(cell)) ? cell : Number(cell));
    rows.push({ where, row: Object.fromEntries(given.map(([name, cell]) => [name, valueOf(cell)])) });
  }
  return rows;
}

function checkFields(names: readonly string[], where: string): void {
  for (const name of names) {
    if (!(FIELDS as readonly string[]).includes(name)) {
      throw formatError(
        `${where}: unknown field ${show(name)}.${didYouMean(name, FIELDS)} Fields: ${FIELDS.join(', ')}`,
      );
    }
  }
  if (new Set(names).size < names.length) throw formatError(`${where}: a field is named twice`);
}

function readRequest(row: Row, where: string): TraceRequest {
  const { number, tokens } = traceNumbers<Field>(row, where);
  const seconds = (field: Field): number =>
    number(field, 'seconds of at least 0', (value) => Number.isFinite(value) && value >= 0);
  return {
    inputTokens: tokens('input_tokens'),
    outputTokens: tokens('output_tokens'),
    arrivalSeconds: row.arrival_s === undefined ? 0 : seconds('arrival_s'),
    priority:
      row.priority === undefined
        ? 0
        : number('priority', 'an integer from -100 to 100', (p) => Number.isSafeInteger(p) && Math.abs(p) <= 100),
    ttftDeadlineSeconds: row.ttft_deadline_s === undefined ? undefined : seconds('ttft_deadline_s'),
  };
}

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
