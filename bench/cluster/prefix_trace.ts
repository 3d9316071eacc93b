import { formatError } from '../../src/base/errors.js';
import { isObject, parseJson, show } from '../../src/base/json.js';
import { mixed } from '../../src/cluster/routing/prefixes.js';
import { traceNumbers } from '../simulate/trace.js';
import { type Arrival, type PrefixRequest, type PrefixSource, reusable } from './prefix_source.js';

/** A recorded trace. */
export interface PrefixTrace {
  readonly blockTokens: number;
  readonly requests: readonly Arrival[];
}

/** Tokens of a block that a trace may have. */
const BLOCK_TOKENS = [512, 256, 128, 64, 32, 16, 1024, 2048];

/**
 * Reads a trace as Mooncake publishes them: JSON, one object in each line: timestamp (milliseconds), input_length, output_length,
 * hash_ids (a number for each block of the prompt, the same for the same block behind the same beginning; the last may be a part
 * of a block). How long a block is follows from the lengths.
 * @param most requests that are read at most
 * @throws SplitkvError `format` naming the line
 */
export function parsePrefixTrace(text: string, file: string, most: number): PrefixTrace {
  const rows: Row[] = [];
  for (const [index, line] of text.split('\n').entries()) {
    if (rows.length === most) break;
    if (line.trim() !== '') rows.push(readRow(line, `${file}: line ${index + 1}`));
  }
  if (rows.length === 0) throw formatError(`${file}: no requests`);
  const blockTokens = BLOCK_TOKENS.find((tokens) =>
    rows.every((row) => Math.ceil(row.input / tokens) === row.ids.length),
  );
  if (blockTokens === undefined) {
    throw formatError(
      `${file}: no length of a block (${BLOCK_TOKENS.join(', ')} tokens) gives every request as many hash_ids as its input_length has blocks`,
    );
  }
  const seen = new Set<number>();
  const requests = rows
    .toSorted((a, b) => a.seconds - b.seconds)
    .map(({ seconds, input, output, ids }, index) => {
      const known = ids.findIndex((id) => !seen.has(id));
      for (const id of ids) seen.add(id);
      const prefix = Uint32Array.from(ids, (id) => mixed(id ^ Math.floor(id / 2 ** 32)));
      const request: PrefixRequest = {
        inputTokens: input,
        outputTokens: output,
        prefix,
        whole: prefix,
        seenTokens: reusable(known === -1 ? ids.length : known, blockTokens, input),
        session: String(index),
      };
      return { at: seconds, request };
    });
  return { blockTokens, requests };
}

interface Row {
  readonly seconds: number;
  readonly input: number;
  readonly output: number;
  readonly ids: readonly number[];
}

function readRow(line: string, where: string): Row {
  const row = parseJson(line, where);
  if (!isObject(row)) throw formatError(`${where} is ${show(row)}: expected an object`);
  const { number, tokens } = traceNumbers(row, where);
  const { hash_ids: ids } = row;
  const isId = (id: unknown): id is number => Number.isSafeInteger(id) && (id as number) >= 0;
  if (!Array.isArray(ids) || !ids.every(isId)) {
    throw formatError(`${where}: hash_ids is ${show(ids)}: expected a list of integers of at least 0`);
  }
  return {
    seconds: number('timestamp', 'milliseconds of at least 0', (value) => Number.isFinite(value) && value >= 0) / 1000,
    input: tokens('input_length'),
    output: tokens('output_length'),
    ids,
  };
}

/** A trace as it was recorded, or quicker or slower. */
export class Replay implements PrefixSource {
  readonly blockTokens: number;
  #next = 0;

  /** @param rate requests a second on average; undefined: as recorded */
  constructor(
    private readonly trace: PrefixTrace,
    private readonly rate: number | undefined,
  ) {
    this.blockTokens = trace.blockTokens;
  }

  next(): Arrival | undefined {
    const arrival = this.trace.requests[this.#next++];
    return arrival && { at: arrival.at * this.#stretch(), request: arrival.request };
  }

  after(): undefined {}

  #stretch(): number {
    return this.rate === undefined ? 1 : recordedRate(this.trace) / this.rate;
  }
}

/** Requests a second; Infinity where all come at once. */
export const recordedRate = ({ requests }: PrefixTrace): number => requests.length / requests.at(-1)!.at;
