import { attentionAppend } from '../../../../shaders/attention/attention_append/index.js';
import { attentionPrefill } from '../../../../shaders/attention/attention_prefill/index.js';
import { attentionSplit } from '../../../../shaders/attention/attention_split/index.js';
import { outputGate } from '../../../../shaders/attention/output_gate/index.js';
import type { Attended } from '../../../../shaders/attention/window.js';
import { kvCacheBytes } from '../../../../shaders/cache/kv_cache.js';
import { scaleHeads } from '../../../../shaders/norm/scale_heads/index.js';
import { segmentSquares } from '../../../../shaders/norm/segment_squares/index.js';
import { ropeAppend, type RopeSpans } from '../../../../shaders/rope/rope_append/index.js';
import { known } from '../../../base/errors.js';
import { nth, sum } from '../../../base/lists.js';
import type { Buffer } from '../../../gpu/index.js';
import type { RankShare } from '../../../placement/index.js';
import type { PromptCompression } from '../../compression/prompt_compression.js';
import { type GqaConfig, type ModelConfig, segmentKvHeads } from '../../config/model_config.js';
import { fusedGqa, recordMerge } from '../fusion.js';
import { attentionSegments, headsOf, queryRow, runsOf } from '../../shape.js';
import type { AlikeLayers, AttentionLayers, AttentionProgram, Half, StageContext } from '../layer.js';
import { type Partials, recordFirst } from '../linear/linear.js';
import { partsFrom } from '../linear/parts.js';
import { RowParallelLinear } from '../linear/row_parallel.js';
import { activationStride, chunksOf, paddedName } from '../roles.js';
import type { StageRows } from '../rows.js';
import type { RankRecorder } from '../world.js';
import { type CacheOptions, kvTokenBytes, type LayerCache } from './cache.js';
import type { GqaWeights } from './gqa_weights.js';
import { type MergeTables, SpreadAttention } from './spread_attention.js';
import { type AttentionShape, SpreadLayout } from './spread_layout.js';

const ownSegments = ({ kvHeads, copies = [] }: RankShare): number =>
  kvHeads.length + sum(copies.map(({ share }) => share - 1));

/** Rows that see what is behind them, at most; undefined: none do. */
function runOf({ vision }: ModelConfig, { bothWays, window }: GqaConfig): number | undefined {
  if (bothWays) return 2 ** 30;
  return vision?.windowedRuns && window === undefined ? undefined : vision?.runs;
}

export class GqaLayers implements AttentionLayers {
  readonly heads: number;
  /** kv heads of an attention segment. What a plan calls a kv head is a segment's. */
  readonly segmentHeads: number;
  readonly caches: readonly LayerCache[];
  readonly compression: PromptCompression | undefined;
  readonly widestRow: number;
  readonly stage: StageContext;
  readonly config: GqaConfig;
  readonly shape: AttentionShape;
  /** Where the rank has weights: what travels to others is rotated. */
  readonly rope: Buffer | undefined;
  /** Where rows of pictures have positions of their own. */
  readonly spans: RopeSpans | undefined;
  /** Which keys rows see, and what stands beside their scores. A window as wide as the context cuts nothing. */
  readonly attended: Attended;
  /** Of the layers' caches; a layer of a per-head cache has its own tables. */
  readonly blocks: Pick<CacheOptions, 'numBlocks' | 'blockTable'>;

