import { unsupportedError, usageError } from '../../src/base/errors.js';
import { openModelFiles } from '../../src/engine/files/model_files.js';
import { PromptFiller } from '../peers/onnx/prompt_filler.js';
import { type AdapterRequest, openDevice } from '../../src/gpu/index.js';
import { openSource } from '../../src/loader/index.js';
import { denseModel } from '../peers/onnx/dense_model.js';
import type { Measurement, SuiteHooks, SuiteOutcome } from '../document.js';
import { Ort } from '../peers/ort.js';
import { ggufBytes } from '../peers/gguf_bytes.js';
import { kvOf, type PeerWeights } from '../peers/peer_weights.js';
import { openOurs } from '../peers/ours.js';
import { openPeers, pagePeers, type PeerPackages } from '../peers/page_peers.js';
import type { LeftOut, PeerModel } from '../peers/peer_model.js';
import type { PeerResult } from '../peers/peer_result.js';
import { raceKernels } from '../peers/kernels/race_kernels.js';
import { raceModels } from '../peers/race_models.js';
import { randomPrompt } from '../prompt.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { decimals, ratio } from '../table.js';

export interface PeersRequest {
  readonly suite: 'peers';
  readonly model: string;
  readonly weights: PeerWeights;
  readonly adapter: AdapterRequest;
  /** Undefined: 128, 1024 and 4064; on a software adapter 32 and 128. */
  readonly promptTokens?: readonly number[];
  readonly maxTokens: number;
  readonly runs: number;
  /** Where a page finds the other runtimes' packages; undefined in Node, where they are imported. */
  readonly packages?: PeerPackages;
}

export interface PeersOutcome extends SuiteOutcome<PeerResult> {
  /** Runtimes that weren't run, and why. */
  readonly leftOut: readonly LeftOut[];
}

/** Longer contexts than this are given to the runtimes on a software adapter: their prompts take it minutes. */
const LONGEST_SOFTWARE_PROMPT = 256;

/** Runtimes on the same weights and the same adapter, in one run; one whose results differ isn't timed. */
export async function runPeers(request: PeersRequest, hooks: SuiteHooks): Promise<PeersOutcome> {
  const { signal, onProgress } = hooks;
  const { weights, maxTokens, runs, packages } = request;
  const source = await openSource(request.model, signal);
  const files = await openModelFiles(source, signal);
  const { config } = files;
  if (!denseModel(config)) {
    throw unsupportedError(
      '--suite peers: the other runtimes are given models of grouped-query attention and dense MLPs; choose such a model',
    );
  }
  const device = await openDevice(request.adapter);
  const lengths = (request.promptTokens ?? (device.traits.software ? [32, 128] : [128, 1024, 4096 - maxTokens])).filter(
    (length) => request.promptTokens !== undefined || length + maxTokens <= config.maxPositions,
  );
  const contextLength = Math.max(...lengths) + maxTokens;
  const models: PeerModel[] = [];
  let ort: Ort | undefined;
  let filler: PromptFiller | undefined;
  try {
    if (contextLength > config.maxPositions) {
      throw usageError(
        `--prompt-tokens ${Math.max(...lengths)}: with ${maxTokens} more the model has room for ${config.maxPositions}; ask for fewer`,
      );
    }
    const { adapterName, powerPreference } = request.adapter;
    onProgress('loading the model in splitkv');
    const type = weights === 'q4_k_m' ? undefined : weights;
    const ourOptions = {
      ...(type && { weights: type }),
      kv: kvOf(weights),
      contextLength,
      signal,
      cache: false,
      ...(adapterName !== undefined && { adapter: adapterName }),
      ...(powerPreference && { powerPreference }),
    };
    const file = async () => [new File([await ggufBytes(config, await files.reader(), weights)], 'model-Q4_K_M.gguf')];
    models.push(await openOurs(type ? request.model : await file(), ourOptions));
    const results: PeerResult[] = [];
    const leftOut: LeftOut[] = [
      { runtime: 'web-llm', why: 'it needs a library compiled for each model, which no package carries' },
    ];
    if (!type) leftOut.push({ runtime: 'onnxruntime-web, transformers.js', why: 'they read no GGUF files' });
    const subject = { source, files, config, weights, contextLength };
    if (packages) {
      if (type) {
        ort = await Ort.open(packages.onnxruntimeWeb, request.adapter.powerPreference);
        results.push(...(await raceKernels(device, ort, { lengths, size: 2048, runs }, leftOut, hooks)));
      }
      await openPeers(pagePeers(ort, packages, subject, device.traits.f16, signal), models, leftOut, hooks);
    } else {
      const { openLlamaCpp } = await import('../peers/node_llama_cpp.js');
      const open = async (): Promise<PeerModel> => openLlamaCpp({ ...subject, reader: await files.reader() });
      await openPeers([{ runtime: 'llama.cpp', open }], models, leftOut, hooks);
      leftOut.push({
        runtime: type ? 'onnxruntime-web, transformers.js, wllama' : 'wllama',
        why: `${type ? 'they run' : 'it runs'} in --host chrome`,
      });
    }
    const isGiven = (length: number): boolean =>
      type !== undefined && device.traits.software && length > LONGEST_SOFTWARE_PROMPT;
    filler =
      type && lengths.some(isGiven)
        ? await PromptFiller.open({
            config,
            reader: await files.reader(),
            type,
            runner: { contextLength, prefillChunk: 512, kvType: kvOf(weights) },
            folder: packages?.onnxruntimeWeb,
            signal,
          })
        : undefined;
    for (const length of lengths) {
      const prompt = randomPrompt(length, config.vocabSize);
      if (isGiven(length)) onProgress(`computing a prompt of ${length} tokens for all`);
      const beginning = isGiven(length) ? { prompt, ...(await filler!.present(prompt, signal)) } : { prompt };
      results.push(...(await raceModels(models, beginning, { weights, maxTokens, runs }, leftOut, hooks)));
    }
    return {
      adapters: [{ ...device.adapter, name: device.name }],
      results,
      measurements: results.flatMap(measurements),
      leftOut,
    };
  } finally {
    for (const model of models) await model.dispose();
    await filler?.dispose();
    ort?.close();
    device.dispose();
  }
}

