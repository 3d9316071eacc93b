import { SplitkvError, unsupportedError } from '../../src/base/errors.js';
import { isObject } from '../../src/base/json.js';
import { attentionOf } from '../../src/model/config/model_config.js';
import { decodeGraph, embeddingGraph } from './kernels/decode_graph.js';
import { VISION_NAMES, visionGraph } from './onnx/vision_graph.js';
import { NO_F16 } from './ort_model.js';
import {
  cachedAs,
  endless,
  FOLDER,
  greedyAnswer,
  onDevice,
  type TransformersOptions,
  transformersOf,
  type TransformersPlaces,
} from './transformers_js.js';

/** A model that takes pictures, as another runtime runs it. */
export interface VisionPeer {
  readonly name: string;
  readonly device: string;
  /** @param pixels f32 [3][side][side] of one tile, normalised. Resolves with f32 [rows][the decoder's hidden size] */
  encode(pixels: Float32Array): Promise<Float32Array>;
  /** Greedy tokens after a prompt whose placeholders are the rows of the tile. */
  answer(ids: readonly number[], pixels: Float32Array, maxTokens: number): Promise<readonly number[]>;
  dispose(): Promise<void>;
}

/**
 * A SmolVLM or Idefics 3 in transformers.js: the three graphs that its models have, its own joining of rows and ids, its generation loop.
 * @throws SplitkvError `unsupported` for another model, where the packages can't be loaded, or for f16 where the adapter has none
 */
export async function openTransformersVision(
  places: TransformersPlaces,
  { config, configJson, reader, weights, contextLength, device }: TransformersOptions,
): Promise<VisionPeer> {
  const { kvHeads, headDim } = attentionOf(config, 'gqa');
  if (weights !== 'f32' && !device.features.has('shader-f16')) throw unsupportedError(NO_F16);
  const graphs = { weights, positions: contextLength, lengths: 'mask', place: 'model', embedded: true } as const;
  // As ours: an encoder's matrices aren't quantised.
  const { model: encoder } = await visionGraph(config, reader, weights === 'f32' ? 'f32' : 'f16');
  const { model: decoder } = await decodeGraph(config, reader, graphs);
  const { model: table } = await embeddingGraph(config, reader, graphs);
  const { text_config: text } = configJson;
  const textConfig = { ...(isObject(text) && endless(text)), head_dim: headDim, num_key_value_heads: kvHeads };
  const { AutoModelForImageTextToText, Tensor, env } = await transformersOf(places, {
    'config.json': JSON.stringify({ ...endless(configJson), text_config: textConfig, ...cachedAs(weights) }),
    'onnx/vision_encoder.onnx': encoder,
    'onnx/embed_tokens.onnx': table,
    'onnx/decoder_model_merged.onnx': decoder,
  });
  const loaded = await AutoModelForImageTextToText.from_pretrained(FOLDER, onDevice(device));
  const { image } = config.vision!;
  const given = (pixels: Float32Array) => ({
    [VISION_NAMES.pixels]: new Tensor('float32', pixels, [1, 1, 3, image, image]),
  });
  return {
    name: `transformers.js ${env.version}`,
    device: 'WebGPU',
    async encode(pixels) {
      return (await loaded.encode_image(given(pixels))).data;
    },
    async answer(ids, pixels, maxTokens) {
      const { ids: made } = await greedyAnswer(loaded, Tensor, ids, maxTokens, given(pixels));
      if (made.length !== maxTokens)
        throw new SplitkvError('internal', `it gave ${made.length} tokens instead of ${maxTokens}`);
      return made;
    },
    async dispose() {
      await loaded.dispose();
    },
  };
}
