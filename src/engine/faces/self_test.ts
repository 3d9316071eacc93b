import { formatError, throwIfAborted } from '../../base/errors.js';
import { readText, type Source } from '../../loader/index.js';
import type { Model, SelfTestResult } from '../contracts/api.js';

/** The file of a model's folder that says what the model must answer. */
const SELF_TEST_FILE = 'self_test.json';

/** A prompt, and the tokens that greedy decoding must follow it with, both as ids. */
export interface SelfTestCase {
  readonly prompt: readonly number[];
  readonly tokens: readonly number[];
}

const PROMPT_TOKENS = 24;
const NEW_TOKENS = 6;
/** Of the largest logit: a gap below this may fall either way by rounding, of prompts that are rounded themselves one below that. */
const TIE = { exact: 1e-2, fast: 0.1 };

/** The cases that a model's folder stores; none where it has no such file. @throws SplitkvError `format`, `io` */
export async function readSelfTest(source: Source, signal?: AbortSignal): Promise<readonly SelfTestCase[]> {
  if (source.gguf !== undefined) return [];
  const text = await readText(source, SELF_TEST_FILE, signal);
  if (text === undefined) return [];
  const isIds = (value: unknown): value is number[] =>
    Array.isArray(value) && value.length > 0 && value.every((id) => Number.isInteger(id) && (id as number) >= 0);
  let cases: unknown;
  try {
    ({ cases } = JSON.parse(text) as { cases?: unknown });
  } catch (error) {
    throw formatError(`${SELF_TEST_FILE} of ${source.name} is not JSON`, error);
  }
  const valid = (value: unknown): value is SelfTestCase => {
    const { prompt, tokens } = (value ?? {}) as Partial<Record<keyof SelfTestCase, unknown>>;
    return isIds(prompt) && isIds(tokens);
  };
  if (Array.isArray(cases) && cases.length > 0 && cases.every(valid)) return cases;
  throw formatError(
    `${SELF_TEST_FILE} of ${source.name}: expected {"cases": [{"prompt": [ids], "tokens": [ids]}, ...]} with token ids`,
  );
}

type Tested = Pick<Model, 'generate' | 'logits' | 'info' | 'stats'>;

/**
 * Runs a few tokens and judges them: against stored ids where there are some; and always whether prompt and generated rows, which
 * different kernels compute, agree with each other and are numbers at all.
 */
export async function runSelfTest(
  model: Tested,
  cases: readonly SelfTestCase[],
  signal?: AbortSignal,
): Promise<SelfTestResult> {
  const { vocabSize, contextLength, adapter } = model.info;
  const options = { ignoreEos: true, temperature: 0, ...(signal && { signal }) };
  const failed = (problem: string): SelfTestResult => ({
    passed: false,
    stored: cases.length > 0,
    problem:
      `${adapter.name} computes this model wrongly: ${problem}. Its answers can't be trusted. Update the browser and the GPU ` +
      'driver, or choose another adapter',
  });
  const { precision } = model.stats();
  for (const { prompt, tokens: expected } of cases) {
    if (prompt.length + expected.length > contextLength) continue;
    const { tokens } = await model.generate(prompt, { ...options, maxTokens: expected.length }).result;
    throwIfAborted(signal, 'the self-test');
    if (tokens.join() === expected.join()) continue;
    // Another token may be next by a hair.
    if (precision === 'fast' && (await contradiction(model, prompt, expected, TIE.fast, signal)) === undefined)
      continue;
    return failed(`it answers a stored prompt with the tokens ${tokens.join(' ')} instead of ${expected.join(' ')}`);
  }
  const length = Math.min(PROMPT_TOKENS, contextLength - NEW_TOKENS);
  if (length < 1) return { passed: true, stored: cases.length > 0 };
  // Any tokens do: spread over the vocabulary, always the same ones.
  const prompt = Array.from({ length }, (_, i) => (7 + i * 7919) % vocabSize);
  const { tokens } = await model.generate(prompt, { ...options, maxTokens: NEW_TOKENS }).result;
  throwIfAborted(signal, 'the self-test');
  const problem = await contradiction(model, prompt, tokens, TIE[precision], signal);
  return problem === undefined ? { passed: true, stored: cases.length > 0 } : failed(problem);
}

/** What is wrong with these tokens after the prompt by the logits of prompt rows: one that isn't within `tie` of the largest. */
async function contradiction(
  model: Tested,
  prompt: readonly number[],
  tokens: readonly number[],
  tie: number,
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  const { rows } = await model.logits([...prompt, ...tokens.slice(0, -1)], { all: true, ...(signal && { signal }) });
  for (const [i, token] of tokens.entries()) {
    const row = rows[prompt.length - 1 + i]!;
    if (!row.every(Number.isFinite)) return 'its logits are not numbers';
    const most = row.reduce((largest, logit) => Math.max(largest, logit));
    const scale = row.reduce((largest, logit) => Math.max(largest, Math.abs(logit)), 0);
    if (scale === 0) return 'its logits are all zero';
    if (!(most - (row[token] ?? -Infinity) <= tie * scale)) {
      return `prompts give token ${row.indexOf(most)} where generating gives ${token}`;
    }
  }
  return undefined;
}