  /** Allocates the caches and the rope table. @throws SplitkvError `limit` when a layer's K or V exceeds one binding. */
  constructor(readonly alike: AlikeLayers<GqaConfig, GqaWeights>) {
    const { stage, config, layers, weights } = alike;
    const { cache, topology, ropes } = stage;
    const { compression } = cache;
    const { holder } = topology;
    this.stage = stage;
    this.config = config;
    this.segmentHeads = segmentKvHeads(config);
    this.heads = headsOf(config, holder.heads);
    const { window = Infinity, softcap, sinks } = config;
    const runs = runOf(stage.config, config);
    this.attended = {
      ...(window < cache.contextLength && { slidingWindow: window }),
      ...(softcap !== undefined && { softcap }),
      ...(sinks && { sinks }),
      ...(runs && {
        runs: { rows: runs, ends: cache.runEnds, bounded: config.bothWays === 'bounded' || undefined },
      }),
    };
    this.blocks = (this.attended.slidingWindow !== undefined && cache.windowed) || cache;
    this.caches = config.sharesKv === undefined ? layers.map((layer) => this.#allocateCache(layer)) : [];
    this.spans = stage.config.vision && config.rope ? ropes.spansOf(config.rope) : undefined;
    this.rope = weights.length > 0 && config.rope ? ropes.of(config.rope, this.spans !== undefined) : undefined;
    this.shape = {
      headsOf: (segments) => headsOf(config, segments),
      queryStrideOf: (segments) => queryRow(config, segments),
      dim: config.headDim,
      outStride: activationStride(this.heads * config.headDim),
      uneven: this.whole,
      ...this.attended,
      contextLength: cache.contextLength,
    };
    this.compression =
      compression && this.heads > 0 ? compression.compressor.ofStage(stage, config, layers, this.heads) : undefined;
    const rows = { role: 'prompt', rows: 1, whole: this.whole } as const;
    this.widestRow = Math.max(
      this.heads > 0 ? new SpreadLayout(stage.world, topology, this.shape, rows).largest : 0,
      queryRow(config, holder.heads),
      RowParallelLinear.widestRow(stage, 'heads'),
    );
  }

  /** A prompt that is compressed is whole on every copy until it ends. */
  get whole(): boolean {
    return this.stage.cache.compression !== undefined;
  }

  #allocateCache(layer: number): LayerCache {
    const { device, topology, cache, scratch } = this.stage;
    const { type: kvType, block, headTables, passing } = cache;
    const { numBlocks } = this.blocks;
    const { headDim } = this.config;
    const { share } = topology;
    const kvHeads = share.kvHeads.length * this.segmentHeads;
    const of = { kvHeads: 1, headDim, kvType, block };
    const bytes = kvHeads === 0 ? 0 : kvCacheBytes(of, headTables?.headBlocks.get(layer) ?? numBlocks * kvHeads);
    const allocate = (what: string): Buffer =>
      passing
        ? scratch.createBuffer(`${what}_cache`, bytes)
        : device.createBuffer(`layers.${layer}.${what}_cache (${block * numBlocks} tokens)`, bytes);
    return {
      layer,
      // A rank may hold none of a layer's heads.
      buffers: kvHeads === 0 ? [] : ['k', 'v'].map(allocate),
      bytes,
      isWindowed: this.blocks === cache.windowed,
      bytesPerToken: kvTokenBytes(this.config, kvType) * ownSegments(share) * this.segmentHeads,
      headBlockBytes: 2 * kvCacheBytes(of, 1),
    };
  }

  program(rows: StageRows): AttentionProgram {
    return new GqaProgram(this, rows);
  }
}

class GqaProgram implements AttentionProgram {
  /** Where the rank attends for some heads. */
  readonly #attends: { readonly attention: SpreadAttention; readonly fused: ReturnType<typeof fusedGqa> } | undefined;
  readonly #attended: Buffer;
  readonly #output: RowParallelLinear;
  /** Where the rank has weights. */
  readonly #wholeNorm: WholeNorm | undefined;

  constructor(
    readonly of: GqaLayers,
    readonly rows: StageRows,
  ) {
    const { stage, config, shape, heads, whole, alike } = of;
    const { role, scratch } = rows;
    if (heads > 0) {
      const attention = new SpreadAttention(stage, shape, rows, whole && role === 'prompt');
      this.#attends = { attention, fused: fusedGqa(stage, config, rows, attention) };
    }
    const size = rows.rows * Math.max(shape.outStride, 32) * 4;
    this.#attended = scratch.createBuffer(paddedName(`${role} attended`, heads * config.headDim), size);
    this.#wholeNorm = config.qkNorm === 'whole' && alike.weights.length > 0 ? new WholeNorm(alike, rows) : undefined;
    this.#output = RowParallelLinear.ofHeads(alike, rows);
  }

  record(recorder: RankRecorder, cache: LayerCache, half: Half<GqaWeights> | undefined, compresses: boolean): void {
    const { attention, fused } = this.#attends ?? {};
    const weights = half?.weights;
    const gateOffset = weights?.qkv && this.#gateOffset;
    const gate = gateOffset === undefined ? undefined : attention?.ownQueries;
    const merges = weights && fused?.merges(weights.o, gate, gateOffset);
    if (half && weights?.qkv) {
      const { ownQueries, input } = known(attention, 'attention of these heads');
      const out = known(ownQueries, 'query of this rank');
      const to = { bias: weights.qkvBias, out, outStride: input.queryStride };
      recordFirst(recorder, this.of.stage, this.rows, half, weights.qkv, to);
    }
    if (weights) this.#wholeNorm?.record(recorder, attention, weights.wholeNorm);
    if (attention) {
      this.#recordAttention(recorder, attention, cache, weights);
      recordMerge(recorder, merges?.problem, () => {
        attention.recordMerge(recorder, this.#attended, this.#tables(cache));
        if (gateOffset !== undefined) this.#recordGate(recorder, attention, gateOffset);
      });
      if (compresses) this.#recordCompression(recorder, attention, cache);
    }
    if (half) this.#recordOutput(recorder, half, merges);
  }

