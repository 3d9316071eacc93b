import type { WeightType } from '../../../shaders/linear/pack.js';
import { unsupportedError } from '../../../src/base/errors.js';
import { GraphBuilder, transposed, type OnnxModel, type Value } from '../onnx/graph.js';
import type { TensorReader } from '../../../src/loader/index.js';
import type { ModelConfig } from '../../../src/model/config/model_config.js';
import { type DenseModel, denseModel } from '../onnx/dense_model.js';
import { numbered } from '../../../src/model/config/tensor_names.js';
import { ropeTable } from '../../../src/model/layers/attention/rope_table.js';
import { nBitsBlocks } from './n_bits_blocks.js';
import { asMultiplied } from '../peer_weights.js';

/** Names of the graph's inputs and outputs. */
export const DECODE_NAMES = {
  ids: 'input_ids',
  rows: 'inputs_embeds',
  mask: 'attention_mask',
  lastIndex: 'seqlens_k',
  total: 'total_sequence_length',
  logits: 'logits',
  past: (layer: number, which: 'key' | 'value') => `past_key_values.${layer}.${which}`,
  present: (layer: number, which: 'key' | 'value') => `present.${layer}.${which}`,
} as const;

export interface DecodeGraphOptions {
  /** f16: all of the graph computes in f16, and caches it. */
  readonly weights: WeightType;
  /** Positions that rotations are there for. */
  readonly positions: number;
  /** How the length is told: the counts themselves, or an attention mask, which transformers.js feeds. */
  readonly lengths: 'counts' | 'mask';
  /** True: rows are given, f32, in place of ids (`embeddingGraph` makes those of ids). */
  readonly embedded?: boolean;
  /** Where the weights are; transformers.js fetches one file. */
  readonly place: 'files' | 'model';
}

/**
 * A Llama-family model as ONNX Runtime runs it best: GroupQueryAttention with its rotation inside, over packed q, k and v; fused norms with
 * skips; MatMulNBits for q8 and q4. It is the graph that onnxruntime-genai's builder exports; the logits are of the last row.
 */
export async function decodeGraph(
  config: ModelConfig,
  reader: TensorReader,
  options: DecodeGraphOptions,
): Promise<OnnxModel> {
  return new DecodeGraph(plainModel(config), reader, options).build();
}

function plainModel(config: ModelConfig): DenseModel {
  const model = denseModel(config);
  if (model && !model.attention.qkNorm) return model;
  throw unsupportedError(
    'the decode graph for ONNX Runtime has grouped-query attention without q and k norms, and dense MLPs; choose such a model',
  );
}

/** The rows of ids, f32, for a graph that is given rows. @throws as `decodeGraph` */
export async function embeddingGraph(
  config: ModelConfig,
  reader: TensorReader,
  options: DecodeGraphOptions,
): Promise<OnnxModel> {
  return new DecodeGraph(plainModel(config), reader, options).embedding();
}

class DecodeGraph {
  readonly #graph: GraphBuilder;
  /** Of activations, caches and what isn't quantised. */
  readonly #type: 'f32' | 'f16';

  constructor(
    readonly model: DenseModel,
    readonly reader: TensorReader,
    readonly options: DecodeGraphOptions,
  ) {
    this.#graph = new GraphBuilder('decode', options.place);
    this.#type = options.weights === 'f16' ? 'f16' : 'f32';
  }

  async build(): Promise<OnnxModel> {
    const graph = this.#graph;
    const { config, attention, mlp } = this.model;
    const { hiddenSize, vocabSize, layers, tensors } = config;
    const { heads, kvHeads, headDim, scale } = attention;
    const names = DECODE_NAMES;
    const kvDims = (length: string) => ['batch_size', kvHeads, length, headDim];
    const length = ['batch_size', 'sequence_length'];
    const given = this.options.embedded ? graph.input(names.rows, 'f32', [...length, hiddenSize]) : undefined;
    const [lastIndex, total] = this.#lengths();
    const [cos, sin] = this.#rotations();
    let skip = given === undefined ? await this.#embedded() : graph.cast(given, this.#type);
    let normed = await this.#norm(skip, undefined, `${numbered(tensors.inputNorm!, 0)}.weight`);
    for (let layer = 0; layer < layers.length; layer++) {
      const named = numbered(tensors, layer);
      const { q, k, v, o: output } = named.gqa!;
      const { gate: gateName, up: upName, down } = named.gated!;
      const qkv = await this.#linear(normed.normed, [q, k, v], hiddenSize);
      const past = (['key', 'value'] as const).map((which) =>
        graph.input(names.past(layer, which), this.#type, kvDims('past_sequence_length')),
      );
      const present = (['key', 'value'] as const).map((which) => names.present(layer, which));
      const attended = `attention_${layer}`;
      graph.node(
        'com.microsoft.GroupQueryAttention',
        [qkv, '', '', ...past, lastIndex, total, cos, sin],
        [attended, ...present],
        { num_heads: heads, kv_num_heads: kvHeads, scale: { float: scale }, do_rotary: 1 },
      );
      for (const name of present) graph.output(name, this.#type, kvDims('present_sequence_length'));
      const o = await this.#linear(attended, [output], heads * headDim);
      const middle = await this.#norm(normed.sum, o, `${named.postNorm}.weight`);
      const gate = await this.#linear(middle.normed, [gateName], hiddenSize);
      const up = await this.#linear(middle.normed, [upName], hiddenSize);
      const silu = graph.op('Mul', [gate, graph.op('Sigmoid', [gate])]);
      const hidden = graph.op('Mul', [silu, up]);
      skip = await this.#linear(hidden, [down], mlp.width);
      const next = layer + 1 < layers.length ? numbered(tensors.inputNorm!, layer + 1) : tensors.norm;
      normed = await this.#norm(middle.sum, skip, `${next}.weight`);
    }
    const last = graph.op('Gather', [normed.normed, graph.integers([-1])], { axis: 1 });
    const head = config.tieWordEmbeddings ? tensors.embedding : tensors.head;
    const logits = await this.#linear(last, [head], hiddenSize);
    graph.cast(logits, 'f32', names.logits);
    graph.output(names.logits, 'f32', ['batch_size', 1, vocabSize]);
    return graph.finish();
  }

  async embedding(): Promise<OnnxModel> {
    const rows = await this.#embedded();
    this.#graph.cast(rows, 'f32', DECODE_NAMES.rows);
    this.#graph.output(DECODE_NAMES.rows, 'f32', ['batch_size', 'sequence_length', this.model.config.hiddenSize]);
    return this.#graph.finish();
  }

  async #embedded(): Promise<Value> {
    const { hiddenSize, vocabSize, tensors } = this.model.config;
    const ids = this.#graph.input(DECODE_NAMES.ids, 'i64', ['batch_size', 'sequence_length']);
    const table = await this.#rows([`${tensors.embedding}.weight`]);
    const rows = asMultiplied(this.options.weights, table, hiddenSize);
    return this.#graph.op('Gather', [this.#weights('embedding', rows, [vocabSize, hiddenSize]), ids], { axis: 0 });
  }

  /** i32 [batch]: the index of the last token; i32 [1]: tokens in all. */
  #lengths(): [Value, Value] {
    const graph = this.#graph;
    const names = DECODE_NAMES;
    if (this.options.lengths === 'counts') {
      return [graph.input(names.lastIndex, 'i32', ['batch_size']), graph.input(names.total, 'i32', [1])];
    }
    const mask = graph.input(names.mask, 'i64', ['batch_size', 'total_sequence_length']);
    const sum = graph.op('ReduceSum', [mask, graph.integers([1])], { keepdims: 0 });
    const last = graph.cast(graph.op('Sub', [sum, graph.integers([1])]), 'i32');
    const total = graph.cast(graph.op('Gather', [graph.op('Shape', [mask]), graph.integers([1])], { axis: 0 }), 'i32');
    return [last, total];
  }

