import { attentionMerge } from '../../shaders/attention/attention_merge/index.js';
import { mlaPrefill } from '../../shaders/attention/mla_prefill/index.js';
import { mlaSplit } from '../../shaders/attention/mla_split/index.js';
import { latentCacheBytes } from '../../shaders/cache/latent_cache.js';
import { linearGrouped } from '../../shaders/linear/linear_grouped/index.js';
import { mlaRopeAppend } from '../../shaders/rope/mla_rope_append/index.js';
import { alignUp } from '../base/math.js';
import type { Buffer, Device, Recorder } from '../gpu/index.js';
import type { DeepseekConfig } from './config.js';
import { DeepseekMlp, type MlpRows } from './deepseek_mlp.js';
import type { DeepseekLayerWeights, DeepseekWeights } from './deepseek_weights.js';
import type { CacheOptions, Forward, RowBuffers } from './forward.js';
import { fitRows, fusesNorm, recordEmbedding, recordLinear } from './record_linear.js';
import { activationStride, chunksOf, partialsOf, type Role, tileRows } from './roles.js';
import { ropeTable } from './rope_table.js';

interface DeepseekRows extends RowBuffers {
  /** q (or its bottleneck), then the latent and the rotary key: the layer's first projection. */
  readonly projected: Buffer;
  /** Normalised bottleneck, where there is one and its norm isn't fused. */
  readonly qNormed: Buffer | undefined;
  readonly q: Buffer | undefined;
  /** [rows][heads][kvLoraRank + qkRopeHeadDim]: absorbed q and rotated q_pe. */
  readonly qAbsorbed: Buffer;
  readonly partialO: Buffer;
  readonly partialMl: Buffer;
  /** [rows][heads][kvLoraRank]: attention's output, still in the latent space. */
  readonly latentOut: Buffer;
  readonly attended: Buffer;
  readonly mlp: MlpRows;
}

/** The forward program of DeepSeek-V2, V3 and MiniCPM3: multi-head latent attention with absorb, dense or expert MLPs. */
export class DeepseekForward implements Forward {
  readonly hiddenStride: number;
  readonly logitsStride: number;
  readonly cacheBytes: number;
  readonly cacheBytesPerToken: number;
  readonly #latents: readonly Buffer[];
  readonly #rope: Buffer;
  readonly #maxChunks: number;
  readonly #mlp: DeepseekMlp;
  readonly #projectStride: number;
  readonly #kvOffset: number;
  readonly #qStride: number;
  readonly #qAbsorbedStride: number;
  readonly #latentOutStride: number;
  readonly #attendedStride: number;

  /** Allocates the latent cache and the rope table. @throws SplitkvError `limit` when a layer's latents exceed one binding. */
  constructor(
    readonly device: Device,
    readonly config: DeepseekConfig,
    readonly weights: DeepseekWeights,
    readonly options: CacheOptions,
  ) {
    const { numHeads, kvLoraRank, qkRopeHeadDim, qkNopeHeadDim, vHeadDim } = config;
    const shape = { kvLoraRank, qkRopeHeadDim, kvType: options.type, block: options.block };
    const layerBytes = latentCacheBytes(shape, options.numBlocks);
    this.#latents = weights.layers.map((_, layer) =>
      device.createBuffer(`layers.${layer}.latent_cache (${options.block * options.numBlocks} tokens)`, layerBytes),
    );
    this.cacheBytes = layerBytes * config.numLayers;
    this.cacheBytesPerToken = this.cacheBytes / (options.block * options.numBlocks);
    const table = ropeTable(config, options.contextLength);
    this.#rope = device.createBuffer('rope_table', table.byteLength);
    device.write(this.#rope, 0, table);
    this.#maxChunks = chunksOf(options.contextLength);
    this.hiddenStride = activationStride(config.hiddenSize);
    this.logitsStride = activationStride(config.vocabSize);
    this.#projectStride = activationStride(weights.layers[0]!.project!.outFeatures);
    this.#kvOffset = weights.layers[0]!.project!.outFeatures - kvLoraRank - qkRopeHeadDim;
    this.#qStride = activationStride(numHeads * (qkNopeHeadDim + qkRopeHeadDim));
    this.#qAbsorbedStride = alignUp(numHeads * (kvLoraRank + qkRopeHeadDim), 32);
    this.#latentOutStride = activationStride(numHeads * kvLoraRank);
    this.#attendedStride = activationStride(numHeads * vHeadDim);
    this.#mlp = new DeepseekMlp(device, config, this.hiddenStride);
  }