  /** The gate lies behind q, k and v; undefined where there is none. */
  get #gateOffset(): number | undefined {
    const { config, heads, segmentHeads, stage } = this.of;
    const kvHeads = stage.topology.holder.heads.length * segmentHeads;
    return config.gated ? (heads + 2 * kvHeads) * config.headDim : undefined;
  }

  #recordGate(recorder: RankRecorder, { ownQueries, input }: SpreadAttention, gateOffset: number): void {
    const { config, heads, shape } = this.of;
    recorder.dispatch(
      outputGate,
      {
        rows: this.rows.rows,
        width: heads * config.headDim,
        stride: shape.outStride,
        gateStride: input.queryStride,
        gateOffset,
      },
      { gate: ownQueries, x: this.#attended },
    );
  }

  /** What kernels of attention are told of the rows' heads and the layer's cache. */
  #attendedHeads({ input }: SpreadAttention, { layer, buffers: [k, v] }: LayerCache) {
    const { stage, config, segmentHeads } = this.of;
    const { topology, cache } = stage;
    const common = {
      rows: input.rows,
      heads: input.heads,
      kvHeads: input.segments.length * segmentHeads,
      cacheKvHeads: topology.share.kvHeads.length * segmentHeads,
      firstKvHead: topology.share.kvHeads.indexOf(nth(input.segments, 0)) * segmentHeads,
      headDim: config.headDim,
      rotary: config.rope?.dims ?? 0,
      queryRows: config.rope?.temperature !== undefined,
      spans: this.of.spans,
      kvType: cache.type,
      block: cache.block,
      tableStride: cache.tableStride,
      perHead: cache.headTables !== undefined,
      queryPieces: input.pieces,
    };
    return {
      common,
      tensors: { row_info: input.rowInfo, block_table: this.#blockTable(layer), k_cache: k, v_cache: v },
    };
  }

  /** What kernels are told besides that normalise, rotate and append. */
  #appended({ input }: SpreadAttention, weights: GqaWeights | undefined) {
    const { stage, config, rope } = this.of;
    return {
      problem: {
        qkNorm: weights?.qNorm !== undefined,
        valueNorm: config.valueNorm,
        eps: stage.config.norm.eps,
        qkvStride: input.queryStride,
      },
      tensors: { qkv: input.queries, rope_table: rope, q_norm: weights?.qNorm, k_norm: weights?.kNorm },
    };
  }

  /** As `#recordAttention`, in one dispatch. */
  #recordLocalAttention(
    recorder: RankRecorder,
    attention: SpreadAttention,
    cache: LayerCache,
    weights: GqaWeights,
  ): void {
    const { attended, config } = this.of;
    const { common, tensors } = this.#attendedHeads(attention, cache);
    const appended = this.#appended(attention, weights);
    const { input, partials, target } = attention;
    recorder.dispatch(
      attentionAppend,
      { ...common, ...attended, ...appended.problem, maxChunks: partials, scale: config.scale },
      { ...tensors, ...target, ...appended.tensors },
      input.rowsOf,
    );
  }

  /** Rotation of queries and keys, the append of those that this rank's chunks take, and attention over this rank's chunks. */
  #recordAttention(
    recorder: RankRecorder,
    attention: SpreadAttention,
    layerCache: LayerCache,
    weights: GqaWeights | undefined,
  ): void {
    if (weights && this.#attends?.fused?.appends) {
      return this.#recordLocalAttention(recorder, attention, layerCache, weights);
    }
    const { stage, config } = this.of;
    const { cache, topology } = stage;
    const { input } = attention;
    const { sendsReady } = topology;
    const { common, tensors } = this.#attendedHeads(attention, layerCache);
    const appended = this.#appended(attention, weights);
    // Rows to ranks without weights travel with their keys normalised and rotated: no other rank has the weights of the norms.
    const runs = topology.holder === topology.share;
    if (!(sendsReady && runs)) attention.recordQueries(recorder);
    const queriesOnly = config.sharesKv !== undefined;
    const isReady = queriesOnly && sendsReady && !runs;
    if (!isReady)
      recorder.dispatch(
        ropeAppend,
        { ...common, queriesOnly, keys: sendsReady ? (runs ? 'kept' : 'ready') : undefined, ...appended.problem },
        { ...tensors, ...appended.tensors },
        // Also rows that others attend for.
        sendsReady && runs ? undefined : input.rowsOf,
      );
    if (sendsReady && runs) attention.recordQueries(recorder);
    const problem = {
      ...common,
      ...this.of.attended,
      share: topology.sequence,
      qStride: input.queryStride,
      scale: config.scale,
    };
    const io = { ...tensors, q: input.queries, chunk_offsets: cache.chunkOffsets };
    if (this.rows.role === 'prompt') {
      const lanes = { lanes: attention.partials, maxChunks: chunksOf(cache.contextLength) };
      const to = { ...io, ...attention.target };
      recorder.dispatch(attentionPrefill, { ...problem, ...lanes, partialLayout: attention.layout }, to, input.rowsOf);
    } else {
      attention.recordSplit(recorder, this.#attended, (finish, target) =>
        recorder.dispatch(attentionSplit, { ...problem, ...finish }, { ...io, ...target }, input.rowsOf),
      );
    }
  }

  /** What a merge must know of a per-head cache. */
  #tables({ layer }: LayerCache): MergeTables | undefined {
    const { topology, cache } = this.of.stage;
    if (!cache.headTables) return undefined;
    const { share, holder } = topology;
    const perHead = {
      kvHeads: holder.heads.length,
      cacheKvHeads: share.kvHeads.length,
      firstKvHead: share.kvHeads.indexOf(nth(holder.heads, 0)),
      tableStride: cache.tableStride,
      block: cache.block,
    };
    return { layer, problem: { perHead }, blockTable: this.#blockTable(layer) };
  }

  /** A layer's block table: heads of a compressed cache have one each. */
  #blockTable(layer: number): Buffer {
    return this.of.stage.cache.headTables?.tables.get(layer) ?? this.of.blocks.blockTable;
  }

  /** After attention of the rows that end a prompt. */
  #recordCompression(recorder: RankRecorder, attention: SpreadAttention, { layer, buffers: [k, v] }: LayerCache): void {
    const { queries, queryStride, rowsOf } = attention.input;
    this.of.compression?.record(recorder, layer, {
      q: queries,
      qStride: queryStride,
      partialMl: attention.target.partial_ml,
      lanes: attention.partials,
      k,
      v,
      blockTable: this.#blockTable(layer),
      rowsOf,
    });
  }

  #recordOutput(
    recorder: RankRecorder,
    { behind, weights: { o, oBias } }: Half<GqaWeights>,
    merges: Partials | undefined,
  ): void {
    const xStride = activationStride(this.of.heads * this.of.config.headDim);
    let xOffset = 0;
    const inputs = o.map(({ matrix, segments }) => {
      const input = { matrix, segments, x: this.#attended, xStride, xOffset, merges };
      xOffset += segments.end - segments.start;
      return input;
    });
    this.#output.record(recorder, inputs, oBias, behind);
  }
}

