import { SplitkvError, throwIfAborted } from '../../src/base/errors.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { sameList, sum } from '../../src/base/lists.js';
import { median } from '../../src/base/stats.js';
import type { LoadedModel } from '../../src/engine/faces/model.js';
import { load, type RunStats } from '../../src/index.js';
import { benchAdapter, type SuiteHooks, type SuiteOutcome } from '../document.js';
import { type Contender, interleave } from '../interleave.js';
import { randomPrompt } from '../prompt.js';
import { type Estimate, pairedRatio } from '../statistics.js';
import { decimals, ratio } from '../table.js';
import type { PlainLoadOptions } from './answers.js';

export interface SpeculateRequest {
  readonly suite: 'speculate';
  readonly model: string;
  readonly load: PlainLoadOptions;
  readonly maxTokens: number;
  readonly runs: number;
}

export interface SpeculateResult {
  readonly model: string;
  readonly weights: string;
  /** Who proposes. */
  readonly drafts: 'ngram' | 'draft';
  readonly text: string;
  /** Answers that run at once. */
  readonly requests: number;
  readonly prompt_tokens: number;
  readonly generated_tokens: number;
  /** Medians, without drafts and with: of one answer, where several run at once the first one's. */
  readonly plain_tokens_per_second: number;
  readonly tokens_per_second: number;
  /** Run by run: above 1 is faster. */
  readonly speed_ratio: Estimate;
  /** Of the drafts of all runs, the part that was right; drafts, and steps that verified them, of a run. */
  readonly acceptance: number;
  readonly drafted: number;
  readonly steps: number;
  /** What a step of 2, 4, 8 and 16 rows takes, in steps of one. */
  readonly step_costs: readonly number[];
}

const SIZES = [2, 4, 8, 16];
/** Of several answers at once. */
const TOGETHER = 3;

export const CODE = ['red', 'green', 'blue', 'small', 'large', 'first', 'last', 'next']
  .map((name) => `function get_${name}(list) {\n  if (list.length === 0) return null;\n  return list.${name};\n}\n`)
  .join('\n');
export const RECORDS = ['Tom', 'Lily', 'Ben', 'Mia', 'Sam', 'Anna', 'Max', 'Sue']
  .map((name, at) => `{"id": ${at}, "name": "${name}", "likes": ["cake", "toys"], "age": ${at + 3}}`)
  .join(',\n');
export const STORY =
  'Once upon a time there was a little girl who had a red ball. One day she went to the park with her mother, and there she met a dog.';

/** What the drafts of a load are worth, and of a draft model where one is given. */
export async function runSpeculate(
  { load: { draft, ...load }, ...request }: SpeculateRequest,
  hooks: SuiteHooks,
): Promise<SuiteOutcome<SpeculateResult>> {
  const outcome = await runDrafts({ ...request, load }, 'ngram', hooks);
  if (draft === undefined) return outcome;
  const second = await runDrafts({ ...request, load: { ...load, draft } }, 'draft', hooks);
  return {
    adapters: outcome.adapters,
    results: [...outcome.results, ...second.results],
    measurements: [...outcome.measurements!, ...second.measurements!],
  };
}

