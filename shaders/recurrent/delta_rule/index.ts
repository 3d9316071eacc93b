import { limitError, SplitkvError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import { defineKernel } from '../../../src/gpu/kernel.js';
import stateRows from '../../lib/state_rows.wgsl?raw';
import { type DeltaShape, MOST_KEY_DIM } from '../shape.js';
import source from './delta_rule.wgsl?raw';
import serialSource from './delta_rule_serial.wgsl?raw';

export interface DeltaRuleProblem extends DeltaShape {
  /** Most rows of a step. */
  readonly rows: number;
  /** Rows are of one sequence, from row 0 on; otherwise each may begin a run of rows. */
  readonly oneRun: boolean;
  /** Elements between rows of q, k and v. */
  readonly stride: number;
  readonly outStride: number;
}

/**
 * Linear attention by the gated delta rule, a token after the other: S <- decay S; S += k (rate (v - S^T k))^T; out = S^T q; or, `plain`,
 * by S += k (rate v)^T.
 */
export const deltaRule = defineKernel({
  name: 'delta_rule',
  bindings: { qkv: 'read', gates: 'read', row_info: 'read', places: 'read', state: 'read_write', out: 'read_write' },
  params: {
    rows: 'u32',
    key_heads: 'u32',
    ratio: 'u32',
    value_dim: 'u32',
    stride: 'u32',
    out_stride: 'u32',
    units: 'u32',
  },
  plan(problem: DeltaRuleProblem, traits) {
    const { rows, oneRun, keyHeads, ratio, keyDim, valueDim, plain = false, stride, outStride } = problem;
    const columns = keyHeads * ratio * valueDim;
    if (keyDim % 4 !== 0 || keyDim > MOST_KEY_DIM || stride < 2 * keyHeads * keyDim + columns || outStride < columns) {
      throw new SplitkvError(
        'internal',
        `delta_rule: ${keyHeads} x ${ratio} heads of ${keyDim} and ${valueDim}, stride ${stride}, outStride ${outStride}: expected ` +
          `keys of a multiple of 4 up to ${MOST_KEY_DIM}, and strides with room for all heads`,
      );
    }
    const most = traits.limits.maxComputeWorkgroupsPerDimension;
    if (rows > most) throw limitError(`delta_rule: ${rows} rows; at most ${most} in one dispatch: use smaller steps`);
    const { software, unroll } = traits;
    // On a GPU four of a column.
    const [threads, columnsEach] = software ? [16, 16] : [128, 32];
    return {
      wgsl: [stateRows, software ? serialSource : source],
      constants: {
        KEY_DIM: keyDim,
        ONE_RUN: oneRun,
        CORRECTS: !plain,
        THREADS: threads,
        ...(!software && { UNROLLED: unroll }),
      },
      params: {
        rows,
        key_heads: keyHeads,
        ratio,
        value_dim: valueDim,
        stride,
        out_stride: outStride,
        units: keyDim / 4,
      },
      grid: (step) => [ceilDiv(columns, columnsEach), oneRun ? Math.min(1, step.rows) : step.rows, 1],
    };
  },
});
