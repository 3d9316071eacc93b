import { patchesOf, patchOrder, type VisionConfig } from '../config/vision_config.js';
import { type NormSpec, normSpec } from '../layers/norm.js';
import { wholeSlice } from '../shape.js';
import { modelMap, type ModelMap } from '../weights/model_map.js';
import { allRows, type MatrixSpec, type VectorSpec, wholeVector } from '../weights/weight_map.js';

/** Which tensors an encoder is made of: its layers, and what is before and behind them. */
export interface EncoderSpecs {
  readonly tower: ModelMap;
  /** [hidden, 3 * patch * patch]. */
  readonly patches: MatrixSpec;
  readonly patchesBias: VectorSpec;
  /** A row for each place of the encoder's sequence. */
  readonly positions: MatrixSpec;
  readonly norm: NormSpec;
  /** Of patches that are averaged. */
  readonly averageNorm: NormSpec | undefined;
  /** [the decoder's hidden, hidden * merge * merge], or of an average [.., hidden]. */
  readonly project: MatrixSpec;
}

/** @param textWidth hidden size of the decoder */
export function encoderSpecs(vision: VisionConfig, textWidth: number): EncoderSpecs {
  const { tower, patch, merge, averageNorm } = vision;
  const { hiddenSize, norm, tensors } = tower;
  const count = patchesOf(vision);
  const matrix = (name: string, rows: number, inFeatures: number): MatrixSpec => ({
    name,
    inFeatures,
    parts: [allRows(`${name}.weight`, rows)],
    precision: 'unquantised',
  });
  const { layers } = wholeSlice(tower);
  return {
    tower: modelMap(tower, { layers }),
    patches: matrix('vision.patches', hiddenSize, 3 * patch * patch),
    patchesBias: wholeVector('vision.patches_bias', 'vision.patches.bias', hiddenSize),
    positions: {
      name: 'vision.positions',
      inFeatures: hiddenSize,
      parts: [allRows('vision.positions.weight', count, { order: patchOrder(vision) })],
      precision: 'f32',
    },
    norm: normSpec(norm, 'vision.norm', String(tensors.norm), hiddenSize),
    averageNorm: averageNorm && normSpec(averageNorm, 'vision.average_norm', 'vision.average_norm', hiddenSize),
    project: matrix('vision.project', textWidth, averageNorm ? hiddenSize : hiddenSize * merge * merge),
  };
}
