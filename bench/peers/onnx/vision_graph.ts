import { unsupportedError } from '../../../src/base/errors.js';
import { range } from '../../../src/base/lists.js';
import type { TensorReader } from '../../../src/loader/index.js';
import { attentionOf, type ModelConfig } from '../../../src/model/config/model_config.js';
import { numbered } from '../../../src/model/config/tensor_names.js';
import { imageRows, patchGrid, type VisionConfig } from '../../../src/model/config/vision_config.js';
import { GraphBuilder, transposed, type OnnxModel, type Value } from './graph.js';

/** Names of what goes in and comes out. */
export const VISION_NAMES = {
  /** f32 [batch][images][3][side][side] */
  pixels: 'pixel_values',
  /** f32 [images][rows][the decoder's hidden size] */
  rows: 'image_features',
} as const;

/**
 * An Idefics 3's encoder as its ONNX exports have it: a convolution, layers of LayerNorm, fused attention and a plain MLP, and the projection
 * of patches that are joined. Weights are in the model's file.
 * @param type of weights and what is computed
 * @throws SplitkvError `unsupported` for another encoder
 */
export async function visionGraph(config: ModelConfig, reader: TensorReader, type: 'f32' | 'f16'): Promise<OnnxModel> {
  const { vision } = config;
  if (vision?.kind !== 'tiles')
    throw unsupportedError('the encoder graph for ONNX Runtime is of SmolVLM and Idefics 3; choose such a model');
  return new VisionGraph(vision, config.hiddenSize, reader, type).build();
}

class VisionGraph {
  readonly #graph = new GraphBuilder('vision', 'model');

  constructor(
    readonly vision: VisionConfig,
    readonly textWidth: number,
    readonly reader: TensorReader,
    readonly type: 'f32' | 'f16',
  ) {}

  async build(): Promise<OnnxModel> {
    const graph = this.#graph;
    const { tower, patch, image, merge } = this.vision;
    const { hiddenSize, layers, tensors } = tower;
    const [side] = patchGrid(this.vision);
    const given = graph.input(VISION_NAMES.pixels, 'f32', ['batch_size', 'num_images', 3, image, image]);
    const pixels = graph.op('Reshape', [graph.cast(given, this.type), graph.integers([-1, 3, image, image])]);
    const kernel = await this.#weights('vision.patches.weight', [hiddenSize, 3, patch, patch]);
    const convolved = graph.op('Conv', [pixels, kernel, await this.#weights('vision.patches.bias', [hiddenSize])], {
      kernel_shape: [patch, patch],
      strides: [patch, patch],
    });
    const flat = graph.op('Reshape', [convolved, graph.integers([0, hiddenSize, -1])]);
    const patches = graph.op('Transpose', [flat], { perm: [0, 2, 1] });
    let x = graph.op('Add', [patches, await this.#weights('vision.positions.weight', [side * side, hiddenSize])]);
    for (const layer of range(0, layers.length)) x = await this.#layer(x, layer);
    const normed = await this.#norm(x, String(tensors.norm));
    const across = side / merge;
    const turn = (value: Value, dims: readonly number[]): Value =>
      graph.op('Transpose', [graph.op('Reshape', [value, graph.integers([-1, ...dims])])], { perm: [0, 2, 1, 3] });
    const beside = turn(normed, [side, across, hiddenSize * merge]);
    const joined = turn(beside, [across, across, hiddenSize * merge * merge]);
    const width = hiddenSize * merge * merge;
    const rows = graph.op('Reshape', [joined, graph.integers([-1, across * across, width])]);
    graph.cast(await this.#linear(rows, 'vision.project', width, this.textWidth), 'f32', VISION_NAMES.rows);
    graph.output(VISION_NAMES.rows, 'f32', ['num_images', imageRows(this.vision), this.textWidth]);
    return graph.finish();
  }

  async #layer(x: Value, layer: number): Promise<Value> {
    const graph = this.#graph;
    const { tower } = this.vision;
    const { hiddenSize } = tower;
    const { heads } = attentionOf(tower, 'gqa');
    const { inputNorm, postNorm, gqa, plain } = numbered(tower.tensors, layer);
    const { mlp } = tower.layers[layer]!;
    const width = mlp.kind === 'plain' ? mlp.width : 0;
    const square = (value: Value, name: string): Promise<Value> =>
      this.#linear(value, name, hiddenSize, hiddenSize, true);
    const before = await this.#norm(x, inputNorm!);
    const [q, k, v] = [await square(before, gqa!.q), await square(before, gqa!.k), await square(before, gqa!.v)];
    const attended = graph.op('com.microsoft.MultiHeadAttention', [q, k, v], { num_heads: heads });
    const middle = graph.op('Add', [x, await square(attended, gqa!.o)]);
    const up = await this.#linear(await this.#norm(middle, postNorm!), plain!.up, hiddenSize, width, true);
    const activated = graph.op('com.microsoft.FastGelu', [up]);
    return graph.op('Add', [middle, await this.#linear(activated, plain!.down, width, hiddenSize, true)]);
  }

  async #norm(x: Value, name: string): Promise<Value> {
    const { hiddenSize, norm } = this.vision.tower;
    const [weight, bias] = [
      await this.#weights(`${name}.weight`, [hiddenSize]),
      await this.#weights(`${name}.bias`, [hiddenSize]),
    ];
    return this.#graph.op('LayerNormalization', [x, weight, bias], { axis: -1, epsilon: { float: norm.eps } });
  }

  async #linear(x: Value, name: string, columns: number, rows: number, bias = false): Promise<Value> {
    const graph = this.#graph;
    const matrix = transposed(await this.reader.readVector(`${name}.weight`), rows, columns);
    const out = graph.op('MatMul', [x, graph.floats(`${name}.weight`, matrix, [columns, rows], this.type)]);
    return bias ? graph.op('Add', [out, await this.#weights(`${name}.bias`, [rows])]) : out;
  }

  async #weights(name: string, dims: readonly number[]): Promise<Value> {
    return this.#graph.floats(name, await this.reader.readVector(name), dims, this.type);
  }
}