/** Greedy answers with drafts and without, in turns, on texts that repeat themselves and texts that don't: the same tokens, or no numbers. */
async function runDrafts(
  { model: where, load: options, maxTokens, runs }: SpeculateRequest,
  drafts: SpeculateResult['drafts'],
  hooks: SuiteHooks,
): Promise<SuiteOutcome<SpeculateResult>> {
  const { signal, onProgress, onWarning } = hooks;
  onProgress(`loading ${where}`);
  const model = await load(where, { ...options, requests: TOGETHER, speculate: drafts, signal, onWarning });
  try {
    const { info } = model;
    const room = info.contextLength - maxTokens;
    const cut = (tokens: readonly number[]): readonly number[] => tokens.slice(-room);
    const story = cut(model.tokenize(STORY));
    const code = cut(model.tokenize(CODE));
    const json = cut(model.tokenize(`[${RECORDS},\n`));
    const random = cut(randomPrompt(256, info.vocabSize));
    const together = (prompt: readonly number[]) => Array.from({ length: TOGETHER }, (_, at) => prompt.slice(7 * at));
    const texts: Record<string, readonly (readonly number[])[]> = {
      story: [story],
      code: [code],
      JSON: [json],
      random: [random],
      'JSON, at once': together(json),
      'random, at once': together(random),
      'random beside JSON': [random, ...together(json).slice(1)],
    };
    const results: Omit<SpeculateResult, 'step_costs'>[] = [];
    for (const [text, prompts] of Object.entries(texts)) {
      // A draft model has one text at a time.
      if (drafts === 'draft' && prompts.length > 1) continue;
      const [prompt] = prompts as [readonly number[]];
      let expected: readonly number[] | undefined;
      const answering = (speculate: 'off' | SpeculateResult['drafts']): Contender<RunStats> => ({
        name: `${text}, ${speculate}`,
        async run() {
          const how = { maxTokens, speculate, ignoreEos: true, cachePrompt: false, signal };
          const answers = await Promise.all(prompts.map((own) => model.generate(own, how).result));
          throwIfAborted(signal, 'bench');
          const tokens = answers.flatMap((answer) => answer.tokens);
          expected ??= tokens;
          if (!sameList(expected, tokens))
            throw new SplitkvError('internal', `${text}: answers with drafts and without differ, so no speed is told`);
          return answers[0]!.stats;
        },
      });
      const [plain = [], drafted = []] = await interleave([answering('off'), answering(drafts)], runs, hooks);
      const speeds = (samples: readonly RunStats[]): number[] => samples.map((stats) => stats.tokens_per_second);
      const counted = (of: 'drafted' | 'accepted' | 'steps'): number =>
        sum(drafted.map(({ speculation }) => speculation?.[of] ?? 0));
      results.push({
        model: info.name,
        weights: info.weights,
        drafts,
        text,
        requests: prompts.length,
        prompt_tokens: prompt.length,
        generated_tokens: maxTokens,
        plain_tokens_per_second: median(speeds(plain)),
        tokens_per_second: median(speeds(drafted)),
        speed_ratio: pairedRatio(speeds(drafted), speeds(plain)),
        acceptance: counted('accepted') / Math.max(1, counted('drafted')),
        drafted: counted('drafted') / runs,
        steps: counted('steps') / runs,
      });
    }
    const step_costs = await stepCosts(model as LoadedModel, json, maxTokens, signal);
    return {
      adapters: [benchAdapter(info)],
      results: results.map((result) => ({ ...result, step_costs })),
      measurements: results.map(({ text, speed_ratio: { value } }) => ({
        metric: 'speed with drafts',
        unit: 'times',
        better: 'higher',
        setting: { model: info.name, weights: info.weights, drafts, text },
        samples: [value],
      })),
    };
  } finally {
    await model.dispose();
  }
}

/** As many drafts as fill a step of each size, right or wrong. */
async function stepCosts(
  model: LoadedModel,
  prompt: readonly number[],
  maxTokens: number,
  signal: AbortSignal,
): Promise<number[]> {
  const { speculation } = model.how;
  if (!speculation) throw new SplitkvError('internal', 'the model was loaded without drafts');
  for (const size of SIZES) {
    speculation.tries = size - 1;
    await model.generate(prompt, { maxTokens, ignoreEos: true, signal }).result;
  }
  speculation.tries = undefined;
  return SIZES.map((size) => speculation.cost(size));
}

export function speculateTable(results: readonly SpeculateResult[]): string {
  const costs = results[0]!.step_costs.map((cost, at) => `${SIZES[at]} rows ${cost.toFixed(2)}`).join(', ');
  return (
    alignedTable(
      [
        ['model', 'by', 'text', 'prompt', 'tokens/s', 'with drafts', 'ratio', 'accepted', 'drafts', 'steps'],
        ...results.map((result) => [
          result.model,
          result.drafts,
          result.text,
          String(result.prompt_tokens),
          decimals(result.plain_tokens_per_second),
          decimals(result.tokens_per_second),
          ratio(result.speed_ratio),
          `${(100 * result.acceptance).toFixed(0)}%`,
          result.drafted.toFixed(0),
          result.steps.toFixed(0),
        ]),
      ],
      3,
    ) +
    `\nInterleaved runs of ${results[0]!.generated_tokens} tokens, the same with drafts and without. Steps, in steps of one row: ${costs}.\n`
  );
}
