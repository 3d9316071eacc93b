import { mlaPrefill } from '../../../shaders/attention/mla_prefill/index.js';
import { mlaSplit } from '../../../shaders/attention/mla_split/index.js';
import { latentCacheBytes } from '../../../shaders/cache/latent_cache.js';
import { linearGrouped } from '../../../shaders/linear/linear_grouped/index.js';
import { mlaRopeAppend } from '../../../shaders/rope/mla_rope_append/index.js';
import { alignUp } from '../../base/math.js';
import type { Buffer, Device } from '../../gpu/index.js';
import { segmentRoutes, type StageTopology } from '../../placement/index.js';
import { attentionOf, expertsOf, type MlaConfig, type ModelConfig } from '../config/model_config.js';
import { DeepseekMlp, type MlpRows } from './deepseek_mlp.js';
import type { CacheOptions, Forward, RowBuffers } from './forward.js';
import type { Matrix } from '../weights/matrix.js';
import type { LayerWeights, MlaWeights, ModelWeights } from '../weights/model_weights.js';
import { fitRows, fusesNorm, recordLinear } from '../layers/linear/record_linear.js';
import { allocateParts, type Parts, partsFrom, recordReduce, segmentRegions } from '../layers/linear/parts.js';
import { activationStride, chunksOf, type Role, tileRows } from '../layers/roles.js';
import { ropeBuffer } from '../layers/attention/rope_table.js';
import { queryHeads, spanLength } from '../shape.js';
import { SpreadAttention, stateFloats } from '../layers/attention/spread_attention.js';
import { ownRowInfo, recordStageRows, rowBlocks } from '../layers/stage_rows.js';
import { EmbeddingRanks } from '../layers/linear/vocab.js';
import type { RankRecorder, World } from '../layers/world.js';

export type DeepseekLayerWeights = LayerWeights<MlaWeights>;
export type DeepseekWeights = ModelWeights<DeepseekLayerWeights>;

/** The layers of one stage on this rank. */
interface DeepseekStage {
  readonly index: number;
  readonly topology: StageTopology;
  /** Empty on a rank that keeps cache only. */
  readonly layers: readonly DeepseekLayerWeights[];
  readonly latents: readonly Buffer[];
  /** Query heads of this rank's weights, or of its root's. */
  readonly heads: number;
  readonly projectStride: number;
  readonly qStride: number;
  readonly qAbsorbedStride: number;
  readonly latentOutStride: number;
  readonly attendedStride: number;
  /** Other ranks hold other segments of the contractions. */
  readonly split: boolean;
  readonly mlp: DeepseekMlp | undefined;
}

/** The rows of a stage, as a rank that only keeps their cache attends to them. */
interface StageRows {
  readonly attention: SpreadAttention;
  readonly computed: ComputedRows | undefined;
}

/** What a rank with weights works in. */
interface ComputedRows {
  /** q (or its bottleneck), then the latent and the rotary key: the layer's first projection. */
  readonly projected: Buffer;
  /** Normalised bottleneck, where there is one and its norm isn't fused. */
  readonly qNormed: Buffer | undefined;
  readonly q: Buffer | undefined;
  /** [rows][heads][kvLoraRank]: attention's output, still in the latent space. */
  readonly latentOut: Buffer;
  readonly attended: Buffer;
  readonly oParts: Parts | undefined;
  readonly mlp: MlpRows;
}

interface DeepseekRows extends RowBuffers {
  readonly embedding: EmbeddingRanks;
  readonly stages: readonly StageRows[];
}

/** A matrix a head. */
const groupedBy = (rows: number, heads: number, { type }: Matrix) => ({
  rows,
  tileRows: tileRows(rows),
  groups: heads,
  type,
  xOffset: 0,
  outOffset: 0,
});

/** Segments of o_proj's contraction: groups of query heads. */
const O_SEGMENTS = 8;

/**
 * The forward program of DeepSeek-V2, V3 and MiniCPM3 on one rank: multi-head latent attention with absorb, dense or expert MLPs.
 */
