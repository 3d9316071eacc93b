import type { RankBalance, ServingModel } from '../index.js';
import type { Outcome } from './http/exchange.js';
import { histogramText, metricText, type Sample } from './prometheus.js';

/** What the server is busy with. */
interface Load {
  /** Requests under way. */
  readonly live: number;
  /** Bytes of bodies held. */
  readonly bodyBytes: number;
  /** Large requests that wait to be read. */
  readonly unread: number;
}

/** What the server counts, and the whole of what it tells Prometheus. */
export class ServerMetrics {
  readonly #requests = new Map<string, Map<Outcome, number>>();
  /** Mean seconds of completed answers, the latest counting most. */
  #answerSeconds = 1;

  count(route: string, outcome: Outcome): void {
    const outcomes = this.#requests.get(route) ?? new Map<Outcome, number>();
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    this.#requests.set(route, outcomes);
  }

  answered(seconds: number): void {
    this.#answerSeconds += (seconds - this.#answerSeconds) / 10;
  }

  /** Whole seconds after which a place in the queue is likely, 1 to 60. */
  retryAfter(waiting: number, slots: number): number {
    return Math.min(60, Math.max(1, Math.ceil((this.#answerSeconds * waiting) / slots)));
  }

  /** Requests by route and outcome. */
  get requests(): Sample[] {
    return [...this.#requests].flatMap(([route, outcomes]) =>
      [...outcomes].map(([outcome, count]): Sample => [{ route, outcome }, count]),
    );
  }

  text(model: ServingModel | undefined, { live, bodyBytes, unread }: Load): string {
    const memory = process.memoryUsage();
    return [
      metricText('splitkv_requests_total', 'counter', 'HTTP requests that ended, by route and outcome.', this.requests),
      metricText('splitkv_requests_live', 'gauge', 'HTTP requests under way.', live),
      metricText('splitkv_request_body_bytes', 'gauge', 'Bytes of request bodies that are held.', bodyBytes),
      metricText('splitkv_requests_unread', 'gauge', 'Large requests that wait to be parsed and tokenized.', unread),
      ...(model ? modelTexts(model) : []),
      metricText('process_resident_memory_bytes', 'gauge', 'Resident memory of the server.', memory.rss),
      metricText('nodejs_heap_size_used_bytes', 'gauge', 'JavaScript heap in use.', memory.heapUsed),
    ].join('');
  }
}

function modelTexts({ metrics, info }: ServingModel): string[] {
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
    ...(metrics.balance ? balanceTexts(metrics.balance) : []),
    histogramText('splitkv_time_to_first_token_seconds', 'From the request to its first token.', metrics.firstToken),
    histogramText('splitkv_time_per_output_token_seconds', 'Between two tokens of an answer.', metrics.nextToken),
  ];
}

/** The measures of docs/adp.md, where each request is on one of several ranks. */
function balanceTexts({ last, tokensTotal, balance, secondsTotal, solSecondsTotal, solTps }: RankBalance): string[] {
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
    metricText(
      'splitkv_mean_balance_ratio',
      'gauge',
      'The same over all iterations, weighed by their largest rank.',
      balance,
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