function measurements(result: PeerResult): Measurement[] {
  const { task, tokens, runtime, device, unit, samples, ttft_samples: firsts } = result;
  const setting = { runtime, device, ...(tokens !== undefined && { tokens }) };
  const better = unit === 'us' ? 'lower' : 'higher';
  return [
    { metric: task, unit, better, setting, samples },
    ...(firsts
      ? [{ metric: 'time to first token', unit: 'ms', better: 'lower' as const, setting, samples: firsts }]
      : []),
  ];
}

export function peersTable(results: readonly PeerResult[], leftOut: readonly LeftOut[]): string {
  const operators = results.filter(({ unit }) => unit === 'us');
  const answers = results.filter(({ unit }) => unit !== 'us');
  const parts: string[] = [];
  if (operators.length > 0) {
    parts.push(
      alignedTable(
        [
          ['operator', 'runtime', 'tokens', 'us', 'ours / it', 'error'],
          ...operators.map((result) => [
            result.task,
            result.runtime,
            result.tokens === undefined ? '-' : String(result.tokens),
            decimals(result.value),
            ratio(result.speed_ratio),
            result.error!.toExponential(1),
          ]),
        ],
        2,
      ),
    );
  }
  const calls = (result: PeerResult): string[] =>
    result.calls
      ? [result.calls.dispatches, result.calls.submits, result.calls.maps].map((number) => number.toFixed(1))
      : ['-', '-', '-'];
  parts.push(
    alignedTable(
      [
        [
          'runtime',
          'device',
          'tokens',
          'tokens/s',
          'ours / it',
          'TTFT ms',
          'ours / it',
          'dispatches',
          'submits',
          'maps',
          'same',
          'logits',
        ],
        ...answers.map((result) => [
          result.runtime,
          result.device,
          String(result.tokens),
          decimals(result.value),
          ratio(result.speed_ratio),
          result.ttft_ms === undefined ? 'given' : decimals(result.ttft_ms),
          result.ttft_ratio === undefined ? '-' : ratio(result.ttft_ratio),
          ...calls(result),
          String(result.same_tokens),
          result.error === undefined ? '-' : result.error.toExponential(1),
        ]),
      ],
      2,
    ),
    `Medians of ${results[0]!.samples.length} interleaved runs. ours / it: our speed over its, with 95% intervals. dispatches, submits, maps: of a token. ` +
      'same: greedy tokens, from the first on, that are ours. logits, error: the largest difference from ours, over the largest number. ' +
      'TTFT given: the context was computed once for all.\n',
    alignedTable(
      [
        ['not timed', 'tokens', 'why'],
        ...leftOut.map(({ runtime, tokens, why }) => [runtime, tokens === undefined ? 'any' : String(tokens), why]),
      ],
      3,
    ),
  );
  return parts.join('\n');
}
