import { SplitkvError, usageError } from '../../base/errors.js';
import { median } from '../../base/stats.js';
import type { GenerateResult, RunStats } from '../../index.js';
import type { Terminal } from '../command.js';
import type { ModelHost } from '../model_host.js';
import { type ModelRequest, openHost } from '../model_options.js';
import { benchAdapter, type BenchDocument, readEnvironment } from './environment.js';
import { randomPrompt } from './load_suite.js';
import { alignedTable, decimals } from './table.js';

export interface DecodeResult {
  readonly model: string;
  readonly weights: string;
  readonly kv: string;
  readonly prompt_tokens: number;
  readonly generated_tokens: number;
  /** Medians of the samples. */
  readonly tokens_per_second: number;
  readonly ttft_ms: number;
  readonly dispatches_per_token: number;
  /** Beside the first weights of the list, on the same prompt length: above 1 is faster. */
  readonly speed_ratio: number;
  readonly ttft_ratio: number;
  readonly samples: readonly { readonly tokens_per_second: number; readonly ttft_ms: number }[];
}

export interface DecodeRequest {
  /** One a type of weights. */
  readonly models: readonly ModelRequest[];
  /** Undefined: 128, 1024, and as many as leave room in the context. */
  readonly promptTokens: readonly number[] | undefined;
  readonly maxTokens: number;
  readonly runs: number;
}

interface Setting {
  readonly host: ModelHost;
  readonly prompt: readonly number[];
  readonly expected: readonly number[];
  readonly samples: RunStats[];
}

/** Tokens are the same in every run, or there are no numbers: a wrong result isn't timed. */
const CHECKS = 2;

/** Speed by prompt length. Runs are interleaved, so that a clock change or a busy neighbour falls on every setting alike. */
export async function runDecodeSuite(
  { models, promptTokens, maxTokens, runs }: DecodeRequest,
  terminal: Terminal,
): Promise<BenchDocument<DecodeResult>> {
  const { signal } = terminal;
  const hosts: ModelHost[] = [];
  let chrome: string | undefined;
  const generate = (host: ModelHost, prompt: readonly number[]): Promise<GenerateResult> =>
    host.generate(prompt, true, { maxTokens, ignoreEos: true, signal }, () => {});
  try {
    for (const model of models) {
      hosts.push(await openHost({ ...model, onBrowser: async (browser) => void (chrome = browser.version()) }));
    }
    const { contextLength, vocabSize } = hosts[0]!.info;
    const lengths = promptLengths(promptTokens, contextLength, maxTokens);
    const settings: Setting[] = [];
    for (const length of lengths) {
      for (const host of hosts) {
        terminal.progress(`checking ${host.info.weights}, prompt of ${length} tokens`);
        const prompt = randomPrompt(length, vocabSize);
        const setting: Setting = { host, prompt, expected: (await generate(host, prompt)).tokens, samples: [] };
        for (let check = 1; check < CHECKS; check++) compare(setting, await generate(host, prompt));
        settings.push(setting);
      }
    }
    for (let run = 0; run < runs; run++) {
      for (const setting of settings) {
        const { host, prompt, samples } = setting;
        terminal.progress(`run ${run + 1} of ${runs}: ${host.info.weights}, prompt of ${prompt.length} tokens`);
        const result = await generate(host, prompt);
        if (result.finish_reason === 'abort') throw new SplitkvError('aborted', 'bench was aborted');
        compare(setting, result);
        samples.push(result.stats);
      }
    }
    const adapters = hosts.map(({ info }) => benchAdapter(info));
    const results = settings.map((setting, index) => summarise(setting, settings[index - (index % hosts.length)]!));
    return { suite: 'decode', environment: await readEnvironment(models[0]!.host, adapters, chrome), results };
  } finally {
    for (const host of hosts) await host.close();
  }
}

function promptLengths(given: readonly number[] | undefined, context: number, maxTokens: number): readonly number[] {
  const longest = context - maxTokens;
  if (longest < 1) {
    throw usageError(`--max-tokens ${maxTokens}: a context of ${context} leaves no room for a prompt; ask for fewer`);
  }
  const tooLong = given?.find((length) => length > longest);
  if (tooLong !== undefined) {
    throw usageError(
      `--prompt-tokens ${tooLong}: with ${maxTokens} tokens after it, a context of ${context} holds at most ${longest}`,
    );
  }
  return given ?? [...[128, 1024].filter((length) => length < longest), longest];
}

function compare({ host, prompt, expected }: Setting, { tokens, finish_reason: reason }: GenerateResult): void {
  if (reason === 'abort') throw new SplitkvError('aborted', 'bench was aborted');
  const at = expected.findIndex((id, index) => tokens[index] !== id);
  if (at < 0 && tokens.length === expected.length) return;
  throw new SplitkvError(
    'internal',
    `${host.info.weights}, prompt of ${prompt.length} tokens: two greedy runs differ at token ${at < 0 ? expected.length : at}, ` +
      'so no speed is told; please report it with the adapter',
  );
}

function summarise({ host, prompt, expected, samples }: Setting, first: Setting): DecodeResult {
  const { info } = host;
  const speed = (all: readonly RunStats[]): number => median(all.map((stats) => stats.tokens_per_second));
  const ttft = (all: readonly RunStats[]): number => median(all.map((stats) => stats.ttft_ms));
  return {
    model: info.name,
    weights: info.weights,
    kv: info.kv,
    prompt_tokens: prompt.length,
    generated_tokens: expected.length,
    tokens_per_second: speed(samples),
    ttft_ms: ttft(samples),
    dispatches_per_token: samples[0]!.dispatches_per_token,
    speed_ratio: speed(samples) / speed(first.samples),
    ttft_ratio: ttft(first.samples) / ttft(samples),
    samples: samples.map(({ tokens_per_second, ttft_ms }) => ({ tokens_per_second, ttft_ms })),
  };
}

export function decodeTable(results: readonly DecodeResult[]): string {
  const first = results[0]!.weights;
  const several = results.some(({ weights }) => weights !== first);
  const ratioHeadings = several ? [`speed / ${first}`, `TTFT speed / ${first}`] : [];
  return (
    alignedTable(
      [
        ['model', 'weights', 'prompt', 'tokens/s', 'TTFT ms', 'disp/token', ...ratioHeadings],
        ...results.map((result) => [
          result.model,
          result.weights,
          String(result.prompt_tokens),
          decimals(result.tokens_per_second),
          decimals(result.ttft_ms),
          result.dispatches_per_token.toFixed(0),
          ...(several ? [result.speed_ratio.toFixed(2), result.ttft_ratio.toFixed(2)] : []),
        ]),
      ],
      2,
    ) +
    `\nMedians of ${results[0]!.samples.length} interleaved runs of ${results[0]!.generated_tokens} tokens; greedy tokens were the same in every run.\n`
  );
}
