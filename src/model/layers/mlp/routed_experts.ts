import { expertLinear } from '../../../../shaders/moe/expert_linear/index.js';
import { canCombine, expertLinearCombine } from '../../../../shaders/moe/expert_linear_combine/index.js';
import { expertLinearTiled } from '../../../../shaders/moe/expert_linear_tiled/index.js';
import { moeSort } from '../../../../shaders/moe/moe_sort/index.js';
import type { PackedType } from '../../../../shaders/linear/pack.js';
import type { Buffer } from '../../../gpu/index.js';
import type { ExpertsConfig } from '../../config/model_config.js';
import type { Matrix } from '../../weights/matrix.js';
import type { StageContext } from '../layer.js';
import { fuses } from '../fusion.js';
import type { Projection } from '../linear/linear.js';
import { activationStride, paddedName, type Role } from '../roles.js';
import type { StageRows } from '../rows.js';
import type { RankRecorder } from '../world.js';
import type { ExpertWeights } from './expert_weights.js';

/** What an expert's projection reads and writes. */
interface ExpertProjection {
  readonly x: Buffer;
  readonly xStride: number;
  /** x has a row for each of a row's experts. */
  readonly xPerSlot: boolean;
  readonly inFeatures: number;
  readonly out: Buffer;
  readonly outStride: number;
  readonly outFeatures: number;
  readonly epilogue: 'swiglu' | 'none';
  readonly clamped?: ExpertsConfig['clamped'];
  readonly bias: Buffer | undefined;
  /** RMS-normalise x first: generated rows where the norm is fused. */
  readonly norm?: Projection['norm'];
}

/** A rank's experts, fused: all of a row's that are here in one dispatch a projection. */
export class RoutedExperts {
  /** f32 [rows][expertsPerToken][hiddenStride], of the experts on this rank. */
  readonly out: Buffer;
  /** u32: how many rows there are. */
  readonly rowCount: Buffer;
  readonly #role: Role;
  readonly #pairs: Buffer;
  readonly #pairCounts: Buffer;
  readonly #hidden: Buffer;

  /** `most`: the most rows that they work on. */
  constructor(
    readonly stage: StageContext,
    readonly config: ExpertsConfig,
    { role, scratch }: StageRows,
    readonly most: number,
  ) {
    const { numExperts, expertsPerToken, width } = config;
    const buffer = (name: string, words: number): Buffer => scratch.createBuffer(`${role} ${name}`, words * 4);
    this.#role = role;
    this.rowCount = buffer('row count', 1);
    this.#pairs = buffer('expert pairs', role === 'prompt' ? numExperts * most : 1);
    this.#pairCounts = buffer('expert pair counts', numExperts);
    this.#hidden = buffer(paddedName('expert hidden', width), most * expertsPerToken * activationStride(width));
    this.out = buffer('expert out', most * expertsPerToken * stage.hiddenStride);
  }

  /**
   * silu(gate x) * up x of each row's experts. `x`: f32 [rows][hiddenStride], normalised or with the norm that is fused; `ids`: u32
   * [rows][expertsPerToken].
   */
  recordHidden(
    recorder: RankRecorder,
    weights: ExpertWeights,
    { x, norm }: Pick<Projection, 'x' | 'norm'>,
    ids: Buffer,
  ): void {
    const { hiddenStride, config } = this.stage;
    const { expertsPerToken: topK, numExperts, width, clamped } = this.config;
    if (this.#role === 'prompt') {
      recorder.dispatch(
        moeSort,
        { rows: this.most, topK, experts: numExperts },
        { expert_ids: ids, row_count: this.rowCount, pairs: this.#pairs, pair_counts: this.#pairCounts },
      );
    }
    this.#recordLinear(recorder, weights, ids, weights.expertsGateUp, {
      x,
      xStride: hiddenStride,
      xPerSlot: false,
      inFeatures: config.hiddenSize,
      out: this.#hidden,
      outStride: activationStride(width),
      outFeatures: width,
      epilogue: 'swiglu',
      ...(clamped && { clamped }),
      bias: weights.gateUpBias,
      norm,
    });
  }

  /** Down, to `out`; after `recordHidden`. */
  recordDown(recorder: RankRecorder, weights: ExpertWeights, ids: Buffer): void {
    const { hiddenStride, config } = this.stage;
    const { width } = this.config;
    this.#recordLinear(recorder, weights, ids, weights.expertsDown, {
      x: this.#hidden,
      xStride: activationStride(width),
      xPerSlot: true,
      inFeatures: width,
      out: this.out,
      outStride: hiddenStride,
      outFeatures: config.hiddenSize,
      epilogue: 'none',
      bias: weights.downBias,
    });
  }

  /** Whether `recordSum` can run in place of `recordDown`: generated rows on a GPU, all experts in one buffer, and room for their sums. */
  addsUp({ expertsDown: down }: ExpertWeights): boolean {
    const { device } = this.stage;
    if (this.#role === 'prompt' || down?.shards.length !== 1 || !fuses(device, expertLinearCombine)) return false;
    return canCombine(this.#sumOf(down.type), device.traits);
  }

  /** Down, and the weighted sum of a row's experts, onto x; after `recordHidden`. */
  recordSum(
    recorder: RankRecorder,
    { expertsDown: down, downBias: bias }: ExpertWeights,
    { ids, weights, x }: { readonly ids: Buffer; readonly weights: Buffer; readonly x: Buffer },
  ): void {
    const { type, shards } = down!;
    const [{ weight, scale }] = shards as [Matrix['shards'][0]];
    const tensors = { x: this.#hidden, weight, scale, expert_ids: ids, expert_weights: weights, bias, out: x };
    recorder.dispatch(expertLinearCombine, this.#sumOf(type), tensors);
  }

  #sumOf(type: PackedType) {
    const { expertsPerToken: topK, numExperts: experts, width } = this.config;
    const { hiddenStride: outStride, config } = this.stage;
    const shape = { inFeatures: width, outFeatures: config.hiddenSize, xStride: activationStride(width), outStride };
    return { rows: this.most, topK, experts, type, bias: this.config.bias ?? false, ...shape };
  }

  #recordLinear(
    recorder: RankRecorder,
    { experts: [first, end] }: ExpertWeights,
    ids: Buffer,
    matrix: Matrix<PackedType> | undefined,
    { x, out, norm, bias, ...shape }: ExpertProjection,
  ): void {
    if (!matrix) return;
    const { numExperts, expertsPerToken } = this.config;
    const rowsPerExpert = matrix.outFeatures / (end - first);
    for (const shard of matrix.shards) {
      const problem = {
        ...shape,
        rows: this.most,
        topK: expertsPerToken,
        experts: numExperts,
        type: matrix.type,
        expertFirst: first + shard.firstRow / rowsPerExpert,
        expertCount: shard.rows / rowsPerExpert,
        bias: bias !== undefined,
        biasFirst: shard.firstRow / rowsPerExpert,
      };
      const tensors = { x, weight: shard.weight, scale: shard.scale, bias, out };
      if (this.#role === 'prompt') {
        recorder.dispatch(expertLinearTiled, problem, {
          ...tensors,
          pairs: this.#pairs,
          pair_counts: this.#pairCounts,
        });
      } else {
        recorder.dispatch(
          expertLinear,
          { ...problem, ...(norm && { normEps: norm.config.eps }) },
          { ...tensors, expert_ids: ids, norm_weight: norm?.weight },
        );
      }
    }
  }
}
