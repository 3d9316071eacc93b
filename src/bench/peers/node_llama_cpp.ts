import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Token } from 'node-llama-cpp';
import { unsupportedError } from '../../base/errors.js';
import type { TensorReader } from '../../loader/index.js';
import type { LlamaConfig } from '../../model/llama_config.js';
import type { PeerWeights } from './decode_graph.js';
import { ggufBytes } from './gguf_bytes.js';
import type { PeerModel } from './peer_model.js';

export interface LlamaCppOptions {
  readonly config: LlamaConfig;
  readonly reader: TensorReader;
  readonly weights: PeerWeights;
  readonly contextLength: number;
}

/**
 * llama.cpp through node-llama-cpp, on one thread of the CPU, with its cache in f32 as ours is.
 * @throws SplitkvError `unsupported` where the package isn't installed or has no binary for this machine
 */
export async function openLlamaCpp({ config, reader, weights, contextLength }: LlamaCppOptions): Promise<PeerModel> {
  const { getLlama, LlamaLogLevel } = await import('node-llama-cpp').catch((error: unknown) => {
    throw unsupportedError(
      `--suite peers --host node needs the package node-llama-cpp (npm install): ${String(error)}`,
    );
  });
  const llama = await getLlama({ gpu: false, build: 'never', progressLogs: false, logLevel: LlamaLogLevel.error });
  const folder = await mkdtemp(join(tmpdir(), 'splitkv-peers-'));
  try {
    const modelPath = join(folder, 'model.gguf');
    await writeFile(modelPath, await ggufBytes(config, reader, weights));
    const model = await llama.loadModel({ modelPath, gpuLayers: 0, useMmap: false });
    const context = await model.createContext({
      contextSize: Math.max(256, contextLength + 8),
      batchSize: 512,
      sequences: 1,
      threads: 1,
      flashAttention: false,
      experimentalKvCacheKeyType: 'F32',
      experimentalKvCacheValueType: 'F32',
    });
    const sequence = context.getSequence();
    return {
      name: 'llama.cpp',
      device: 'CPU, 1 thread',
      async logits(prompt) {
        await sequence.clearHistory();
        const last = prompt.length - 1;
        const results = await sequence.controlledEvaluate(
          prompt.map((id, at) => (at === last ? [id as Token, { generateNext: { logits: true } }] : (id as Token))),
        );
        const row = new Float32Array(config.vocabSize).fill(Number.NaN);
        for (const [token, logit] of results[last]!.next.logits!) row[token] = logit;
        return row;
      },
      async answer(prompt, maxTokens) {
        await sequence.clearHistory();
        const ids: number[] = [];
        const started = performance.now();
        let first = started;
        for await (const id of sequence.evaluate(prompt as Token[], { temperature: 0, yieldEogToken: true })) {
          if (ids.length === 0) first = performance.now();
          ids.push(id);
          if (ids.length === maxTokens) break;
        }
        return { ids, ttftMs: first - started, tokenMs: (performance.now() - first) / (maxTokens - 1) };
      },
      dispose: () => llama.dispose(),
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