  promptRows(wanted: number): number {
    const { numHeads, kvLoraRank } = this.config;
    const widest = Math.max(
      numHeads * partialsOf('prompt', this.#maxChunks) * kvLoraRank,
      this.hiddenStride,
      this.#projectStride,
      this.#qStride,
      this.#qAbsorbedStride,
      this.#latentOutStride,
      this.#attendedStride,
      this.#mlp.widestRow,
    );
    return fitRows(this.device, wanted, widest * 4);
  }

  allocateRows(role: Role, rows: number): DeepseekRows {
    const { config, device } = this;
    const partials = rows * config.numHeads * partialsOf(role, this.#maxChunks);
    const floats = (name: string, count: number): Buffer => device.createBuffer(`${role} ${name}`, count * 4);
    const { qLoraRank } = config;
    const fused = (width: number): boolean => fusesNorm(device, role, rows, width);
    return {
      role,
      rows,
      tokens: floats('tokens', rows),
      rowInfo: floats('row_info', rows * 2),
      x: floats('x', rows * this.hiddenStride),
      // Experts read the normalised rows, so theirs is never fused.
      normed: fused(config.hiddenSize) && !config.moe ? undefined : floats('normed', rows * this.hiddenStride),
      projected: floats('projected', rows * this.#projectStride),
      qNormed: qLoraRank === null || fused(qLoraRank) ? undefined : floats('q normed', rows * this.#projectStride),
      q: qLoraRank === null ? undefined : floats('q', rows * this.#qStride),
      qAbsorbed: floats('q absorbed', rows * this.#qAbsorbedStride),
      partialO: floats('partial_o', partials * config.kvLoraRank),
      partialMl: floats('partial_ml', partials * 2),
      latentOut: floats('latent out', rows * this.#latentOutStride),
      attended: floats('attended', rows * this.#attendedStride),
      mlp: this.#mlp.allocateRows(role, rows),
    };
  }

  recordLayers(recorder: Recorder, buffers: DeepseekRows): void {
    recordEmbedding(recorder, this.weights.embedding!.matrix, buffers, this.hiddenStride, this.config.scaleEmb);
    for (const [layer, weights] of this.weights.layers.entries()) {
      this.#recordAttention(recorder, buffers, layer, weights);
      this.#mlp.record(recorder, buffers, buffers.mlp, weights);
    }
  }

  #recordAttention(recorder: Recorder, buffers: DeepseekRows, layer: number, weights: DeepseekLayerWeights): void {
    const { config, options } = this;
    const { rows, role } = buffers;
    const { numHeads, kvLoraRank, qkRopeHeadDim, qkNopeHeadDim, vHeadDim } = config;
    const latent = { kvLoraRank, qkRopeHeadDim, kvType: options.type, block: options.block };
    recordLinear(recorder, buffers, weights.project!, {
      x: buffers.x,
      xStride: this.hiddenStride,
      norm: { weight: weights.inputNorm, eps: config.rmsNormEps },
      bias: weights.projectBias,
      out: buffers.projected,
      outStride: this.#projectStride,
    });
    let q = { buffer: buffers.projected, stride: this.#projectStride };
    if (weights.qUp) {
      q = { buffer: buffers.q!, stride: this.#qStride };
      recordLinear(recorder, { role, rows, normed: buffers.qNormed }, weights.qUp, {
        x: buffers.projected,
        xStride: this.#projectStride,
        norm: { weight: weights.qNorm!, eps: config.loraNormEps },
        out: q.buffer,
        outStride: q.stride,
      });
    }
    recorder.dispatch(
      mlaRopeAppend,
      {
        ...latent,
        rows,
        heads: numHeads,
        qkNopeHeadDim,
        eps: config.loraNormEps,
        tableStride: options.tableStride,
        qStride: q.stride,
        kvStride: this.#projectStride,
        kvOffset: this.#kvOffset,
        qAbsStride: this.#qAbsorbedStride,
      },
      {
        q: q.buffer,
        kv_a: buffers.projected,
        norm_weight: weights.latentNorm,
        rope_table: this.#rope,
        row_info: buffers.rowInfo,
        block_table: options.blockTable,
        latent_cache: this.#latents[layer],
        q_abs: buffers.qAbsorbed,
      },
    );
    const grouped = {
      rows,
      tileRows: tileRows(rows),
      groups: numHeads,
      type: weights.absorb!.type,
      xOffset: 0,
      outOffset: 0,
    };
    recorder.dispatch(
      linearGrouped,
      {
        ...grouped,
        inFeatures: qkNopeHeadDim,
        outFeatures: kvLoraRank,
        xStride: q.stride,
        xGroupStride: qkNopeHeadDim + qkRopeHeadDim,
        outStride: this.#qAbsorbedStride,
        outGroupStride: kvLoraRank + qkRopeHeadDim,
      },
      { x: q.buffer, weight: weights.absorb!.shards[0]!.weight, out: buffers.qAbsorbed },
    );
    const partials = partialsOf(role, this.#maxChunks);
    const attention = {
      ...latent,
      rows,
      heads: numHeads,
      maxChunks: this.#maxChunks,
      tableStride: options.tableStride,
      qStride: this.#qAbsorbedStride,
      scale: config.softmaxScale,
    };
    const tensors = {
      q_abs: buffers.qAbsorbed,
      latent_cache: this.#latents[layer],
      row_info: buffers.rowInfo,
      block_table: options.blockTable,
      partial_o: buffers.partialO,
      partial_ml: buffers.partialMl,
    };
    if (role === 'prompt') recorder.dispatch(mlaPrefill, { ...attention, lanes: partials }, tensors);
    else recorder.dispatch(mlaSplit, attention, tensors);
    recorder.dispatch(
      attentionMerge,
      { rows, heads: numHeads, headDim: kvLoraRank, partials, outStride: this.#latentOutStride },
      { partial_o: buffers.partialO, partial_ml: buffers.partialMl, row_info: buffers.rowInfo, out: buffers.latentOut },
    );
    recorder.dispatch(
      linearGrouped,
      {
        ...grouped,
        inFeatures: kvLoraRank,
        outFeatures: vHeadDim,
        xStride: this.#latentOutStride,
        xGroupStride: kvLoraRank,
        outStride: this.#attendedStride,
        outGroupStride: vHeadDim,
      },
      { x: buffers.latentOut, weight: weights.valueUp!.shards[0]!.weight, out: buffers.attended },
    );
    recordLinear(recorder, buffers, weights.o!, {
      x: buffers.attended,
      xStride: this.#attendedStride,
      // Eight groups of query heads, as even as whole heads allow.
      segments: { total: 8, align: vHeadDim },
      bias: weights.oBias,
      out: buffers.x,
      outStride: this.hiddenStride,
      epilogue: 'residual',
      outScale: config.residualScale,
    });
  }

  recordHead(recorder: Recorder, x: Buffer, normed: Buffer | undefined, rows: number, logits: Buffer): void {
    recordLinear(recorder, { role: 'generated', rows, normed }, this.weights.head!.matrix, {
      x,
      xStride: this.hiddenStride,
      norm: { weight: this.weights.norm!, eps: this.config.rmsNormEps },
      out: logits,
      outStride: this.logitsStride,
      outScale: this.config.logitScale,
    });
  }
}
