import { halfFromFloat } from '../../shaders/linear/float16.js';
import type { WeightType } from '../../shaders/linear/pack.js';
import { unsupportedError } from '../../src/base/errors.js';
import { attentionOf, type ModelConfig } from '../../src/model/config/model_config.js';
import type { TensorReader } from '../../src/loader/index.js';
import { DECODE_NAMES, decodeGraph } from './kernels/decode_graph.js';
import type { Ort, OrtSession, OrtTensor } from './ort.js';
import { type Answering, greedy, type PeerModel } from './peer_model.js';
import { kvOf } from './peer_weights.js';

export const NO_F16 = 'its f16 graphs need shader-f16, which the adapter lacks';

export interface OrtModelOptions {
  readonly config: ModelConfig;
  readonly reader: TensorReader;
  readonly weights: WeightType;
  readonly contextLength: number;
}

/**
 * The model in onnxruntime-web, used as well as it can be: one session for prompt and steps, keys and values in one GPU buffer per layer that past and
 * present share, and nothing but the last row's logits read back.
 * @throws SplitkvError `unsupported` for f16 where the adapter has none
 */
export async function openOrtModel(ort: Ort, options: OrtModelOptions): Promise<PeerModel> {
  const { config, reader, weights, contextLength } = options;
  const { kvHeads, headDim } = attentionOf(config, 'gqa');
  const kv = kvOf(weights);
  if (kv === 'f16' && !ort.device.features.has('shader-f16')) throw unsupportedError(NO_F16);
  const names = config.layers
    .map((_, layer) =>
      (['key', 'value'] as const).map((which) => ({
        past: DECODE_NAMES.past(layer, which),
        present: DECODE_NAMES.present(layer, which),
      })),
    )
    .flat();
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
  const cacheDims = [1, kvHeads, contextLength, headDim];
  const caches = names.map(() => ort.onGpu(cacheDims, undefined, kv === 'f16' ? 'float16' : 'float32'));
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
  /** Answers after `prompt`, of whose tokens the first `before` are in the cache. */
  const answering = (prompt: readonly number[], before: number): Answering => {
    const logits = (): Promise<Float32Array> => run(prompt.slice(before), before);
    const after = (id: number, generated: number): Promise<Float32Array> => run([id], prompt.length + generated - 1);
    return { logits, answer: (maxTokens) => greedy(logits, after, maxTokens) };
  };
  return {
    name: 'onnxruntime-web',
    device: 'WebGPU',
    prompted: (prompt) => answering(prompt, 0),
    filled({ prompt, present: given }) {
      for (const [index, { data }] of given.entries()) {
        const bytes = kv === 'f16' ? Uint16Array.from(data, halfFromFloat) : data;
        const rowLength = bytes.length / kvHeads;
        const stride = contextLength * headDim * bytes.BYTES_PER_ELEMENT;
        for (let head = 0; head < kvHeads; head++) {
          const row = bytes.subarray(head * rowLength, (head + 1) * rowLength);
          ort.device.queue.writeBuffer(caches[index]!.gpuBuffer, head * stride, row);
        }
      }
      // The prompt's last token runs as the others do, so that the logits after it are there.
      return Promise.resolve(answering(prompt, prompt.length - 1));
    },
    async dispose() {
      await session.release();
      for (const { gpuBuffer } of caches) gpuBuffer.destroy();
    },
  };
}
