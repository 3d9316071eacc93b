import { mlaPrefill } from '../../../../shaders/attention/mla_prefill/index.js';
import { mlaSplit } from '../../../../shaders/attention/mla_split/index.js';
import { latentCacheBytes } from '../../../../shaders/cache/latent_cache.js';
import { linearGrouped } from '../../../../shaders/linear/linear_grouped/index.js';
import { linearGroupedMerge } from '../../../../shaders/linear/linear_grouped_merge/index.js';
import { mlaAbsorbAppend } from '../../../../shaders/rope/mla_absorb_append/index.js';
import { mlaRopeAppend, type MlaRopeAppendProblem } from '../../../../shaders/rope/mla_rope_append/index.js';
import { mlaUpAppend } from '../../../../shaders/rope/mla_up_append/index.js';
import { known } from '../../../base/errors.js';
import { alignUp } from '../../../base/math.js';
import { headsBeside } from '../../../placement/index.js';
import type { Buffer } from '../../../gpu/index.js';
import type { Grouped } from '../../adapters/loaded_adapters.js';
import type { MlaConfig, NormConfig } from '../../config/model_config.js';
import { headsOf, queryRow } from '../../shape.js';
import { type Matrix, shardTensors } from '../../weights/matrix.js';
import type { AlikeLayers, AttentionLayers, AttentionProgram, Half, StageContext } from '../layer.js';
import { fusesNorm, recordMerge, recordMerging } from '../fusion.js';
import { recordFirst, recordLinear } from '../linear/linear.js';
import { RowParallelLinear } from '../linear/row_parallel.js';
import { activationStride, chunksOf, paddedName, tileRows } from '../roles.js';
import { ownRowInfo, type StageRows } from '../rows.js';
import type { RankRecorder } from '../world.js';
import type { LayerCache } from './cache.js';
import type { MlaWeights } from './mla_weights.js';
import { fusedMla } from './mla_fusion.js';
import { SpreadAttention } from './spread_attention.js';
import { type AttentionShape, SpreadLayout } from './spread_layout.js';

/** By a matrix a head, with what its rows' adapters add. */
function recordGrouped(recorder: RankRecorder, buffers: StageRows, matrix: Matrix, io: Grouped): void {
  const { rows, adapters } = buffers;
  const { x, out, sharedUp: _shared, ...problem } = io;
  const [{ weight }] = matrix.shards as [Matrix['shards'][0]];
  const of = { rows, tileRows: tileRows(rows), type: matrix.type, xOffset: 0, outOffset: 0 };
  recorder.dispatch(linearGrouped, { ...of, ...problem }, { x, weight, out });
  if (adapters) adapters.loaded()?.recordGrouped?.(recorder, { ...buffers, adapters }, matrix, io);
}

/** Multi-head latent attention, with absorb, of alike layers of a stage. */
export class MlaLayers implements AttentionLayers {
  readonly heads: number;
  readonly caches: readonly LayerCache[];
  readonly widestRow: number;
  readonly stage: StageContext;
  readonly config: MlaConfig;
  readonly shape: AttentionShape;
  /** Where the rank has weights: what travels to others is rotated. */
  readonly rope: Buffer | undefined;
  readonly runs: boolean;
  /** Elements from row to row of the first projection, and of q where it has a bottleneck. */
  readonly projectStride: number;
  readonly qStride: number;
  /** Elements of a row of attention's output, out of the latent space. */
  readonly attendedWidth: number;

