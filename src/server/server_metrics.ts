import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { ServingInfo } from '../index.js';
import type { Outcome } from './http/exchange.js';
import { Histogram } from '../engine/serving/histogram.js';
import { counter, gauge, histogramText, type Sample } from './prometheus.js';

/** What the server is busy with. */
interface Load {
  /** Requests under way. */
  readonly live: number;
  /** Bytes of bodies held. */
  readonly bodyBytes: number;
}

/** What a server's service adds to its metrics. */
export interface OwnMetrics {
  /** Large requests that wait to be read. */
  readonly unread: number;
  readonly info?: ServingInfo;
  /** In Prometheus's format. */
  readonly texts?: readonly string[];
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

  text({ live, bodyBytes }: Load, { unread, info, texts = [] }: OwnMetrics): string {
    const memory = process.memoryUsage();
    const requests = [...this.#requests.values()].map(({ labels, count }): Sample => [labels, count]);
    const seconds = [...this.#seconds].map(([route, { counts }]) => [{ route }, counts] as const);
    const ended = 'HTTP requests that ended, by route, outcome and status (0: nothing was sent).';
    return [
      gauge('splitkv_build_info', 'Always 1; the labels say what runs.', [[this.#build(info), 1]]),
      counter('splitkv_requests_total', ended, requests),
      histogramText('splitkv_request_seconds', 'From a request to the end of its answer, by route.', seconds),
      gauge('splitkv_requests_live', 'HTTP requests under way.', live),
      gauge('splitkv_request_body_bytes', 'Bytes of request bodies that are held.', bodyBytes),
      gauge('splitkv_requests_unread', 'Large requests that wait to be parsed and tokenized.', unread),
      ...texts,
      gauge('process_resident_memory_bytes', 'Resident memory of the server.', memory.rss),
      gauge('nodejs_heap_size_used_bytes', 'JavaScript heap in use.', memory.heapUsed),
      ...this.#process(),
    ].join('');
  }

  #build(info: ServingInfo | undefined): Sample[0] {
    const { name = '', weights = '', kv = '', plan, adapter } = info ?? {};
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
      counter('process_cpu_seconds_total', 'Processor time of the server.', (user + system) / 1e6),
      gauge('process_start_time_seconds', 'When it was started, in seconds since 1970.', started),
      ...gauges.map(([name, seconds]) =>
        gauge(
          `nodejs_eventloop_lag_${name}_seconds`,
          'How late the event loop was, since this was last asked.',
          seconds,
        ),
      ),
    ];
  }
}
