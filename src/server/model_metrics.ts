import type { RankBalance, ServingModel } from '../index.js';
import { histogramText, metricText, type Sample } from './prometheus.js';

/** What a model tells Prometheus. */
export function modelTexts({ metrics, info }: ServingModel): string[] {
  const { unfinished, running, kvBlocks, kvBlocksFree } = metrics;
  const counter = (name: string, help: string, value: number | readonly Sample[]): string =>
    metricText(`splitkv_${name}_total`, 'counter', help, value);
  const gauge = (name: string, help: string, value: number): string =>
    metricText(`splitkv_${name}`, 'gauge', help, value);
  const byOutcome = Object.entries(metrics.requestsTotal).map(([outcome, count]): Sample => [{ outcome }, count]);
  return [
    counter('sequences', 'Answers that ended, by how.', byOutcome),
    gauge('sequences_running', 'Answers being generated.', running),
    gauge('sequences_waiting', 'Answers that wait for a slot or for KV blocks.', unfinished - running),
    gauge('slots', 'Answers that may be generated side by side.', info.slots),
    counter('prompt_tokens', 'Prompt tokens of accepted requests.', metrics.promptTokensTotal),
    counter('cached_prompt_tokens', 'Prompt tokens that the prefix cache held.', metrics.cachedTokensTotal),
    counter('generated_tokens', 'Tokens generated.', metrics.generatedTokensTotal),
    gauge('kv_blocks', 'KV blocks of 64 tokens.', kvBlocks),
    gauge('kv_blocks_used', 'KV blocks that requests hold.', kvBlocks - kvBlocksFree),
    counter('iterations', 'Iterations of the engine.', metrics.iterationsTotal),
    counter('moves', 'Requests whose KV blocks were moved to another rank.', metrics.movesTotal),
    counter(
      'copy_moves',
      'Parts of requests (one head in some layers) that went to another copy of the head.',
      metrics.copyMovesTotal,
    ),
    counter('preemptions', 'Requests sent back to the queue because KV blocks ran out.', metrics.preemptionsTotal),
    counter('recoveries', 'Times that lost ranks were rebuilt.', metrics.recoveriesTotal),
    gauge(
      'recovering',
      '1 while lost ranks are tried to be rebuilt again, after a try failed.',
      Number(metrics.recovering),
    ),
    ...(metrics.balance ? balanceTexts(metrics.balance) : []),
    histogramText('splitkv_queue_seconds', 'That answers waited for a slot and for KV blocks.', metrics.queued),
    histogramText('splitkv_time_to_first_token_seconds', 'From the request to its first token.', metrics.firstToken),
    histogramText('splitkv_time_per_output_token_seconds', 'Between two tokens of an answer.', metrics.nextToken),
  ];
}

/** The measures of docs/adp.md, where each request is on one of several ranks. */
function balanceTexts(measures: RankBalance): string[] {
  const { last, tokensTotal, balance, weighedBalance, secondsTotal, solSecondsTotal, solTps } = measures;
  const byRank = (values: readonly number[]): Sample[] =>
    values.map((value, rank): Sample => [{ rank: String(rank) }, value]);
  return [
    metricText(
      'splitkv_rank_tokens_total',
      'counter',
      'Rows of each rank, one at least in an iteration.',
      byRank(tokensTotal),
    ),
    metricText(
      'splitkv_rank_tokens',
      'gauge',
      'Rows of each rank in the latest iteration.',
      byRank(last?.tokens ?? []),
    ),
    metricText(
      'splitkv_balance_ratio',
      'gauge',
      'Average over most rows of a rank, in the latest iteration.',
      last?.balance ?? 1,
    ),
    metricText('splitkv_mean_balance_ratio', 'gauge', 'Its mean over all iterations.', balance),
    metricText(
      'splitkv_weighed_balance_ratio',
      'gauge',
      'Its mean with iterations weighed by their largest rank.',
      weighedBalance,
    ),
    metricText('splitkv_iteration_seconds_total', 'counter', 'What iterations took.', secondsTotal),
    metricText(
      'splitkv_sol_seconds_total',
      'counter',
      'What they would have taken at perfect balance.',
      solSecondsTotal,
    ),
    metricText('splitkv_sol_tokens_per_second', 'gauge', 'Tokens generated a second at perfect balance.', solTps),
  ];
}
