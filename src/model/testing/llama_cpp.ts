import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import type { Llama, Token } from 'node-llama-cpp';

/** llama.cpp on the CPU, by its prebuilt binary; the reason as text where there is none for this platform. */
export async function findLlamaCpp(): Promise<Llama | string> {
  try {
    const { getLlama, LlamaLogLevel } = await import('node-llama-cpp');
    return await getLlama({ gpu: false, build: 'never', progressLogs: false, logLevel: LlamaLogLevel.error });
  } catch (error) {
    return `node-llama-cpp can't run here: ${(error as Error).message}`;
  }
}

/**
 * Logits [tokens.length][vocabSize] as llama.cpp computes them in f32, with an f32 KV cache, on one thread: an oracle that shares
 * nothing with this project but the weights.
 */
export async function llamaCppLogits(
  llama: Llama,
  ggufPath: string,
  tokens: readonly number[],
  adapter?: { readonly filePath: string; readonly scale: number },
): Promise<Float32Array[]> {
  const model = await llama.loadModel({ modelPath: ggufPath, gpuLayers: 0, useMmap: false });
  try {
    const context = await model.createContext({
      contextSize: Math.max(256, tokens.length + 8),
      batchSize: Math.max(32, tokens.length),
      sequences: 1,
      threads: 1,
      flashAttention: false,
      experimentalKvCacheKeyType: 'F32',
      experimentalKvCacheValueType: 'F32',
      ...(adapter && { lora: { adapters: [adapter] } }),
    });
    const results = await context
      .getSequence()
      .controlledEvaluate(tokens.map((token) => [token as Token, { generateNext: { logits: true } }]));
    return tokens.map((_, position) => {
      const logits = results[position]?.next.logits;
      if (logits === undefined) throw new Error(`llama.cpp gave no logits at position ${position}`);
      const row = new Float32Array(model.fileInfo.metadata.tokenizer.ggml.tokens.length).fill(Number.NaN);
      for (const [token, logit] of logits) row[token] = logit;
      return row;
    });
  } finally {
    await model.dispose();
  }
}

/** A text's vector as llama.cpp pools it, of whatever length. */
export async function llamaCppEmbedding(
  llama: Llama,
  ggufPath: string,
  tokens: readonly number[],
): Promise<readonly number[]> {
  const model = await llama.loadModel({ modelPath: ggufPath, gpuLayers: 0, useMmap: false });
  try {
    const context = await model.createEmbeddingContext({
      contextSize: Math.max(256, tokens.length + 8),
      batchSize: Math.max(256, tokens.length + 8),
      threads: 1,
    });
    return (await context.getEmbeddingFor(tokens as Token[])).vector;
  } finally {
    await model.dispose();
  }
}

/** Reads files of the sources that node-llama-cpp's llama.cpp was built from, which it brings along. @param folder for a clone of them */
export function llamaCppSources(folder: string): (path: string) => Buffer {
  const bundle = 'node_modules/node-llama-cpp/llama/gitRelease.bundle';
  const clone = join(folder, 'llama.cpp');
  execFileSync('git', ['clone', '--quiet', '--no-checkout', bundle, clone], { stdio: 'ignore' });
  return (path) => execFileSync('git', ['-C', clone, 'show', `HEAD:${path}`], { maxBuffer: 2 ** 26 });
}
