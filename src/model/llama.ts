import { attentionMerge } from '../../shaders/attention/attention_merge/index.js';
import { attentionPrefill } from '../../shaders/attention/attention_prefill/index.js';
import { attentionSplit } from '../../shaders/attention/attention_split/index.js';
import { embedding } from '../../shaders/embedding/embedding/index.js';
import { canFuseNorm, linear } from '../../shaders/linear/linear/index.js';
import { linearTiled } from '../../shaders/linear/linear_tiled/index.js';
import { swiglu } from '../../shaders/mlp/swiglu/index.js';
import { rmsNorm } from '../../shaders/norm/rms_norm/index.js';
import { ropeAppend } from '../../shaders/rope/rope_append/index.js';
import { alignUp, ceilDiv } from '../base/math.js';
import type { Buffer, Device, Recorder, Tensor } from '../gpu/index.js';
import type { KvCache } from './kv_cache.js';
import type { LlamaConfig } from './llama_config.js';
import type { LlamaLayerWeights, LlamaWeights } from './llama_weights.js';
import type { Matrix } from './matrix.js';

/** Tokens a chunk, and merge lanes a sequence: fixed by the numerics contract, never by a plan. */
export const CHUNK = 256;
export const LANES = 8;
/** Equal parts of the down projection's contraction. */
const DOWN_SEGMENTS = { total: 8, align: 32 };
const ONE_SEGMENT = { total: 1, align: 32 };

/** Activation rows are padded to this many elements; the padding stays zero. */
const stride = (width: number): number => alignUp(width, 32);

/**
 * What a row is decides its kernels: prompt rows run in tiles, generated rows through split-KV. A row's bits depend on its role
 * only, never on how many rows run with it.
 */
export type Role = 'prompt' | 'generated';

/** Buffers that the forward program of some rows works in. `rows` is the most that a step may have. */
export interface RowBuffers {
  readonly role: Role;
  readonly rows: number;
  /** u32 [rows]: token ids. */
  readonly tokens: Buffer;
  /** vec2<u32> [rows]: (position, slot); position 0xffffffff marks an inactive row. */
  readonly rowInfo: Buffer;
  /** f32 [rows][stride(hiddenSize)]: the residual stream; after the program, the last layer's output. */
  readonly x: Buffer;
  readonly normed: Buffer | undefined;
  readonly qkv: Buffer;
  readonly attended: Buffer;
  readonly gateUp: Buffer | undefined;
  readonly hidden: Buffer;
  readonly partialO: Buffer;
  readonly partialMl: Buffer;
}

/** A sequence's place in the cache, shared by all rows. */
export interface CacheView {
  readonly cache: KvCache;
  /** u32 [slots][tableStride]: physical block of each logical block. */
  readonly blockTable: Buffer;
  readonly tableStride: number;
  /** Most 256-token chunks that a sequence can have. */
  readonly maxChunks: number;
  /** f32 (cos, sin) [positions][headDim / 2]. */
  readonly ropeTable: Buffer;
}

/** The forward program of the Llama family, recorded once and replayed each step. */
export class LlamaForward {
  readonly hiddenStride: number;
  readonly logitsStride: number;
  readonly #qkvStride: number;
  readonly #attendedStride: number;
  readonly #gateUpRows: number;

  constructor(
    readonly device: Device,
    readonly config: LlamaConfig,
    readonly weights: LlamaWeights,
    readonly view: CacheView,
  ) {
    this.hiddenStride = stride(config.hiddenSize);
    this.logitsStride = stride(config.vocabSize);
    this.#qkvStride = stride(weights.layers[0]!.qkv.outFeatures);
    this.#attendedStride = stride(config.numHeads * config.headDim);
    this.#gateUpRows = weights.layers[0]!.gateUp.outFeatures;
  }

