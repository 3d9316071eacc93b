import { expertLinear } from '../../../shaders/moe/expert_linear/index.js';
import { expertLinearTiled } from '../../../shaders/moe/expert_linear_tiled/index.js';
import { moeCombine } from '../../../shaders/moe/moe_combine/index.js';
import { moeRoute } from '../../../shaders/moe/moe_route/index.js';
import { moeSort } from '../../../shaders/moe/moe_sort/index.js';
import type { Buffer, Device } from '../../gpu/index.js';
import {
  expertRoutes,
  gatheredSegmentRoutes,
  gatherRoutes,
  routingRoutes,
  segmentRoutes,
  type StageTopology,
} from '../../placement/index.js';
import { type ExpertsConfig, expertsOf, gatedMlpOf, type ModelConfig } from '../config/model_config.js';
import type { RowBuffers } from './forward.js';
import { GatheredMlp, recordGatheredMlp } from '../layers/mlp/gathered_mlp.js';
import { GatheredRows } from '../layers/mlp/gathered_rows.js';
import type { Matrix } from '../weights/matrix.js';
import type { ExpertWeights, GatedMlpWeights, LayerWeights } from '../weights/model_weights.js';
import { recordLinear, recordSwiglu } from '../layers/linear/record_linear.js';
import { allocateParts, type Parts, recordReduce, rowsOf, segmentRegions } from '../layers/linear/parts.js';
import { activationStride, DOWN_SEGMENTS, type Role } from '../layers/roles.js';
import type { RankRecorder, RegionsOf, World } from '../layers/world.js';

export interface MlpRows {
  /** Prompt rows only: generated rows fuse SwiGLU into the projection. */
  readonly gateUp: Buffer | undefined;
  /** Of the dense layers. */
  readonly hidden: Buffer;
  /** Of the shared experts. Not the dense layers' buffer: each row's padding must stay zero, and their widths differ. */
  readonly sharedHidden: Buffer;
  /** Where other ranks hold other segments; the shared experts' apart, as segments that are empty must stay zero. */
  readonly downParts: Parts | undefined;
  readonly sharedParts: Parts | undefined;
  readonly moe:
    | {
        readonly logits: Buffer;
        readonly ids: Buffer;
        readonly weights: Buffer;
        readonly rowCount: Buffer;
        readonly pairs: Buffer;
        readonly pairCounts: Buffer;
        readonly hidden: Buffer;
        /** f32 [rows][expertsPerToken][hiddenStride], of the experts on this rank. */
        readonly out: Buffer;
        /** Where experts are spread: f32 [ranks][rows][expertsPerToken][hiddenStride]. */
        readonly gathered: Buffer | undefined;
      }
    | undefined;
  /** Where ranks run their own rows and share out experts or MLP segments; pairs, hidden and out of `moe` are then of all rows. */
  readonly all:
    | {
        readonly rows: GatheredRows;
        readonly x: Buffer;
        readonly ids: Buffer | undefined;
        /** Where MLP segments are cut: of dense layers, and of the shared experts. */
        readonly dense: GatheredMlp | undefined;
        readonly shared: GatheredMlp | undefined;
      }
    | undefined;
}

/** Rows that routed experts work on: f32 x [rows][hiddenStride], normalised, and their experts. */
interface RoutedRows {
  readonly rows: number;
  readonly x: Buffer;
  readonly ids: Buffer;
}

/** The MLP half of a DeepSeek layer: dense SwiGLU, or routed experts with shared ones beside them. */
export class DeepseekMlp {
  /** Of the layers that have experts. */
  readonly moe: ExpertsConfig | undefined;
  readonly #denseWidth: number;
  readonly #sharedWidth: number;
  readonly #split: boolean;
  /** Ranks that hold experts, where they are spread. */
  readonly #expertRanks: readonly number[];
  /** u32 [experts]: index among `expertRanks`. */
  readonly #owners: Buffer | undefined;

