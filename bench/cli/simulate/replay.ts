import { abortedError, SplitkvError } from '../../../src/base/errors.js';
import { Random } from '../../../src/base/random.js';
import type { ModelRanks } from '../../../src/engine/ranks/rank_group.js';
import { BalanceMeter } from '../../../src/engine/scheduler/index.js';
import { Engine } from '../../../src/engine/serving/engine.js';
import type { EngineOptions } from '../../../src/engine/serving/loop/requests.js';
import { type IterationRecord, placing } from '../../../src/engine/serving/loop/rank_balance.js';
import { Clients, type SimulationResult } from '../../simulate/simulate.js';
import type { Trace } from '../../simulate/trace.js';

export interface ReplayOptions {
  /** Requests that clients have open at once. */
  readonly concurrency: number;
  readonly vocabSize: number;
  readonly engine: EngineOptions;
  readonly signal: AbortSignal;
}

/** What a simulation of the same trace gives, measured. */
export interface Replay extends Omit<SimulationResult, 'log' | 'kvBalance' | 'moves'> {
  readonly log: readonly IterationRecord[];
}

/**
 * Runs a trace on a model's ranks as `simulate` runs it on a clock: random tokens of the lengths given, greedy, no end before the
 * last token; an iteration is submitted when the one before is complete. The ranks stay open.
 */
export async function replay(ranks: ModelRanks, trace: Trace, options: ReplayOptions): Promise<Replay> {
  const { concurrency, vocabSize, signal } = options;
  const log: IterationRecord[] = [];
  const meter = new BalanceMeter();
  await ranks.runner.all((rank) => rank.reset());
  const engine = new Engine(borrowed(ranks), {
    placing,
    ...options.engine,
    iterationsInFlight: 1,
    onIteration: (record) => {
      log.push(record);
      meter.add(record.tokens, record.seconds);
    },
  });
  const clients = new Clients(trace, concurrency);
  const ttftSeconds = new Float64Array(trace.length);
  const started = performance.now();
  const clock = (): number => (performance.now() - started) / 1000;
  let seconds = 0;
  let left = trace.length;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stop = new AbortController();
  try {
    await new Promise<void>((resolve, reject) => {
      signal.addEventListener('abort', () => reject(abortedError('the measured run', signal)), { signal: stop.signal });
      const submit = (index: number): void => {
        const { inputTokens, outputTokens, priority, ttftDeadlineSeconds } = trace[index]!;
        const sentAt = clock();
        const random = new Random(index);
        const { ended } = engine.submit({
          prompt: Array.from({ length: inputTokens }, () => random.integer(vocabSize)),
          maxTokens: outputTokens,
          eosIds: [],
          seed: index,
          priority,
          ...(ttftDeadlineSeconds !== undefined && { firstTokenSeconds: ttftDeadlineSeconds }),
          onToken: () => {
            seconds = clock();
            ttftSeconds[index] ||= seconds - sentAt;
            return false;
          },
        });
        ended.then((end) => {
          if (end !== 'length') reject(new SplitkvError('internal', `request ${index} of the trace ended by '${end}'`));
          clients.done();
          if (--left === 0) resolve();
          else send();
        }, reject);
      };
      const send = (): void => {
        clearTimeout(timer);
        for (let index = clients.next(clock()); index !== undefined; index = clients.next(clock())) submit(index);
        const wait = (clients.nextArrival ?? 0) - clock();
        if (wait > 0) timer = setTimeout(send, wait * 1000);
      };
      send();
    });
    const outputTokens = trace.reduce((sum, request) => sum + request.outputTokens, 0);
    const { preemptionsTotal: preemptions } = engine.metrics;
    return { log, balance: meter.summary, outputTokens, seconds, ttftSeconds, preemptions };
  } finally {
    stop.abort();
    clearTimeout(timer);
    await engine.dispose();
  }
}

/** Ranks that an engine may use but not close. */
const borrowed = (ranks: ModelRanks): ModelRanks => ({
  get runner() {
    return ranks.runner;
  },
  options: ranks.options,
  adapter: ranks.adapter,
  assertUsable: () => ranks.assertUsable(),
  recover: (signal) => ranks.recover(signal),
  dispose: () => {},
});