export class DeepseekForward implements Forward {
  /** Of every layer. */
  readonly attention: MlaConfig;
  readonly hiddenStride: number;
  readonly logitsStride: number;
  readonly cacheBytes: number;
  readonly cacheBytesPerToken: number;
  readonly headRows: number;
  readonly #stages: readonly DeepseekStage[];
  /** Where the rank has weights: what travels to others is rotated. */
  readonly #rope: Buffer | undefined;

  /** Allocates the latent cache and the rope table. @throws SplitkvError `limit` when a layer's latents exceed one binding. */
  constructor(
    readonly device: Device,
    readonly config: ModelConfig,
    readonly weights: DeepseekWeights,
    readonly options: CacheOptions,
    readonly world: World,
  ) {
    this.attention = attentionOf(config, 'mla');
    const { kvLoraRank, qkRopeHeadDim } = this.attention;
    const layerBytes = latentCacheBytes(
      { kvLoraRank, qkRopeHeadDim, kvType: options.type, block: options.block },
      options.numBlocks,
    );
    this.hiddenStride = activationStride(config.hiddenSize);
    this.logitsStride = activationStride(config.vocabSize);
    this.headRows = weights.head?.matrix.outFeatures ?? 0;
    this.#stages = world.topology.stages.flatMap((topology, index) =>
      topology ? [this.#stage(index, topology, layerBytes)] : [],
    );
    const layers = this.#stages.reduce((sum, { latents }) => sum + latents.length, 0);
    this.cacheBytes = layerBytes * layers;
    this.cacheBytesPerToken = this.cacheBytes / (options.block * options.numBlocks);
    this.#rope = this.#stages.some(({ layers }) => layers.length > 0)
      ? ropeBuffer(device, this.attention.rope, options.contextLength)
      : undefined;
  }

