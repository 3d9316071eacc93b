import { SplitkvError, throwIfAborted } from '../../src/base/errors.js';
import { median, quantile } from '../../src/base/stats.js';
import { serve, type ServeOptions, type ServingModel } from '../../src/index.js';
import { benchAdapter, type Measurement, type SuiteHooks, type SuiteOutcome } from '../document.js';
import { interleave } from '../interleave.js';
import { randomPrompt } from '../prompt.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { decimals, ratio } from '../table.js';
import { type Estimate, pairedRatio } from '../statistics.js';

export interface ServeRequest {
  readonly suite: 'serve';
  readonly model: string;
  readonly options: Omit<ServeOptions, 'onProgress' | 'onWarning' | 'signal' | 'fetch' | 'microBatches'>;
  /** Side by side: the same questions with each. */
  readonly microBatches: readonly (number | 'auto')[];
  /** Numbers of clients, each of which asks anew as soon as it has its answer. */
  readonly clients: readonly number[];
  /** Questions that each client asks in a run. */
  readonly requestsEach: number;
  /** Mean length of a prompt; they spread from half to one and a half of it. */
  readonly promptTokens: number;
  readonly maxTokens: number;
  readonly runs: number;
}

export interface ServeResult {
  readonly model: string;
  readonly weights: string;
  readonly plan: string;
  readonly micro_batches: number;
  readonly clients: number;
  readonly requests: number;
  /** Generated tokens of all clients over the run's time; median of the runs. */
  readonly tokens_per_second: number;
  /** Beside the first number of clients, run by run. */
  readonly throughput_ratio: Estimate;
  /** Beside as many clients with the first number of micro-batches. */
  readonly micro_batch_ratio: Estimate;
  /** Over the requests of all runs, in milliseconds. */
  readonly ttft_ms: { readonly p50: number; readonly p95: number };
  readonly token_ms: { readonly p50: number; readonly p95: number };
  readonly samples: readonly number[];
}

interface Run {
  readonly tokensPerSecond: number;
  readonly ttftMs: readonly number[];
  /** Of each request: the mean time between two of its tokens. */
  readonly tokenMs: readonly number[];
}

/** Throughput and latency of a server's engine under so and so many clients. Answers in company must be those given alone. */
export async function runServe(request: ServeRequest, hooks: SuiteHooks): Promise<SuiteOutcome<ServeResult>> {
  const { clients, runs, microBatches } = request;
  const { signal, onProgress, onWarning } = hooks;
  const slots = request.options.slots ?? Math.max(...clients);
  const models: ServingModel[] = [];
  try {
    for (const count of microBatches) {
      onProgress(`loading ${request.model}, micro-batches: ${count}`);
      // The same prompts come in every run: a cache of them would answer from the second run on.
      const options = {
        prefixCaching: false,
        speculate: 'off' as const,
        ...request.options,
        slots,
        microBatches: count,
        signal,
        onWarning,
      };
      models.push(await serve(request.model, options));
    }
    const { info } = models[0]!;
    const prompts = promptsOf(request, info);
    await checkAnswers(models, prompts, request, hooks);
    const settings = models.flatMap((model) => clients.map((number) => ({ model, number })));
    const contenders = settings.map(({ model, number }) => ({
      name: `${number} clients, ${model.info.microBatches} micro-batches`,
      run: () => timeClients(model, prompts, number, request, signal),
    }));
    const all = await interleave(contenders, runs, hooks);
    const speeds = all.map((samples) => samples.map(({ tokensPerSecond }) => tokensPerSecond));
    const results = settings.map(({ model, number }, index): ServeResult => {
      const tails = (of: (run: Run) => readonly number[]) => {
        const values = all[index]!.flatMap(of);
        return { p50: quantile(values, 0.5), p95: quantile(values, 0.95) };
      };
      return {
        model: info.name,
        weights: info.weights,
        plan: info.plan.policy,
        micro_batches: model.info.microBatches,
        clients: number,
        requests: number * request.requestsEach,
        tokens_per_second: median(speeds[index]!),
        throughput_ratio: pairedRatio(speeds[index]!, speeds[0]!),
        micro_batch_ratio: pairedRatio(speeds[index]!, speeds[index % clients.length]!),
        ttft_ms: tails(({ ttftMs }) => ttftMs),
        token_ms: tails(({ tokenMs }) => tokenMs),
        samples: speeds[index]!,
      };
    });
    const measurements = settings.flatMap(({ model, number }, index): Measurement[] => {
      const setting = {
        model: info.name,
        weights: info.weights,
        plan: info.plan.policy,
        micro_batches: model.info.microBatches,
        clients: number,
      };
      const firsts = all[index]!.map(({ ttftMs }) => median(ttftMs));
      return [
        { metric: 'throughput', unit: 'tokens/s', better: 'higher', setting, samples: speeds[index]! },
        { metric: 'median time to first token', unit: 'ms', better: 'lower', setting, samples: firsts },
      ];
    });
    return { adapters: [benchAdapter(info)], results, measurements };
  } finally {
    for (const model of models) await model.dispose();
  }
}

