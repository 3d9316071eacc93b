import { attentionPrefill } from '../../shaders/attention/attention_prefill/index.js';
import { attentionSplit } from '../../shaders/attention/attention_split/index.js';
import { ropeAppend } from '../../shaders/rope/rope_append/index.js';
import type { Buffer, Device, Recorder } from '../gpu/index.js';
import { isKvOnly, type RankShare } from '../placement/index.js';
import { AttentionRanks, type MergeTables, type StageAttention } from './attention_ranks.js';
import type { StageCompression } from './compression/stage_compression.js';
import { CopiedAttention, guestsOf } from './copied_attention.js';
import { DealtAttention } from './dealt_attention.js';
import type { CacheOptions, Forward, RowBuffers } from './forward.js';
import { GatheredMlp, recordGatheredMlp } from './gathered_mlp.js';
import { GatheredRows } from './gathered_rows.js';
import { allocateKvCache, type KvCache, kvBytesPerToken } from './kv_cache.js';
import type { LlamaConfig } from './llama_config.js';
import type { LlamaLayerWeights, LlamaWeights } from './llama_weights.js';
import { fitRows, fusesNorm, recordLinear, recordSwiglu } from './record_linear.js';
import { allocateParts, headTransfers, type Parts, partsFrom, recordReduce, segmentTransfers } from './record_ranks.js';
import { activationStride, chunksOf, DOWN_SEGMENTS, partialsOf, type Role } from './roles.js';
import { ropeBuffer } from './rope_table.js';
import { Scratch } from './scratch.js';
import { recordStageRows } from './stage_rows.js';
import type { StageTopology } from './topology.js';
import { EmbeddingRanks } from './vocab_ranks.js';
import type { World } from './world.js';

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
  readonly qkv: Buffer | undefined;
  /** Where the rank attends for some heads. */
  readonly attention: StageAttention | undefined;
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

/** Copies of this rank's heads hold other merge lanes of the same sequences. */
const sharesLanes = ({ share }: StageTopology, { plan }: World): boolean =>
  plan.sharing === 'lanes' && (share.copies ?? []).length > 0;

/** kv heads whose cache a rank has, copies by their share. */
const ownHeads = ({ kvHeads, copies = [] }: RankShare): number =>
  copies.reduce((sum, { share }) => sum + share - 1, kvHeads.length);

