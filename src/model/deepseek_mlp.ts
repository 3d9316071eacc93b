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
import type { Matrix } from './matrix.js';
import { recordLinear, recordSwiglu } from './record_linear.js';
import { allocateParts, type Parts, recordReduce, rowsOf, segmentTransfers, together } from './record_ranks.js';
import { activationStride, DOWN_SEGMENTS, type Role } from './roles.js';
import type { StageTopology } from './topology.js';
import type { World } from './world.js';

export interface MlpRows {
  /** Prompt rows only: generated rows fuse SwiGLU into the projection. */
  readonly gateUp: Buffer | undefined;
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
    const dense = Math.max(
      2 * activationStride(Math.max(this.#denseWidth, this.#sharedWidth)),
      this.#split ? DOWN_SEGMENTS.total * (this.hiddenStride + 32) : 0,
    );
    if (!moe) return dense;
    const { expertsPerToken, numExperts } = moe;
    return Math.max(
      dense,
      expertsPerToken *
        Math.max(this.hiddenStride * Math.max(1, this.#expertRanks.length), activationStride(moe.intermediateSize)),
      activationStride(numExperts),
    );
  }

  allocateRows(role: Role, rows: number): MlpRows {
    const { device } = this;
    const { moe, hiddenSize } = this.config;
    const buffer = (name: string, words: number): Buffer => device.createBuffer(`${role} ${name}`, words * 4);
    const slots = moe ? rows * moe.expertsPerToken : 0;
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
            pairs: buffer('expert pairs', role === 'prompt' ? moe.numExperts * rows : 1),
            pairCounts: buffer('expert pair counts', moe.numExperts),
            hidden: buffer('expert hidden', slots * activationStride(moe.intermediateSize)),
            out: buffer('expert out', slots * this.hiddenStride),
            gathered: this.#owners && buffer('expert outs', this.#expertRanks.length * slots * this.hiddenStride),
          }
        : undefined,
    };
  }

  record(recorder: Recorder, buffers: RowBuffers, rows: MlpRows, layer: DeepseekLayerWeights): void {
    const { mlp, postNorm } = layer;
    if (isMoe<DenseMlpWeights, MoeWeights>(mlp)) {
      this.#recordExperts(recorder, buffers, rows, mlp, postNorm);
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
   * first, then the weighted sum of the routed ones, in ascending expert order.
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
    if (this.world.mixed && this.topology.spreadsExperts) this.#recordRouting(recorder, scratch.ids, scratch.weights);
    if (buffers.role === 'prompt') {
      recorder.dispatch(
        moeSort,
        { rows: buffers.rows, topK, experts: moe.numExperts },
        { expert_ids: scratch.ids, row_count: scratch.rowCount, pairs: scratch.pairs, pair_counts: scratch.pairCounts },
      );
    }
    const hiddenWidth = activationStride(moe.intermediateSize);
    this.#recordExpertLinear(recorder, buffers, rows, weights, weights.expertsGateUp, {
      x: normed,
      xStride: hiddenStride,
      xPerSlot: false,
      inFeatures: this.config.hiddenSize,
      out: scratch.hidden,
      outStride: hiddenWidth,
      outFeatures: moe.intermediateSize,
      epilogue: 'swiglu',
    });
    this.#recordExpertLinear(recorder, buffers, rows, weights, weights.expertsDown, {
      x: scratch.hidden,
      xStride: hiddenWidth,
      xPerSlot: true,
      inFeatures: moe.intermediateSize,
      out: scratch.out,
      outStride: hiddenStride,
      outFeatures: this.config.hiddenSize,
      epilogue: 'none',
    });
    const sharedParts = weights.shared && rows.sharedParts;
    if (weights.shared) {
      this.#recordDense(recorder, buffers, rows, weights.shared, { x: normed }, rows.sharedHidden, sharedParts);
    }
    this.world.hop(recorder, 'experts', (step) =>
      together(
        ...(sharedParts ? [this.#segments(sharedParts, step)] : []),
        ...(scratch.gathered ? [this.#expertTransfers(scratch.out, scratch.gathered, buffers.rows, step)] : []),
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

  /** Every rank of the stage runs every row, so each needs all experts' outputs. */
  #expertTransfers(out: Buffer, gathered: Buffer, rows: number, step: StepShape): Omit<Exchange, 'label'> {
    const stride = this.config.moe!.expertsPerToken * this.hiddenStride;
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
    buffers: RowBuffers,
    rows: MlpRows,
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
    const scratch = rows.moe!;
    const rowsPerExpert = matrix.outFeatures / (end - first);
    const { x, out, ...shape } = io;
    for (const shard of matrix.shards) {
      const problem = {
        ...shape,
        rows: buffers.rows,
        topK: expertsPerToken,
        experts: numExperts,
        type: matrix.type,
        expertFirst: first + shard.firstRow / rowsPerExpert,
        expertCount: shard.rows / rowsPerExpert,
      };
      const tensors = { x, weight: shard.weight, scale: shard.scale, out };
      if (buffers.role === 'prompt') {
        recorder.dispatch(expertLinearTiled, problem, {
          ...tensors,
          pairs: scratch.pairs,
          pair_counts: scratch.pairCounts,
        });
      } else {
        recorder.dispatch(expertLinear, problem, { ...tensors, expert_ids: scratch.ids });
      }
    }
  }
}
