import { expertLinear } from '../../shaders/moe/expert_linear/index.js';
import { expertLinearTiled } from '../../shaders/moe/expert_linear_tiled/index.js';
import { moeCombine } from '../../shaders/moe/moe_combine/index.js';
import { moeRoute } from '../../shaders/moe/moe_route/index.js';
import { moeSort } from '../../shaders/moe/moe_sort/index.js';
import type { Buffer, Device, Recorder } from '../gpu/index.js';
import type { DeepseekConfig } from './config.js';
import { type DeepseekLayerWeights, type DenseMlpWeights, isMoe, type MoeWeights } from './deepseek_weights.js';
import type { RowBuffers } from './forward.js';
import type { Matrix } from './matrix.js';
import { recordLinear, recordSwiglu } from './record_linear.js';
import { activationStride, type Role } from './roles.js';

export interface MlpRows {
  /** Prompt rows only: generated rows fuse SwiGLU into the projection. */
  readonly gateUp: Buffer | undefined;
  readonly hidden: Buffer;
  /** Of the shared experts. Not the dense layers' buffer: each row's padding must stay zero, and their widths differ. */
  readonly sharedHidden: Buffer;
  readonly moe:
    | {
        readonly logits: Buffer;
        readonly ids: Buffer;
        readonly weights: Buffer;
        readonly rowCount: Buffer;
        readonly pairs: Buffer;
        readonly pairCounts: Buffer;
        readonly hidden: Buffer;
        readonly out: Buffer;
      }
    | undefined;
}

/** The MLP half of a DeepSeek layer: dense SwiGLU, or routed experts with shared ones beside them. */
export class DeepseekMlp {
  constructor(
    readonly device: Device,
    readonly config: DeepseekConfig,
    readonly hiddenStride: number,
  ) {}

  get #sharedWidth(): number {
    const { moe } = this.config;
    return moe ? moe.numShared * moe.intermediateSize : 0;
  }

  /** Elements of the widest buffer's row, for prompt rows. */
  get widestRow(): number {
    const { moe, intermediateSize } = this.config;
    const dense = 2 * activationStride(Math.max(intermediateSize, this.#sharedWidth));
    if (!moe) return dense;
    const { expertsPerToken, numExperts } = moe;
    return Math.max(
      dense,
      expertsPerToken * Math.max(this.hiddenStride, activationStride(moe.intermediateSize)),
      activationStride(numExperts),
    );
  }

  allocateRows(role: Role, rows: number): MlpRows {
    const { moe, intermediateSize } = this.config;
    const buffer = (name: string, words: number): Buffer => this.device.createBuffer(`${role} ${name}`, words * 4);
    const slots = moe ? rows * moe.expertsPerToken : 0;
    return {
      gateUp:
        role === 'prompt'
          ? buffer('gate_up', rows * 2 * activationStride(Math.max(intermediateSize, this.#sharedWidth)))
          : undefined,
      hidden: buffer('hidden', rows * activationStride(intermediateSize)),
      sharedHidden: buffer('shared hidden', rows * activationStride(this.#sharedWidth)),
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
          }
        : undefined,
    };
  }

  record(recorder: Recorder, buffers: RowBuffers, rows: MlpRows, layer: DeepseekLayerWeights): void {
    const { mlp, postNorm } = layer;
    if (isMoe<DenseMlpWeights, MoeWeights>(mlp)) this.#recordExperts(recorder, buffers, rows, mlp, postNorm);
    else {
      const { intermediateSize } = this.config;
      this.#recordDense(recorder, buffers, rows, mlp, { x: buffers.x, norm: postNorm }, rows.hidden, intermediateSize);
    }
  }

  #recordDense(
    recorder: Recorder,
    buffers: RowBuffers,
    rows: MlpRows,
    weights: DenseMlpWeights,
    from: { readonly x: Buffer; readonly norm?: Buffer },
    hidden: Buffer,
    width: number,
  ): void {
    const { config, hiddenStride } = this;
    recordSwiglu(
      recorder,
      buffers,
      { gateUp: weights.gateUp!, down: weights.down! },
      {
        x: from.x,
        xStride: hiddenStride,
        ...(from.norm && { norm: { weight: from.norm, eps: config.rmsNormEps } }),
        width,
        gateUp: rows.gateUp,
        hidden,
        outScale: config.residualScale,
      },
    );
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
    if (buffers.role === 'prompt') {
      recorder.dispatch(
        moeSort,
        { rows: buffers.rows, topK, experts: moe.numExperts },
        { expert_ids: scratch.ids, row_count: scratch.rowCount, pairs: scratch.pairs, pair_counts: scratch.pairCounts },
      );
    }
    const hiddenWidth = activationStride(moe.intermediateSize);
    this.#recordExpertLinear(recorder, buffers, rows, weights.expertsGateUp!, {
      x: normed,
      xStride: hiddenStride,
      xPerSlot: false,
      inFeatures: this.config.hiddenSize,
      out: scratch.hidden,
      outStride: hiddenWidth,
      outFeatures: moe.intermediateSize,
      epilogue: 'swiglu',
    });
    this.#recordExpertLinear(recorder, buffers, rows, weights.expertsDown!, {
      x: scratch.hidden,
      xStride: hiddenWidth,
      xPerSlot: true,
      inFeatures: moe.intermediateSize,
      out: scratch.out,
      outStride: hiddenStride,
      outFeatures: this.config.hiddenSize,
      epilogue: 'none',
    });
    if (weights.shared) {
      this.#recordDense(recorder, buffers, rows, weights.shared, { x: normed }, rows.sharedHidden, this.#sharedWidth);
    }
    recorder.dispatch(
      moeCombine,
      { rows: buffers.rows, topK, width: this.config.hiddenSize, inStride: hiddenStride, stride: hiddenStride },
      { expert_out: scratch.out, expert_weights: scratch.weights, x: buffers.x },
    );
  }

  #recordExpertLinear(
    recorder: Recorder,
    buffers: RowBuffers,
    rows: MlpRows,
    matrix: Matrix,
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
    const { numExperts, expertsPerToken } = this.config.moe!;
    const scratch = rows.moe!;
    const rowsPerExpert = matrix.outFeatures / numExperts;
    const { x, out, ...shape } = io;
    for (const shard of matrix.shards) {
      const problem = {
        ...shape,
        rows: buffers.rows,
        topK: expertsPerToken,
        experts: numExperts,
        type: matrix.type,
        expertFirst: shard.firstRow / rowsPerExpert,
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
