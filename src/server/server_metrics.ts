import { valueIn } from '../base/lists.js';
import { VERSION } from '../base/version.js';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { HistogramCounts, RankBalance, ServingInfo, ServingModel } from '../index.js';
import type { Outcome } from './http/exchange.js';
import { Histogram } from '../engine/serving/histogram.js';

type Labels = Readonly<Record<string, string>>;
export type Sample = readonly [labels: Labels, value: number | HistogramCounts];
/** One for Prometheus: a counter where its name ends in _total, otherwise a gauge where `type` says nothing else. */
export type Metric = readonly [name: string, help: string, samples: Sample[1] | readonly Sample[], type?: 'histogram'];

/** What a server's service adds to its metrics. */
export interface OwnMetrics {
  /** Large requests that wait to be read. */
  readonly unread: number;
  readonly info?: ServingInfo;
  readonly metrics?: readonly Metric[];
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

  constructor() {
    this.#lag.enable();
  }

  /**
   * A request that ended.
   * @param status 0 where nothing was sent
   */
  count(route: string, outcome: Outcome, status: number, seconds?: number): void {
    const labels = { route, outcome, code: String(status) };
    const key = Object.values(labels).join(' ');
    valueIn(this.#requests, key, () => ({ labels, count: 0 })).count++;
    if (seconds !== undefined) valueIn(this.#seconds, route, () => new Histogram(REQUEST_SECONDS)).observe(seconds);
  }

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

  /** In Prometheus's text format, version 0.0.4. */
  text(live: number, bodyBytes: number, { unread, info, metrics = [] }: OwnMetrics): string {
    const memory = process.memoryUsage();
    const requests = [...this.#requests.values()].map(({ labels, count }): Sample => [labels, count]);
    const seconds = [...this.#seconds].map(([route, { counts }]): Sample => [{ route }, counts]);
    const ended = 'HTTP requests that ended, by route, outcome and status (0: nothing was sent).';
    const all: readonly Metric[] = [
      ['splitkv_build_info', 'Always 1; the labels say what runs.', [[this.#build(info), 1]]],
      ['splitkv_requests_total', ended, requests],
      ['splitkv_request_seconds', 'From a request to the end of its answer, by route.', seconds, 'histogram'],
      ['splitkv_requests_live', 'HTTP requests under way.', live],
      ['splitkv_request_body_bytes', 'Bytes of request bodies that are held.', bodyBytes],
      ['splitkv_requests_unread', 'Large requests that wait to be parsed and tokenized.', unread],
      ...metrics,
      ['process_resident_memory_bytes', 'Resident memory of the server.', memory.rss],
      ['nodejs_heap_size_used_bytes', 'JavaScript heap in use.', memory.heapUsed],
      ...this.#process(),
    ];
    return all.map(textOf).join('');
  }

  #build(info: ServingInfo | undefined): Labels {
    const { name = '', weights = '', kv = '', plan, adapter } = info ?? {};
    return {
      version: VERSION,
      node: process.versions.node,
      model: name,
      weights,
      kv,
      plan: plan?.policy ?? '',
      adapter: adapter?.name ?? '',
    };
  }

  /** Start, processor time, and how long the event loop kept others waiting since it was last asked. */
  #process(): Metric[] {
    const { user, system } = process.cpuUsage();
    const started = Date.now() / 1000 - process.uptime();
    // What is measured is from one look to the next.
    const lag = (name: string, ns: number): Metric => [
      `nodejs_eventloop_lag_${name}_seconds`,
      'How late the event loop was, since this was last asked.',
      Math.max(0, ns / 1e9 - LAG_MS / 1000) || 0,
    ];
    const { mean, max } = this.#lag;
    const [p50, p99] = [this.#lag.percentile(50), this.#lag.percentile(99)];
    this.#lag.reset();
    return [
      ['process_cpu_seconds_total', 'Processor time of the server.', (user + system) / 1e6],
      ['process_start_time_seconds', 'When it was started, in seconds since 1970.', started],
      lag('mean', mean),
      lag('p50', p50),
      lag('p99', p99),
      lag('max', max),
    ];
  }
}

function textOf([name, help, samples, given]: Metric): string {
  const type = given ?? (name.endsWith('_total') ? 'counter' : 'gauge');
  const list: readonly Sample[] = Array.isArray(samples) ? samples : [[{}, samples as Sample[1]]];
  const lines = list.map(([labels, value]) => {
    const own = labelText(labels);
    if (typeof value === 'number') return `${name}${own} ${value}\n`;
    const { bounds, counts, count, sum } = value;
    const bucket = (le: string, upTo: number): string => `${name}_bucket${labelText({ ...labels, le })} ${upTo}\n`;
    const buckets = bounds.map((bound, index) => bucket(String(bound), counts[index] ?? 0)).join('');
    return `${buckets}${bucket('+Inf', count)}${name}_sum${own} ${sum}\n${name}_count${own} ${count}\n`;
  });
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`;
}

function labelText(labels: Labels): string {
  const pairs = Object.entries(labels).map(
    ([key, value]) => `${key}="${value.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`,
  );
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

export function modelMetrics({ metrics, info }: ServingModel): Metric[] {
  const { unfinished, running, kvBlocks, kvBlocksFree } = metrics;
  const byOutcome = Object.entries(metrics.requestsTotal).map(([outcome, count]): Sample => [{ outcome }, count]);
  return [
    ['splitkv_sequences_total', 'Answers that ended, by how.', byOutcome],
    ['splitkv_sequences_running', 'Answers being generated.', running],
    ['splitkv_sequences_waiting', 'Answers that wait for a slot or for KV blocks.', unfinished - running],
    ['splitkv_slots', 'Answers that may be generated side by side.', info.slots],
    ['splitkv_prompt_tokens_total', 'Prompt tokens of accepted requests.', metrics.promptTokensTotal],
    ['splitkv_cached_prompt_tokens_total', 'Prompt tokens that the prefix cache held.', metrics.cachedTokensTotal],
    ['splitkv_generated_tokens_total', 'Tokens generated.', metrics.generatedTokensTotal],
    ['splitkv_kv_blocks', 'KV blocks of 64 tokens.', kvBlocks],
    ['splitkv_kv_blocks_used', 'KV blocks that requests hold.', kvBlocks - kvBlocksFree],
    ['splitkv_iterations_total', 'Iterations of the engine.', metrics.iterationsTotal],
    ['splitkv_moves_total', 'Requests whose KV blocks were moved to another rank.', metrics.movesTotal],
    [
      'splitkv_copy_moves_total',
      'Parts of requests (one head in some layers) that went to another copy of the head.',
      metrics.copyMovesTotal,
    ],
    [
      'splitkv_preemptions_total',
      'Requests sent back to the queue because KV blocks ran out.',
      metrics.preemptionsTotal,
    ],
    ['splitkv_recoveries_total', 'Times that lost ranks were rebuilt.', metrics.recoveriesTotal],
    [
      'splitkv_recovering',
      '1 while lost ranks are tried to be rebuilt again, after a try failed.',
      Number(metrics.recovering),
    ],
    ...(metrics.speculation
      ? ([
          ['splitkv_drafted_tokens_total', 'Tokens that were proposed and verified.', metrics.speculation.drafted],
          ['splitkv_accepted_tokens_total', 'Of these, those that were right.', metrics.speculation.accepted],
          ['splitkv_verify_steps_total', 'Steps that verified proposals.', metrics.speculation.steps],
        ] as const)
      : []),
    ...(metrics.balance ? balanceMetrics(metrics.balance) : []),
    ['splitkv_queue_seconds', 'That answers waited for a slot and for KV blocks.', metrics.queued, 'histogram'],
    ['splitkv_time_to_first_token_seconds', 'From the request to its first token.', metrics.firstToken, 'histogram'],
    ['splitkv_time_per_output_token_seconds', 'Between two tokens of an answer.', metrics.nextToken, 'histogram'],
  ];
}

/** The measures of docs/adp.md, where each request is on one of several ranks. */
function balanceMetrics(measures: RankBalance): Metric[] {
  const { last, tokensTotal, balance, weighedBalance, secondsTotal, solSecondsTotal, solTps } = measures;
  const byRank = (values: readonly number[]): Sample[] =>
    values.map((value, rank): Sample => [{ rank: String(rank) }, value]);
  return [
    ['splitkv_rank_tokens_total', 'Rows of each rank, one at least in an iteration.', byRank(tokensTotal)],
    ['splitkv_rank_tokens', 'Rows of each rank in the latest iteration.', byRank(last?.tokens ?? [])],
    ['splitkv_balance_ratio', 'Average over most rows of a rank, in the latest iteration.', last?.balance ?? 1],
    ['splitkv_mean_balance_ratio', 'Its mean over all iterations.', balance],
    ['splitkv_weighed_balance_ratio', 'Its mean with iterations weighed by their largest rank.', weighedBalance],
    ['splitkv_iteration_seconds_total', 'What iterations took.', secondsTotal],
    ['splitkv_sol_seconds_total', 'What they would have taken at perfect balance.', solSecondsTotal],
    ['splitkv_sol_tokens_per_second', 'Tokens generated a second at perfect balance.', solTps],
  ];
}
