import { attentionPrefill } from '../../../shaders/attention/attention_prefill/index.js';
import { attentionSplit } from '../../../shaders/attention/attention_split/index.js';
import { ropeAppend } from '../../../shaders/rope/rope_append/index.js';
import type { Buffer, Device } from '../../gpu/index.js';
import { type RankShare, segmentRoutes, type StageTopology } from '../../placement/index.js';
import type { StageCompression } from '../compression/stage_compression.js';
import { attentionOf, type GqaConfig, type ModelConfig } from '../config/model_config.js';
import type { CacheOptions, Forward, RowBuffers } from './forward.js';
import { GatheredMlp, recordGatheredMlp } from '../layers/mlp/gathered_mlp.js';
import { GatheredRows } from '../layers/mlp/gathered_rows.js';
import { allocateKvCache, type KvCache, kvBytesPerToken } from '../layers/attention/kv_cache.js';
import type { GatedMlpWeights, GqaWeights, LayerWeights, ModelWeights } from '../weights/model_weights.js';
import { fitRows, fusesNorm, recordLinear, recordSwiglu } from '../layers/linear/record_linear.js';
import {
  allocateParts,
  headRegions,
  type Parts,
  partsFrom,
  recordReduce,
  segmentRegions,
} from '../layers/linear/parts.js';
import { activationStride, chunksOf, DOWN_SEGMENTS, type Role } from '../layers/roles.js';
import { ropeBuffer } from '../layers/attention/rope_table.js';
import { Scratch } from '../layers/scratch.js';
import { type MergeTables, SpreadAttention, stateFloats } from '../layers/attention/spread_attention.js';
import { recordStageRows, rowBlocks } from '../layers/stage_rows.js';
import { EmbeddingRanks } from '../layers/linear/vocab.js';
import type { RankRecorder, World } from '../layers/world.js';

export type LlamaLayerWeights = LayerWeights<GqaWeights, GatedMlpWeights>;
export type LlamaWeights = ModelWeights<LlamaLayerWeights>;

/** The layers of one stage on this rank. */
interface LlamaStage {
  readonly index: number;
  readonly topology: StageTopology;
  /** Empty on a rank that keeps cache only. */
  readonly layers: readonly LlamaLayerWeights[];
  readonly cache: KvCache;
  /** Query and kv heads of this rank's weights, or of its root's. */
  readonly heads: number;
  readonly kvHeads: number;
  readonly qkvStride: number;
  readonly mlpWidth: number;
  /** Other ranks hold other segments of the contractions. */
  readonly split: boolean;
  /** Of a per-head cache. */
  readonly compression: StageCompression | undefined;
  /** Where ranks with rows of their own share out the MLP: how many; else 0. */
  readonly gathers: number;
}

interface StageRows {
  /** Where the rank attends for some heads. */
  readonly attention: SpreadAttention | undefined;
  readonly attended: Buffer;
  /** Prompt rows only: generated rows fuse SwiGLU into the projection. */
  readonly gateUp: Buffer | undefined;
  readonly hidden: Buffer | undefined;
  readonly oParts: Parts | undefined;
  readonly downParts: Parts | undefined;
  /** Instead, where ranks run their own rows and share out the MLP. */
  readonly gathered: { readonly mlp: GatheredMlp; readonly x: Buffer } | undefined;
}

interface LlamaRows extends RowBuffers {
  readonly embedding: EmbeddingRanks;
  /** By stage of the plan. */
  readonly stages: ReadonlyMap<number, StageRows>;
}

/** kv heads whose cache a rank has, copies by their share. */
const ownHeads = ({ kvHeads, copies = [] }: RankShare): number =>
  copies.reduce((sum, { share }) => sum + share - 1, kvHeads.length);

/** The forward program of the Llama family on one rank. */
export class LlamaForward implements Forward {
  /** Of every layer. */
  readonly attention: GqaConfig;
  readonly hiddenStride: number;
  readonly logitsStride: number;
  readonly cacheBytes: number;
  readonly cacheBytesPerToken: number;
  readonly headBlockBytes: number;
  readonly headRows: number;
  readonly #stages: readonly LlamaStage[];
  /** Where the rank has weights: what travels to others is rotated. */
  readonly #rope: Buffer | undefined;

