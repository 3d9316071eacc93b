import { median } from '../../src/base/stats.js';
import type { SuiteHooks, SuiteOutcome } from '../document.js';
import { type Estimate, pairedRatio } from '../statistics.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { decimals, ratio } from '../table.js';
import { type Answers, type AnswersRequest, measureAnswers } from './answers.js';

export interface PrefillResult {
  readonly model: string;
  readonly weights: string;
  readonly kv: string;
  readonly precision: 'exact' | 'fast';
  /** Of the logits, against the first precision with the same weights: the difference's length over theirs. */
  readonly error: number;
  readonly prompt_tokens: number;
  /** Medians: of the prompt's tokens over the time to the first generated one, and of that time. */
  readonly tokens_per_second: number;
  readonly ttft_ms: number;
  /** Beside the first weights and precision of the list, on the same prompt, run by run: above 1 is faster. */
  readonly speed_ratio: Estimate;
  /** Milliseconds to the first token. */
  readonly samples: readonly number[];
}

export interface PrefillRequest extends Omit<AnswersRequest, 'maxTokens'> {
  readonly suite: 'prefill';
}

/** Prompt tokens per second by prompt length. */
export async function runPrefill(request: PrefillRequest, hooks: SuiteHooks): Promise<SuiteOutcome<PrefillResult>> {
  const { answers, adapters } = await measureAnswers({ ...request, maxTokens: 1 }, hooks);
  const several = request.loads.length;
  return {
    adapters,
    results: answers.map((answer, index) => summarise(answer, answers[index - (index % several)]!)),
    measurements: answers.map((answer) => ({
      metric: 'prefill',
      unit: 'tokens/s',
      better: 'higher',
      setting: {
        model: answer.model,
        weights: answer.weights,
        kv: answer.kv,
        ...(answer.precision === 'fast' && { precision: answer.precision }),
        prompt_tokens: answer.promptTokens,
      },
      samples: firsts(answer).map((ms) => (1000 * answer.promptTokens) / ms),
    })),
  };
}

const firsts = ({ samples }: Answers): number[] => samples.map((stats) => stats.ttft_ms);

function summarise(own: Answers, first: Answers): PrefillResult {
  return {
    model: own.model,
    weights: own.weights,
    kv: own.kv,
    precision: own.precision,
    error: own.error,
    prompt_tokens: own.promptTokens,
    tokens_per_second: (1000 * own.promptTokens) / median(firsts(own)),
    ttft_ms: median(firsts(own)),
    speed_ratio: pairedRatio(firsts(first), firsts(own)),
    samples: firsts(own),
  };
}

export function prefillTable(results: readonly PrefillResult[]): string {
  const nameOf = ({ weights, precision }: PrefillResult): string =>
    precision === 'fast' ? `${weights}, fast` : weights;
  const first = nameOf(results[0]!);
  const several = results.some((result) => nameOf(result) !== first);
  const rounded = results.some(({ error }) => error > 0);
  return (
    alignedTable(
      [
        [
          'model',
          'weights',
          'prompt',
          'tokens/s',
          'TTFT ms',
          ...(rounded ? ['error'] : []),
          ...(several ? [`speed / ${first}`] : []),
        ],
        ...results.map((result) => [
          result.model,
          nameOf(result),
          String(result.prompt_tokens),
          decimals(result.tokens_per_second),
          decimals(result.ttft_ms),
          ...(rounded ? [result.error.toExponential(1)] : []),
          ...(several ? [ratio(result.speed_ratio)] : []),
        ]),
      ],
      2,
    ) + `\nMedians of ${results[0]!.samples.length} interleaved runs; the first token was the same in every run.\n`
  );
}
