import { createHash } from 'node:crypto';
import { internalError, usageError } from '../../base/errors.js';
import type { RunStats } from '../../index.js';
import type { Command, Terminal } from '../command.js';
import { loraOf, loraSpecs } from '../lora_options.js';
import { modelOptions, modelRequest, openHost } from '../model_options.js';
import { defined } from '../options.js';
import { mediaSpecs, readMedia, readTokenLists, TOKENS_HINT } from '../prompt_files.js';

export const command: Command = {
  summary: 'Next-token logits after token ids: of the last position, or of every one.',
  words: ['model'],
  usage: 'logits MODEL (--tokens 1,2,3 | --prompt TEXT) [options]',
  options: {
    tokens: { value: 'IDS', help: 'ids with commas, or @FILE.json: one list of ids, or a list of lists' },
    prompt: { value: 'TEXT', help: 'instead of ids: fed as it is, without the chat template' },
    ...mediaSpecs,
    all: { help: 'every position, not only the last' },
    'prompt-length': {
      value: 'N',
      help: 'the first N ids are the prompt (default: all); those behind it are computed as if generated, over its compressed cache',
    },
    output: { value: 'WHAT', help: 'full (default), top, or argmax' },
    top: { value: 'N', help: 'how many --output top lists a position; default 10' },
    ...loraSpecs,
    ...modelOptions,
  },
  async run(options, terminal) {
    const request = await modelRequest(options, terminal);
    const text = options.text('prompt');
    if (text !== undefined && options.has('tokens'))
      throw usageError('--prompt and --tokens are two prompts: give one');
    const media = await readMedia(options);
    const lists = text === undefined ? await readTokenLists(options.required('tokens', TOKENS_HINT)) : [text];
    const output = options.oneOf('output', ['full', 'top', 'argmax']) ?? 'full';
    const top = options.integer('top', 1) ?? 10;
    const promptLength = options.integer('prompt-length', 1);
    const short = lists.find((tokens) => typeof tokens !== 'string' && tokens.length < (promptLength ?? 0));
    if (short) throw usageError(`--prompt-length ${promptLength}: a list has ${short.length} ids; give at most that`);
    const results: LogitsDescription[] = [];
    const host = await openHost(request);
    try {
      for (const [index, tokens] of lists.entries()) {
        const what = typeof tokens === 'string' ? 'a text' : `${tokens.length} tokens`;
        terminal.progress(`logits of list ${index + 1} of ${lists.length}, ${what}`);
        const describer = new LogitsDescriber(output, top);
        const onRow = (position: number, row: Float32Array): void => describer.add(position, row);
        const wanted = { all: options.has('all'), ...defined({ promptLength }), ...loraOf(options) };
        const prompt = media ? { prompt: tokens, ...media } : tokens;
        await host.logits({ signal: terminal.signal, onRow }, prompt, wanted);
        results.push(describer.describe());
      }
      const stats = await host.stats();
      if (options.has('json')) await writeLogitsDocument(results, stats, (text) => terminal.write(text));
      else await writeTable(results, terminal);
    } finally {
      await host.close();
    }
    return 0;
  },
};

async function writeTable(results: readonly LogitsDescription[], terminal: Terminal): Promise<void> {
  for (const { positions, argmax, best, top, sha256 } of results) {
    for (const [index, position] of positions.entries()) {
      const others = top?.[index]?.map(([id, logit]) => `${id}:${logit.toFixed(4)}`).join(' ');
      const line = others ?? `argmax ${argmax[index]} logit ${best[index]?.toFixed(6)}`;
      await terminal.write(`position ${position}  ${line}\n`);
    }
    await terminal.write(`sha256 ${sha256}\n`);
  }
}

export type LogitsOutput = 'full' | 'top' | 'argmax';

export interface LogitsDescription {
  readonly positions: readonly number[];
  /** Likeliest token of each position; of equals the lowest id. */
  readonly argmax: readonly number[];
  /** Its logit. */
  readonly best: readonly number[];
  /** Over the little-endian f32 logits of the positions in order: equal digests mean equal bits. */
  readonly sha256: string;
  readonly rows?: readonly Float32Array[];
  /** [id, logit] of the likeliest tokens of each position, likeliest first. */
  readonly top?: readonly (readonly (readonly [number, number])[])[];
}

/** Takes the rows of one list one by one, in order of positions: of all rows together, large vocabularies make gigabytes. */
export class LogitsDescriber {
  readonly #hash = createHash('sha256');
  readonly #positions: number[] = [];
  readonly #argmax: number[] = [];
  readonly #best: number[] = [];
  readonly #rows: Float32Array[] = [];
  readonly #top: (readonly (readonly [number, number])[])[] = [];

  constructor(
    readonly output: LogitsOutput,
    readonly topCount: number,
  ) {}

  add(position: number, row: Float32Array): void {
    this.#hash.update(new Uint8Array(row.buffer, row.byteOffset, row.byteLength));
    const id = argmaxOf(row, position);
    this.#positions.push(position);
    this.#argmax.push(id);
    this.#best.push(row[id]!);
    if (this.output === 'full') this.#rows.push(row);
    if (this.output === 'top') this.#top.push(topOf(row, this.topCount));
  }

  /** Once, after the last row. */
  describe(): LogitsDescription {
    return {
      positions: this.#positions,
      argmax: this.#argmax,
      best: this.#best,
      sha256: this.#hash.digest('hex'),
      ...(this.output === 'full' && { rows: this.#rows }),
      ...(this.output === 'top' && { top: this.#top }),
    };
  }
}

function argmaxOf(row: Float32Array, position: number): number {
  let id = 0;
  for (let i = 0; i < row.length; i++) {
    const value = row[i]!;
    if (!Number.isFinite(value)) {
      throw internalError(`logit ${i} of position ${position} is ${value}: the weights or a kernel are broken`);
    }
    if (value > row[id]!) id = i;
  }
  return id;
}

function topOf(row: Float32Array, count: number): (readonly [number, number])[] {
  const ids = Uint32Array.from(row.keys());
  ids.sort((a, b) => row[b]! - row[a]! || a - b);
  return Array.from(ids.subarray(0, count), (id) => [id, row[id]!] as const);
}

/** Writes the JSON document row by row: a long prompt times a large vocabulary is too much for one string. */
async function writeLogitsDocument(
  results: readonly LogitsDescription[],
  stats: RunStats,
  write: (text: string) => Promise<void>,
): Promise<void> {
  await write('{"results":[');
  for (const [index, { positions, argmax, sha256, rows, top }] of results.entries()) {
    const head = JSON.stringify({ positions, argmax, sha256, ...(top && { top }) });
    await write((index > 0 ? ',' : '') + head.slice(0, -1));
    if (rows) {
      await write(',"logits":[');
      for (const [at, row] of rows.entries()) await write(`${at > 0 ? ',' : ''}[${row.join(',')}]`);
      await write(']');
    }
    await write('}');
  }
  await write(`],"stats":${JSON.stringify(stats)}}\n`);
}