  constructor(
    readonly device: Device,
    readonly config: ModelConfig,
    readonly hiddenStride: number,
    readonly world: World,
    readonly topology: StageTopology,
    layers: readonly LayerWeights[],
  ) {
    this.moe = expertsOf(config);
    const widthOf = ({ downSegments: { start, end } }: GatedMlpWeights): number => end - start;
    const mlps = layers.map(({ mlp }) => mlp);
    this.#denseWidth = Math.max(0, ...mlps.map((mlp) => (mlp.kind === 'experts' ? 0 : widthOf(mlp))));
    this.#sharedWidth = Math.max(
      0,
      ...mlps.map((mlp) => (mlp.kind === 'experts' && mlp.shared ? widthOf(mlp.shared) : 0)),
    );
    this.#split = topology.groups.length > 1;
    const { shares } = topology.stage;
    this.#expertRanks = [];
    if (!topology.spreadsExperts) return;
    const holding = shares.filter(({ experts }) => experts.length > 0);
    this.#expertRanks = holding.map(({ rank }) => rank);
    const owners = Uint32Array.from({ length: this.moe!.numExperts }, (_, expert) =>
      holding.findIndex(({ experts }) => experts.includes(expert)),
    );
    this.#owners = device.createBuffer('expert owners', owners.byteLength);
    device.write(this.#owners, 0, owners);
  }

