/**
 * Room: suites on models made for them: load times and memory by size (here), and predictions against runs
 * (planner_suite.ts). scale_models.ts has the shapes.
 */

import { spawn } from 'node:child_process';
import { SplitkvError, throwIfAborted } from '../../../src/base/errors.js';
import type { Terminal } from '../../../src/cli/command.js';
import type { BenchDocument } from '../../document.js';
import { readEnvironment } from '../environment.js';
import type { LoadMemory, LoadResult } from '../load_suite.js';
import { scaleModelFolder } from './scale_models.js';
import { isScaleModel } from './scale_names.js';
import { alignedTable } from '../../../src/base/aligned_table.js';
import { decimals, megabytes } from '../../table.js';

export interface ScaleFailure {
  readonly model: string;
  readonly weights: string;
  readonly error: string;
}
export type ScaleResult = LoadResult | ScaleFailure;

export interface ScaleRequest {
  readonly host: 'node' | 'chrome';
  /** Names of SCALE_MODELS, or model folders. */
  readonly models: readonly string[];
  readonly weights: readonly string[];
  /** Arguments for `bench --suite load`. */
  readonly loadArguments: readonly string[];
}

/** Every model with every type of weights, each in a process of its own, so that peaks of memory don't mix. */
export async function runScaleSuite(request: ScaleRequest, terminal: Terminal): Promise<BenchDocument<ScaleResult>> {
  const results: ScaleResult[] = [];
  const documents: BenchDocument<LoadResult>[] = [];
  for (const model of request.models) {
    const folder = isScaleModel(model) ? await scaleModelFolder(model, terminal.signal, terminal.note) : model;
    for (const weights of request.weights) {
      terminal.progress(`${model} as ${weights} ...`);
      try {
        const document = await loadInChild(
          ['--host', request.host, '--model', folder, '--weights', weights, ...request.loadArguments],
          terminal.signal,
        );
        documents.push(document);
        results.push(...document.results);
      } catch (error) {
        throwIfAborted(terminal.signal, 'bench');
        const message = error instanceof Error ? error.message : String(error);
        terminal.note(`splitkv: ${model} as ${weights}: ${message}`);
        results.push({ model, weights, error: message });
      }
    }
  }
  const adapters = documents.flatMap(({ environment }) => environment.adapters);
  const environment = await readEnvironment(request.host, adapters, documents[0]?.environment.chrome);
  return { suite: 'scale', environment, results };
}

function loadInChild(args: readonly string[], signal: AbortSignal): Promise<BenchDocument<LoadResult>> {
  const command = process.argv[1];
  if (command === undefined) throw new SplitkvError('internal', 'the command line does not know its own path');
  const child = spawn(process.execPath, [...process.execArgv, command, 'bench', '--suite', 'load', '--json', ...args]);
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const abort = (): void => void child.kill('SIGINT');
  signal.addEventListener('abort', abort);
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, killed) => {
      signal.removeEventListener('abort', abort);
      if (code === 0) return resolve(JSON.parse(stdout) as BenchDocument<LoadResult>);
      const last = stderr.trim().split('\n').at(-1) ?? '';
      const why = code === null ? `ended by ${killed} (often: out of memory)` : last.replace(/^splitkv: /, '');
      reject(new SplitkvError('internal', why || `exit code ${code}`));
    });
  });
}

/** For people; sizes in MB (10^6 bytes). */
export function loadTable(results: readonly ScaleResult[]): string {
  const heading = [
    'model',
    'weights',
    'load s',
    'GPU MB',
    'KV MB',
    'tokens/s',
    'TTFT ms',
    'first ms',
    'disp/token',
    'peak MB',
    'loading MB',
    'host MB',
    'loader MB',
    'bar MB',
    '',
  ];
  const rows = results.map((result) => {
    if ('error' in result) return [result.model, result.weights, `failed: ${result.error}`];
    const { memory } = result;
    return [
      result.model,
      result.weights,
      result.load_seconds.toFixed(1),
      megabytes(result.weight_bytes),
      megabytes(result.kv_bytes),
      decimals(result.tokens_per_second),
      result.ttft_ms.toFixed(0),
      result.first_ttft_ms.toFixed(0),
      result.dispatches_per_token.toFixed(0),
      megabytes(memory.peak_bytes),
      megabytes(memory.loading_peak_bytes),
      megabytes(memory.host_loading_peak_bytes),
      megabytes(memory.loader_peak_bytes),
      megabytes(memory.bar_bytes),
      memory.within_bar === undefined ? '-' : memory.within_bar ? 'ok' : 'OVER',
    ];
  });
  return alignedTable([heading, ...rows], 2) + memoryNotes(results);
}

function hostNote(memory: LoadMemory): string {
  if (memory.javascript_peak_bytes !== undefined) {
    return "host: the page's JavaScript memory while loading (V8's heap and ArrayBuffers), sampled at every step; the rest is Chrome's own.";
  }
  if (memory.host_loading_peak_bytes === undefined) return 'host: not available.';
  return memory.gpu_in_process
    ? 'host: loading less the weights on the "GPU", which a software adapter keeps in this same process.'
    : "host: the same as loading; the GPU's own memory lies elsewhere.";
}

function memoryNotes(results: readonly ScaleResult[]): string {
  const loaded = results.filter((result): result is LoadResult => !('error' in result));
  const [first] = loaded;
  if (!first) return '';
  const { memory } = first;
  const gpu = loaded.map(({ memory: { gpu_process_peak_bytes: peak } }) => peak).filter((peak) => peak !== undefined);
  const lines = [
    `\nPrompt of ${first.prompt_tokens} tokens, ${first.tokens.length} generated. first: time to first token of the first generation, with what the driver compiles then.`,
    `Memory: ${memory.measured}.`,
    'peak: of the whole run, kernels compiled and tokens generated. loading: until the last weight was read.',
    hostNote(memory),
    "loader: host less what was in use before loading, so the loader's own. bar, for host: the largest tensor + 256 MB.",
    ...(gpu.length > 0
      ? [`Peak of Chrome's GPU process (weights included): ${gpu.map(megabytes).join(', ')} MB.`]
      : []),
  ];
  return `${lines.join('\n')}\n`;
}
