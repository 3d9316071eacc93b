import type { SamplingOptions } from '../../../../generated/option_types.js';
import type { OptionRow } from './row.js';

/** Tokens of an answer where nothing is said of it; the chat's and the server's text completions have their own. */
export const DEFAULT_MAX_TOKENS = 256;

/** How tokens that may come next are proposed. */
export const SPECULATES = ['auto', 'off', 'ngram', 'draft', 'mtp'] as const;

const penalty = { range: { low: -2, high: 2 }, default: 0, value: 'F' } as const;
const both = ['cli', 'attribute'] as const;

/** How a token is chosen: docs/sampling.md. */
export const SAMPLING_ROWS = {
  temperature: {
    help: 'how evenly tokens are drawn; 0 takes the likeliest one',
    default: 0,
    range: { low: 0 },
    most: 2,
    value: 'T',
    at: both,
    recommended: 'temp',
    sheet: { label: 'Temperature', max: 2 },
  },
  topP: {
    help: 'the likeliest tokens that hold this probability together are drawn from; 1 is all of them',
    default: 1,
    range: { above: 0, high: 1 },
    value: 'P',
    at: both,
    recommended: 'top_p',
    sheet: { label: 'Top p', max: 1 },
  },
  topK: {
    help: 'how many of the likeliest tokens to draw from; 0 is all of them',
    default: 0,
    range: { integer: true, low: 0 },
    hasNone: true,
    value: 'K',
    at: both,
    recommended: 'top_k',
    sheet: { label: 'Top k', max: 1000 },
  },
  minP: {
    help: 'tokens less likely than this times the likeliest one, after temperature, are left out; 0 is none',
    default: 0,
    range: { low: 0, high: 1 },
    value: 'P',
    at: both,
    recommended: 'min_p',
    sheet: { label: 'Min p', max: 1 },
  },
  repetitionPenalty: {
    help: 'of tokens of the prompt and generated ones, positive logits are divided by it and negative ones multiplied; above 1 makes repeats less likely',
    default: 1,
    range: { above: 0 },
    value: 'R',
    at: both,
    recommended: 'penalty_repeat',
    sheet: { label: 'Repetition penalty', min: 0.1, max: 2 },
  },
  frequencyPenalty: {
    help: "subtracted from a token's logit for each time it was generated",
    ...penalty,
    at: both,
  },
  presencePenalty: {
    help: 'subtracted from the logit of each token that was generated',
    ...penalty,
    at: both,
  },
  logitBias: {
    help: 'added to the logits of tokens, by their ids: -100 bans one, 100 nearly forces it',
    type: 'Readonly<Record<number, number>> | ReadonlyMap<number, number>',
    value: 'ID:VALUE,...',
    at: ['cli'],
  },
  stopTokenIds: {
    help: "ids of tokens that end the text as the model's own end-of-sequence tokens do, also where those are ignored",
    type: 'readonly number[]',
    value: 'IDS',
    at: ['cli'],
  },
  minTokens: {
    help: 'no token that ends the text is sampled before this many tokens were, and no stop text is looked for in these',
    default: 0,
    range: { integer: true, low: 0, high: 2 ** 32 - 1 },
    at: ['cli'],
  },
  seed: {
    help: 'the same seed gives the same text',
    default: 'a random one, reported in the result',
    range: { integer: true, low: 0 },
    hasNone: true,
    value: 'S',
    at: both,
  },
} as const satisfies Readonly<Record<keyof SamplingOptions, OptionRow>>;
