import { attentionMerge } from '../../shaders/attention/attention_merge/index.js';
import { attentionPrefill } from '../../shaders/attention/attention_prefill/index.js';
import { attentionSplit } from '../../shaders/attention/attention_split/index.js';
import { ropeAppend } from '../../shaders/rope/rope_append/index.js';
import type { Buffer, Device, Recorder } from '../gpu/index.js';
import type { CacheOptions, Forward, RowBuffers } from './forward.js';
import { allocateKvCache, type KvCache, kvBytesPerToken } from './kv_cache.js';
import type { LlamaConfig } from './llama_config.js';
import type { LlamaLayerWeights, LlamaWeights } from './llama_weights.js';
import { fitRows, fusesNorm, recordEmbedding, recordLinear, recordSwiglu } from './record_linear.js';
import { activationStride, chunksOf, partialsOf, type Role } from './roles.js';
import { ropeTable } from './rope_table.js';

interface LlamaRows extends RowBuffers {
  readonly qkv: Buffer;
  readonly attended: Buffer;
  /** Prompt rows only: generated rows fuse SwiGLU into the projection. */
  readonly gateUp: Buffer | undefined;
  readonly hidden: Buffer;
  readonly partialO: Buffer;
  readonly partialMl: Buffer;
}

/** The forward program of the Llama family. */
export class LlamaForward implements Forward {
  readonly hiddenStride: number;
  readonly logitsStride: number;
  readonly cacheBytes: number;
  readonly cacheBytesPerToken: number;
  readonly #cache: KvCache;
  readonly #rope: Buffer;
  readonly #maxChunks: number;
  readonly #qkvStride: number;
  readonly #attendedStride: number;
  readonly #mlpStride: number;
  readonly #gateUpRows: number;

  /** Allocates the cache and the rope table. @throws SplitkvError `limit` when a layer's K or V exceeds one binding. */
  constructor(
    readonly device: Device,
    readonly config: LlamaConfig,
    readonly weights: LlamaWeights,
    readonly options: CacheOptions,
  ) {
    this.#cache = allocateKvCache(device, {
      numLayers: config.numLayers,
      numKvHeads: config.numKvHeads,
      headDim: config.headDim,
      type: options.type,
      block: options.block,
      numBlocks: options.numBlocks,
    });
    this.cacheBytes = this.#cache.bytes;
    this.cacheBytesPerToken = kvBytesPerToken(this.#cache);
    const table = ropeTable(config, options.contextLength);
    this.#rope = device.createBuffer('rope_table', table.byteLength);
    device.write(this.#rope, 0, table);
    this.#maxChunks = chunksOf(options.contextLength);
    this.hiddenStride = activationStride(config.hiddenSize);
    this.logitsStride = activationStride(config.vocabSize);
    this.#qkvStride = activationStride(weights.layers[0]!.qkv!.outFeatures);
    this.#attendedStride = activationStride(config.numHeads * config.headDim);
    this.#mlpStride = activationStride(config.intermediateSize);
    this.#gateUpRows = weights.layers[0]!.gateUp!.outFeatures;
  }

  promptRows(wanted: number): number {
    const { numHeads, headDim } = this.config;
    const widest = Math.max(
      numHeads * partialsOf('prompt', this.#maxChunks) * headDim,
      this.#attendedStride,
      this.hiddenStride,
      this.#gateUpRows,
      this.#qkvStride,
    );
    return fitRows(this.device, wanted, widest * 4);
  }

  allocateRows(role: Role, rows: number): LlamaRows {
    const { config, device } = this;
    const partials = rows * config.numHeads * partialsOf(role, this.#maxChunks);
    const floats = (name: string, count: number): Buffer => device.createBuffer(`${role} ${name}`, count * 4);
    return {
      role,
      rows,
      tokens: floats('tokens', rows),
      rowInfo: floats('row_info', rows * 2),
      x: floats('x', rows * this.hiddenStride),
      normed: fusesNorm(device, role, rows, config.hiddenSize) ? undefined : floats('normed', rows * this.hiddenStride),
      qkv: floats('qkv', rows * this.#qkvStride),
      attended: floats('attended', rows * this.#attendedStride),
      gateUp: role === 'prompt' ? floats('gate_up', rows * this.#gateUpRows) : undefined,
      hidden: floats('hidden', rows * this.#mlpStride),
      partialO: floats('partial_o', partials * config.headDim),
      partialMl: floats('partial_ml', partials * 2),
    };
  }

  recordLayers(recorder: Recorder, buffers: LlamaRows): void {
    recordEmbedding(recorder, this.weights.embedding!.matrix, buffers, this.hiddenStride);
    for (const [layer, weights] of this.weights.layers.entries()) {
      this.#recordAttention(recorder, buffers, layer, weights);
      recordSwiglu(
        recorder,
        buffers,
        { ...weights, gateUp: weights.gateUp!, down: weights.down! },
        {
          x: buffers.x,
          xStride: this.hiddenStride,
          norm: { weight: weights.postNorm, eps: this.config.rmsNormEps },
          width: this.config.intermediateSize,
          gateUp: buffers.gateUp,
          hidden: buffers.hidden,
        },
      );
    }
  }

  #recordAttention(recorder: Recorder, buffers: LlamaRows, layer: number, weights: LlamaLayerWeights): void {
    const { config, options } = this;
    const { rows, role } = buffers;
    const { k, v } = this.#cache.layers[layer]!;
    const shape = {
      rows,
      heads: config.numHeads,
      kvHeads: config.numKvHeads,
      headDim: config.headDim,
      kvType: options.type,
      block: options.block,
      tableStride: options.tableStride,
    };
    recordLinear(recorder, buffers, weights.qkv!, {
      x: buffers.x,
      xStride: this.hiddenStride,
      norm: { weight: weights.inputNorm, eps: config.rmsNormEps },
      bias: weights.qkvBias,
      out: buffers.qkv,
      outStride: this.#qkvStride,
    });
    recorder.dispatch(
      ropeAppend,
      { ...shape, qkNorm: weights.qNorm !== undefined, eps: config.rmsNormEps, qkvStride: this.#qkvStride },
      {
        qkv: buffers.qkv,
        rope_table: this.#rope,
        q_norm: weights.qNorm,
        k_norm: weights.kNorm,
        row_info: buffers.rowInfo,
        block_table: options.blockTable,
        k_cache: k,
        v_cache: v,
      },
    );
    const partials = partialsOf(role, this.#maxChunks);
    const attention = {
      ...shape,
      maxChunks: this.#maxChunks,
      qStride: this.#qkvStride,
      scale: config.headDim ** -0.5,
    };
    const tensors = {
      q: buffers.qkv,
      k_cache: k,
      v_cache: v,
      row_info: buffers.rowInfo,
      block_table: options.blockTable,
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
    recordLinear(recorder, buffers, weights.o!, {
      x: buffers.attended,
      xStride: this.#attendedStride,
      segments: { total: config.numKvHeads, align: 8 },
      bias: weights.oBias,
      out: buffers.x,
      outStride: this.hiddenStride,
      epilogue: 'residual',
    });
  }

  recordHead(recorder: Recorder, x: Buffer, normed: Buffer | undefined, rows: number, logits: Buffer): void {
    recordLinear(recorder, { role: 'generated', rows, normed }, this.weights.head!.matrix, {
      x,
      xStride: this.hiddenStride,
      norm: { weight: this.weights.norm!, eps: this.config.rmsNormEps },
      out: logits,
      outStride: this.logitsStride,
    });
  }
}