  /** Allocates the cache and the rope table. @throws SplitkvError `limit` when a layer's K or V exceeds one binding. */
  constructor(
    readonly device: Device,
    readonly config: ModelConfig,
    readonly weights: LlamaWeights,
    readonly options: CacheOptions,
    readonly world: World,
  ) {
    const scratch = new Scratch(device);
    this.attention = attentionOf(config, 'gqa');
    this.#stages = world.topology.stages.flatMap((topology, index) =>
      topology ? [this.#stage(index, topology, scratch)] : [],
    );
    this.cacheBytes = this.#stages.reduce((sum, { cache }) => sum + cache.bytes, 0);
    this.headBlockBytes =
      kvBytesPerToken({ headDim: this.attention.headDim, type: options.type, numLayers: 1, numKvHeads: 1 }) *
      options.block;
    this.cacheBytesPerToken = this.#stages.reduce(
      (sum, { cache, topology }) => sum + kvBytesPerToken({ ...cache, numKvHeads: ownHeads(topology.share) }),
      0,
    );
    this.#rope = this.#stages.some(({ layers }) => layers.length > 0)
      ? ropeBuffer(device, this.attention.rope!, options.contextLength)
      : undefined;
    this.hiddenStride = activationStride(config.hiddenSize);
    this.logitsStride = activationStride(config.vocabSize);
    this.headRows = weights.head?.matrix.outFeatures ?? 0;
  }

  #stage(index: number, topology: StageTopology, scratch: Scratch): LlamaStage {
    const { config, options } = this;
    const { share, stage, holder } = topology;
    const [first, end] = stage.layers;
    const [heads, kvHeads] = [this.#headsOf(holder.heads), holder.heads.length];
    const layers = this.weights.layers.filter((layer) => layer.index >= first && layer.index < end);
    return {
      index,
      topology,
      layers,
      cache: allocateKvCache(this.device, {
        firstLayer: first,
        numLayers: end - first,
        numKvHeads: share.kvHeads.length,
        headDim: this.attention.headDim,
        type: options.type,
        block: options.block,
        numBlocks: options.numBlocks,
        headBlocks: options.perHead?.headBlocks.get(first),
      }),
      heads,
      kvHeads,
      qkvStride: this.#qkvStrideOf(holder.heads),
      mlpWidth: layers[0] ? layers[0].mlp.downSegments.end - layers[0].mlp.downSegments.start : 0,
      split: topology.groups.length > 1 && holder === share,
      compression:
        options.perHead?.compression && heads > 0
          ? new options.perHead.compressor(this.device, this.world, config, options, topology, heads, scratch)
          : undefined,
      gathers: topology.kind === 'adp' && topology.cutsMlp ? topology.holders.length : 0,
    };
  }

  get cacheBuffers(): Forward['cacheBuffers'] {
    return this.#stages.flatMap(({ cache }) =>
      cache.layers.flatMap(({ k, v }) =>
        [k, v].map((buffer) => ({ buffer, blockBytes: cache.bytes / cache.layers.length / 2 / cache.numBlocks })),
      ),
    );
  }

  layerBuffers(layer: number): readonly Buffer[] {
    const { cache } = this.#stages.find(
      ({ topology: { stage } }) => layer >= stage.layers[0] && layer < stage.layers[1],
    )!;
    const { k, v } = cache.layers[layer - cache.firstLayer]!;
    return [k, v];
  }

  get compressions(): readonly StageCompression[] {
    return this.#stages.flatMap(({ compression }) => (compression ? [compression] : []));
  }

  #headsOf(segments: readonly number[]): number {
    return (segments.length * this.attention.heads) / this.attention.kvHeads;
  }

  #qkvStrideOf(segments: readonly number[]): number {
    return activationStride((this.#headsOf(segments) + 2 * segments.length) * this.attention.headDim);
  }

  promptRows(wanted: number): number {
    const { kvHeads: segments } = this.attention;
    const chunks = chunksOf(this.options.contextLength);
    const widest = Math.max(
      this.hiddenStride,
      ...this.#stages.map(({ heads, qkvStride, mlpWidth, split, gathers, topology }) =>
        Math.max(
          heads > 0 ? stateFloats(this.world, topology, this.#attentionShape(topology), chunks) : 0,
          qkvStride,
          2 * activationStride(mlpWidth) * Math.max(1, gathers),
          split ? Math.max(segments, DOWN_SEGMENTS.total) * (this.hiddenStride + 32) : 0,
          gathers > 0
            ? Math.max(DOWN_SEGMENTS.total, gathers * topology.share.mlp.length) * (this.hiddenStride + 32)
            : 0,
        ),
      ),
    );
    return fitRows(this.device, wanted, widest * 4);
  }

  allocateRows(role: Role, rows: number, allRows = rows): LlamaRows {
    const { config, device, world } = this;
    const floats = (name: string, count: number): Buffer => device.createBuffer(`${role} ${name}`, count * 4);
    const blocks = rowBlocks(world, role);
    const buffers: RowBuffers = {
      role,
      rows,
      tokens: floats('tokens', blocks * rows),
      rowInfo: floats('row_info', blocks * rows * 2),
      x: floats('x', rows * this.hiddenStride),
      // What other ranks read is never fused.
      normed:
        fusesNorm(device, role, rows, config.hiddenSize) && this.#stages.every(({ gathers }) => gathers === 0)
          ? undefined
          : floats('normed', rows * this.hiddenStride),
    };
    const scratch = new Scratch(device);
    const stages = this.#stages
      .toSorted((a, b) => b.heads - a.heads)
      .map((stage) => [stage.index, this.#stageRows(scratch, buffers, allRows, stage)] as const);
    return {
      ...buffers,
      embedding: new EmbeddingRanks(device, world, config, this.weights.embedding, buffers, this.hiddenStride),
      stages: new Map(stages),
    };
  }

  #stageRows(scratch: Scratch, { role, rows, rowInfo }: RowBuffers, allRows: number, stage: LlamaStage): StageRows {
    const { config, world, options } = this;
    const { topology } = stage;
    const floats = (name: string, count: number): Buffer => scratch.createBuffer(`${role} ${name}`, count * 4);
    const outStride = activationStride(stage.heads * this.attention.headDim);
    const parts = (name: string, count: number): Parts | undefined =>
      stage.split ? allocateParts(scratch, role, name, count, rows, config.hiddenSize) : undefined;
    // A prompt that is compressed is whole on every copy until it ends.
    const whole = role === 'prompt' && options.perHead?.compression !== undefined;
    const attention = (): SpreadAttention =>
      new SpreadAttention(this.device, scratch, world, topology, this.#attentionShape(topology), {
        role,
        rows,
        rowInfo,
        whole,
      });
    return {
      attention: stage.heads > 0 ? attention() : undefined,
      attended: floats('attended', rows * Math.max(outStride, 32)),
      ...(stage.gathers > 0
        ? { gateUp: undefined, hidden: undefined, gathered: this.#allocateGathered(role, rows, allRows, stage) }
        : {
            gateUp: role === 'prompt' ? floats('gate_up', rows * 2 * activationStride(stage.mlpWidth)) : undefined,
            hidden: floats('hidden', rows * activationStride(stage.mlpWidth)),
            gathered: undefined,
          }),
      oParts: parts('o parts', this.attention.kvHeads),
      downParts: parts('down parts', DOWN_SEGMENTS.total),
    };
  }

  #attentionShape({ holder }: StageTopology) {
    const { options } = this;
    return {
      headsOf: (segments: readonly number[]) => this.#headsOf(segments),
      queryStrideOf: (segments: readonly number[]) => this.#qkvStrideOf(segments),
      dim: this.attention.headDim,
      outStride: activationStride(this.#headsOf(holder.heads) * this.attention.headDim),
      uneven: options.perHead?.compression !== undefined,
      contextLength: options.contextLength,
      chunkOffsets: options.chunkOffsets,
    };
  }

  #allocateGathered(role: Role, rows: number, allRows: number, stage: LlamaStage): StageRows['gathered'] {
    const { device, config } = this;
    const gathered = new GatheredRows(device, role, allRows);
    return {
      mlp: new GatheredMlp(device, gathered, role, {
        name: 'down',
        rows,
        hiddenSize: config.hiddenSize,
        width: stage.mlpWidth,
        mlp: stage.topology.share.mlp,
      }),
      x: device.createBuffer(`${role} gathered x`, allRows * this.hiddenStride * 4),
    };
  }

  recordLayers(recorder: RankRecorder, buffers: LlamaRows, compresses = false): void {
    buffers.embedding.record(recorder, this.config.embeddingScale);
    const own = new Map(this.#stages.map((stage) => [stage.index, stage]));
    for (const index of this.world.plan.stages.keys()) {
      recordStageRows(recorder, this.world, index, buffers, this.hiddenStride);
      const stage = own.get(index);
      if (!stage) continue;
      const rows = buffers.stages.get(index)!;
      const { attention } = rows;
      const [first, end] = stage.topology.stage.layers;
      attention?.recordRows(recorder);
      for (let at = 0; at < end - first; at++) {
        const layer = stage.layers[at];
        if (layer?.attention.qkv) this.#recordProjection(recorder, buffers, attention!, layer);
        if (attention) {
          this.#recordAttention(recorder, buffers, stage, attention, at, layer);
          attention.recordMerge(recorder, rows.attended, this.#tables(stage, at));
          if (compresses) this.#recordCompression(recorder, stage, attention, at);
        }
        if (layer) {
          this.#recordOutput(recorder, buffers, stage, rows, layer);
          this.#recordMlp(recorder, buffers, stage, rows, layer);
        }
      }
    }
  }

  #recordProjection(
    recorder: RankRecorder,
    buffers: LlamaRows,
    attention: SpreadAttention,
    weights: LlamaLayerWeights,
  ): void {
    recordLinear(recorder, buffers, weights.attention.qkv!, {
      x: buffers.x,
      xStride: this.hiddenStride,
      norm: { weight: weights.inputNorm, eps: this.config.rmsNormEps },
      bias: weights.attention.qkvBias,
      out: attention.ownQueries!,
      outStride: attention.input.queryStride,
    });
  }

  /** Rotation of queries and keys, the append of those that this rank's chunks take, and attention over this rank's chunks. */
  #recordAttention(
    recorder: RankRecorder,
    buffers: LlamaRows,
    stage: LlamaStage,
    attention: SpreadAttention,
    at: number,
    weights: LlamaLayerWeights | undefined,
  ): void {
    const { config, options } = this;
    const { topology, cache } = stage;
    const { k, v } = cache.layers[at]!;
    const { input, sendsReady } = attention;
    const common = {
      rows: input.rows,
      heads: input.heads,
      kvHeads: input.segments.length,
      cacheKvHeads: cache.numKvHeads,
      firstKvHead: topology.share.kvHeads.indexOf(input.segments[0]!),
      headDim: this.attention.headDim,
      kvType: options.type,
      block: options.block,
      tableStride: options.tableStride,
      perHead: options.perHead !== undefined,
      queryPieces: input.pieces,
    };
    const tensors = { row_info: input.rowInfo, block_table: this.#blockTable(stage, at), k_cache: k, v_cache: v };
    // Rows to ranks without weights travel with their keys normalised and rotated: no other rank has the weights of the norms.
    const runs = topology.holder === topology.share;
    if (!(sendsReady && runs)) attention.recordQueries(recorder);
    recorder.dispatch(
      ropeAppend,
      {
        ...common,
        keys: sendsReady ? (runs ? 'kept' : 'ready') : undefined,
        qkNorm: weights?.attention.qNorm !== undefined,
        eps: config.rmsNormEps,
        qkvStride: input.queryStride,
      },
      {
        ...tensors,
        qkv: input.queries,
        rope_table: this.#rope,
        q_norm: weights?.attention.qNorm,
        k_norm: weights?.attention.kNorm,
      },
      // Also rows that others attend for.
      sendsReady && runs ? undefined : input.rowsOf,
    );
    if (sendsReady && runs) attention.recordQueries(recorder);
    const problem = {
      ...common,
      share: attention.share,
      qStride: input.queryStride,
      scale: this.attention.scale,
    };
    const io = { ...tensors, q: input.queries, chunk_offsets: options.chunkOffsets, ...attention.target };
    if (buffers.role === 'prompt') {
      const lanes = { lanes: attention.partials, maxChunks: chunksOf(options.contextLength) };
      recorder.dispatch(attentionPrefill, { ...problem, ...lanes, partialLayout: attention.layout }, io, input.rowsOf);
    } else {
      recorder.dispatch(attentionSplit, { ...problem, maxChunks: attention.partials }, io, input.rowsOf);
    }
  }

  /** What a merge must know of a per-head cache. */
  #tables(stage: LlamaStage, at: number): MergeTables | undefined {
    if (!this.options.perHead) return undefined;
    const { share, holder } = stage.topology;
    const perHead = {
      kvHeads: holder.heads.length,
      cacheKvHeads: stage.cache.numKvHeads,
      firstKvHead: share.kvHeads.indexOf(holder.heads[0]!),
      tableStride: this.options.tableStride,
      block: this.options.block,
    };
    return { perHead, blockTable: this.#blockTable(stage, at) };
  }

  /** A layer's block table: heads of a compressed cache have one each. */
  #blockTable({ topology }: LlamaStage, at: number): Buffer {
    const { perHead, blockTable } = this.options;
    return perHead ? perHead.tables.get(topology.stage.layers[0] + at)! : blockTable;
  }

  /** After attention of the rows that end a prompt. */
  #recordCompression(recorder: RankRecorder, stage: LlamaStage, attention: SpreadAttention, at: number): void {
    const { k, v } = stage.cache.layers[at]!;
    const { queries, queryStride, rowsOf } = attention.input;
    stage.compression!.record(recorder, at, {
      q: queries,
      qStride: queryStride,
      partialMl: attention.target.partial_ml,
      lanes: attention.partials,
      k,
      v,
      blockTable: this.#blockTable(stage, at),
      rowsOf,
    });
  }

  #recordOutput(
    recorder: RankRecorder,
    buffers: LlamaRows,
    stage: LlamaStage,
    rows: StageRows,
    weights: LlamaLayerWeights,
  ): void {
    const { config } = this;
    const { topology } = stage;
    const parts = rows.oParts;
    const xStride = activationStride(stage.heads * this.attention.headDim);
    let xOffset = 0;
    for (const { matrix, segments } of weights.attention.o) {
      const input = { x: rows.attended, xStride, xOffset, segments };
      xOffset += segments.end - segments.start;
      if (parts) {
        recordLinear(recorder, buffers, matrix, {
          ...input,
          out: partsFrom(parts, segments.first),
          outStride: parts.stride,
          output: 'segments',
        });
        continue;
      }
      recordLinear(recorder, buffers, matrix, {
        ...input,
        bias: weights.attention.oBias,
        out: buffers.x,
        outStride: this.hiddenStride,
        outScale: config.residualScale,
        epilogue: 'residual',
      });
    }
    if (!parts) return;
    const owners = this.options.perHead?.owners;
    const routes = segmentRoutes(this.world.all, topology.index, buffers.role, 'heads');
    const regions = owners
      ? headRegions(topology.index, parts, owners)
      : segmentRegions(this.world, buffers.role, parts);
    this.world.exchangeRoutes(recorder, 'o_proj', routes, regions);
    recordReduce(recorder, parts, {
      width: config.hiddenSize,
      bias: weights.attention.oBias,
      out: buffers.x,
      outStride: this.hiddenStride,
      outScale: config.residualScale,
      epilogue: 'residual',
    });
  }

  #recordMlp(
    recorder: RankRecorder,
    buffers: LlamaRows,
    stage: LlamaStage,
    rows: StageRows,
    weights: LlamaLayerWeights,
  ): void {
    const { config } = this;
    const parts = rows.downParts;
    const norm = { weight: weights.postNorm, eps: config.rmsNormEps };
    if (rows.gathered) {
      recordGatheredMlp(recorder, this.world, stage.index, buffers, rows.gathered.mlp, weights.mlp, {
        norm,
        gatheredX: rows.gathered.x,
        width: config.hiddenSize,
        stride: this.hiddenStride,
        outScale: config.residualScale,
      });
      return;
    }
    recordSwiglu(recorder, buffers, weights.mlp, {
      x: buffers.x,
      xStride: this.hiddenStride,
      norm,
      gateUp: rows.gateUp,
      hidden: rows.hidden!,
      parts,
      outScale: config.residualScale,
    });
    if (!parts) return;
    const routes = segmentRoutes(this.world.all, stage.index, buffers.role, 'mlp');
    this.world.exchangeRoutes(recorder, 'down_proj', routes, segmentRegions(this.world, buffers.role, parts));
    recordReduce(recorder, parts, {
      width: config.hiddenSize,
      bias: weights.mlp.downBias,
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