  /** Allocates the caches and the rope table. @throws SplitkvError `limit` when a layer's latents exceed one binding. */
  constructor(readonly alike: AlikeLayers<MlaConfig, MlaWeights>) {
    const { stage, config, layers, weights } = alike;
    const { topology, cache, ropes } = stage;
    const { kvLoraRank, qkRopeHeadDim, qkNopeHeadDim, vHeadDim } = config;
    const { holder } = topology;
    const groups = headsBeside(topology);
    // Rows to ranks without weights travel with their tokens.
    const token = stage.world.all.stages.some(({ kind }) => kind === 'token');
    const queryStrideOf = (segments: readonly number[]): number => queryRow(config, segments, token);
    this.stage = stage;
    this.config = config;
    this.heads = headsOf(config, holder.heads);
    this.caches = layers.map((layer) => this.#allocateCache(layer));
    this.runs = weights.length > 0;
    this.rope = this.runs ? ropes.of(config.rope) : undefined;
    this.projectStride = activationStride(weights[0]?.project?.outFeatures ?? 0);
    this.qStride = activationStride(this.heads * (qkNopeHeadDim + qkRopeHeadDim));
    this.attendedWidth = this.heads * vHeadDim;
    this.shape = {
      headsOf: (segments) => headsOf(config, segments),
      queryStrideOf,
      dim: kvLoraRank,
      // Where a rank attends for several weight groups, their outputs go home as wide as the widest.
      outStride: activationStride(Math.max(...groups.map((group) => headsOf(config, group))) * kvLoraRank),
      uneven: false,
      contextLength: cache.contextLength,
    };
    this.widestRow = Math.max(
      new SpreadLayout(stage.world, topology, this.shape, { role: 'prompt', rows: 1, whole: false }).largest,
      this.projectStride,
      this.qStride,
      queryStrideOf(holder.heads),
      this.shape.outStride,
      activationStride(this.attendedWidth),
      RowParallelLinear.widestRow(stage, 'heads'),
    );
  }

  #allocateCache(layer: number): LayerCache {
    const { device, cache } = this.stage;
    const tokens = cache.block * cache.numBlocks;
    const bytes = latentCacheBytes(this.latent, cache.numBlocks);
    return {
      layer,
      buffers: [device.createBuffer(`layers.${layer}.latent_cache (${tokens} tokens)`, bytes)],
      bytes,
      bytesPerToken: bytes / tokens,
    };
  }

  get latent() {
    const { kvLoraRank, qkRopeHeadDim } = this.config;
    const { type: kvType, block } = this.stage.cache;
    return { kvLoraRank, qkRopeHeadDim, kvType, block };
  }

  program(rows: StageRows): AttentionProgram {
    return new MlaProgram(this, rows);
  }
}

interface ComputedRows {
  /** q (or its bottleneck), then the latent and the rotary key: the layer's first projection. */
  readonly projected: Buffer;
  /** Normalised bottleneck, where there is one and its norm isn't fused. */
  readonly qNormed: Buffer | undefined;
  readonly q: Buffer | undefined;
  /** [rows][heads][kvLoraRank]: attention's output, still in the latent space. */
  readonly latentOut: Buffer;
  readonly attended: Buffer;
  readonly output: RowParallelLinear;
}

/** Of q's bottleneck. */
const loraNorm = ({ loraNormEps: eps }: MlaConfig): NormConfig => ({ kind: 'rms', eps });

class MlaProgram implements AttentionProgram {
  readonly #attention: SpreadAttention;
  readonly #fused: ReturnType<typeof fusedMla>;
  /** Undefined on a rank without weights. */
  readonly #computed: ComputedRows | undefined;

  constructor(
    readonly of: MlaLayers,
    readonly rows: StageRows,
  ) {
    this.#attention = new SpreadAttention(of.stage, of.shape, rows);
    this.#fused = fusedMla(of.stage, rows, this.#attention);
    if (of.runs) this.#computed = this.#allocate();
  }

