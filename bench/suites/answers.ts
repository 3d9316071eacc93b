import { SplitkvError, throwIfAborted, usageError } from '../../src/base/errors.js';
import { type GenerateResult, load, type LoadOptions, type Model, type RunStats } from '../../src/index.js';
import { benchAdapter, type BenchAdapter, type SuiteHooks } from '../document.js';
import { interleave } from '../interleave.js';
import { randomPrompt } from '../prompt.js';

/** What of a load can be told to another process. */
export type PlainLoadOptions = Omit<LoadOptions, 'onProgress' | 'onWarning' | 'signal' | 'fetch'>;

export interface AnswersRequest {
  /** A path (Node) or a URL. */
  readonly model: string;
  /** The model's loads that are compared, each with other weights or another precision. */
  readonly loads: readonly PlainLoadOptions[];
  /** Undefined: 128, 1024, and as many as leave room in the context; on a software adapter 32 and 256. */
  readonly promptTokens?: readonly number[];
  readonly maxTokens: number;
  readonly runs: number;
}

/** One load at one prompt length, with all its samples. */
export interface Answers {
  readonly model: string;
  readonly weights: string;
  readonly kv: string;
  readonly precision: 'exact' | 'fast';
  /** Of the logits after the prompt, against the first load with the same weights: the difference's length over theirs. */
  readonly error: number;
  readonly promptTokens: number;
  readonly generatedTokens: number;
  readonly samples: readonly RunStats[];
}

/**
 * Greedy answers to random prompts, by length: every load's answers to a prompt are the same in every run, or there are no numbers. At
 * each length the loads take turns. The results are in the order length, load.
 */
export async function measureAnswers(
  { model: where, loads, promptTokens, maxTokens, runs }: AnswersRequest,
  hooks: SuiteHooks,
): Promise<{ readonly answers: readonly Answers[]; readonly adapters: readonly BenchAdapter[] }> {
  const { signal, onProgress, onWarning } = hooks;
  const models: Model[] = [];
  try {
    for (const options of loads) {
      onProgress(`loading ${where}${options.weights === undefined ? '' : ` as ${options.weights}`}`);
      models.push(await load(where, { ...options, signal, onWarning }));
    }
    const { contextLength, vocabSize, adapter } = models[0]!.info;
    const answers: Answers[] = [];
    for (const length of promptLengths(promptTokens, contextLength, maxTokens, adapter.software)) {
      const prompt = randomPrompt(length, vocabSize);
      const errors = await logitErrors(models, prompt, signal);
      const contenders = models.map((model) => answering(model, prompt, maxTokens, signal));
      // The answer that all others must equal; interleave's own first run is thrown away too.
      for (const contender of contenders) await contender.run();
      const samples = await interleave(contenders, runs, hooks);
      for (const [index, { info }] of models.entries()) {
        answers.push({
          model: info.name,
          weights: info.weights,
          kv: info.kv,
          precision: models[index]!.stats().precision,
          error: errors[index]!,
          promptTokens: length,
          generatedTokens: maxTokens,
          samples: samples[index]!,
        });
      }
    }
    return { answers, adapters: models.map(({ info }) => benchAdapter(info)) };
  } finally {
    for (const model of models) await model.dispose();
  }
}

/** Beyond it nothing is timed: rounding to 8 bits is some percent off after many layers. */
const MOST_ERROR = 0.2;

/** @throws SplitkvError `internal` where loads of the same weights disagree */
async function logitErrors(
  models: readonly Model[],
  prompt: readonly number[],
  signal: AbortSignal,
): Promise<number[]> {
  const first = new Map<string, Float32Array>();
  const errors: number[] = [];
  for (const model of models) {
    const { weights } = model.info;
    const shares = models.some((other) => other !== model && other.info.weights === weights);
    if (!shares) {
      errors.push(0);
      continue;
    }
    const logits = (await model.logits(prompt, { signal })).rows[0]!;
    const expected = first.get(weights) ?? logits;
    first.set(weights, expected);
    let [difference, size] = [0, 0];
    for (const [i, value] of expected.entries()) {
      difference += (logits[i]! - value) ** 2;
      size += value ** 2;
    }
    const error = Math.sqrt(difference / size);
    if (!(error < MOST_ERROR)) {
      throw new SplitkvError(
        'internal',
        `${weights}, precision ${model.stats().precision}: logits are ${error} off after ${prompt.length} tokens, so no speed is told; please report it with the adapter`,
      );
    }
    errors.push(error);
  }
  return errors;
}

function answering(model: Model, prompt: readonly number[], maxTokens: number, signal: AbortSignal) {
  let expected: readonly number[] | undefined;
  return {
    name: `${model.info.weights}, ${model.stats().precision}, prompt of ${prompt.length} tokens`,
    async run(): Promise<RunStats> {
      // A step a token: what repeats itself isn't to be faster.
      const how = { maxTokens, ignoreEos: true, cachePrompt: false, speculate: 'off', signal } as const;
      const result = await model.generate(prompt, how).result;
      throwIfAborted(signal, 'bench');
      expected ??= result.tokens;
      compare(`${this.name}`, result, expected);
      return result.stats;
    },
  };
}

function compare(name: string, { tokens }: GenerateResult, expected: readonly number[]): void {
  const at = expected.findIndex((id, index) => tokens[index] !== id);
  if (at < 0 && tokens.length === expected.length) return;
  throw new SplitkvError(
    'internal',
    `${name}: two greedy runs differ at token ${at < 0 ? expected.length : at}, so no speed is told; please report it with the adapter`,
  );
}

function promptLengths(
  given: readonly number[] | undefined,
  context: number,
  maxTokens: number,
  software: boolean,
): readonly number[] {
  const longest = context - maxTokens;
  if (longest < 1) {
    throw usageError(`--max-tokens ${maxTokens}: a context of ${context} leaves no room for a prompt; ask for fewer`);
  }
  const tooLong = given?.find((length) => length > longest);
  if (tooLong !== undefined) {
    throw usageError(
      `--prompt-tokens ${tooLong}: with ${maxTokens} tokens after it, a context of ${context} holds at most ${longest}`,
    );
  }
  if (given) return given;
  const usual = software ? [32, 256] : [128, 1024, longest];
  return [...new Set(usual.map((length) => Math.min(length, longest)))];
}
