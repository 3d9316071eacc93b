import { packedLayout, type WeightType } from '../../../shaders/linear/pack.js';
import type { ModelConfig } from '../config/model_config.js';
import { modelMap } from './model_map.js';
import { type RankSlice, spanLength, wholeSlice } from '../shape.js';
import {
  expectedTensors,
  isMatrixSpec,
  specRows,
  matrixType,
  packedColumns,
  type Spec,
  specsIn,
  vectorLength,
} from './weight_map.js';

/** Everything that a rank loads, once. */
export const weightSpecs = (config: ModelConfig, slice: RankSlice = wholeSlice(config)): Spec[] => [
  ...specsIn(modelMap(config, slice)),
];

/** Bytes that a matrix or vector takes on the GPU, with the padding of tiles and blocks. */
export function specBytes(spec: Spec, type: WeightType): number {
  if (!isMatrixSpec(spec)) return vectorLength(spec) * 4;
  const stored = { rows: specRows(spec), columns: spanLength(packedColumns(spec)) };
  return (spec.packedAs ?? [stored]).reduce((sum, { rows, columns }) => {
    const { weightBytes: weights, scaleBytes } = packedLayout(matrixType(spec, type), rows, columns);
    return sum + weights + scaleBytes;
  }, 0);
}

/**
 * GPU bytes of a rank's weights, exactly as loading them allocates, and how many of the checkpoint's numbers it reads (those
 * that it holds twice, a tied table's, count twice).
 */
export function weightBytes(
  config: ModelConfig,
  type: WeightType,
  slice: RankSlice = wholeSlice(config),
): { readonly bytes: number; readonly parameters: number } {
  const specs = weightSpecs(config, slice);
  let parameters = 0;
  for (const { numbers } of expectedTensors(specs).values()) parameters += numbers;
  return { bytes: specs.reduce((sum, spec) => sum + specBytes(spec, type), 0), parameters };
}
