import { blocksView, matrixShape, rowsView, type TensorEntry, transposedView, vectorView } from '../../loader/index.js';
import type { ExpertsConfig } from '../config/model_config.js';
import type { ExpertNames } from '../config/tensor_names.js';

/** What a stack's name ends with, of gate and up, and of down. */
const stacks = ['gate_up_proj', 'down_proj'] as const;

/**
 * gpt-oss's stacks of a layer's experts as tensors of each expert, in place of the stacks. Gate i is row 2i, up i row 2i + 1.
 *
 *   experts.gate_up_proj [experts, hidden, 2 width], experts.down_proj [experts, width, hidden]: input by input
 *   or, in MXFP4, `_blocks` [experts, rows, columns / 32, 16] and `_scales` [experts, rows, columns / 32]: output by output
 *   experts.gate_up_proj_bias [experts, 2 width], experts.down_proj_bias [experts, hidden]
 *
 * @param names of the layer, with {expert} for an expert's number
 */
export function unstackAlternating(
  tensors: Map<string, TensorEntry>,
  names: ExpertNames,
  { numExperts, width }: ExpertsConfig,
  hiddenSize: number,
): void {
  const of = (name: string): TensorEntry | undefined => tensors.get(names.gate.replace('{expert}.gate_proj', name));
  const own = (part: 'gate' | 'up' | 'down', expert: number, end: string): string =>
    `${names[part].replace('{expert}', `${expert}`)}.${end}`;
  for (const stack of stacks) {
    const both = stack === 'gate_up_proj';
    const parts = both ? (['gate', 'up'] as const) : (['down'] as const);
    const rows = both ? 2 * width : hiddenSize;
    const columns = both ? hiddenSize : width;
    const step = parts.length;
    const [plain, blocks, scales, bias] = ['', '_blocks', '_scales', '_bias'].map((end) => of(`${stack}${end}`));
    for (let expert = 0; expert < numExperts; expert++) {
      for (const [first, part] of parts.entries()) {
        const name = own(part, expert, 'weight');
        if (plain && fits(plain, numExperts * columns, rows))
          tensors.set(name, transposedView(rowsView(plain, name, expert * columns, columns), { first, step }));
        if (blocks && scales && fits(scales, numExperts * rows, columns / 32))
          tensors.set(
            name,
            blocksView(name, blocks, scales, { first: expert * rows + first, step, rows: rows / step }),
          );
        const biasName = own(part, expert, 'bias');
        if (bias && fits(bias, numExperts, rows))
          tensors.set(
            biasName,
            vectorView(bias, biasName, { first: expert * rows + first, step, length: rows / step }),
          );
      }
    }
    for (const end of ['', '_blocks', '_scales', '_bias'])
      tensors.delete(names.gate.replace('{expert}.gate_proj', `${stack}${end}`));
  }
}

/** Others are refused by what they lack. */
function fits(entry: TensorEntry, rows: number, columns: number): boolean {
  const shape = matrixShape(entry);
  return shape.rows === rows && shape.columns === columns;
}
