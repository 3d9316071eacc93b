import type { RankBalance, ServingModel } from '../index.js';
import { counter, gauge, histogramText, type Sample } from './prometheus.js';

/** What a model tells Prometheus. */
export function modelTexts({ metrics, info }: ServingModel): string[] {
  const { unfinished, running, kvBlocks, kvBlocksFree } = metrics;
  const byOutcome = Object.entries(metrics.requestsTotal).map(([outcome, count]): Sample => [{ outcome }, count]);
  return [
    counter('splitkv_sequences_total', 'Answers that ended, by how.', byOutcome),
    gauge('splitkv_sequences_running', 'Answers being generated.', running),
    gauge('splitkv_sequences_waiting', 'Answers that wait for a slot or for KV blocks.', unfinished - running),
    gauge('splitkv_slots', 'Answers that may be generated side by side.', info.slots),
    counter('splitkv_prompt_tokens_total', 'Prompt tokens of accepted requests.', metrics.promptTokensTotal),
    counter(
      'splitkv_cached_prompt_tokens_total',
      'Prompt tokens that the prefix cache held.',
      metrics.cachedTokensTotal,
    ),
    counter('splitkv_generated_tokens_total', 'Tokens generated.', metrics.generatedTokensTotal),
    gauge('splitkv_kv_blocks', 'KV blocks of 64 tokens.', kvBlocks),
    gauge('splitkv_kv_blocks_used', 'KV blocks that requests hold.', kvBlocks - kvBlocksFree),
    counter('splitkv_iterations_total', 'Iterations of the engine.', metrics.iterationsTotal),
    counter('splitkv_moves_total', 'Requests whose KV blocks were moved to another rank.', metrics.movesTotal),
    counter(
      'splitkv_copy_moves_total',
      'Parts of requests (one head in some layers) that went to another copy of the head.',
      metrics.copyMovesTotal,
    ),
    counter(
      'splitkv_preemptions_total',
      'Requests sent back to the queue because KV blocks ran out.',
      metrics.preemptionsTotal,
    ),
    counter('splitkv_recoveries_total', 'Times that lost ranks were rebuilt.', metrics.recoveriesTotal),
    gauge(
      'splitkv_recovering',
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
    counter('splitkv_rank_tokens_total', 'Rows of each rank, one at least in an iteration.', byRank(tokensTotal)),
    gauge('splitkv_rank_tokens', 'Rows of each rank in the latest iteration.', byRank(last?.tokens ?? [])),
    gauge('splitkv_balance_ratio', 'Average over most rows of a rank, in the latest iteration.', last?.balance ?? 1),
    gauge('splitkv_mean_balance_ratio', 'Its mean over all iterations.', balance),
    gauge('splitkv_weighed_balance_ratio', 'Its mean with iterations weighed by their largest rank.', weighedBalance),
    counter('splitkv_iteration_seconds_total', 'What iterations took.', secondsTotal),
    counter('splitkv_sol_seconds_total', 'What they would have taken at perfect balance.', solSecondsTotal),
    gauge('splitkv_sol_tokens_per_second', 'Tokens generated a second at perfect balance.', solTps),
  ];
}
