import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Token } from 'node-llama-cpp';
import { unsupportedError } from '../../src/base/errors.js';
import type { TensorReader } from '../../src/loader/index.js';
import type { ModelConfig } from '../../src/model/config/model_config.js';
import { ggufBytes } from './gguf_bytes.js';
import { kvOf, type PeerWeights } from './peer_weights.js';
import type { Answering, PeerModel } from './peer_model.js';

export interface LlamaCppOptions {
  readonly config: ModelConfig;
  readonly reader: TensorReader;
  readonly weights: PeerWeights;
  readonly contextLength: number;
}

/**
 * llama.cpp through node-llama-cpp, on one thread of the CPU, with its cache as ours is.
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
      experimentalKvCacheKeyType: kvOf(weights) === 'f16' ? 'F16' : 'F32',
      experimentalKvCacheValueType: kvOf(weights) === 'f16' ? 'F16' : 'F32',
    });
    const sequence = context.getSequence();
    /** Keeps the first `before` tokens of the prompt, which are there, and computes the others. */
    const answering = (prompt: readonly number[], before: number): Answering => {
      const rewind = async (): Promise<Token[]> => {
        if (before === 0) await sequence.clearHistory();
        else await sequence.eraseContextTokenRanges([{ start: before, end: sequence.nextTokenIndex }]);
        return prompt.slice(before) as Token[];
      };
      return {
        async logits() {
          const tokens = await rewind();
          const last = tokens.length - 1;
          const results = await sequence.controlledEvaluate(
            tokens.map((id, at) => (at === last ? [id, { generateNext: { logits: true } }] : id)),
          );
          const row = new Float32Array(config.vocabSize).fill(Number.NaN);
          for (const [token, logit] of results[last]!.next.logits!) row[token] = logit;
          return row;
        },
        async answer(maxTokens) {
          const tokens = await rewind();
          const ids: number[] = [];
          const started = performance.now();
          let first = started;
          for await (const id of sequence.evaluate(tokens, { temperature: 0, yieldEogToken: true })) {
            if (ids.length === 0) first = performance.now();
            ids.push(id);
            if (ids.length === maxTokens) break;
          }
          return { ids, ttftMs: first - started, tokenMs: (performance.now() - first) / (maxTokens - 1) };
        },
      };
    };
    return {
      name: 'llama.cpp',
      device: 'CPU, 1 thread',
      prompted: (prompt) => answering(prompt, 0),
      async filled({ prompt }) {
        const before = prompt.length - 1;
        await sequence.clearHistory();
        await sequence.evaluateWithoutGeneratingNewTokens(prompt.slice(0, before) as Token[]);
        return answering(prompt, before);
      },
      dispose: () => llama.dispose(),
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
