import { expertLinear } from '../../../../shaders/moe/expert_linear/index.js';
import { expertLinearTiled } from '../../../../shaders/moe/expert_linear_tiled/index.js';
import { moeSort } from '../../../../shaders/moe/moe_sort/index.js';
import type { Buffer } from '../../../gpu/index.js';
import type { ExpertsConfig } from '../../config/model_config.js';
import type { Matrix } from '../../weights/matrix.js';
import type { StageContext } from '../layer.js';
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

  /** `x`: f32 [rows][hiddenStride], normalised; `ids`: u32 [rows][expertsPerToken]. */
  record(recorder: RankRecorder, weights: ExpertWeights, x: Buffer, ids: Buffer): void {
    const { hiddenStride, config } = this.stage;
    const { expertsPerToken: topK, numExperts, width } = this.config;
    if (this.#role === 'prompt') {
      recorder.dispatch(
        moeSort,
        { rows: this.most, topK, experts: numExperts },
        { expert_ids: ids, row_count: this.rowCount, pairs: this.#pairs, pair_counts: this.#pairCounts },
      );
    }
    const stride = activationStride(width);
    this.#recordLinear(recorder, weights, ids, weights.expertsGateUp, {
      x,
      xStride: hiddenStride,
      xPerSlot: false,
      inFeatures: config.hiddenSize,
      out: this.#hidden,
      outStride: stride,
      outFeatures: width,
      epilogue: 'swiglu',
    });
    this.#recordLinear(recorder, weights, ids, weights.expertsDown, {
      x: this.#hidden,
      xStride: stride,
      xPerSlot: true,
      inFeatures: width,
      out: this.out,
      outStride: hiddenStride,
      outFeatures: config.hiddenSize,
      epilogue: 'none',
    });
  }

  #recordLinear(
    recorder: RankRecorder,
    { experts: [first, end] }: ExpertWeights,
    ids: Buffer,
    matrix: Matrix | undefined,
    { x, out, ...shape }: ExpertProjection,
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
      };
      const tensors = { x, weight: shard.weight, scale: shard.scale, out };
      if (this.#role === 'prompt') {
        recorder.dispatch(expertLinearTiled, problem, {
          ...tensors,
          pairs: this.#pairs,
          pair_counts: this.#pairCounts,
        });
      } else {
        recorder.dispatch(expertLinear, problem, { ...tensors, expert_ids: ids });
      }
    }
  }
}
