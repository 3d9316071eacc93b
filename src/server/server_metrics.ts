import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { RankBalance, ServingModel } from '../index.js';
import type { Outcome } from './http/exchange.js';
import { Histogram } from '../engine/serving/histogram.js';
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

/** Bounds of whole requests, in seconds. */
const REQUEST_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500];
/** Between two looks at the event loop. */
const LAG_MS = 10;

/** What the server counts, and the whole of what it tells Prometheus. */
export class ServerMetrics {
  /** By route, outcome and status. */
  readonly #requests = new Map<string, { readonly labels: Sample[0]; count: number }>();
  readonly #seconds = new Map<string, Histogram>();
  readonly #lag = monitorEventLoopDelay({ resolution: LAG_MS });
  /** Mean seconds of completed answers, the latest counting most. */
  #answerSeconds = 1;

  constructor(readonly version: string) {
    this.#lag.enable();
  }

  /**
   * A request that ended.
   * @param status 0 where nothing was sent
   */
  count(route: string, outcome: Outcome, status: number, seconds?: number): void {
    const labels = { route, outcome, code: String(status) };
    const key = Object.values(labels).join(' ');
    const known = this.#requests.get(key) ?? { labels, count: 0 };
    known.count++;
    this.#requests.set(key, known);
    if (seconds === undefined) return;
    const histogram = this.#seconds.get(route) ?? new Histogram(REQUEST_SECONDS);
    histogram.observe(seconds);
    this.#seconds.set(route, histogram);
  }

  /** Nothing is asked any more. */
  close(): void {
    this.#lag.disable();
  }

  answered(seconds: number): void {
    this.#answerSeconds += (seconds - this.#answerSeconds) / 10;
  }

  /** Whole seconds after which a place in the queue is likely, 1 to 60. */
  retryAfter(waiting: number, slots: number): number {
    return Math.min(60, Math.max(1, Math.ceil((this.#answerSeconds * waiting) / slots)));
  }

  text(model: ServingModel | undefined, { live, bodyBytes, unread }: Load): string {
    const memory = process.memoryUsage();
    const requests = [...this.#requests.values()].map(({ labels, count }): Sample => [labels, count]);
    const seconds = [...this.#seconds].map(([route, { counts }]) => [{ route }, counts] as const);
    const ended = 'HTTP requests that ended, by route, outcome and status (0: nothing was sent).';
    return [
      metricText('splitkv_build_info', 'gauge', 'Always 1; the labels say what runs.', [[this.#build(model), 1]]),
      metricText('splitkv_requests_total', 'counter', ended, requests),
      histogramText('splitkv_request_seconds', 'From a request to the end of its answer, by route.', seconds),
      metricText('splitkv_requests_live', 'gauge', 'HTTP requests under way.', live),
      metricText('splitkv_request_body_bytes', 'gauge', 'Bytes of request bodies that are held.', bodyBytes),
      metricText('splitkv_requests_unread', 'gauge', 'Large requests that wait to be parsed and tokenized.', unread),
      ...(model ? modelTexts(model) : []),
      metricText('process_resident_memory_bytes', 'gauge', 'Resident memory of the server.', memory.rss),
      metricText('nodejs_heap_size_used_bytes', 'gauge', 'JavaScript heap in use.', memory.heapUsed),
      ...this.#process(),
    ].join('');
  }

  #build(model: ServingModel | undefined): Sample[0] {
    const { name = '', weights = '', kv = '', plan, adapter } = model?.info ?? {};
    return {
      version: this.version,
      node: process.versions.node,
      model: name,
      weights,
      kv,
      plan: plan?.policy ?? '',
      adapter: adapter?.name ?? '',
    };
  }

  /** Start, processor time, and how long the event loop kept others waiting since it was last asked. */
  #process(): string[] {
    const { user, system } = process.cpuUsage();
    const started = Date.now() / 1000 - process.uptime();
    // What is measured is from one look to the next.
    const lag = (ns: number): number => Math.max(0, ns / 1e9 - LAG_MS / 1000) || 0;
    const gauges = [
      ['mean', lag(this.#lag.mean)],
      ['p50', lag(this.#lag.percentile(50))],
      ['p99', lag(this.#lag.percentile(99))],
      ['max', lag(this.#lag.max)],
    ] as const;
    this.#lag.reset();
    return [
      metricText('process_cpu_seconds_total', 'counter', 'Processor time of the server.', (user + system) / 1e6),
      metricText('process_start_time_seconds', 'gauge', 'When it was started, in seconds since 1970.', started),
      ...gauges.map(([name, seconds]) =>
        metricText(
          `nodejs_eventloop_lag_${name}_seconds`,
          'gauge',
          'How late the event loop was, since this was last asked.',
          seconds,
        ),
      ),
    ];
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