  #allocate(): ComputedRows {
    const { stage, config, projectStride, qStride, shape, attendedWidth, alike } = this.of;
    const { qLoraRank } = config;
    const { role, rows, scratch } = this.rows;
    const floats = (name: string, stride: number): Buffer => scratch.createBuffer(`${role} ${name}`, rows * stride * 4);
    const fused = qLoraRank === null || fusesNorm(stage.device, loraNorm(config), role, rows, qLoraRank);
    return {
      projected: floats('projected', projectStride),
      qNormed: fused ? undefined : floats('q normed', projectStride),
      q: qLoraRank === null ? undefined : floats('q', qStride),
      latentOut: floats('latent out', shape.outStride),
      attended: floats(paddedName('attended', attendedWidth), activationStride(attendedWidth)),
      output: RowParallelLinear.ofHeads(alike, this.rows),
    };
  }

  record(recorder: RankRecorder, layerCache: LayerCache, half: Half<MlaWeights> | undefined): void {
    const attention = this.#attention;
    const computed = this.#computed;
    const [cache] = layerCache.buffers as readonly [Buffer];
    if (computed && half) this.#recordProjection(recorder, computed, cache, half);
    attention.recordQueries(recorder);
    if (!computed) this.#recordAppend(recorder, cache);
    this.#recordAttention(recorder, cache);
    const valueUp = half?.weights.kvUp?.valueUp;
    const merges = computed !== undefined && valueUp !== undefined && this.#fused.merges(valueUp);
    const merge = (): void => attention.recordMerge(recorder, computed?.latentOut);
    recordMerge(recorder, merges ? attention : undefined, merge);
    if (computed && half) this.#recordOutput(recorder, computed, half.weights, merges);
  }

  /** What appends are told of tokens. */
  #tokens(of: Required<Pick<MlaRopeAppendProblem, 'rows' | 'qStride' | 'kvStride' | 'kvOffset'>>) {
    const { stage, heads, config, latent } = this.of;
    const { qkNopeHeadDim, loraNormEps: eps } = config;
    const qAbsStride = this.#attention.input.queryStride;
    return { ...latent, ...of, heads, qkNopeHeadDim, eps, tableStride: stage.cache.tableStride, qAbsStride };
  }

  /** On a rank without weights: tokens as they came, behind the queries. */
  #recordAppend(recorder: RankRecorder, latentCache: Buffer): void {
    const { stage, heads, config } = this.of;
    const { kvLoraRank, qkRopeHeadDim, qkNopeHeadDim } = config;
    const { queries, queryStride: kvStride, rowInfo, rowsOf, rows } = this.#attention.input;
    const qStride = alignUp(heads * (qkNopeHeadDim + qkRopeHeadDim), 4);
    const tokens = this.#tokens({ rows, qStride, kvStride, kvOffset: heads * (kvLoraRank + qkRopeHeadDim) });
    const io = { kv_a: queries, row_info: rowInfo, block_table: stage.cache.blockTable, latent_cache: latentCache };
    recorder.dispatch(mlaRopeAppend, { ...tokens, latents: 'ready' }, io, rowsOf);
  }

  /** Attention over the chunks of this rank. */
  #recordAttention(recorder: RankRecorder, latentCache: Buffer): void {
    const { stage, config, latent } = this.of;
    const { cache } = stage;
    const { input, layout, partials, target } = this.#attention;
    const problem = {
      ...latent,
      rows: input.rows,
      heads: input.heads,
      queryPieces: input.pieces,
      share: stage.topology.sequence,
      tableStride: cache.tableStride,
      qStride: input.queryStride,
      scale: config.scale,
    };
    const tensors = {
      q_abs: input.queries,
      latent_cache: latentCache,
      row_info: input.rowInfo,
      block_table: cache.blockTable,
      chunk_offsets: cache.chunkOffsets,
    };
    if (this.rows.role === 'prompt') {
      const lanes = { lanes: partials, maxChunks: chunksOf(cache.contextLength) };
      const io = { ...tensors, ...target };
      recorder.dispatch(mlaPrefill, { ...problem, ...lanes, partialLayout: layout }, io, input.rowsOf);
    } else {
      this.#attention.recordSplit(recorder, this.#computed?.latentOut, (finish, to) =>
        recorder.dispatch(mlaSplit, { ...problem, ...finish }, { ...tensors, ...to }, input.rowsOf),
      );
    }
  }

  /** Queries, absorbed, and the latents; those of this rank's sequences into its cache. */
  #recordProjection(
    recorder: RankRecorder,
    { projected, qNormed, q: qBuffer }: ComputedRows,
    latentCache: Buffer,
    half: Half<MlaWeights>,
  ): void {
    const { stage, heads, config, projectStride, qStride, rope } = this.of;
    const { cache, world } = stage;
    const attention = this.#attention;
    const { rows, role, adapters } = this.rows;
    const qAbsorbed = known(attention.ownQueries, 'query of this rank');
    const qAbsStride = attention.input.queryStride;
    const { kvLoraRank, qkRopeHeadDim, qkNopeHeadDim } = config;
    const { weights } = half;
    const to = { bias: weights.projectBias, out: projected, outStride: projectStride };
    recordFirst(recorder, stage, this.rows, half, known(weights.project, 'first projection'), to);
    const { qUp } = weights;
    const norms = known(weights.norms, 'norms');
    const common = {
      rope_table: rope,
      row_info: ownRowInfo(world, this.rows),
      block_table: cache.blockTable,
      latent_cache: latentCache,
    };
    const { absorb } = known(weights.kvUp, 'absorbed projection');
    const [{ weight }] = absorb.shards as [Matrix['shards'][0]];
    const kvs = { kvStride: projectStride, kvOffset: weights.latentOffset };
    if (qUp && this.#fused.ups(config, qUp, absorb)) {
      const tensors = { ...common, x: projected, norm_weight: norms, absorb: weight, out: qAbsorbed };
      // Queries out of their bottleneck, absorbed, and latents into the cache: one dispatch.
      const { qStride: _stride, ...token } = this.#tokens({ rows, qStride, ...kvs });
      const { inFeatures: loraRank, type } = qUp;
      const problem = { ...token, loraRank, type, absorbType: absorb.type, latentNorm: weights.latentNorm };
      recorder.dispatch(mlaUpAppend, problem, { ...tensors, ...shardTensors(qUp.shards[0]!) });
      return;
    }
    let q = { buffer: projected, stride: projectStride };
    if (qUp && qBuffer) {
      q = { buffer: qBuffer, stride: qStride };
      recordLinear(recorder, { role, rows, normed: qNormed, adapters }, qUp, {
        x: projected,
        xStride: projectStride,
        norm: { config: loraNorm(config), weight: norms },
        out: q.buffer,
        outStride: q.stride,
      });
    }
    const token = this.#tokens({ rows, qStride: q.stride, ...kvs });
    const offset = weights.latentNorm * 4;
    const tensors = {
      ...common,
      q: q.buffer,
      kv_a: projected,
      norm_weight: { buffer: norms, offset, size: norms.size - offset },
    };
    if (this.#fused.appends(absorb)) {
      recorder.dispatch(mlaAbsorbAppend, { ...token, type: absorb.type }, { ...tensors, weight, out: qAbsorbed });
      return;
    }
    recorder.dispatch(
      mlaRopeAppend,
      { ...token, ...(stage.topology.sendsReady && { latents: 'kept' as const }) },
      { ...tensors, q_abs: qAbsorbed },
    );
    recordGrouped(recorder, this.rows, absorb, {
      groups: heads,
      inFeatures: qkNopeHeadDim,
      outFeatures: kvLoraRank,
      xStride: q.stride,
      xGroupStride: qkNopeHeadDim + qkRopeHeadDim,
      outStride: qAbsStride,
      outGroupStride: kvLoraRank + qkRopeHeadDim,
      x: q.buffer,
      out: qAbsorbed,
      sharedUp: true,
    });
  }

  /** Attention's outputs out of the latent space, and o_proj. */
  #recordOutput(
    recorder: RankRecorder,
    { latentOut, attended, output }: ComputedRows,
    weights: MlaWeights,
    merges: boolean,
  ): void {
    const { heads, config, shape, attendedWidth } = this.of;
    const { kvLoraRank, vHeadDim } = config;
    const stride = activationStride(attendedWidth);
    const { valueUp: up } = known(weights.kvUp, 'projection of values');
    const [{ weight }] = up.shards as [Matrix['shards'][0]];
    const each = { inFeatures: kvLoraRank, outFeatures: vHeadDim, outStride: stride, outGroupStride: vHeadDim };
    const { target, partials, input: attends } = this.#attention;
    const apart = (): void => {
      const from = { x: latentOut, xStride: shape.outStride, xGroupStride: kvLoraRank };
      recordGrouped(recorder, this.rows, up, { groups: heads, ...each, ...from, out: attended, sharedUp: false });
    };
    const merged = { groups: heads, type: up.type, ...each, partials };
    const merging = (): void =>
      recorder.dispatch(linearGroupedMerge, merged, { ...target, row_info: attends.rowInfo, weight, out: attended });
    if (merges) recordMerging(recorder, merged, merging, apart);
    else apart();
    const input = {
      matrix: known(weights.o, 'output projection'),
      segments: weights.oSegments,
      x: attended,
      xStride: stride,
    };
    output.record(recorder, [input], weights.oBias);
  }
}
