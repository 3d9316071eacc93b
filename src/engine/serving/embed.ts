import { anySignal, throwIfAborted, unsupportedError, usageError } from '../../base/errors.js';
import { sum } from '../../base/lists.js';
import { checkOptions, defined, oneOf, type OptionsSchema, wholeNumber } from '../../base/options.js';
import type { NormConfig } from '../../model/config/model_config.js';
import type { EmbedOptions, EmbedResult, Pooling, Prompt, RerankOptions, RerankResult } from '../contracts/api.js';
import type { Dense, SentenceFiles } from '../files/sentence_files.js';
import { embedTokens, needTokenizer, orTruncate, type PromptReader, promptTokens } from './prompt_tokens.js';
import type { Engine } from './engine.js';

const schema: OptionsSchema<EmbedOptions> = {
  pooling: oneOf(['mean', 'last', 'cls']),
  prompt: true,
  promptName: true,
  dimensions: wholeNumber(1),
  truncate: true,
  client: true,
  signal: true,
};
const rerankSchema: OptionsSchema<RerankOptions> = {
  topN: wholeNumber(1),
  instruction: true,
  truncate: true,
  client: true,
  signal: true,
};

export interface EmbedHost {
  readonly engine: Engine;
  readonly reader: PromptReader;
  readonly files: SentenceFiles;
  /** Where a call doesn't say. */
  readonly pooling?: Pooling | undefined;
  /** A text's computing began (+1) or ended (-1). */
  readonly count?: (change: 1 | -1) => void;
}

/** A reader with the prompts that a model's files have. */
export const withPrompts = (reader: PromptReader, { prompts = {}, defaultPrompt }: SentenceFiles): PromptReader => ({
  ...reader,
  prompts: { named: prompts, usual: defaultPrompt },
});

/**
 * Vectors of texts: the final hidden states of their tokens, pooled, through the dense layers behind, and of length 1. Sums are float64 in
 * the order of tokens, of rows that are the same bits on every plan.
 * @param texts computed side by side, as many as the ranks have slots
 * @throws SplitkvError `usage`, `context_full`, `aborted`, and what ended the engine
 */
export async function embed(
  host: EmbedHost,
  texts: string | readonly Prompt[],
  options: EmbedOptions = {},
): Promise<EmbedResult> {
  checkOptions('embed', options, schema);
  const { dense = [] } = host.files;
  const width = dense.at(-1)?.rows ?? host.engine.ranks.runner.config.hiddenSize;
  const { pooling = host.pooling ?? host.files.pooling ?? 'mean', dimensions = width } = options;
  if (dimensions > width)
    throw usageError(`dimensions ${dimensions}: this model's vectors have ${width}; ask for so many at most`);
  const given = typeof texts === 'string' ? [texts] : texts;
  if (!Array.isArray(given) || given.length === 0)
    throw usageError('embed: expected a text, or a list of texts or of lists of ids');
  const prompts = given.map((text: Prompt) => embedTokens(text, host.reader, options));
  const pooled = await poolAll('embed', host, prompts, pooling, options);
  return {
    embeddings: pooled.map((vector) => ofLengthOne(throughAll(vector, dense).subarray(0, dimensions))),
    prompt_tokens: sum(prompts.map(({ length }) => length)),
  };
}

/** What a model that judges is asked, as Qwen3-Reranker was trained. */
const JUDGE = [
  '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. ' +
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: ',
  '\n<Query>: ',
  '\n<Document>: ',
  '<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n',
] as const;
const INSTRUCTION = 'Given a web search query, retrieve relevant passages that answer the query';

/**
 * Scores of documents: those of a classifier of (query, document), or how likely the next token is "yes", and not "no".
 * @throws as `embed`; SplitkvError `unsupported` where the model gives none
 */
export async function rerank(
  host: EmbedHost,
  query: string,
  documents: readonly string[],
  options: RerankOptions = {},
): Promise<RerankResult> {
  checkOptions('rerank', options, rerankSchema);
  const { reader, files, engine } = host;
  const isText = (text: unknown): boolean => typeof text === 'string' && text !== '';
  if (!isText(query) || !Array.isArray(documents) || documents.length === 0 || !documents.every(isText))
    throw usageError('rerank: expected a query and a list of documents, all of them texts, none of them empty');
  const { config } = engine.ranks.runner;
  const { score, judges = false } = files;
  if (!score && !judges)
    throw unsupportedError(
      `rerank: ${config.architecture} of these files gives no score; use a reranker (a classifier of one label, or Qwen3-Reranker), or embed`,
    );
  const tokenizer = needTokenizer(reader, 'rerank');
  const { topN = documents.length, instruction = INSTRUCTION, truncate = false } = options;
  const most = truncate ? reader.contextLength : Infinity;
  let scores: number[];
  let prompts: (readonly number[])[];
  if (score) {
    const types = config.inputs?.types ?? 1;
    prompts = documents.map((document) => tokenizer.encodePair(query, document, types, most));
    const pooled = await poolAll('rerank', host, prompts, score.pooling, options);
    scores = pooled.map((vector) => throughAll(vector, score.dense)[0]!);
    if (score.sigmoid) scores = scores.map((logit) => 1 / (1 + Math.exp(-logit)));
  } else {
    const [yes, no] = ['yes', 'no'].map((word) => tokenizer.idOf(word));
    if (yes === undefined || no === undefined) throw unsupportedError('rerank: the tokenizer has no "yes" or "no"');
    const [system, asked, given, end] = JUDGE;
    const ends = tokenizer.encode(end, { addSpecial: false });
    prompts = documents.map((document) => {
      const text = `${system}${instruction}${asked}${query}${given}${document}`;
      if (!truncate) return orTruncate(() => promptTokens(text + end, reader, { addSpecial: false }));
      return [...tokenizer.encodeWithin(text, most - ends.length, false), ...ends];
    });
    scores = await each('rerank', host, prompts, options, async (prompt, compute) => {
      let chance = 0;
      const onRow = (_: number, logits: Float32Array): void => {
        chance = 1 / (1 + Math.exp(logits[no]! - logits[yes]!));
      };
      await compute({ prompt, promptRows: { all: false, onRow } });
      return chance;
    });
  }
  const results = scores.map((relevance_score, index) => ({ index, relevance_score }));
  results.sort((a, b) => b.relevance_score - a.relevance_score || a.index - b.index);
  return { results: results.slice(0, topN), prompt_tokens: sum(prompts.map(({ length }) => length)) };
}

