import { didYouMean, formatError, usageError } from '../../src/base/errors.js';
import { isObject, parseJson, show } from '../../src/base/json.js';
import { Random } from '../../src/base/random.js';
import { nth, sum } from '../../src/base/lists.js';

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

export const mean = (values: readonly number[]): number => sum(values) / values.length;

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
    // Text that is no number is left for the message.
    const valueOf = (cell: string): unknown => (Number.isNaN(Number(cell)) ? cell : Number(cell));
    const given = cells.flatMap((cell, column) => (cell === '' ? [] : [[nth(names, column), valueOf(cell)]]));
    rows.push({ where, row: Object.fromEntries(given) });
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

/**
 * The length distributions of the run that NVIDIA published (docs/adp.md), whose means are known and whose shapes are not: lognormal
 * with these sigmas, cut at these multiples of the mean. Outputs are fitted on two facts of the published baseline, its iterations and
 * when its last context runs; inputs have the same sigma, as nothing published depends on it.
 */
export const LENGTHS = {
  input: { sigma: 0.5, cut: 5.1 },
  output: { sigma: 0.5, cut: 5.8 },
} as const;

export interface SyntheticTraceOptions {
  readonly requests: number;
  readonly meanInput: number;
  readonly meanOutput: number;
  readonly seed: number;
  /** No prompt is longer. */
  readonly maxInput: number;
}

/**
 * A seeded trace: lengths are lognormal, cut at a multiple of their mean, and scaled so that the means come out as asked; all
 * requests are there from the start.
 * @throws SplitkvError `usage` when `maxInput` leaves no room for the mean
 */
export function syntheticTrace(options: SyntheticTraceOptions): Trace {
  const { requests, seed, maxInput } = options;
  if (options.meanInput > 0.9 * maxInput) {
    throw usageError(
      `--mean-in ${options.meanInput}: prompts may have ${maxInput} tokens (the budget of an iteration less a full batch's ` +
        'decode rows): raise --max-tokens-per-iteration or lower --mean-in',
    );
  }
  const random = new Random(seed);
  const cutInput = Math.min(maxInput, Math.round(options.meanInput * LENGTHS.input.cut));
  const inputs = lengths(random, requests, options.meanInput, LENGTHS.input.sigma, cutInput);
  const cutOutput = Math.round(options.meanOutput * LENGTHS.output.cut);
  const outputs = lengths(random, requests, options.meanOutput, LENGTHS.output.sigma, cutOutput);
  return inputs.map((inputTokens, index) => ({
    inputTokens,
    outputTokens: nth(outputs, index),
    arrivalSeconds: 0,
    priority: 0,
    ttftDeadlineSeconds: undefined,
  }));
}

function lengths(random: Random, count: number, mean: number, sigma: number, cut: number): number[] {
  const shape = Array.from({ length: count }, () => Math.exp(sigma * random.normal()));
  const scaled = (scale: number): number[] =>
    shape.map((value) => Math.max(1, Math.min(cut, Math.round(value * scale))));
  // The mean grows with the scale: halving finds it to rounding.
  let low = 0;
  let high = mean;
  while (sum(scaled(high)) < mean * count && high < 1e9) high *= 2;
  for (let step = 0; step < 50; step++) {
    const middle = (low + high) / 2;
    if (sum(scaled(middle)) < mean * count) low = middle;
    else high = middle;
  }
  return scaled(high);
}
