import { abortedError, usageError } from '../../base/errors.js';
import { checkOptions, defined, oneOf, type OptionsSchema, wholeNumber } from '../../base/options.js';
import type { NormConfig } from '../../model/config/model_config.js';
import type { EmbedOptions, EmbedResult, Prompt } from '../contracts/api.js';
import { type PromptReader, promptTokens } from './prompt_tokens.js';
import type { Engine } from './engine.js';

const schema: OptionsSchema<EmbedOptions> = {
  pooling: oneOf(['mean', 'last']),
  dimensions: wholeNumber(1),
  client: true,
  signal: true,
};

/** Where texts are embedded. */
export interface EmbedHost {
  readonly engine: Engine;
  readonly reader: PromptReader;
  /** A text's computing began (+1) or ended (-1). */
  readonly count?: (change: 1 | -1) => void;
}

/**
 * Vectors of texts: the final hidden states of their tokens, pooled, and of length 1. Sums are float64 in the order of tokens, of rows
 * that are the same bits on every plan.
 * @param texts computed side by side, as many as the ranks have slots
 * @throws SplitkvError `usage`, `context_full`, `aborted`, and what ended the engine
 */
export async function embed(
  { engine, reader, count }: EmbedHost,
  texts: string | readonly Prompt[],
  options: EmbedOptions = {},
): Promise<EmbedResult> {
  checkOptions('embed', options, schema);
  const { runner } = engine.ranks;
  const { hiddenSize, norm: normConfig } = runner.config;
  const { pooling = 'mean', dimensions = hiddenSize, client, signal } = options;
  if (dimensions > hiddenSize) {
    throw usageError(`dimensions ${dimensions}: this model's vectors have ${hiddenSize}; ask for so many at most`);
  }
  const given = typeof texts === 'string' ? [texts] : texts;
  if (!Array.isArray(given) || given.length === 0)
    throw usageError('embed: expected a text, or a list of texts or of lists of ids');
  const prompts = given.map((text: Prompt) => promptTokens(text, reader));
  for (const prompt of prompts) runner.checkPrompt(prompt);
  if (signal?.aborted) throw abortedError('embed', signal);
  const norm = await runner.finalNorm();
  const embeddings: Float32Array[] = [];
  const left = new AbortController();
  const over = AbortSignal.any([left.signal, ...(signal ? [signal] : [])]);
  const one = async (index: number, prompt: readonly number[]): Promise<void> => {
    const sum = new Float64Array(hiddenSize);
    // After a lost device rows come again.
    let next = pooling === 'mean' ? 0 : prompt.length - 1;
    const onRow = (position: number, row: Float32Array): void => {
      if (position !== next) return;
      next++;
      addNormed(sum, row, norm, normConfig);
    };
    const promptRows = { what: 'states', all: pooling === 'mean', onRow } as const;
    count?.(1);
    try {
      await engine.compute('embed', { prompt, promptRows, ...defined({ client }) }, over);
    } finally {
      count?.(-1);
    }
    embeddings[index] = ofLengthOne(sum.subarray(0, dimensions));
  };
  const waiting = prompts.entries();
  const lane = async (): Promise<void> => {
    for (const [index, prompt] of waiting) if (!over.aborted) await one(index, prompt);
  };
  try {
    await Promise.all(Array.from({ length: Math.min(engine.options.slots, prompts.length) }, lane));
  } finally {
    left.abort();
  }
  if (signal?.aborted) throw abortedError('embed', signal);
  return { embeddings, prompt_tokens: prompts.reduce((total, { length }) => total + length, 0) };
}

/** sum += norm(row). `weights`: the norm's, then its biases where it has them. */
function addNormed(sum: Float64Array, row: Float32Array, weights: Float32Array, { kind, eps }: NormConfig): void {
  const { length } = row;
  const mean = kind === 'rms' ? 0 : row.reduce((total, value) => total + value, 0) / length;
  const squares = row.reduce((total, value) => total + (value - mean) ** 2, 0);
  const scale = 1 / Math.sqrt(squares / length + eps);
  for (const [i, value] of row.entries()) sum[i]! += (value - mean) * scale * weights[i]! + (weights[length + i] ?? 0);
}

/** Divided by its Euclidean length; all zeros stay so. */
function ofLengthOne(vector: Float64Array): Float32Array {
  let squares = 0;
  for (const value of vector) squares += value * value;
  const length = Math.sqrt(squares) || 1;
  return Float32Array.from(vector, (value) => value / length);
}
