import { SplitkvError, throwIfAborted } from '../../base/errors.js';
import { median, quantile } from '../../base/stats.js';
import { serve, type ServeOptions, type ServingModel } from '../../index.js';
import { benchAdapter, type Measurement, type SuiteHooks, type SuiteOutcome } from '../document.js';
import { interleave } from '../interleave.js';
import { randomPrompt } from '../prompt.js';
import { alignedTable, decimals, ratio } from '../table.js';
import { type Estimate, pairedRatio } from '../statistics.js';

export interface ServeRequest {
  readonly suite: 'serve';
  readonly model: string;
  readonly options: Omit<ServeOptions, 'onProgress' | 'onWarning' | 'signal'>;
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
  readonly clients: number;
  readonly requests: number;
  /** Generated tokens of all clients over the run's time; median of the runs. */
  readonly tokens_per_second: number;
  /** Beside the first number of clients, run by run. */
  readonly throughput_ratio: Estimate;
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

interface Question {
  readonly prompt: readonly number[];
  readonly tokens: string;
}

/** Throughput and latency of a server's engine under so and so many clients. Answers in company must be those given alone. */
export async function runServe(request: ServeRequest, hooks: SuiteHooks): Promise<SuiteOutcome<ServeResult>> {
  const { clients, runs, maxTokens, requestsEach } = request;
  const { signal, onProgress, onWarning } = hooks;
  const slots = request.options.slots ?? Math.max(...clients);
  onProgress(`loading ${request.model}`);
  // The same prompts come in every run: a cache of them would answer from the second run on.
  const model = await serve(request.model, { prefixCaching: false, ...request.options, slots, signal, onWarning });
  try {
    const { info } = model;
    const count = Math.max(...clients) * requestsEach;
    const lengths = Array.from({ length: count }, (_, i) =>
      Math.max(1, Math.round(request.promptTokens * (0.5 + ((i * 7) % 11) / 10))),
    );
    const room = info.contextLength - maxTokens;
    const prompts = lengths.map((length, i) =>
      randomPrompt(Math.min(length, room), info.vocabSize).map((id) => (id + i) % info.vocabSize),
    );
    const questions: Question[] = [];
    for (const [index, prompt] of prompts.entries()) {
      onProgress(`question ${index + 1} of ${count} alone`);
      questions.push({ prompt, tokens: await answerIds(model, prompt, maxTokens, signal) });
    }
    onProgress(`all ${count} questions at once`);
    const together = await Promise.all(prompts.map((prompt) => answerIds(model, prompt, maxTokens, signal)));
    const wrong = questions.findIndex(({ tokens }, index) => tokens !== together[index]);
    if (wrong >= 0) {
      throw new SplitkvError(
        'internal',
        `question ${wrong + 1} has another answer in company than alone, so no speed is told; please report it with the adapter`,
      );
    }
    const contenders = clients.map((number) => ({
      name: `${number} clients`,
      run: () => timeClients(model, prompts, number, request, signal),
    }));
    const all = await interleave(contenders, runs, hooks);
    const speeds = all.map((samples) => samples.map(({ tokensPerSecond }) => tokensPerSecond));
    const results = clients.map((number, index): ServeResult => {
      const tails = (of: (run: Run) => readonly number[]) => {
        const values = all[index]!.flatMap(of);
        return { p50: quantile(values, 0.5), p95: quantile(values, 0.95) };
      };
      return {
        model: info.name,
        weights: info.weights,
        clients: number,
        requests: number * requestsEach,
        tokens_per_second: median(speeds[index]!),
        throughput_ratio: pairedRatio(speeds[index]!, speeds[0]!),
        ttft_ms: tails(({ ttftMs }) => ttftMs),
        token_ms: tails(({ tokenMs }) => tokenMs),
        samples: speeds[index]!,
      };
    });
    const measurements = clients.flatMap((number, index): Measurement[] => {
      const setting = { model: info.name, weights: info.weights, clients: number };
      const firsts = all[index]!.map(({ ttftMs }) => median(ttftMs));
      return [
        { metric: 'throughput', unit: 'tokens/s', better: 'higher', setting, samples: speeds[index]! },
        { metric: 'median time to first token', unit: 'ms', better: 'lower', setting, samples: firsts },
      ];
    });
    return { adapters: [benchAdapter(info)], results, measurements };
  } finally {
    await model.dispose();
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
          'clients',
          'requests',
          'tokens/s',
          `/ ${results[0]!.clients} clients`,
          'TTFT ms',
          '95%',
          'token ms',
          '95%',
        ],
        ...results.map((result) => [
          result.model,
          result.weights,
          String(result.clients),
          String(result.requests),
          decimals(result.tokens_per_second),
          ratio(result.throughput_ratio),
          ...pair(result.ttft_ms),
          ...pair(result.token_ms),
        ]),
      ],
      2,
    ) +
    `\nMedians of ${results[0]!.samples.length} interleaved runs, each client asking again as soon as it is answered; answers in company were those given alone.\n`
  );
}
