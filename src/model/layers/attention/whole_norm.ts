import { scaleHeads } from '../../../../shaders/norm/scale_heads/index.js';
import { segmentSquares } from '../../../../shaders/norm/segment_squares/index.js';
import type { Buffer } from '../../../gpu/index.js';
import type { GqaConfig } from '../../config/model_config.js';
import { attentionSegments, runsOf } from '../../shape.js';
import type { StageContext } from '../layer.js';
import { partsFrom } from '../linear/parts.js';
import { RowParallelLinear } from '../linear/row_parallel.js';
import type { StageRows } from '../rows.js';
import type { RankRecorder } from '../world.js';
import type { SpreadAttention } from './spread_attention.js';

/**
 * The RMS norm of q, and of k, over all heads at once. Squares are summed by attention segment and the segments in order, wherever they
 * are computed: two numbers of each travel where ranks share out the heads.
 */
export class WholeNorm {
  readonly #sums: RowParallelLinear;
  readonly #segments: number;

  constructor(
    readonly stage: StageContext,
    readonly config: GqaConfig,
    readonly rows: StageRows,
    suffix: string,
  ) {
    this.#segments = attentionSegments(config).total;
    const shape = {
      name: `qk squares${suffix}`,
      cut: 'heads',
      segments: this.#segments,
      width: 2,
      apart: true,
    } as const;
    this.#sums = new RowParallelLinear(stage, rows, shape);
  }

  /**
   * Of what the rank projects, in place: q of its segments and then their k. `weight`: of the same elements; undefined where the rank has
   * no heads, but others' sums may come here all the same.
   */
  record(recorder: RankRecorder, projected: SpreadAttention | undefined, weight: Buffer | undefined): void {
    if (!projected || !weight) return this.#sums.recordExchange(recorder, 'qk_norm');
    const { ownQueries, input } = projected;
    const [x, stride] = [ownQueries!, input.queryStride];
    const { heads, kvHeads, headDim } = this.config;
    const { rows } = this.rows;
    const parts = this.#sums.parts!;
    const [qTotal, kTotal] = [heads * headDim, kvHeads * headDim];
    const [qWidth, kWidth] = [qTotal / this.#segments, kTotal / this.#segments];
    const held = this.stage.topology.holder.heads;
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
    this.#sums.recordExchange(recorder, 'qk_norm');
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
        eps: this.stage.config.norm.eps,
      },
      { squares: parts.buffer, weight, x },
    );
  }
}
