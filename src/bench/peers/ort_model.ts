import type { LlamaConfig } from '../../model/llama_config.js';
import type { TensorReader } from '../../loader/index.js';
import { DECODE_NAMES, decodeGraph, type PeerWeights } from './decode_graph.js';
import type { Ort, OrtSession, OrtTensor } from './ort.js';
import { argmax, type PeerModel } from './peer_model.js';

export interface OrtModelOptions {
  readonly config: LlamaConfig;
  readonly reader: TensorReader;
  readonly weights: PeerWeights;
  readonly contextLength: number;
}

/**
 * The model in onnxruntime-web, used as well as it can be: one session for prompt and steps, keys and values in one GPU buffer a layer that past and
 * present share, and nothing but the last row's logits read back.
 */
export async function openOrtModel(ort: Ort, options: OrtModelOptions): Promise<PeerModel> {
  const { config, reader, weights, contextLength } = options;
  const names = Array.from({ length: config.numLayers }, (_, layer) =>
    (['key', 'value'] as const).map((which) => ({
      past: DECODE_NAMES.past(layer, which),
      present: DECODE_NAMES.present(layer, which),
    })),
  ).flat();
  const graph = await decodeGraph(config, reader, {
    weights,
    positions: contextLength,
    lengths: 'counts',
    place: 'files',
  });
  const session: OrtSession = await ort.session(
    graph,
    names.map(({ present }) => present),
  );
  const caches = names.map(() => ort.onGpu([1, config.numKvHeads, contextLength, config.headDim]));
  const past = Object.fromEntries(names.map((name, index) => [name.past, caches[index]!]));
  const present = Object.fromEntries(names.map((name, index) => [name.present, caches[index]!]));

  /** Logits of the last of `ids`, which follow `before` tokens. */
  const run = async (ids: readonly number[], before: number): Promise<Float32Array> => {
    const total = before + ids.length;
    const feeds: Record<string, OrtTensor> = {
      ...past,
      [DECODE_NAMES.ids]: ort.integers(ids, [1, ids.length]),
      [DECODE_NAMES.lastIndex]: ort.tensor('int32', Int32Array.of(total - 1), [1]),
      [DECODE_NAMES.total]: ort.tensor('int32', Int32Array.of(total), [1]),
    };
    const results = await session.run(feeds, { ...present, [DECODE_NAMES.logits]: null });
    return results[DECODE_NAMES.logits]!.data;
  };
  return {
    name: 'onnxruntime-web',
    device: 'WebGPU',
    logits: (prompt) => run(prompt, 0),
    async answer(prompt, maxTokens) {
      const started = performance.now();
      const ids = [argmax(await run(prompt, 0))];
      const first = performance.now();
      while (ids.length < maxTokens) ids.push(argmax(await run([ids.at(-1)!], prompt.length + ids.length - 1)));
      return { ids, ttftMs: first - started, tokenMs: (performance.now() - first) / (maxTokens - 1) };
    },
    async dispose() {
      await session.release();
      for (const { gpuBuffer } of caches) gpuBuffer.destroy();
    },
  };
}
