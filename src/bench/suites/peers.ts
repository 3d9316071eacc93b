import { unsupportedError, usageError } from '../../base/errors.js';
import { openModelFiles } from '../../engine/model_files.js';
import { type AdapterRequest, openDevice } from '../../gpu/index.js';
import { openSource } from '../../loader/index.js';
import { isDeepseek } from '../../model/config.js';
import type { Measurement, SuiteHooks, SuiteOutcome } from '../document.js';
import type { PeerWeights } from '../peers/decode_graph.js';
import { Ort } from '../peers/ort.js';
import { openOurs } from '../peers/ours.js';
import { openPagePeers, type PeerPackages } from '../peers/page_peers.js';
import type { PeerModel } from '../peers/peer_model.js';
import type { PeerResult } from '../peers/peer_result.js';
import { raceKernels } from '../peers/race_kernels.js';
import { raceModels } from '../peers/race_models.js';
import { randomPrompt } from '../prompt.js';
import { alignedTable, decimals, ratio } from '../table.js';

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
  readonly leftOut: readonly string[];
}

/** Runtimes on the same weights and the same adapter, in one run; one whose results differ isn't timed. */
export async function runPeers(request: PeersRequest, hooks: SuiteHooks): Promise<PeersOutcome> {
  const { signal, onProgress } = hooks;
  const { weights, maxTokens, runs, packages } = request;
  const source = await openSource(request.model, signal);
  const files = await openModelFiles(source, signal);
  const { config } = files;
  if (isDeepseek(config)) {
    throw unsupportedError(
      '--suite peers: the other runtimes are given models of the Llama family; choose such a model',
    );
  }
  const device = await openDevice(request.adapter);
  const lengths = (request.promptTokens ?? (device.traits.software ? [32, 128] : [128, 1024, 4096 - maxTokens])).filter(
    (length) => request.promptTokens !== undefined || length + maxTokens <= config.maxPositions,
  );
  const contextLength = Math.max(...lengths) + maxTokens;
  const models: PeerModel[] = [];
  let ort: Ort | undefined;
  try {
    if (contextLength > config.maxPositions) {
      throw usageError(
        `--prompt-tokens ${Math.max(...lengths)}: with ${maxTokens} more the model has room for ${config.maxPositions}; ask for fewer`,
      );
    }
    const { adapterName, powerPreference } = request.adapter;
    onProgress('loading the model in splitkv');
    const ourOptions = {
      weights,
      contextLength,
      signal,
      cache: false,
      ...(adapterName !== undefined && { adapter: adapterName }),
      ...(powerPreference && { powerPreference }),
    };
    models.push(await openOurs(request.model, ourOptions));
    const results: PeerResult[] = [];
    const leftOut = ['web-llm: needs a library compiled for each model, which no package carries'];
    const subject = { source, files, config, weights, contextLength };
    if (packages) {
      ort = await Ort.open(packages.onnxruntimeWeb, request.adapter.powerPreference);
      results.push(...(await raceKernels(device, ort, { lengths, size: 2048, runs }, leftOut, hooks)));
      leftOut.push(...(await openPagePeers(ort, packages, subject, models, hooks)));
    } else {
      const { openLlamaCpp } = await import('../peers/node_llama_cpp.js');
      onProgress('loading the model in llama.cpp');
      models.push(await openLlamaCpp({ ...subject, reader: await files.reader() }));
      leftOut.push('onnxruntime-web, transformers.js, wllama: they run in --host chrome');
    }
    for (const length of lengths) {
      results.push(
        ...(await raceModels(
          models,
          randomPrompt(length, config.vocabSize),
          { weights, maxTokens, runs },
          leftOut,
          hooks,
        )),
      );
    }
    return {
      adapters: [{ ...device.adapter, name: device.name }],
      results,
      measurements: results.flatMap(measurements),
      leftOut,
    };
  } finally {
    for (const model of models) await model.dispose();
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

export function peersTable(results: readonly PeerResult[], leftOut: readonly string[]): string {
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
          decimals(result.ttft_ms!),
          ratio(result.ttft_ratio!),
          ...calls(result),
          String(result.same_tokens),
          result.error === undefined ? '-' : result.error.toExponential(1),
        ]),
      ],
      2,
    ),
    `Medians of ${results[0]!.samples.length} interleaved runs. ours / it: our speed over its, with 95% intervals. dispatches, submits, maps: of a token. ` +
      `same: greedy tokens, from the first on, that are ours. logits, error: the largest difference from ours, over the largest number.\nNot run: ${leftOut.join('; ')}.\n`,
  );
  return parts.join('\n');
}