  #stage(index: number, topology: StageTopology, layerBytes: number): DeepseekStage {
    const { config, device, options, world } = this;
    const [first, end] = topology.stage.layers;
    const layers = this.weights.layers.filter((layer) => layer.index >= first && layer.index < end);
    const { holder } = topology;
    const heads = this.#headsOf(holder.heads);
    const { kvLoraRank, qkRopeHeadDim, qkNopeHeadDim, vHeadDim } = this.attention;
    return {
      index,
      topology,
      layers,
      latents: Array.from({ length: end - first }, (_, layer) =>
        device.createBuffer(
          `layers.${first + layer}.latent_cache (${options.block * options.numBlocks} tokens)`,
          layerBytes,
        ),
      ),
      heads,
      projectStride: activationStride(layers[0]?.attention.project!.outFeatures ?? 0),
      qStride: activationStride(heads * (qkNopeHeadDim + qkRopeHeadDim)),
      qAbsorbedStride: this.#qAbsorbedStrideOf(holder.heads),
      latentOutStride: activationStride(heads * kvLoraRank),
      attendedStride: activationStride(heads * vHeadDim),
      split: topology.groups.length > 1 && holder === topology.share,
      mlp: layers.length > 0 ? new DeepseekMlp(device, config, this.hiddenStride, world, topology, layers) : undefined,
    };
  }

  get cacheBuffers(): Forward['cacheBuffers'] {
    const blockBytes = this.cacheBytesPerToken * this.options.block;
    const layers = this.#stages.flatMap(({ latents }) => latents);
    return layers.map((buffer) => ({ buffer, blockBytes: blockBytes / layers.length }));
  }

  #headsOf(segments: readonly number[]): number {
    return segments.length === 0
      ? 0
      : spanLength(queryHeads(this.config, [segments[0]!, segments[0]! + segments.length]));
  }

  /** Elements from row to row of absorbed q and rotated q_pe, [heads][kvLoraRank + qkRopeHeadDim]; behind them the row's own token. */
  #qAbsorbedStrideOf(segments: readonly number[]): number {
    // Rows to ranks without weights travel with their tokens.
    const tokens = this.#headsOf(segments) + (this.world.all.stages.some(({ kind }) => kind === 'token') ? 1 : 0);
    return alignUp(tokens * (this.attention.kvLoraRank + this.attention.qkRopeHeadDim), 32);
  }

  promptRows(wanted: number): number {
    const chunks = chunksOf(this.options.contextLength);
    const widest = Math.max(
      this.hiddenStride,
      ...this.#stages.map((stage) =>
        Math.max(
          stateFloats(this.world, stage.topology, this.#attentionShape(stage), chunks),
          stage.projectStride,
          stage.qStride,
          stage.qAbsorbedStride,
          stage.latentOutStride,
          stage.attendedStride,
          stage.split ? O_SEGMENTS * (this.hiddenStride + 32) : 0,
          stage.mlp?.widestRow ?? 0,
        ),
      ),
    );
    return fitRows(this.device, wanted, widest * 4);
  }

  allocateRows(role: Role, rows: number, allRows = rows): DeepseekRows {
    const { config, device, world } = this;
    const floats = (name: string, count: number): Buffer => device.createBuffer(`${role} ${name}`, count * 4);
    const { qLoraRank } = this.attention;
    const fused = (width: number): boolean => fusesNorm(device, role, rows, width);
    const blocks = rowBlocks(world, role);
    const buffers: RowBuffers = {
      role,
      rows,
      tokens: floats('tokens', blocks * rows),
      rowInfo: floats('row_info', blocks * rows * 2),
      x: floats('x', rows * this.hiddenStride),
      // Experts and other ranks read the normalised rows, so theirs is never fused.
      normed:
        fused(config.hiddenSize) && !expertsOf(config) && !world.all.ownRows
          ? undefined
          : floats('normed', rows * this.hiddenStride),
    };
    return {
      ...buffers,
      embedding: new EmbeddingRanks(device, world, config, this.weights.embedding, buffers, this.hiddenStride),
      stages: this.#stages.map((stage): StageRows => {
        const { topology, mlp } = stage;
        const shape = this.#attentionShape(stage);
        const { rowInfo } = buffers;
        const attention = new SpreadAttention(device, device, world, topology, shape, { role, rows, rowInfo });
        if (!mlp) return { attention, computed: undefined };
        const computed: ComputedRows = {
          projected: floats('projected', rows * stage.projectStride),
          qNormed: qLoraRank === null || fused(qLoraRank) ? undefined : floats('q normed', rows * stage.projectStride),
          q: qLoraRank === null ? undefined : floats('q', rows * stage.qStride),
          latentOut: floats('latent out', rows * stage.latentOutStride),
          attended: floats('attended', rows * stage.attendedStride),
          oParts: stage.split ? allocateParts(device, role, 'o parts', O_SEGMENTS, rows, config.hiddenSize) : undefined,
          mlp: mlp.allocateRows(role, rows, allRows),
        };
        return { attention, computed };
      }),
    };
  }

  #attentionShape({ latentOutStride }: DeepseekStage) {
    return {
      headsOf: (segments: readonly number[]) => this.#headsOf(segments),
      queryStrideOf: (segments: readonly number[]) => this.#qAbsorbedStrideOf(segments),
      dim: this.attention.kvLoraRank,
      outStride: latentOutStride,
      uneven: false,
      contextLength: this.options.contextLength,
      chunkOffsets: this.options.chunkOffsets,
    };
  }

  recordLayers(recorder: RankRecorder, buffers: DeepseekRows): void {
    buffers.embedding.record(recorder, this.config.embeddingScale);
    const own = new Map(this.#stages.map((stage, at) => [stage.index, { stage, rows: buffers.stages[at]! }]));
    for (const index of this.world.plan.stages.keys()) {
      recordStageRows(recorder, this.world, index, buffers, this.hiddenStride);
      const held = own.get(index);
      if (!held) continue;
      const { stage, rows } = held;
      const { attention, computed } = rows;
      attention.recordRows(recorder);
      for (const [at, latentCache] of stage.latents.entries()) {
        const layer = stage.layers[at];
        if (computed) this.#recordProjection(recorder, buffers, stage, rows, computed, latentCache, layer!);
        attention.recordQueries(recorder);
        if (!computed) this.#recordAppend(recorder, stage, attention, latentCache);
        this.#recordAttention(recorder, buffers, attention, latentCache);
        attention.recordMerge(recorder, computed?.latentOut);
        if (!computed) continue;
        this.#recordOutput(recorder, buffers, stage, computed, layer!);
        stage.mlp!.record(recorder, buffers, computed.mlp, layer!);
      }
    }
  }

  get #latent() {
    const { kvLoraRank, qkRopeHeadDim } = this.attention;
    return { kvLoraRank, qkRopeHeadDim, kvType: this.options.type, block: this.options.block };
  }

  /** Queries, absorbed, and the latents; those of this rank's sequences into its cache. */
  #recordProjection(
    recorder: RankRecorder,
    buffers: DeepseekRows,
    stage: DeepseekStage,
    { attention }: StageRows,
    stageRows: ComputedRows,
    latentCache: Buffer,
    layer: DeepseekLayerWeights,
  ): void {
    const weights = layer.attention;
    const { config, options } = this;
    const { rows, role } = buffers;
    const { heads } = stage;
    const qAbsorbed = attention.ownQueries!;
    const qAbsStride = attention.input.queryStride;
    const { kvLoraRank, qkRopeHeadDim, qkNopeHeadDim } = this.attention;
    recordLinear(recorder, buffers, weights.project!, {
      x: buffers.x,
      xStride: this.hiddenStride,
      norm: { weight: layer.inputNorm, eps: config.rmsNormEps },
      bias: weights.projectBias,
      out: stageRows.projected,
      outStride: stage.projectStride,
    });
    let q = { buffer: stageRows.projected, stride: stage.projectStride };
    if (weights.qUp) {
      q = { buffer: stageRows.q!, stride: stage.qStride };
      recordLinear(recorder, { role, rows, normed: stageRows.qNormed }, weights.qUp, {
        x: stageRows.projected,
        xStride: stage.projectStride,
        norm: { weight: weights.qNorm!, eps: this.attention.loraNormEps },
        out: q.buffer,
        outStride: q.stride,
      });
    }
    recorder.dispatch(
      mlaRopeAppend,
      {
        ...this.#latent,
        rows,
        heads,
        ...(attention.sendsReady && { latents: 'kept' as const }),
        qkNopeHeadDim,
        eps: this.attention.loraNormEps,
        tableStride: options.tableStride,
        qStride: q.stride,
        kvStride: stage.projectStride,
        kvOffset: weights.latentOffset,
        qAbsStride,
      },
      {
        q: q.buffer,
        kv_a: stageRows.projected,
        norm_weight: weights.latentNorm,
        rope_table: this.#rope,
        row_info: ownRowInfo(this.world, buffers),
        block_table: options.blockTable,
        latent_cache: latentCache,
        q_abs: qAbsorbed,
      },
    );
    recorder.dispatch(
      linearGrouped,
      {
        ...groupedBy(rows, heads, weights.absorb!),
        inFeatures: qkNopeHeadDim,
        outFeatures: kvLoraRank,
        xStride: q.stride,
        xGroupStride: qkNopeHeadDim + qkRopeHeadDim,
        outStride: qAbsStride,
        outGroupStride: kvLoraRank + qkRopeHeadDim,
      },
      { x: q.buffer, weight: weights.absorb!.shards[0]!.weight, out: qAbsorbed },
    );
  }

  /** On a rank without weights: tokens as they came, behind the queries. */
  #recordAppend(
    recorder: RankRecorder,
    { heads }: DeepseekStage,
    { input }: SpreadAttention,
    latentCache: Buffer,
  ): void {
    const { kvLoraRank, qkRopeHeadDim, qkNopeHeadDim, loraNormEps: eps } = this.attention;
    const { queries, queryStride, rowInfo, rowsOf, rows } = input;
    recorder.dispatch(
      mlaRopeAppend,
      {
        ...this.#latent,
        rows,
        heads,
        latents: 'ready',
        qkNopeHeadDim,
        eps,
        tableStride: this.options.tableStride,
        qStride: alignUp(heads * (qkNopeHeadDim + qkRopeHeadDim), 4),
        kvStride: queryStride,
        kvOffset: heads * (kvLoraRank + qkRopeHeadDim),
        qAbsStride: queryStride,
      },
      { kv_a: queries, row_info: rowInfo, block_table: this.options.blockTable, latent_cache: latentCache },
      rowsOf,
    );
  }

  /** Attention over the chunks of this rank. */
  #recordAttention(
    recorder: RankRecorder,
    { role }: DeepseekRows,
    { input, share, layout, partials, target }: SpreadAttention,
    latentCache: Buffer,
  ): void {
    const { options } = this;
    const problem = {
      ...this.#latent,
      rows: input.rows,
      heads: input.heads,
      queryPieces: input.pieces,
      share,
      tableStride: options.tableStride,
      qStride: input.queryStride,
      scale: this.attention.scale,
    };
    const tensors = {
      q_abs: input.queries,
      latent_cache: latentCache,
      row_info: input.rowInfo,
      block_table: options.blockTable,
      chunk_offsets: options.chunkOffsets,
      ...target,
    };
    if (role === 'prompt') {
      const lanes = { lanes: partials, maxChunks: chunksOf(options.contextLength) };
      recorder.dispatch(mlaPrefill, { ...problem, ...lanes, partialLayout: layout }, tensors, input.rowsOf);
    } else {
      recorder.dispatch(mlaSplit, { ...problem, maxChunks: partials }, tensors, input.rowsOf);
    }
  }

  /** Attention's outputs out of the latent space, and o_proj. */
  #recordOutput(
    recorder: RankRecorder,
    buffers: DeepseekRows,
    stage: DeepseekStage,
    stageRows: ComputedRows,
    layer: DeepseekLayerWeights,
  ): void {
    const weights = layer.attention;
    const { config } = this;
    const { kvLoraRank, vHeadDim } = this.attention;
    const { heads, topology } = stage;
    recorder.dispatch(
      linearGrouped,
      {
        ...groupedBy(buffers.rows, heads, weights.valueUp!),
        inFeatures: kvLoraRank,
        outFeatures: vHeadDim,
        xStride: stage.latentOutStride,
        xGroupStride: kvLoraRank,
        outStride: stage.attendedStride,
        outGroupStride: vHeadDim,
      },
      { x: stageRows.latentOut, weight: weights.valueUp!.shards[0]!.weight, out: stageRows.attended },
    );
    const input = { x: stageRows.attended, xStride: stage.attendedStride, segments: weights.oSegments };
    const parts = stageRows.oParts;
    if (!parts) {
      recordLinear(recorder, buffers, weights.o!, {
        ...input,
        bias: weights.oBias,
        out: buffers.x,
        outStride: this.hiddenStride,
        epilogue: 'residual',
        outScale: config.residualScale,
      });
      return;
    }
    recordLinear(recorder, buffers, weights.o!, {
      ...input,
      out: partsFrom(parts, weights.oSegments.first),
      outStride: parts.stride,
      output: 'segments',
    });
    const routes = segmentRoutes(this.world.all, topology.index, buffers.role, 'heads');
    this.world.exchangeRoutes(recorder, 'o_proj', routes, segmentRegions(this.world, buffers.role, parts));
    recordReduce(recorder, parts, {
      width: config.hiddenSize,
      bias: weights.oBias,
      out: buffers.x,
      outStride: this.hiddenStride,
      outScale: config.residualScale,
      epilogue: 'residual',
    });
  }

  recordHead(recorder: RankRecorder, x: Buffer, normed: Buffer | undefined, rows: number, logits: Buffer): void {
    const { head, norm } = this.weights;
    if (!head) return;
    recordLinear(recorder, { role: 'generated', rows, normed }, head.matrix, {
      x,
      xStride: this.hiddenStride,
      norm: { weight: norm!, eps: this.config.rmsNormEps },
      out: logits,
      outStride: this.logitsStride,
      outOffset: head.firstRow,
      outScale: this.config.logitScale,
    });
  }
}
