import type { DenseModel } from './dense_model.js';
import { GraphBuilder, type OnnxModel, type Value } from './graph.js';

/** A matrix [rows, columns], row-major, or a vector. */
export interface GraphTensor {
  readonly data: Float32Array<ArrayBuffer>;
  readonly dims: readonly number[];
}

/** Weights of one layer, f32, as the ranks have them when they multiply. */
export interface LayerTensors {
  readonly inputNorm: GraphTensor;
  /** Rows of q, k and v. */
  readonly qkv: GraphTensor;
  readonly qkvBias: GraphTensor | undefined;
  readonly qNorm: GraphTensor | undefined;
  readonly kNorm: GraphTensor | undefined;
  readonly o: GraphTensor;
  readonly oBias: GraphTensor | undefined;
  readonly postNorm: GraphTensor;
  /** Rows of gate and up. */
  readonly gateUp: GraphTensor;
  readonly gateUpBias: GraphTensor | undefined;
  readonly down: GraphTensor;
  readonly downBias: GraphTensor | undefined;
}

/** Names of what goes in and comes out. T: rows of a run; P: tokens before; S = P + T. */
export const NAMES = {
  /** i64 [T] */
  tokens: 'input_ids',
  /** f32 [T][1][head_dim / 2] */
  cos: 'rope_cos',
  sin: 'rope_sin',
  /** f32 [T][S]: 0 where a row may look, otherwise far below every score. */
  mask: 'attention_mask',
  /** f32 [kv_heads][P][head_dim] */
  past: (layer: number, which: 'key' | 'value') => `past_key_values.${layer}.${which}`,
  /** f32 [kv_heads][S][head_dim] */
  present: (layer: number, which: 'key' | 'value') => `present.${layer}.${which}`,
  /** f32 [hidden]: the last layer's output for the last row, before the final norm. */
  lastRow: 'last_row',
} as const;

/**
 * The prefill graph of a dense model from plain operators: embedding, and layers of RMSNorm, rotary grouped-query attention
 * and SwiGLU. It ends at the last layer's output: the ranks that generate hold the head.
 */
export class LlamaGraph {
  readonly #graph = new GraphBuilder('prefill');
  readonly #cos: Value;
  readonly #sin: Value;
  readonly #mask: Value;
  readonly #scale: Value;
  readonly #eps: Value;
  #x: Value;
  #layer = 0;

  constructor(
    readonly model: DenseModel,
    embedding: GraphTensor,
  ) {
    const graph = this.#graph;
    const half = model.attention.headDim / 2;
    const tokens = graph.input(NAMES.tokens, 'i64', ['T']);
    this.#cos = graph.input(NAMES.cos, 'f32', ['T', 1, half]);
    this.#sin = graph.input(NAMES.sin, 'f32', ['T', 1, half]);
    this.#mask = graph.input(NAMES.mask, 'f32', ['T', 'S']);
    this.#scale = graph.scalar(model.attention.scale);
    this.#eps = graph.scalar(model.config.norm.eps);
    this.#x = graph.op('Gather', [graph.weights('embed_tokens', embedding.data, embedding.dims), tokens], { axis: 0 });
  }