  /** Partial attention states a row may have: one a chunk when generating, one a merge lane for prompts. */
  #partials(role: Role): number {
    return role === 'prompt' ? Math.min(LANES, this.view.maxChunks) : this.view.maxChunks;
  }

  #fusesNorm(role: Role, rows: number): boolean {
    return role === 'generated' && rows === 1 && canFuseNorm(this.config.hiddenSize, this.device.traits);
  }

  allocateRows(role: Role, rows: number, shared?: { tokens: Buffer; rowInfo: Buffer }): RowBuffers {
    const { config, device } = this;
    const partials = rows * config.numHeads * this.#partials(role);
    const floats = (name: string, count: number): Buffer => device.createBuffer(`${role} ${name}`, count * 4);
    return {
      role,
      rows,
      tokens: shared?.tokens ?? floats('tokens', rows),
      rowInfo: shared?.rowInfo ?? floats('row_info', rows * 2),
      x: floats('x', rows * this.hiddenStride),
      normed: this.#fusesNorm(role, rows) ? undefined : floats('normed', rows * this.hiddenStride),
      qkv: floats('qkv', rows * this.#qkvStride),
      attended: floats('attended', rows * this.#attendedStride),
      gateUp: role === 'prompt' ? floats('gate_up', rows * this.#gateUpRows) : undefined,
      hidden: floats('hidden', rows * stride(config.intermediateSize)),
      partialO: floats('partial_o', partials * config.headDim),
      partialMl: floats('partial_ml', partials * 2),
    };
  }

  /** Embedding and every layer, for the rows in `buffers`. */
  recordLayers(recorder: Recorder, buffers: RowBuffers): void {
    const { config, weights } = this;
    for (const shard of weights.embedding.shards) {
      recorder.dispatch(
        embedding,
        {
          rows: buffers.rows,
          hidden: config.hiddenSize,
          outStride: this.hiddenStride,
          type: weights.type,
          shardFirst: shard.firstRow,
          shardRows: shard.rows,
        },
        { tokens: buffers.tokens, weight: shard.weight, scale: shard.scale, out: buffers.x },
      );
    }
    for (const [layer, layerWeights] of weights.layers.entries()) {
      this.#recordAttention(recorder, buffers, layer, layerWeights);
      this.#recordMlp(recorder, buffers, layerWeights);
    }
  }

  #recordAttention(recorder: Recorder, buffers: RowBuffers, layer: number, weights: LlamaLayerWeights): void {
    const { config, view } = this;
    const { rows, role } = buffers;
    const { k, v } = view.cache.layers[layer]!;
    const shape = {
      rows,
      heads: config.numHeads,
      kvHeads: config.numKvHeads,
      headDim: config.headDim,
      kvType: view.cache.type,
      block: view.cache.block,
      tableStride: view.tableStride,
    };
    this.#recordLinear(recorder, buffers, weights.qkv, {
      x: buffers.x,
      xStride: this.hiddenStride,
      norm: weights.inputNorm,
      bias: weights.qkvBias,
      out: buffers.qkv,
      outStride: this.#qkvStride,
    });
    recorder.dispatch(
      ropeAppend,
      { ...shape, qkNorm: weights.qNorm !== undefined, eps: config.rmsNormEps, qkvStride: this.#qkvStride },
      {
        qkv: buffers.qkv,
        rope_table: view.ropeTable,
        q_norm: weights.qNorm,
        k_norm: weights.kNorm,
        row_info: buffers.rowInfo,
        block_table: view.blockTable,
        k_cache: k,
        v_cache: v,
      },
    );
    const partials = this.#partials(role);
    const attention = {
      ...shape,
      maxChunks: view.maxChunks,
      qStride: this.#qkvStride,
      scale: config.headDim ** -0.5,
    };
    const tensors = {
      q: buffers.qkv,
      k_cache: k,
      v_cache: v,
      row_info: buffers.rowInfo,
      block_table: view.blockTable,
      partial_o: buffers.partialO,
      partial_ml: buffers.partialMl,
    };
    if (role === 'prompt') recorder.dispatch(attentionPrefill, { ...attention, lanes: partials }, tensors);
    else recorder.dispatch(attentionSplit, attention, tensors);
    recorder.dispatch(
      attentionMerge,
      { rows, heads: config.numHeads, headDim: config.headDim, partials, outStride: this.#attendedStride },
      { partial_o: buffers.partialO, partial_ml: buffers.partialMl, row_info: buffers.rowInfo, out: buffers.attended },
    );
    this.#recordLinear(recorder, buffers, weights.o, {
      x: buffers.attended,
      xStride: this.#attendedStride,
      segments: { total: config.numKvHeads, align: 8 },
      bias: weights.oBias,
      out: buffers.x,
      outStride: this.hiddenStride,
      epilogue: 'residual',
    });
  }

  #recordMlp(recorder: Recorder, buffers: RowBuffers, weights: LlamaLayerWeights): void {
    const { config } = this;
    const { rows, role } = buffers;
    const hiddenStride = stride(config.intermediateSize);
    const input = { x: buffers.x, xStride: this.hiddenStride, norm: weights.postNorm, bias: weights.gateUpBias };
    if (role === 'prompt') {
      const outStride = this.#gateUpRows;
      this.#recordLinear(recorder, buffers, weights.gateUp, { ...input, out: buffers.gateUp!, outStride });
      recorder.dispatch(
        swiglu,
        { rows, width: config.intermediateSize, inStride: outStride, upOffset: outStride / 2, outStride: hiddenStride },
        { x: buffers.gateUp!, out: buffers.hidden },
      );
    } else {
      this.#recordLinear(recorder, buffers, weights.gateUp, {
        ...input,
        outFeatures: config.intermediateSize,
        out: buffers.hidden,
        outStride: hiddenStride,
        epilogue: 'swiglu',
      });
    }
    this.#recordLinear(recorder, buffers, weights.down, {
      x: buffers.hidden,
      xStride: hiddenStride,
      segments: DOWN_SEGMENTS,
      bias: weights.downBias,
      out: buffers.x,
      outStride: this.hiddenStride,
      epilogue: 'residual',
    });
  }

  /**
   * Final norm and output head for `rows` rows of `x`; logits are f32 [rows][logitsStride]. Rows whose logits are wanted run
   * the generated rows' kernels, whatever their role was before.
   */
  recordHead(recorder: Recorder, x: Buffer, normed: Buffer | undefined, rows: number, logits: Buffer): void {
    this.#recordLinear(recorder, { role: 'generated', rows, normed }, this.weights.head, {
      x,
      xStride: this.hiddenStride,
      norm: this.weights.norm,
      out: logits,
      outStride: this.logitsStride,
    });
  }

  /** One projection: the norm fused or beside it, the kernel by role, one dispatch a shard. */
  #recordLinear(
    recorder: Recorder,
    buffers: Pick<RowBuffers, 'role' | 'rows' | 'normed'>,
    matrix: Matrix,
    io: {
      readonly x: Buffer;
      readonly xStride: number;
      readonly norm?: Buffer;
      readonly bias?: Buffer | undefined;
      readonly out: Buffer;
      readonly outStride: number;
      readonly outFeatures?: number;
      readonly segments?: { readonly total: number; readonly align: number };
      readonly epilogue?: 'none' | 'residual' | 'swiglu';
    },
  ): void {
    const { role, rows } = buffers;
    const { config } = this;
    const fused = io.norm !== undefined && this.#fusesNorm(role, rows);
    let x = io.x;
    if (io.norm && !fused) {
      x = buffers.normed!;
      recorder.dispatch(
        rmsNorm,
        { rows, width: matrix.inFeatures, stride: io.xStride, eps: config.rmsNormEps, residual: false },
        { x: io.x, weight: io.norm, out: x },
      );
    }
    for (const shard of matrix.shards) {
      const problem = {
        rows,
        inFeatures: matrix.inFeatures,
        outFeatures: io.outFeatures ?? shard.rows,
        type: matrix.type,
        segments: io.segments ?? ONE_SEGMENT,
        bias: io.bias !== undefined,
        xStride: io.xStride,
        outStride: io.outStride,
        outOffset: shard.firstRow,
      };
      const tensors = {
        x,
        weight: shard.weight,
        scale: shard.scale,
        bias: io.bias && biasOf(io.bias, shard.firstRow),
        out: io.out,
      };
      if (role === 'prompt') {
        recorder.dispatch(linearTiled, { ...problem, epilogue: io.epilogue === 'residual' ? 'residual' : 'none' }, tensors);
      } else {
        recorder.dispatch(
          linear,
          {
            ...problem,
            tileRows: tileRows(rows),
            norm: fused,
            eps: config.rmsNormEps,
            epilogue: io.epilogue ?? 'none',
          },
          { ...tensors, norm_weight: fused ? io.norm : undefined },
        );
      }
    }
  }
}

/** Rows that one workgroup takes at once; never changes a row's bits. */
const tileRows = (rows: number): 1 | 2 | 4 | 8 => (rows >= 8 ? 8 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1);

const biasOf = (bias: Buffer, firstRow: number): Tensor =>
  firstRow === 0 ? bias : { buffer: bias, offset: firstRow * 4, size: bias.size - firstRow * 4 };

/** 256-token chunks that a sequence of `tokens` tokens has. */
export const chunksOf = (tokens: number): number => ceilDiv(tokens, CHUNK);
