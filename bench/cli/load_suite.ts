import { basename, resolve } from 'node:path';
import type { Browser } from 'playwright-core';
import { SplitkvError, throwIfAborted } from '../../src/base/errors.js';
import { benchAdapter, type BenchAdapter, type BenchDocument } from '../document.js';
import { randomPrompt } from '../prompt.js';
import { openSource, TensorReader } from '../../src/loader/index.js';
import type { GenerateResult } from '../../src/index.js';
import { type ModelRequest, openHost } from '../../src/cli/model_options.js';
import { readEnvironment } from './environment.js';
import { chromeMemoryMeter, type MemoryMeter, type MemoryReport, nodeMemoryMeter } from './models/memory.js';

export interface LoadResult {
  readonly model: string;
  readonly weights: string;
  readonly kv: string;
  readonly context: number;
  readonly parameters: number;
  readonly load_seconds: number;
  readonly weight_bytes: number;
  readonly kv_bytes: number;
  readonly prompt_tokens: number;
  /** Of the second generation after loading; the first one pays for what drivers compile when it is first used. */
  readonly tokens: readonly number[];
  readonly ttft_ms: number;
  readonly first_ttft_ms: number;
  readonly tokens_per_second: number;
  readonly dispatches_per_token: number;
  readonly adapter: BenchAdapter;
  readonly memory: LoadMemory;
}

export interface LoadMemory extends MemoryReport {
  /** A software adapter in Node: the GPU's memory is this process's memory. */
  readonly gpu_in_process: boolean;
  /**
   * Peak while loading of what isn't the GPU's: of a page its JavaScript memory, of Node the resident set, less the weights where
   * they are in this process.
   */
  readonly host_loading_peak_bytes?: number;
  /** The same beyond what was in use before: the loader's own. */
  readonly loader_peak_bytes?: number;
  /** Peak of the whole run less weights and KV cache, where they are in this process; buffers of activations are left in. */
  readonly host_peak_bytes?: number;
  readonly largest_tensor_bytes: number;
  /** The largest tensor and 256 MB: `host_loading_peak_bytes` should stay below. */
  readonly bar_bytes: number;
  readonly within_bar?: boolean;
}

const BAR_BEYOND_LARGEST_TENSOR = 256e6;

/** Loads a model once in this process, or in one Chrome, and generates from a short prompt. */
export async function runLoadSuite(
  request: ModelRequest,
  promptTokens: number,
  maxTokens: number,
): Promise<BenchDocument<LoadResult>> {
  const { signal } = request;
  const { index } = await TensorReader.open(await openSource(request.model, signal), signal);
  const largest = Math.max(...[...index.tensors.values()].map(({ start, end }) => end - start));

  let meter: MemoryMeter | undefined;
  let chrome: string | undefined;
  if (request.host === 'node') {
    await import('../../src/cli/hosts/node_host.js');
    meter = nodeMemoryMeter();
  }
  const host = await openHost({
    ...request,
    onProgress: (line) => {
      if (line.startsWith('loading weights')) meter?.sample();
      request.onProgress(line);
    },
    onBrowser: async (browser: Browser) => {
      chrome = browser.version();
      meter = await chromeMemoryMeter(browser);
    },
  });
  try {
    const { info } = host;
    const prompt = randomPrompt(promptTokens, info.vocabSize);
    const generate = async (count: number): Promise<GenerateResult> => {
      const how = { maxTokens: count, ignoreEos: true, cachePrompt: false, speculate: 'off' } as const;
      const generated = await host.generate({ signal }, prompt, { raw: true }, how);
      throwIfAborted(signal, 'bench');
      return generated;
    };
    const first = await generate(2);
    const result = await generate(maxTokens);
    if (first.tokens.some((id, at) => result.tokens[at] !== id)) {
      throw new SplitkvError(
        'internal',
        `two greedy runs differ (${first.tokens.join()} and ${result.tokens.join()}); please report it`,
      );
    }
    const { stats } = result;
    const adapter = benchAdapter(info);
    const inProcess = request.host === 'node' && adapter.software;
    const loaded: LoadResult = {
      model: basename(resolve(request.model)).replace(/-[0-9a-f]{8}$/, ''),
      weights: info.weights,
      kv: info.kv,
      context: info.contextLength,
      parameters: info.parameters,
      load_seconds: info.loadSeconds,
      weight_bytes: info.weightBytes,
      kv_bytes: info.kvBytes,
      prompt_tokens: result.prompt_tokens,
      tokens: result.tokens,
      ttft_ms: stats.ttft_ms,
      first_ttft_ms: first.stats.ttft_ms,
      tokens_per_second: stats.tokens_per_second,
      dispatches_per_token: stats.dispatches_per_token,
      adapter,
      memory: loadMemory(await meter!.report(), largest, inProcess, info.weightBytes, info.kvBytes),
    };
    return { suite: 'load', environment: await readEnvironment(request.host, [adapter], chrome), results: [loaded] };
  } finally {
    await host.close();
  }
}

function loadMemory(
  report: MemoryReport,
  largest: number,
  inProcess: boolean,
  weightBytes: number,
  kvBytes: number,
): LoadMemory {
  const bar = largest + BAR_BEYOND_LARGEST_TENSOR;
  const facts = { ...report, gpu_in_process: inProcess, largest_tensor_bytes: largest, bar_bytes: bar };
  const { before_bytes: before, loading_peak_bytes: loading, peak_bytes: peak } = report;
  const hostBefore = report.javascript_before_bytes ?? before;
  const resident = loading === undefined ? undefined : loading - (inProcess ? weightBytes : 0);
  const hostLoading = report.javascript_peak_bytes ?? resident;
  if (hostBefore === undefined || hostLoading === undefined) return facts;
  return {
    ...facts,
    host_loading_peak_bytes: hostLoading,
    loader_peak_bytes: hostLoading - hostBefore,
    ...(inProcess && peak !== undefined && { host_peak_bytes: peak - weightBytes - kvBytes }),
    within_bar: hostLoading < bar,
  };
}
