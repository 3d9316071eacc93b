import { expertLinear } from '../../shaders/moe/expert_linear/index.js';
import { expertLinearTiled } from '../../shaders/moe/expert_linear_tiled/index.js';
import { moeCombine } from '../../shaders/moe/moe_combine/index.js';
import { moeRoute } from '../../shaders/moe/moe_route/index.js';
import { moeSort } from '../../shaders/moe/moe_sort/index.js';
import type { Exchange, Transfer } from '../distributed/communicator.js';
import type { Buffer, Device, Recorder, StepShape } from '../gpu/index.js';
import type { DeepseekConfig } from './config.js';
import { type DeepseekLayerWeights, type DenseMlpWeights, isMoe, type MoeWeights } from './deepseek_weights.js';
import type { RowBuffers } from './forward.js';
import { GatheredMlp, recordGatheredMlp } from './gathered_mlp.js';
import { GatheredRows } from './gathered_rows.js';
import type { Matrix } from './matrix.js';
import { recordLinear, recordSwiglu } from './record_linear.js';
import { allocateParts, type Parts, recordReduce, rowsOf, segmentTransfers, together } from './record_ranks.js';
import { activationStride, DOWN_SEGMENTS, type Role } from './roles.js';
import type { StageTopology } from './topology.js';
import type { World } from './world.js';

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
  readonly #denseWidth: number;
  readonly #sharedWidth: number;
  readonly #split: boolean;
  /** Ranks that hold experts, where they are spread. */
  readonly #expertRanks: readonly number[];
  /** u32 [experts]: index among `expertRanks`. */
  readonly #owners: Buffer | undefined;

  constructor(
    readonly device: Device,
    readonly config: DeepseekConfig,
    readonly hiddenStride: number,
    readonly world: World,
    readonly topology: StageTopology,
    layers: readonly DeepseekLayerWeights[],
  ) {
    const widthOf = ({ downSegments: { start, end } }: DenseMlpWeights): number => end - start;
    const mlps = layers.map(({ mlp }) => mlp);
    this.#denseWidth = Math.max(0, ...mlps.map((mlp) => (isMoe<DenseMlpWeights, MoeWeights>(mlp) ? 0 : widthOf(mlp))));
    this.#sharedWidth = Math.max(
      0,
      ...mlps.map((mlp) => (isMoe<DenseMlpWeights, MoeWeights>(mlp) && mlp.shared ? widthOf(mlp.shared) : 0)),
    );
    this.#split = topology.groups.length > 1;
    const { shares } = topology.stage;
    this.#expertRanks = [];
    if (!topology.spreadsExperts) return;
    const holding = shares.filter(({ experts }) => experts.length > 0);
    this.#expertRanks = holding.map(({ rank }) => rank);
    const owners = Uint32Array.from({ length: config.moe!.numExperts }, (_, expert) =>
      holding.findIndex(({ experts }) => experts.includes(expert)),
    );
    this.#owners = device.createBuffer('expert owners', owners.byteLength);
    device.write(this.#owners, 0, owners);
  }

  /** Elements of the widest buffer's row, for prompt rows. */
  get widestRow(): number {
    const { moe } = this.config;
    const { ownRows, splitsMlp, share } = this.topology;
    // Buffers of all ranks' rows are as many times as large.
    const all = ownRows?.ranks.length ?? 1;
    const segments = this.#split
      ? DOWN_SEGMENTS.total
      : ownRows && splitsMlp
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
        Math.max(
          this.hiddenStride * Math.max(all, this.#expertRanks.length),
          activationStride(moe.intermediateSize) * all,
        ),
      activationStride(numExperts) * all,
    );
  }

  allocateRows(role: Role, rows: number, allRows: number): MlpRows {
    const { device } = this;
    const { ownRows, spreadsExperts } = this.topology;
    const { moe, hiddenSize } = this.config;
    const buffer = (name: string, words: number): Buffer => device.createBuffer(`${role} ${name}`, words * 4);
    const slots = moe ? rows * moe.expertsPerToken : 0;
    const routedRows = ownRows && spreadsExperts ? allRows : rows;
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
      downParts: parts('down parts', this.config.intermediateSize),
      sharedParts: parts('shared down parts', moe ? moe.numShared * moe.intermediateSize : 0),
      moe: moe
        ? {
            logits: buffer('router logits', rows * activationStride(moe.numExperts)),
            ids: buffer('expert ids', slots),
            weights: buffer('expert weights', slots),
            rowCount: buffer('row count', 1),
            pairs: buffer('expert pairs', role === 'prompt' ? moe.numExperts * routedRows : 1),
            pairCounts: buffer('expert pair counts', moe.numExperts),
            hidden: buffer('expert hidden', routed * activationStride(moe.intermediateSize)),
            out: buffer('expert out', routed * this.hiddenStride),
            gathered: this.#owners && buffer('expert outs', this.#expertRanks.length * slots * this.hiddenStride),
          }
        : undefined,
      all: this.#allocateAll(role, rows, allRows),
    };
  }

  #allocateAll(role: Role, rows: number, allRows: number): MlpRows['all'] {
    const { device, hiddenStride } = this;
    const { ownRows, splitsMlp, spreadsExperts } = this.topology;
    const { moe, hiddenSize } = this.config;
    if (!ownRows || !(splitsMlp || spreadsExperts)) return undefined;
    const gathered = new GatheredRows(device, ownRows, role, allRows);
    const mlp = (name: string, width: number): GatheredMlp | undefined =>
      splitsMlp ? new GatheredMlp(device, gathered, role, { name, rows, hiddenSize, width }) : undefined;
    const buffer = (name: string, words: number): Buffer => device.createBuffer(`${role} ${name}`, words * 4);
    return {
      rows: gathered,
      x: buffer('gathered x', allRows * hiddenStride),
      ids: spreadsExperts ? buffer('gathered expert ids', allRows * moe!.expertsPerToken) : undefined,
      dense: mlp('down', this.#denseWidth),
      shared: moe && moe.numShared > 0 ? mlp('shared down', this.#sharedWidth) : undefined,
    };
  }

  record(recorder: Recorder, buffers: RowBuffers, rows: MlpRows, layer: DeepseekLayerWeights): void {
    const { mlp, postNorm } = layer;
    if (isMoe<DenseMlpWeights, MoeWeights>(mlp)) {
      this.#recordExperts(recorder, buffers, rows, mlp, postNorm);
      return;
    }
    const gathered = rows.all?.dense;
    if (gathered) {
      recordGatheredMlp(recorder, this.world, buffers, gathered, mlp, {
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
    this.world.hop(recorder, 'down_proj', (step) => this.#segments(parts, step));
    this.#recordReduce(recorder, buffers, parts);
  }

  #segments(parts: Parts, step: StepShape): Omit<Exchange, 'label'> {
    return segmentTransfers(this.topology, parts, (share) => share.mlp, step);
  }

  #recordReduce(recorder: Recorder, buffers: RowBuffers, parts: Parts): void {
    recordReduce(recorder, parts, {
      width: this.config.hiddenSize,
      out: buffers.x,
      outStride: this.hiddenStride,
      outScale: this.config.residualScale,
      epilogue: 'residual',
    });
  }

  #recordDense(
    recorder: Recorder,
    buffers: RowBuffers,
    rows: MlpRows,
    weights: DenseMlpWeights,
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
  #recordExperts(recorder: Recorder, buffers: RowBuffers, rows: MlpRows, weights: MoeWeights, postNorm: Buffer): void {
    const { hiddenStride } = this;
    const moe = this.config.moe!;
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
      this.#recordRouting(recorder, scratch.ids, scratch.weights);
    }
    if (all) {
      const pairs = [{ mine: normed, all: all.x, stride: hiddenStride }];
      if (all.ids) pairs.push({ mine: scratch.ids, all: all.ids, stride: topK });
      this.world.hop(recorder, 'rows', (step) => all.rows.gather(pairs, step, all.ids && scratch.rowCount));
    }
    if (all?.ids) {
      const routed = { rows: all.rows.rows, x: all.x, ids: all.ids };
      recorder.viewing(all.rows.stepOf, () => this.#recordRouted(recorder, buffers.role, routed, scratch, weights));
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
    this.world.hop(recorder, 'experts', (step) =>
      together(
        ...(sharedParts ? [sharedAll?.segmentsHome(step) ?? this.#segments(sharedParts, step)] : []),
        ...(scratch.gathered ? [this.#expertTransfers(scratch.out, scratch.gathered, buffers.rows, rows, step)] : []),
      ),
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
    recorder: Recorder,
    role: Role,
    routed: RoutedRows,
    scratch: NonNullable<MlpRows['moe']>,
    weights: MoeWeights,
  ): void {
    const { hiddenStride } = this;
    const { hiddenSize } = this.config;
    const { expertsPerToken: topK, numExperts, intermediateSize } = this.config.moe!;
    if (role === 'prompt') {
      recorder.dispatch(
        moeSort,
        { rows: routed.rows, topK, experts: numExperts },
        { expert_ids: routed.ids, row_count: scratch.rowCount, pairs: scratch.pairs, pair_counts: scratch.pairCounts },
      );
    }
    const hiddenWidth = activationStride(intermediateSize);
    this.#recordExpertLinear(recorder, role, routed, scratch, weights, weights.expertsGateUp, {
      x: routed.x,
      xStride: hiddenStride,
      xPerSlot: false,
      inFeatures: hiddenSize,
      out: scratch.hidden,
      outStride: hiddenWidth,
      outFeatures: intermediateSize,
      epilogue: 'swiglu',
    });
    this.#recordExpertLinear(recorder, role, routed, scratch, weights, weights.expertsDown, {
      x: scratch.hidden,
      xStride: hiddenWidth,
      xPerSlot: true,
      inFeatures: intermediateSize,
      out: scratch.out,
      outStride: hiddenStride,
      outFeatures: hiddenSize,
      epilogue: 'none',
    });
  }

  #recordRouting(recorder: Recorder, ids: Buffer, weights: Buffer): void {
    const { shares } = this.topology.stage;
    const [router, ...others] = shares.map(({ rank }) => rank);
    const stride = this.config.moe!.expertsPerToken;
    this.world.hop(recorder, 'routing', (step) => {
      const transfer = (peer: number): Transfer => ({
        peer,
        regions: [rowsOf(ids, stride, step.rows), rowsOf(weights, stride, step.rows)],
      });
      return this.world.rank === router
        ? { sends: others.map(transfer), receives: [] }
        : { sends: [], receives: [transfer(router!)] };
    });
  }

  /** Every rank that runs a row needs the outputs of all experts for it. */
  #expertTransfers(
    out: Buffer,
    gathered: Buffer,
    rows: number,
    { all }: MlpRows,
    step: StepShape,
  ): Omit<Exchange, 'label'> {
    const stride = this.config.moe!.expertsPerToken * this.hiddenStride;
    if (all) return all.rows.outputsHome(out, gathered, { stride, rows, computing: this.#expertRanks }, step);
    const own = this.#expertRanks.includes(this.world.rank);
    return {
      sends: own
        ? this.topology.stage.shares.map(({ rank }): Transfer => ({
            peer: rank,
            regions: [rowsOf(out, stride, step.rows)],
          }))
        : [],
      receives: this.#expertRanks.map((peer, index): Transfer => ({
        peer,
        regions: [rowsOf(gathered, stride, step.rows, index * rows)],
      })),
    };
  }

  #recordExpertLinear(
    recorder: Recorder,
    role: Role,
    routed: RoutedRows,
    scratch: NonNullable<MlpRows['moe']>,
    { experts: [first, end] }: MoeWeights,
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
    const { numExperts, expertsPerToken } = this.config.moe!;
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
