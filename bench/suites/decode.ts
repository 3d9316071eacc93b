/**
 * Room: what is measured, a file each: plain requests in, plain results out, checked before anything is timed. Knows
 * neither Node nor the command line. This one is the simplest.
 */

import { median } from '../../src/base/stats.js';
import type { RunStats } from '../../src/index.js';
import type { Measurement, SuiteHooks, SuiteOutcome } from '../document.js';
import { type Estimate, pairedRatio } from '../statistics.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { decimals, ratio } from '../table.js';
import { type Answers, type AnswersRequest, measureAnswers } from './answers.js';

export interface DecodeResult {
  readonly model: string;
  readonly weights: string;
  readonly kv: string;
  readonly prompt_tokens: number;
  readonly generated_tokens: number;
  /** Medians of the samples. */
  readonly tokens_per_second: number;
  readonly ttft_ms: number;
  readonly dispatches_per_token: number;
  /** Beside the first weights of the list, on the same prompt, run by run: above 1 is faster. */
  readonly speed_ratio: Estimate;
  readonly ttft_ratio: Estimate;
  readonly samples: readonly { readonly tokens_per_second: number; readonly ttft_ms: number }[];
}

export interface DecodeRequest extends AnswersRequest {
  readonly suite: 'decode';
}

/** Generated tokens per second, and the time to the first, by prompt length. */
export async function runDecode(request: DecodeRequest, hooks: SuiteHooks): Promise<SuiteOutcome<DecodeResult>> {
  const { answers, adapters } = await measureAnswers(request, hooks);
  const several = request.loads.length;
  const results = answers.map((answer, index) => summarise(answer, answers[index - (index % several)]!));
  return { adapters, results, measurements: answers.flatMap(measurements) };
}

const speeds = ({ samples }: Answers): number[] => samples.map((stats: RunStats) => stats.tokens_per_second);
const firsts = ({ samples }: Answers): number[] => samples.map((stats: RunStats) => stats.ttft_ms);

function summarise(own: Answers, first: Answers): DecodeResult {
  return {
    model: own.model,
    weights: own.weights,
    kv: own.kv,
    prompt_tokens: own.promptTokens,
    generated_tokens: own.generatedTokens,
    tokens_per_second: median(speeds(own)),
    ttft_ms: median(firsts(own)),
    dispatches_per_token: own.samples[0]!.dispatches_per_token,
    speed_ratio: pairedRatio(speeds(own), speeds(first)),
    ttft_ratio: pairedRatio(firsts(first), firsts(own)),
    samples: own.samples.map(({ tokens_per_second, ttft_ms }) => ({ tokens_per_second, ttft_ms })),
  };
}

function measurements(answer: Answers): Measurement[] {
  const setting = {
    model: answer.model,
    weights: answer.weights,
    kv: answer.kv,
    prompt_tokens: answer.promptTokens,
    generated_tokens: answer.generatedTokens,
  };
  return [
    { metric: 'decode', unit: 'tokens/s', better: 'higher', setting, samples: speeds(answer) },
    { metric: 'time to first token', unit: 'ms', better: 'lower', setting, samples: firsts(answer) },
  ];
}

export function decodeTable(results: readonly DecodeResult[]): string {
  const first = results[0]!.weights;
  const several = results.some(({ weights }) => weights !== first);
  const ratioHeadings = several ? [`speed / ${first}`, `TTFT speed / ${first}`] : [];
  return (
    alignedTable(
      [
        ['model', 'weights', 'prompt', 'tokens/s', 'TTFT ms', 'disp/token', ...ratioHeadings],
        ...results.map((result) => [
          result.model,
          result.weights,
          String(result.prompt_tokens),
          decimals(result.tokens_per_second),
          decimals(result.ttft_ms),
          result.dispatches_per_token.toFixed(0),
          ...(several ? [ratio(result.speed_ratio), ratio(result.ttft_ratio)] : []),
        ]),
      ],
      2,
    ) +
    `\nMedians of ${results[0]!.samples.length} interleaved runs of ${results[0]!.generated_tokens} tokens; greedy tokens were the same in every run.\n`
  );
}
