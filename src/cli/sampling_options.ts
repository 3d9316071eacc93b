import { readFile } from 'node:fs/promises';
import { SplitkvError, usageError } from '../base/errors.js';
import type { SamplingOptions } from '../index.js';
import { defined, inGroup, type Options, type OptionSpecs } from './options.js';

/** How an answer is sampled. */
export const samplingSpecs: OptionSpecs = inGroup('Sampling', {
  temperature: { value: 'T', help: '0 (default) takes the likeliest token' },
  'top-k': { value: 'K', help: 'sample among the K likeliest; 0 (default) = all' },
  'top-p': { value: 'P', help: 'sample among the likeliest that hold probability P; 1 (default) = all' },
  'min-p': { value: 'P', help: 'drop tokens below P times the likeliest; 0 (default) = none' },
  'repetition-penalty': { value: 'R', help: 'above 1 makes repeats less likely; 1 (default) = off' },
  'frequency-penalty': { value: 'F', help: 'taken from a logit for each time its token was generated, -2 to 2' },
  'presence-penalty': { value: 'F', help: 'taken from the logit of every token that was generated, -2 to 2' },
  'logit-bias': { value: 'ID:VALUE,...', help: 'added to the logits of tokens; or @FILE.json with {"ID": VALUE, ...}' },
  'stop-token-ids': { value: 'IDS', help: 'end at these tokens, too: ids with commas' },
  'min-tokens': { value: 'N', help: 'no end before N tokens' },
  seed: { value: 'S', help: 'the same seed gives the same text; default: a random one' },
});

/** What samplingSpecs were given. @throws SplitkvError `usage`, `io` */
export async function readSampling(options: Options): Promise<SamplingOptions> {
  const within = (low: number, high: number) => (value: number) => value >= low && value <= high;
  const penalty = (name: string): number | undefined => options.number(name, 'a number from -2 to 2', within(-2, 2));
  return defined({
    temperature: options.number('temperature', 'a number of at least 0', (t) => t >= 0),
    topK: options.integer('top-k', 0),
    topP: options.number('top-p', 'a number above 0 and at most 1', (p) => p > 0 && p <= 1),
    minP: options.number('min-p', 'a number from 0 to 1', within(0, 1)),
    repetitionPenalty: options.number('repetition-penalty', 'a number above 0', (r) => r > 0),
    frequencyPenalty: penalty('frequency-penalty'),
    presencePenalty: penalty('presence-penalty'),
    logitBias: await readBias(options.text('logit-bias')),
    stopTokenIds: options.text('stop-token-ids')?.split(',').map(stopId),
    minTokens: options.integer('min-tokens', 0),
    seed: options.integer('seed', 0),
  });
}

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