  /** [positions][head_dim / 2] each. */
  #rotations(): [Value, Value] {
    const { positions } = this.options;
    const table = ropeTable(this.model.attention.rope, positions);
    const half = this.model.attention.headDim / 2;
    const [cos, sin] = [0, 1].map((part) => table.filter((_, index) => index % 2 === part));
    return [this.#weights('rope_cos', cos!, [positions, half]), this.#weights('rope_sin', sin!, [positions, half])];
  }

  /** RMSNorm of x + y (or of x), and that sum. */
  async #norm(
    x: Value,
    y: Value | undefined,
    tensor: string,
  ): Promise<{ readonly normed: Value; readonly sum: Value }> {
    const graph = this.#graph;
    const weight = this.#weights(tensor, await this.#rows([tensor]), [this.model.config.hiddenSize]);
    const epsilon = { float: this.model.config.norm.eps };
    if (y === undefined) {
      return {
        normed: graph.op('SimplifiedLayerNormalization', [x, weight], { axis: -1, epsilon, stash_type: 1 }),
        sum: x,
      };
    }
    const [normed, sum] = [`${tensor}.normed`, `${tensor}.sum`];
    graph.node('com.microsoft.SkipSimplifiedLayerNormalization', [x, y, weight], [normed, '', '', sum], { epsilon });
    return { normed, sum };
  }

  /** x times the modules' weights, one below the other; with their biases, where they have any. */
  async #linear(x: Value, modules: readonly string[], inFeatures: number): Promise<Value> {
    const graph = this.#graph;
    const { weights } = this.options;
    const rows = await this.#rows(modules.map((module) => `${module}.weight`));
    const outFeatures = rows.length / inFeatures;
    const label = `${modules.join('+')}.matrix`;
    let out: Value;
    if (weights === 'q8' || weights === 'q4') {
      const { data, scales } = nBitsBlocks(weights, rows, outFeatures, inFeatures);
      const bits = weights === 'q8' ? 8 : 4;
      const blocks = inFeatures / 32;
      out = graph.op(
        'com.microsoft.MatMulNBits',
        [
          x,
          graph.weights(`${label}.${weights}`, data, [outFeatures, blocks, 4 * bits], 'u8'),
          graph.weights(`${label}.scales`, scales, [outFeatures * blocks]),
        ],
        { K: inFeatures, N: outFeatures, bits, block_size: 32 },
      );
    } else {
      const matrix = transposed(rows, outFeatures, inFeatures);
      out = graph.op('MatMul', [x, this.#weights(label, matrix, [inFeatures, outFeatures])]);
    }
    const biases = modules.map((module) => `${module}.bias`).filter((bias) => this.reader.index.tensors.has(bias));
    if (biases.length === 0) return out;
    return graph.op('Add', [out, this.#weights(`${label}.bias`, await this.#rows(biases), [outFeatures])]);
  }

  /** Weights of the graph's own type. */
  #weights(name: Value, data: Float32Array<ArrayBuffer>, dims: readonly number[]): Value {
    return this.#graph.floats(name, data, dims, this.#type);
  }

  /** Tensors one below the other. */
  async #rows(tensors: readonly string[]): Promise<Float32Array<ArrayBuffer>> {
    const pieces: Float32Array[] = [];
    for (const tensor of tensors) pieces.push(await this.reader.readVector(tensor));
    const all = new Float32Array(pieces.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const piece of pieces) {
      all.set(piece, at);
      at += piece.length;
    }
    return all;
  }
}