type Compute = (request: Parameters<Engine['compute']>[1]) => Promise<void>;

/** Does what is to be done with each prompt, as many side by side as the ranks have slots. */
async function each<T>(
  what: string,
  { engine, count }: EmbedHost,
  prompts: readonly (readonly number[])[],
  { client, signal }: Pick<EmbedOptions, 'client' | 'signal'>,
  body: (prompt: readonly number[], compute: Compute) => Promise<T>,
): Promise<T[]> {
  orTruncate(() => prompts.forEach((prompt) => engine.ranks.runner.checkPrompt(prompt)));
  throwIfAborted(signal, what);
  const made: T[] = [];
  const left = new AbortController();
  const over = anySignal(left.signal, signal);
  const compute: Compute = async (request) => {
    count?.(1);
    try {
      await engine.compute(what, { ...request, ...defined({ client }) }, over);
    } finally {
      count?.(-1);
    }
  };
  const waiting = prompts.entries();
  const lane = async (): Promise<void> => {
    for (const [index, prompt] of waiting) if (!over.aborted) made[index] = await body(prompt, compute);
  };
  try {
    await Promise.all(Array.from({ length: Math.min(engine.options.slots, prompts.length) }, lane));
  } finally {
    left.abort();
  }
  throwIfAborted(signal, what);
  return made;
}

/** Each prompt's final hidden states behind the last norm, pooled: sums of float64, not divided. */
async function poolAll(
  what: string,
  host: EmbedHost,
  prompts: readonly (readonly number[])[],
  pooling: Pooling,
  options: Pick<EmbedOptions, 'client' | 'signal'>,
): Promise<Float64Array[]> {
  const { runner } = host.engine.ranks;
  const { hiddenSize, norm: normConfig } = runner.config;
  const norm = await runner.finalNorm();
  return each(what, host, prompts, options, async (prompt, compute) => {
    const sum = new Float64Array(hiddenSize);
    // After a lost device rows come again.
    let next = pooling === 'last' ? prompt.length - 1 : 0;
    const end = pooling === 'cls' ? 1 : prompt.length;
    const onRow = (position: number, row: Float32Array): void => {
      if (position !== next || position >= end) return;
      next++;
      addNormed(sum, row, norm, normConfig);
    };
    await compute({ prompt, promptRows: { what: 'states', all: pooling !== 'last', onRow } });
    return pooling === 'mean' ? sum.map((value) => value / prompt.length) : sum;
  });
}

/** sum += norm(row), where there is one. `weights`: the norm's, then its biases where it has them. */
function addNormed(
  sum: Float64Array,
  row: Float32Array,
  weights: Float32Array | undefined,
  { kind, eps }: Pick<NormConfig, 'kind' | 'eps'>,
): void {
  const { length } = row;
  const mean = kind === 'rms' ? 0 : row.reduce((total, value) => total + value, 0) / length;
  const squares = row.reduce((total, value) => total + (value - mean) ** 2, 0);
  const scale = 1 / Math.sqrt(squares / length + eps);
  for (const [i, value] of row.entries())
    sum[i]! += weights ? (value - mean) * scale * weights[i]! + (weights[length + i] ?? 0) : value;
}

const activations: Readonly<Record<Dense['activation'], (x: number) => number>> = {
  none: (x) => x,
  tanh: Math.tanh,
  gelu: (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
};

/** Behind dense layers, in float64. */
const throughAll = (vector: Float64Array, dense: readonly Dense[]): Float64Array => dense.reduce(through, vector);

function through(vector: Float64Array, { rows, columns, weight, bias, activation, norm }: Dense): Float64Array {
  if (vector.length !== columns)
    throw unsupportedError(`a dense layer of ${columns} inputs behind vectors of ${vector.length} numbers`);
  const out = Float64Array.from({ length: rows }, (_, row) => {
    const own = weight.subarray(row * columns, (row + 1) * columns);
    const sum = own.reduce((total, value, i) => total + value * vector[i]!, bias?.[row] ?? 0);
    return activations[activation](sum);
  });
  if (!norm) return out;
  const normed = new Float64Array(rows);
  addNormed(normed, Float32Array.from(out), norm, { kind: 'layer', eps: 1e-5 });
  return normed;
}

/** By a series of positive terms. */
function erf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) sum += term *= (2 * x * x) / (2 * n + 1);
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

/** Divided by its Euclidean length; all zeros stay so. */
function ofLengthOne(vector: Float64Array): Float32Array {
  const length = Math.sqrt(vector.reduce((squares, value) => squares + value * value, 0)) || 1;
  return Float32Array.from(vector, (value) => value / length);
}