function promptsOf(
  { clients, requestsEach, promptTokens, maxTokens }: ServeRequest,
  { contextLength, vocabSize }: ServingModel['info'],
): number[][] {
  const room = contextLength - maxTokens;
  return Array.from({ length: Math.max(...clients) * requestsEach }, (_, i) => {
    const length = Math.max(1, Math.round(promptTokens * (0.5 + ((i * 7) % 11) / 10)));
    return randomPrompt(Math.min(length, room), vocabSize).map((id) => (id + i) % vocabSize);
  });
}

async function checkAnswers(
  models: readonly ServingModel[],
  prompts: readonly (readonly number[])[],
  { maxTokens }: ServeRequest,
  { signal, onProgress }: SuiteHooks,
): Promise<void> {
  const alone: string[] = [];
  for (const [index, prompt] of prompts.entries()) {
    onProgress(`question ${index + 1} of ${prompts.length} alone`);
    alone.push(await answerIds(models[0]!, prompt, maxTokens, signal));
  }
  for (const model of models) {
    onProgress(`all ${prompts.length} questions at once`);
    const together = await Promise.all(prompts.map((prompt) => answerIds(model, prompt, maxTokens, signal)));
    const wrong = alone.findIndex((tokens, index) => tokens !== together[index]);
    if (wrong < 0) continue;
    throw new SplitkvError(
      'internal',
      `question ${wrong + 1} has another answer in company than alone, so no speed is told; please report it with the adapter`,
    );
  }
}

const completionOptions = (maxTokens: number, signal: AbortSignal) => ({ maxTokens, ignoreEos: true, seed: 1, signal });

/** The answer's token ids, joined. */
async function answerIds(
  model: ServingModel,
  prompt: readonly number[],
  maxTokens: number,
  signal: AbortSignal,
): Promise<string> {
  const ids: number[] = [];
  for await (const { logprobs } of model.complete(prompt, { ...completionOptions(maxTokens, signal), logprobs: 0 })) {
    for (const { id } of logprobs) ids.push(id);
  }
  throwIfAborted(signal, 'bench');
  return ids.join();
}

async function timeClients(
  model: ServingModel,
  prompts: readonly (readonly number[])[],
  clients: number,
  { requestsEach, maxTokens }: ServeRequest,
  signal: AbortSignal,
): Promise<Run> {
  const ttftMs: number[] = [];
  const tokenMs: number[] = [];
  let tokens = 0;
  const started = performance.now();
  await Promise.all(
    Array.from({ length: clients }, async (_, client) => {
      for (let question = 0; question < requestsEach; question++) {
        const asked = performance.now();
        const completion = model.complete(
          prompts[client * requestsEach + question]!,
          completionOptions(maxTokens, signal),
        );
        let first: number | undefined;
        for await (const _event of completion) first ??= performance.now();
        const ended = performance.now();
        ttftMs.push(first! - asked);
        tokenMs.push((ended - first!) / Math.max(1, completion.completionTokens - 1));
        tokens += completion.completionTokens;
      }
    }),
  );
  throwIfAborted(signal, 'bench');
  const seconds = (performance.now() - started) / 1000;
  const expected = clients * requestsEach * maxTokens;
  if (tokens !== expected) throw new SplitkvError('internal', `${tokens} tokens were generated instead of ${expected}`);
  return { tokensPerSecond: tokens / seconds, ttftMs, tokenMs };
}

export function serveTable(results: readonly ServeResult[]): string {
  const pair = ({ p50, p95 }: { readonly p50: number; readonly p95: number }): string[] => [
    decimals(p50),
    decimals(p95),
  ];
  return (
    alignedTable(
      [
        [
          'model',
          'weights',
          'plan',
          'micro-batches',
          'clients',
          'requests',
          'tokens/s',
          `/ ${results[0]!.clients} clients`,
          `/ ${results[0]!.micro_batches} micro-batches`,
          'TTFT ms',
          '95%',
          'token ms',
          '95%',
        ],
        ...results.map((result) => [
          result.model,
          result.weights,
          result.plan,
          String(result.micro_batches),
          String(result.clients),
          String(result.requests),
          decimals(result.tokens_per_second),
          ratio(result.throughput_ratio),
          ratio(result.micro_batch_ratio),
          ...pair(result.ttft_ms),
          ...pair(result.token_ms),
        ]),
      ],
      3,
    ) +
    `\nMedians of ${results[0]!.samples.length} interleaved runs, each client asking again as soon as it is answered; answers in company were those given alone.\n`
  );
}