  /** Appends the next layer. */
  add(layer: LayerTensors): void {
    const graph = this.#graph;
    const index = this.#layer++;
    const weights = (name: string, tensor: GraphTensor): Value =>
      graph.weights(`layers.${index}.${name}`, tensor.data, tensor.dims);
    const linear = (name: string, x: Value, matrix: GraphTensor, bias: GraphTensor | undefined): Value =>
      graph.op('Gemm', [x, weights(name, matrix), ...(bias ? [weights(`${name}_bias`, bias)] : [])], { transB: 1 });

    const normed = this.#rmsNorm(this.#x, weights('input_norm', layer.inputNorm));
    const attended = this.#attention(index, linear('qkv', normed, layer.qkv, layer.qkvBias), {
      q: layer.qNorm && weights('q_norm', layer.qNorm),
      k: layer.kNorm && weights('k_norm', layer.kNorm),
    });
    this.#x = graph.op('Add', [this.#x, linear('o', attended, layer.o, layer.oBias)]);

    const post = this.#rmsNorm(this.#x, weights('post_norm', layer.postNorm));
    const { width } = this.model.mlp;
    const both = linear('gate_up', post, layer.gateUp, layer.gateUpBias);
    const [gate, up] = graph.split('Split', [both, graph.integers([width, width])], 2, {
      axis: 1,
    });
    const silu = graph.op('Mul', [gate!, graph.op('Sigmoid', [gate!])]);
    const hidden = graph.op('Mul', [silu, up!]);
    this.#x = graph.op('Add', [this.#x, linear('down', hidden, layer.down, layer.downBias)]);
  }

  finish(): OnnxModel {
    const graph = this.#graph;
    const { hiddenSize } = this.model.config;
    // The row of index -1 is the last.
    const last = graph.op('Gather', [this.#x, graph.integers([-1])], { axis: 0 });
    graph.output(graph.op('Reshape', [last, graph.integers([hiddenSize])], {}, NAMES.lastRow), 'f32', [hiddenSize]);
    return graph.finish();
  }

  /** Over the last axis. */
  #rmsNorm(x: Value, weight: Value): Value {
    const graph = this.#graph;
    const mean = graph.op('ReduceMean', [graph.op('Mul', [x, x])], { axes: [-1], keepdims: 1 });
    const root = graph.op('Sqrt', [graph.op('Add', [mean, this.#eps])]);
    return graph.op('Mul', [graph.op('Div', [x, root]), weight]);
  }

  #attention(
    index: number,
    qkv: Value,
    norms: { readonly q: Value | undefined; readonly k: Value | undefined },
  ): Value {
    const graph = this.#graph;
    const { heads: numHeads, kvHeads: numKvHeads, headDim } = this.model.attention;
    const group = numHeads / numKvHeads;
    const widths = [numHeads * headDim, numKvHeads * headDim, numKvHeads * headDim];
    const [q, k, v] = graph.split('Split', [qkv, graph.integers(widths)], 3, { axis: 1 });
    // 0: as the input has.
    const heads = (x: Value, count: number): Value => graph.op('Reshape', [x, graph.integers([0, count, headDim])]);
    const rotated = (x: Value, count: number, norm: Value | undefined): Value => {
      const split = heads(x, count);
      return this.#rotate(norm === undefined ? split : this.#rmsNorm(split, norm));
    };
    const cached = (which: 'key' | 'value', x: Value): Value => {
      const past = graph.input(NAMES.past(index, which), 'f32', [numKvHeads, 'P', headDim]);
      const own = graph.op('Transpose', [x], { perm: [1, 0, 2] });
      const present = graph.op('Concat', [past, own], { axis: 1 }, NAMES.present(index, which));
      graph.output(present, 'f32', [numKvHeads, 'S', headDim]);
      return graph.op('Unsqueeze', [present, graph.integers([1])]);
    };
    const keys = cached('key', rotated(k!, numKvHeads, norms.k));
    const values = cached('value', heads(v!, numKvHeads));
    // [kv_heads][group][T][head_dim]
    const grouped = graph.op('Reshape', [
      rotated(q!, numHeads, norms.q),
      graph.integers([0, numKvHeads, group, headDim]),
    ]);
    const queries = graph.op('Transpose', [grouped], { perm: [1, 2, 0, 3] });
    const scores = graph.op('MatMul', [queries, graph.op('Transpose', [keys], { perm: [0, 1, 3, 2] })]);
    const masked = graph.op('Add', [graph.op('Mul', [scores, this.#scale]), this.#mask]);
    const attended = graph.op('MatMul', [graph.op('Softmax', [masked], { axis: -1 }), values]);
    const rows = graph.op('Transpose', [attended], { perm: [2, 0, 1, 3] });
    return graph.op('Reshape', [rows, graph.integers([0, numHeads * headDim])]);
  }

  /** Turns the pairs (x[i], x[i + head_dim / 2]) of each head. */
  #rotate(x: Value): Value {
    const graph = this.#graph;
    const half = this.model.attention.headDim / 2;
    const [low, high] = graph.split('Split', [x, graph.integers([half, half])], 2, { axis: 2 });
    const times = (a: Value, b: Value): Value => graph.op('Mul', [a, b]);
    const first = graph.op('Sub', [times(low!, this.#cos), times(high!, this.#sin)]);
    const second = graph.op('Add', [times(high!, this.#cos), times(low!, this.#sin)]);
    return graph.op('Concat', [first, second], { axis: 2 });
  }
}
