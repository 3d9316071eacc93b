import { quantile } from '../../src/base/stats.js';
import type { Job, SimulatedReplica } from './simulated_replica.js';

/** Of the requests that came after the first tenth of them, when caches have filled, and of the time in which they came. */
export interface ClusterFigures {
  /** Prompt tokens that were cached, of all; and those that one cache without end would have had. */
  readonly hitRate: number;
  readonly mostHitRate: number;
  /** Mean of average over most requests in a replica, running and waiting, sampled once a second. */
  readonly balance: number;
  readonly ttft: { readonly meanSeconds: number; readonly p50Seconds: number; readonly p99Seconds: number };
  /** From arrival to the last token. */
  readonly meanSeconds: number;
  readonly requestsPerSecond: number;
  readonly outputTokensPerSecond: number;
  /** Mean share of time in which a replica computed. */
  readonly busy: number;
  /** Share of requests that were answered 429. */
  readonly refused: number;
  readonly requests: number;
}

const WARM_UP = 0.1;
const SAMPLE_SECONDS = 1;

export class ClusterMeter {
  readonly #first: number;
  /** Of each request after the warm-up; NaN: none yet. */
  readonly #ttft: Float64Array;
  #startedAt = NaN;
  #endedAt = NaN;
  #busyBefore = 0;
  #busyAfter = 0;
  #nextSample = 0;
  #samples = 0;
  #balances = 0;
  #prompt = 0;
  #cached = 0;
  #seen = 0;
  #answered = 0;
  #seconds = 0;
  #ended = 0;
  #output = 0;
  #refused = 0;
  #arrived = 0;

  constructor(
    requests: number,
    private readonly replicas: readonly SimulatedReplica[],
  ) {
    this.#first = Math.floor(requests * WARM_UP);
    this.#ttft = new Float64Array(requests - this.#first).fill(NaN);
  }

  arrived({ index }: Job, now: number): void {
    if (index < this.#first) return;
    if (index === this.#first) {
      this.#startedAt = now;
      this.#busyBefore = this.#busy(now);
    }
    this.#arrived++;
    this.#endedAt = now;
    if (this.#arrived < this.#ttft.length) return;
    this.#busyAfter = this.#busy(now);
  }

  firstToken({ index, arrivedAt, request, cachedTokens }: Job, now: number): void {
    if (index < this.#first) return;
    this.#ttft[index - this.#first] = now - arrivedAt;
    this.#prompt += request.inputTokens;
    this.#cached += cachedTokens;
    this.#seen += request.seenTokens;
  }

  done({ index, arrivedAt, request }: Job, now: number): void {
    if (this.#isWithin(now)) {
      this.#ended++;
      this.#output += request.outputTokens;
    }
    if (index < this.#first) return;
    this.#answered++;
    this.#seconds += now - arrivedAt;
  }

  refused({ index }: Job): void {
    if (index >= this.#first) this.#refused++;
  }

  /** Takes a sample where one is due. */
  sample(now: number): void {
    if (now < this.#nextSample || !this.#isWithin(now)) return;
    this.#nextSample = now + SAMPLE_SECONDS;
    let [most, all] = [0, 0];
    for (const { running, waiting } of this.replicas) {
      most = Math.max(most, running + waiting);
      all += running + waiting;
    }
    if (most === 0) return;
    this.#samples++;
    this.#balances += all / this.replicas.length / most;
  }

  get figures(): ClusterFigures {
    const ttft = Array.from(this.#ttft.filter((seconds) => !Number.isNaN(seconds)));
    const seconds = this.#endedAt - this.#startedAt;
    return {
      hitRate: this.#cached / this.#prompt,
      mostHitRate: this.#seen / this.#prompt,
      balance: this.#samples === 0 ? 1 : this.#balances / this.#samples,
      ttft: {
        meanSeconds: ttft.reduce((sum, value) => sum + value, 0) / ttft.length,
        p50Seconds: quantile(ttft, 0.5),
        p99Seconds: quantile(ttft, 0.99),
      },
      meanSeconds: this.#seconds / this.#answered,
      requestsPerSecond: this.#ended / seconds,
      outputTokensPerSecond: this.#output / seconds,
      busy: (this.#busyAfter - this.#busyBefore) / (seconds * this.replicas.length),
      refused: this.#refused / this.#arrived,
      requests: this.#arrived,
    };
  }

  /** From the first request that counts to the last one's arrival. */
  #isWithin(now: number): boolean {
    return now >= this.#startedAt && this.#arrived < this.#ttft.length;
  }

  #busy(now: number): number {
    return this.replicas.reduce((sum, replica) => sum + replica.busySeconds(now), 0);
  }
}