/**
 * The RMS norm of q, and of k, over all heads at once. Squares are summed by attention segment and the segments in order, wherever they
 * are computed: two numbers of each travel where ranks share out the heads.
 */
class WholeNorm {
  readonly #sums: RowParallelLinear;
  readonly #segments: number;

  constructor(
    readonly of: AlikeLayers<GqaConfig, GqaWeights>,
    readonly rows: StageRows,
  ) {
    this.#segments = attentionSegments(of.config).total;
    this.#sums = RowParallelLinear.ofSquares(of, rows);
  }

  /**
   * Of what the rank projects, in place: q of its segments and then their k. `weight`: of the same elements; undefined where the rank has
   * no heads, but others' sums may come here all the same.
   */
  record(recorder: RankRecorder, projected: SpreadAttention | undefined, weight: Buffer | undefined): void {
    const { parts } = this.#sums;
    const x = projected?.ownQueries;
    if (!x || !weight || !parts) return this.#sums.recordExchange(recorder, 'norm');
    const stride = projected.input.queryStride;
    const { stage, config } = this.of;
    const { heads, kvHeads, headDim } = config;
    const { rows } = this.rows;
    const [qTotal, kTotal] = [heads * headDim, kvHeads * headDim];
    const [qWidth, kWidth] = [qTotal / this.#segments, kTotal / this.#segments];
    const held = stage.topology.holder.heads;
    const kStart = held.length * qWidth;
    let before = 0;
    for (const [first, end] of runsOf(held)) {
      recorder.dispatch(
        segmentSquares,
        {
          rows,
          segments: end - first,
          qWidth,
          kWidth,
          qStart: before * qWidth,
          kStart: kStart + before * kWidth,
          stride,
          outStride: parts.stride,
        },
        { x, out: partsFrom(parts, first) },
      );
      before += end - first;
    }
    this.#sums.recordExchange(recorder, 'norm');
    recorder.dispatch(
      scaleHeads,
      {
        rows,
        segments: this.#segments,
        squaresStride: parts.stride,
        width: held.length * (qWidth + kWidth),
        kStart,
        stride,
        qTotal,
        kTotal,
        eps: stage.config.norm.eps,
      },
      { squares: parts.buffer, weight, x },
    );
  }
}
