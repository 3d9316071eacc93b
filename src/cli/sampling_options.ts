import { readFile } from 'node:fs/promises';
import { SplitkvError, usageError } from '../base/errors.js';
import { SAMPLING_ROWS } from '../engine/contracts/options/sampling_rows.js';
import type { SamplingOptions } from '../index.js';
import { readRows, specsOf } from './option_rows.js';
import { inGroup, type Options, type OptionSpecs } from './options.js';

/** How an answer is sampled. */
export const samplingSpecs: OptionSpecs = inGroup('Sampling', specsOf(SAMPLING_ROWS));

/** What samplingSpecs were given. @throws SplitkvError `usage`, `io` */
export const readSampling = (options: Options): Promise<SamplingOptions> =>
  readRows<SamplingOptions>(SAMPLING_ROWS, options, {
    logitBias: (own) => readBias(options.text(own)),
    stopTokenIds: (own) => options.text(own)!.split(',').map(stopId),
  });

function stopId(text: string): number {
  if (/^\s*\d+\s*$/.test(text)) return Number(text);
  throw usageError(`--stop-token-ids: '${text}' is no token id; give ids with commas, such as 2,32000`);
}

/** A record, as it may have to go to a page. */
async function readBias(given: string | undefined): Promise<Readonly<Record<number, number>> | undefined> {
  if (given === undefined) return undefined;
  const pairs = given.startsWith('@')
    ? await readPairs(given)
    : given.split(',').map((pair) => pair.split(':').map((text) => text.trim()));
  const biases: Record<number, number> = {};
  for (const [id = '', bias = '', ...rest] of pairs) {
    const value = bias === '' ? Number.NaN : Number(bias);
    if (!/^\d+$/.test(id) || !Number.isFinite(value) || rest.length > 0) {
      const pair = [id, bias, ...rest].join(':');
      throw usageError(`--logit-bias: '${pair}' is no token id and bias; give them such as 50256:-100,11:2.5`);
    }
    biases[Number(id)] = value;
  }
  return biases;
}

async function readPairs(given: string): Promise<string[][]> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(await readFile(given.slice(1), 'utf8'));
  } catch (error) {
    throw new SplitkvError('io', `--logit-bias ${given}: ${(error as Error).message}`, { cause: error });
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) {
    throw usageError(`--logit-bias ${given}: expected an object of biases by token id, such as {"50256": -100}`);
  }
  return Object.entries(parsed).map(([id, bias]) => [id, typeof bias === 'number' ? String(bias) : '']);
}