  /** Elements of the widest buffer's row, for prompt rows. */
  get widestRow(): number {
    const { moe } = this;
    const { kind, cutsMlp, holders, share } = this.topology;
    const ownRows = kind === 'adp';
    // Buffers of all ranks' rows are as many times as large.
    const all = ownRows ? holders.length : 1;
    const segments = this.#split
      ? DOWN_SEGMENTS.total
      : ownRows && cutsMlp
        ? Math.max(DOWN_SEGMENTS.total, all * share.mlp.length)
        : 0;
    const dense = Math.max(
      2 * activationStride(Math.max(this.#denseWidth, this.#sharedWidth)) * all,
      segments * (this.hiddenStride + 32),
    );
    if (!moe) return dense;
    const { expertsPerToken, numExperts } = moe;
    return Math.max(
      dense,
      expertsPerToken *
        Math.max(this.hiddenStride * Math.max(all, this.#expertRanks.length), activationStride(moe.width) * all),
      activationStride(numExperts) * all,
    );
  }

  allocateRows(role: Role, rows: number, allRows: number): MlpRows {
    const { device } = this;
    const { kind, spreadsExperts } = this.topology;
    const { moe } = this;
    const { hiddenSize } = this.config;
    const buffer = (name: string, words: number): Buffer => device.createBuffer(`${role} ${name}`, words * 4);
    const slots = moe ? rows * moe.expertsPerToken : 0;
    const routedRows = kind === 'adp' && spreadsExperts ? allRows : rows;
    const routed = moe ? routedRows * moe.expertsPerToken : 0;
    const parts = (name: string, width: number): Parts | undefined =>
      this.#split && width > 0 ? allocateParts(device, role, name, DOWN_SEGMENTS.total, rows, hiddenSize) : undefined;
    return {
      gateUp:
        role === 'prompt'
          ? buffer('gate_up', rows * 2 * activationStride(Math.max(this.#denseWidth, this.#sharedWidth)))
          : undefined,
      hidden: buffer('hidden', rows * activationStride(this.#denseWidth)),
      sharedHidden: buffer('shared hidden', rows * activationStride(this.#sharedWidth)),
      downParts: parts('down parts', gatedMlpOf(this.config)?.width ?? 0),
      sharedParts: parts('shared down parts', moe?.sharedWidth ?? 0),
      moe: moe
        ? {
            logits: buffer('router logits', rows * activationStride(moe.numExperts)),
            ids: buffer('expert ids', slots),
            weights: buffer('expert weights', slots),
            rowCount: buffer('row count', 1),
            pairs: buffer('expert pairs', role === 'prompt' ? moe.numExperts * routedRows : 1),
            pairCounts: buffer('expert pair counts', moe.numExperts),
            hidden: buffer('expert hidden', routed * activationStride(moe.width)),
            out: buffer('expert out', routed * this.hiddenStride),
            gathered: this.#owners && buffer('expert outs', this.#expertRanks.length * slots * this.hiddenStride),
          }
        : undefined,
      all: this.#allocateAll(role, rows, allRows),
    };
  }

  #allocateAll(role: Role, rows: number, allRows: number): MlpRows['all'] {
    const { device, hiddenStride } = this;
    const { kind, cutsMlp, spreadsExperts, share } = this.topology;
    const { moe } = this;
    const { hiddenSize } = this.config;
    if (kind !== 'adp' || !(cutsMlp || spreadsExperts)) return undefined;
    const gathered = new GatheredRows(device, role, allRows);
    const mlp = (name: string, width: number): GatheredMlp | undefined =>
      cutsMlp ? new GatheredMlp(device, gathered, role, { name, rows, hiddenSize, width, mlp: share.mlp }) : undefined;
    const buffer = (name: string, words: number): Buffer => device.createBuffer(`${role} ${name}`, words * 4);
    return {
      rows: gathered,
      x: buffer('gathered x', allRows * hiddenStride),
      ids: spreadsExperts ? buffer('gathered expert ids', allRows * moe!.expertsPerToken) : undefined,
      dense: mlp('down', this.#denseWidth),
      shared: moe && moe.sharedWidth > 0 ? mlp('shared down', this.#sharedWidth) : undefined,
    };
  }

  record(recorder: RankRecorder, buffers: RowBuffers, rows: MlpRows, layer: LayerWeights): void {
    const { mlp, postNorm } = layer;
    if (mlp.kind === 'experts') {
      this.#recordExperts(recorder, buffers, rows, mlp, postNorm);
      return;
    }
    const gathered = rows.all?.dense;
    if (gathered) {
      recordGatheredMlp(recorder, this.world, this.topology.index, buffers, gathered, mlp, {
        norm: { weight: postNorm, eps: this.config.rmsNormEps },
        gatheredX: rows.all.x,
        width: this.config.hiddenSize,
        stride: this.hiddenStride,
        outScale: this.config.residualScale,
      });
      return;
    }
    const parts = rows.downParts;
    this.#recordDense(recorder, buffers, rows, mlp, { x: buffers.x, norm: postNorm }, rows.hidden, parts);
    if (!parts) return;
    this.world.exchangeRoutes(
      recorder,
      'down_proj',
      this.#segmentRoutes(buffers.role),
      segmentRegions(this.world, buffers.role, parts),
    );
    this.#recordReduce(recorder, buffers, parts);
  }

  #segmentRoutes(role: Role) {
    return segmentRoutes(this.world.all, this.topology.index, role, 'mlp');
  }

  #recordReduce(recorder: RankRecorder, buffers: RowBuffers, parts: Parts): void {
    recordReduce(recorder, parts, {
      width: this.config.hiddenSize,
      out: buffers.x,
      outStride: this.hiddenStride,
      outScale: this.config.residualScale,
      epilogue: 'residual',
    });
  }

  #recordDense(
    recorder: RankRecorder,
    buffers: RowBuffers,
    rows: MlpRows,
    weights: GatedMlpWeights,
    from: { readonly x: Buffer; readonly norm?: Buffer },
    hidden: Buffer,
    parts: Parts | undefined,
  ): void {
    const { config, hiddenStride } = this;
    recordSwiglu(recorder, buffers, weights, {
      x: from.x,
      xStride: hiddenStride,
      ...(from.norm && { norm: { weight: from.norm, eps: config.rmsNormEps } }),
      gateUp: rows.gateUp,
      hidden,
      parts,
      outScale: config.residualScale,
    });
  }

  /**
   * Routed experts read the normalised rows, so the norm is a dispatch of its own here. The shared experts' output is added to x
   * first, then the weighted sum of the routed ones, in ascending expert order. Where ranks run their own rows, each routes its own
   * and gets the outputs back.
   */
  #recordExperts(
    recorder: RankRecorder,
    buffers: RowBuffers,
    rows: MlpRows,
    weights: ExpertWeights,
    postNorm: Buffer,
  ): void {
    const { hiddenStride } = this;
    const moe = this.moe!;
    const scratch = rows.moe!;
    const normed = buffers.normed!;
    const logitsStride = activationStride(moe.numExperts);
    const topK = moe.expertsPerToken;
    recordLinear(recorder, buffers, weights.router, {
      x: buffers.x,
      xStride: hiddenStride,
      norm: { weight: postNorm, eps: this.config.rmsNormEps },
      keepNormed: true,
      out: scratch.logits,
      outStride: logitsStride,
    });
    recorder.dispatch(
      moeRoute,
      {
        rows: buffers.rows,
        experts: moe.numExperts,
        topK,
        groups: moe.numGroups,
        topkGroups: moe.topkGroups,
        scoring: moe.scoring,
        method: moe.method,
        normTopkProb: moe.normTopkProb,
        routedScalingFactor: moe.routedScalingFactor,
        correctionBias: moe.correctionBias,
        stride: logitsStride,
      },
      {
        logits: scratch.logits,
        correction_bias: weights.correctionBias,
        expert_ids: scratch.ids,
        expert_weights: scratch.weights,
        row_count: scratch.rowCount,
      },
    );
    // Different adapters may break a near tie differently; then one rank routes for all.
    const { all } = rows;
    if (this.world.mixed && this.topology.spreadsExperts && !all) {
      this.#recordRouting(recorder, buffers.role, scratch.ids, scratch.weights);
    }
    if (all) {
      const pairs = [{ mine: normed, all: all.x, stride: hiddenStride }];
      if (all.ids) pairs.push({ mine: scratch.ids, all: all.ids, stride: topK });
      const routes = gatherRoutes(this.world.all, this.topology.index, all.ids !== undefined);
      this.world.exchangeRoutes(recorder, 'rows', routes, all.rows.gather(pairs));
      if (all.ids) all.rows.recordCount(recorder, scratch.rowCount);
    }
    if (all?.ids) {
      const routed = { rows: all.rows.rows, x: all.x, ids: all.ids };
      recorder.viewing(all.rows.rowsOf, () => this.#recordRouted(recorder, buffers.role, routed, scratch, weights));
    } else {
      const routed = { rows: buffers.rows, x: normed, ids: scratch.ids };
      this.#recordRouted(recorder, buffers.role, routed, scratch, weights);
    }
    const sharedAll = weights.shared && all?.shared;
    const sharedParts = weights.shared && (sharedAll?.parts ?? rows.sharedParts);
    if (weights.shared && sharedAll) sharedAll.recordSegments(recorder, weights.shared, all!.x, hiddenStride);
    else if (weights.shared) {
      this.#recordDense(recorder, buffers, rows, weights.shared, { x: normed }, rows.sharedHidden, sharedParts);
    }
    const { index } = this.topology;
    const segments = sharedAll?.segmentsHome ?? (sharedParts && segmentRegions(this.world, buffers.role, sharedParts));
    const experts =
      scratch.gathered && this.#expertRegions(buffers.role, scratch.out, scratch.gathered, buffers.rows, rows);
    const routes = [
      ...(segments
        ? sharedAll
          ? gatheredSegmentRoutes(this.world.all, index)
          : this.#segmentRoutes(buffers.role)
        : []),
      ...(experts ? expertRoutes(this.world.all, index, buffers.role) : []),
    ];
    this.world.exchangeRoutes(recorder, 'experts', routes, (route, side, step) =>
      (route.cargo.kind === 'segments' ? segments! : experts!)(route, side, step),
    );
    if (sharedParts) this.#recordReduce(recorder, buffers, sharedParts);
    recorder.dispatch(
      moeCombine,
      {
        rows: buffers.rows,
        topK,
        width: this.config.hiddenSize,
        inStride: hiddenStride,
        stride: hiddenStride,
        ...(scratch.gathered && { ranks: this.#expertRanks.length, experts: moe.numExperts }),
      },
      {
        expert_out: scratch.gathered ?? scratch.out,
        expert_weights: scratch.weights,
        ...(scratch.gathered && { expert_ids: scratch.ids, owners: this.#owners }),
        x: buffers.x,
      },
    );
  }

  /** The outputs of this rank's experts for each row. */
  #recordRouted(
    recorder: RankRecorder,
    role: Role,
    routed: RoutedRows,
    scratch: NonNullable<MlpRows['moe']>,
    weights: ExpertWeights,
  ): void {
    const { hiddenStride } = this;
    const { hiddenSize } = this.config;
    const { expertsPerToken: topK, numExperts, width } = this.moe!;
    if (role === 'prompt') {
      recorder.dispatch(
        moeSort,
        { rows: routed.rows, topK, experts: numExperts },
        { expert_ids: routed.ids, row_count: scratch.rowCount, pairs: scratch.pairs, pair_counts: scratch.pairCounts },
      );
    }
    const hiddenWidth = activationStride(width);
    this.#recordExpertLinear(recorder, role, routed, scratch, weights, weights.expertsGateUp, {
      x: routed.x,
      xStride: hiddenStride,
      xPerSlot: false,
      inFeatures: hiddenSize,
      out: scratch.hidden,
      outStride: hiddenWidth,
      outFeatures: width,
      epilogue: 'swiglu',
    });
    this.#recordExpertLinear(recorder, role, routed, scratch, weights, weights.expertsDown, {
      x: scratch.hidden,
      xStride: hiddenWidth,
      xPerSlot: true,
      inFeatures: width,
      out: scratch.out,
      outStride: hiddenStride,
      outFeatures: hiddenSize,
      epilogue: 'none',
    });
  }

  #recordRouting(recorder: RankRecorder, role: Role, ids: Buffer, weights: Buffer): void {
    const stride = this.moe!.expertsPerToken;
    const routes = routingRoutes(this.world.all, this.topology.index, role);
    this.world.exchangeRoutes(recorder, 'routing', routes, ({ cargo }, _side, step) => {
      const { first, count } = this.world.rowRange(role, cargo.group, step);
      return [rowsOf(ids, stride, count, first), rowsOf(weights, stride, count, first)];
    });
  }

  /** Every rank that runs a row needs the outputs of all experts for it. */
  #expertRegions(role: Role, out: Buffer, gathered: Buffer, room: number, { all }: MlpRows): RegionsOf {
    const stride = this.moe!.expertsPerToken * this.hiddenStride;
    return ({ from, cargo }, side, step) => {
      const { first, count } = this.world.rowRange(role, cargo.group, step);
      if (side === 'receive') return [rowsOf(gathered, stride, count, this.#expertRanks.indexOf(from) * room + first)];
      return [all ? all.rows.region(out, stride, cargo.group, step) : rowsOf(out, stride, count, first)];
    };
  }

  #recordExpertLinear(
    recorder: RankRecorder,
    role: Role,
    routed: RoutedRows,
    scratch: NonNullable<MlpRows['moe']>,
    { experts: [first, end] }: ExpertWeights,
    matrix: Matrix | undefined,
    io: {
      readonly x: Buffer;
      readonly xStride: number;
      readonly xPerSlot: boolean;
      readonly inFeatures: number;
      readonly out: Buffer;
      readonly outStride: number;
      readonly outFeatures: number;
      readonly epilogue: 'swiglu' | 'none';
    },
  ): void {
    if (!matrix) return;
    const { numExperts, expertsPerToken } = this.moe!;
    const rowsPerExpert = matrix.outFeatures / (end - first);
    const { x, out, ...shape } = io;
    for (const shard of matrix.shards) {
      const problem = {
        ...shape,
        rows: routed.rows,
        topK: expertsPerToken,
        experts: numExperts,
        type: matrix.type,
        expertFirst: first + shard.firstRow / rowsPerExpert,
        expertCount: shard.rows / rowsPerExpert,
      };
      const tensors = { x, weight: shard.weight, scale: shard.scale, out };
      if (role === 'prompt') {
        recorder.dispatch(expertLinearTiled, problem, {
          ...tensors,
          pairs: scratch.pairs,
          pair_counts: scratch.pairCounts,
        });
      } else {
        recorder.dispatch(expertLinear, problem, { ...tensors, expert_ids: routed.ids });
      }
    }
  }
}