/** The forward program of the Llama family on one rank. */
export class LlamaForward implements Forward {
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
    readonly config: LlamaConfig,
    readonly weights: LlamaWeights,
    readonly options: CacheOptions,
    readonly world: World,
  ) {
    const scratch = new Scratch(device);
    this.#stages = world.topology.stages.flatMap((topology, index) =>
      topology ? [this.#stage(index, topology, scratch)] : [],
    );
    this.cacheBytes = this.#stages.reduce((sum, { cache }) => sum + cache.bytes, 0);
    this.headBlockBytes = kvBytesPerToken({ ...config, ...options, numLayers: 1, numKvHeads: 1 }) * options.block;
    this.cacheBytesPerToken = this.#stages.reduce(
      (sum, { cache, topology }) => sum + kvBytesPerToken({ ...cache, numKvHeads: ownHeads(topology.share) }),
      0,
    );
    this.#rope = this.#stages.some(({ layers }) => layers.length > 0)
      ? ropeBuffer(device, config, options.contextLength)
      : undefined;
    this.hiddenStride = activationStride(config.hiddenSize);
    this.logitsStride = activationStride(config.vocabSize);
    this.headRows = weights.head?.matrix.outFeatures ?? 0;
  }

  #stage(index: number, topology: StageTopology, scratch: Scratch): LlamaStage {
    const { config, options } = this;
    const { share, stage, dealt } = topology;
    const holder = dealt?.root ?? share;
    const [first, end] = stage.layers;
    const [heads, kvHeads] = [this.#headsOf(holder), holder.heads.length];
    const layers = this.weights.layers.filter((layer) => layer.index >= first && layer.index < end);
    return {
      index,
      topology,
      layers,
      cache: allocateKvCache(this.device, {
        firstLayer: first,
        numLayers: end - first,
        numKvHeads: share.kvHeads.length,
        headDim: config.headDim,
        type: options.type,
        block: options.block,
        numBlocks: options.numBlocks,
        headBlocks: options.perHead?.headBlocks.get(first),
      }),
      heads,
      kvHeads,
      qkvStride: this.#qkvStrideOf(holder),
      mlpWidth: layers[0] ? layers[0].downSegments.end - layers[0].downSegments.start : 0,
      split: topology.groups.length > 1 && !isKvOnly(share),
      compression:
        options.perHead?.compression && heads > 0
          ? new options.perHead.compressor(this.device, this.world, config, options, topology, heads, scratch)
          : undefined,
      gathers: topology.ownRows && topology.splitsMlp ? topology.ownRows.ranks.length : 0,
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

  #headsOf(share: RankShare): number {
    return (share.heads.length * this.config.numHeads) / this.config.numKvHeads;
  }

  #qkvStrideOf(share: RankShare): number {
    return activationStride((this.#headsOf(share) + 2 * share.heads.length) * this.config.headDim);
  }

  promptRows(wanted: number): number {
    const {
      headDim,
      contextLength,
      kvHeads: segments,
    } = { ...this.config, ...this.options, kvHeads: this.config.numKvHeads };
    const chunks = chunksOf(contextLength);
    const widest = Math.max(
      this.hiddenStride,
      ...this.#stages.map(({ heads, kvHeads: own, qkvStride, mlpWidth, split, gathers, topology }) =>
        Math.max(
          // Lanes of copied heads come from other ranks, too.
          (sharesLanes(topology, this.world) ? (heads / own) * (own + guestsOf(topology)) : heads) *
            partialsOf('prompt', chunks) *
            headDim,
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
    const blocks = role === 'prompt' ? world.topology.rowBlocks : 1;
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
    const attends = stage.heads > 0;
    const qkv = attends && !isKvOnly(topology.share) ? floats('qkv', rows * stage.qkvStride) : undefined;
    const shape = {
      headsOf: (share: RankShare) => this.#headsOf(share),
      queryStrideOf: (share: RankShare) => this.#qkvStrideOf(share),
      dim: config.headDim,
      uneven: options.perHead?.compression !== undefined,
      contextLength: options.contextLength,
      chunkOffsets: options.chunkOffsets,
    };
    const outStride = activationStride(stage.heads * config.headDim);
    const parts = (name: string, count: number): Parts | undefined =>
      stage.split ? allocateParts(scratch, role, name, count, rows, config.hiddenSize) : undefined;
    const attention = (): StageAttention => {
      if (topology.dealt) {
        return new DealtAttention(this.device, scratch, world, topology, shape, {
          role,
          rows,
          rowInfo,
          queries: qkv,
          outStride,
        });
      }
      const input = { role, rows, rowInfo, queries: qkv! };
      // A prompt that is compressed is whole on every copy until it ends.
      const whole = role === 'prompt' && options.perHead?.compression !== undefined;
      return sharesLanes(topology, world) && !whole
        ? new CopiedAttention(this.device, scratch, world, topology, shape, input)
        : new AttentionRanks(this.device, scratch, world, topology, shape, input);
    };
    return {
      qkv,
      attention: attends ? attention() : undefined,
      attended: floats('attended', rows * Math.max(outStride, 32)),
      ...(stage.gathers > 0
        ? { gateUp: undefined, hidden: undefined, gathered: this.#allocateGathered(role, rows, allRows, stage) }
        : {
            gateUp: role === 'prompt' ? floats('gate_up', rows * 2 * activationStride(stage.mlpWidth)) : undefined,
            hidden: floats('hidden', rows * activationStride(stage.mlpWidth)),
            gathered: undefined,
          }),
      oParts: parts('o parts', config.numKvHeads),
      downParts: parts('down parts', DOWN_SEGMENTS.total),
    };
  }

  #allocateGathered(role: Role, rows: number, allRows: number, stage: LlamaStage): StageRows['gathered'] {
    const { device, config } = this;
    const gathered = new GatheredRows(device, stage.topology.ownRows!, role, allRows);
    return {
      mlp: new GatheredMlp(device, gathered, role, {
        name: 'down',
        rows,
        hiddenSize: config.hiddenSize,
        width: stage.mlpWidth,
      }),
      x: device.createBuffer(`${role} gathered x`, allRows * this.hiddenStride * 4),
    };
  }

  recordLayers(recorder: Recorder, buffers: LlamaRows, compresses = false): void {
    buffers.embedding.record(recorder);
    const own = new Map(this.#stages.map((stage) => [stage.index, stage]));
    for (const index of this.world.plan.stages.keys()) {
      recordStageRows(recorder, this.world, index, buffers.x, this.hiddenStride);
      const stage = own.get(index);
      if (!stage) continue;
      const rows = buffers.stages.get(index)!;
      const [first, end] = stage.topology.stage.layers;
      rows.attention?.recordRows(recorder);
      for (let at = 0; at < end - first; at++) {
        const layer = stage.layers[at];
        if (layer?.qkv) this.#recordProjection(recorder, buffers, stage, rows, layer);
        if (rows.attention) {
          this.#recordAttention(recorder, buffers, stage, rows, rows.attention, at, layer);
          if (compresses) this.#recordCompression(recorder, stage, rows.attention, at);
        }
        if (layer) {
          this.#recordOutput(recorder, buffers, stage, rows, layer);
          this.#recordMlp(recorder, buffers, stage, rows, layer);
        }
      }
    }
  }

  #recordProjection(
    recorder: Recorder,
    buffers: LlamaRows,
    stage: LlamaStage,
    rows: StageRows,
    weights: LlamaLayerWeights,
  ): void {
    recordLinear(recorder, buffers, weights.qkv!, {
      x: buffers.x,
      xStride: this.hiddenStride,
      norm: { weight: weights.inputNorm, eps: this.config.rmsNormEps },
      bias: weights.qkvBias,
      out: rows.qkv!,
      outStride: stage.qkvStride,
    });
  }

  #recordAttention(
    recorder: Recorder,
    buffers: LlamaRows,
    stage: LlamaStage,
    rows: StageRows,
    attention: StageAttention,
    at: number,
    weights: LlamaLayerWeights | undefined,
  ): void {
    const { dealt, share } = stage.topology;
    // A root's rows travel with their keys normalised and rotated: no other rank has the weights of the norms.
    const isRoot = share === dealt?.root;
    if (!isRoot) attention.recordQueries(recorder);
    // Every block's keys before any attention: rows of one block attend to those of another.
    for (const block of attention.blocks) this.#recordAppend(recorder, buffers, stage, block, at, weights);
    if (isRoot) attention.recordQueries(recorder);
    for (const block of attention.blocks) this.#recordBlock(recorder, buffers, stage, attention, block, at);
    const [own] = attention.blocks;
    const outStride = activationStride(stage.heads * this.config.headDim);
    attention.recordMerge(recorder, rows.attended, outStride, this.#tables(buffers, stage, own!, at));
  }

  /** What a merge must know of a per-head cache. */
  #tables(
    { rows }: LlamaRows,
    stage: LlamaStage,
    block: StageAttention['blocks'][number],
    at: number,
  ): MergeTables | undefined {
    if (!this.options.perHead) return undefined;
    const perHead = this.#shapeOf(stage, rows, block);
    return { perHead, blockTable: this.#blockTable(stage, at) };
  }

  /** A layer's block table: heads of a compressed cache have one each. */
  #blockTable({ topology }: LlamaStage, at: number): Buffer {
    const { perHead, blockTable } = this.options;
    return perHead ? perHead.tables.get(topology.stage.layers[0] + at)! : blockTable;
  }

  /** After attention of the rows that end a prompt. */
  #recordCompression(recorder: Recorder, stage: LlamaStage, attention: StageAttention, at: number): void {
    const { k, v } = stage.cache.layers[at]!;
    const [block] = attention.blocks;
    stage.compression!.record(recorder, at, {
      q: block!.queries,
      qStride: block!.queryStride,
      partialMl: attention.target(block!).partial_ml,
      lanes: attention.partials,
      k,
      v,
      blockTable: this.#blockTable(stage, at),
      stepOf: block!.stepOf,
    });
  }

  #recordOutput(
    recorder: Recorder,
    buffers: LlamaRows,
    stage: LlamaStage,
    rows: StageRows,
    weights: LlamaLayerWeights,
  ): void {
    const { config } = this;
    const { topology } = stage;
    const parts = rows.oParts;
    const xStride = activationStride(stage.heads * config.headDim);
    let xOffset = 0;
    for (const { matrix, segments } of weights.o) {
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
        bias: weights.oBias,
        out: buffers.x,
        outStride: this.hiddenStride,
        epilogue: 'residual',
      });
    }
    if (!parts) return;
    const owners = this.options.perHead?.owners;
    this.world.hop(recorder, 'o_proj', (step) =>
      owners
        ? headTransfers(topology, this.world.plan, parts, owners, step)
        : segmentTransfers(topology, parts, ({ heads }) => heads, step),
    );
    recordReduce(recorder, parts, {
      width: config.hiddenSize,
      bias: weights.oBias,
      out: buffers.x,
      outStride: this.hiddenStride,
      epilogue: 'residual',
    });
  }

  /** What rotation and attention are told of a block's rows. */
  #shapeOf(stage: LlamaStage, rows: number, { heads, share }: StageAttention['blocks'][number]) {
    const { config, options } = this;
    return {
      rows,
      heads,
      kvHeads: share.heads.length,
      cacheKvHeads: stage.cache.numKvHeads,
      firstKvHead: stage.topology.share.kvHeads.indexOf(share.heads[0]!),
      headDim: config.headDim,
      kvType: options.type,
      block: options.block,
      tableStride: options.tableStride,
      perHead: options.perHead !== undefined,
    };
  }

  /** Rotation of a block's queries and keys, and the append of those that this rank's chunks take. */
  #recordAppend(
    recorder: Recorder,
    buffers: LlamaRows,
    stage: LlamaStage,
    block: StageAttention['blocks'][number],
    at: number,
    weights: LlamaLayerWeights | undefined,
  ): void {
    const { k, v } = stage.cache.layers[at]!;
    const { dealt, share } = stage.topology;
    const isRoot = share === dealt?.root;
    recorder.dispatch(
      ropeAppend,
      {
        ...this.#shapeOf(stage, buffers.rows, block),
        keys: isRoot ? 'kept' : dealt && 'ready',
        qkNorm: weights?.qNorm !== undefined,
        eps: this.config.rmsNormEps,
        qkvStride: block.queryStride,
      },
      {
        qkv: block.queries,
        rope_table: this.#rope,
        q_norm: weights?.qNorm,
        k_norm: weights?.kNorm,
        row_info: block.rowInfo,
        block_table: this.#blockTable(stage, at),
        k_cache: k,
        v_cache: v,
      },
      // A root prepares the rows of all that follow it.
      isRoot ? undefined : block.stepOf,
    );
  }

  /** Attention of a block's rows over the chunks of this rank. */
  #recordBlock(
    recorder: Recorder,
    buffers: LlamaRows,
    stage: LlamaStage,
    attention: StageAttention,
    block: StageAttention['blocks'][number],
    at: number,
  ): void {
    const { config, options } = this;
    const { k, v } = stage.cache.layers[at]!;
    const problem = {
      ...this.#shapeOf(stage, buffers.rows, block),
      share: attention.share,
      qStride: block.queryStride,
      scale: config.headDim ** -0.5,
    };
    const tensors = {
      q: block.queries,
      k_cache: k,
      v_cache: v,
      row_info: block.rowInfo,
      block_table: this.#blockTable(stage, at),
      chunk_offsets: options.chunkOffsets,
      ...attention.target(block),
    };
    if (buffers.role === 'prompt') {
      recorder.dispatch(
        attentionPrefill,
        {
          ...problem,
          lanes: attention.partials,
          maxChunks: chunksOf(options.contextLength),
          partialLayout: attention.layoutOf(block),
        },
        tensors,
        block.stepOf,
      );
    } else {
      recorder.dispatch(attentionSplit, { ...problem, maxChunks: attention.partials }, tensors, block.stepOf);
      attention.recordLanes(recorder, block, this.#tables(buffers, stage, block, at));
    }
  }

  #recordMlp(
    recorder: Recorder,
    buffers: LlamaRows,
    stage: LlamaStage,
    rows: StageRows,
    weights: LlamaLayerWeights,
  ): void {
    const { config } = this;
    const parts = rows.downParts;
    const norm = { weight: weights.postNorm, eps: config.rmsNormEps };
    if (rows.gathered) {
      recordGatheredMlp(recorder, this.world, buffers, rows.gathered.mlp, weights, {
        norm,
        gatheredX: rows.gathered.x,
        width: config.hiddenSize,
        stride: this.hiddenStride,
      });
      return;
    }
    recordSwiglu(recorder, buffers, weights, {
      x: buffers.x,
      xStride: this.hiddenStride,
      norm,
      gateUp: rows.gateUp,
      hidden: rows.hidden!,
      parts,
    });
    if (!parts) return;
    this.world.hop(recorder, 'down_proj', (step) => segmentTransfers(stage.topology, parts, ({ mlp }) => mlp, step));
    recordReduce(recorder, parts, {
      width: config.hiddenSize,
      bias: weights.downBias,
      out: buffers.x,
      outStride: this.hiddenStride,
      epilogue: 'residual',
    });
  }

  recordHead(recorder: Recorder, x: Buffer, normed: Buffer | undefined, rows: number, logits: Buffer): void {
    const { head, norm } = this.weights;
    if (!head) return;
    recordLinear(recorder, { role: 'generated', rows, normed }, head.matrix, {
      x,
      xStride: this.hiddenStride,
      norm: { weight: norm!, eps: this.config.rmsNormEps },
      out: logits,
      outStride: this.logitsStride,
      outOffset: head.firstRow,
    });
  }
}
