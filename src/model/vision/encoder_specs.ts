import { patchesOf, patchGrid, patchOrder, type VisionConfig } from '../config/vision_config.js';
import type { NormConfig } from '../config/model_config.js';
import { type NormSpec, normSpec, plainNorm } from '../layers/norm.js';
import { wholeSlice } from '../shape.js';
import { modelMap, type ModelMap } from '../weights/model_map.js';
import { allRows, type MatrixSpec, type VectorSpec, wholeMatrix, wholeVector } from '../weights/weight_map.js';

/** Which tensors an encoder is made of: its layers, and what is before and behind them. */
export interface EncoderSpecs {
  readonly tower: ModelMap;
  /** [hidden, 3 * patch * patch]. */
  readonly patches: MatrixSpec;
  readonly patchesBias: VectorSpec | undefined;
  /** A row for each place of the encoder's sequence; undefined where they are made for each picture (`placesTable`). */
  readonly positions: MatrixSpec | undefined;
  readonly norm: NormSpec | undefined;
  /** Of patches that are averaged: what is added to their sum, and what the scaled sum is multiplied by. */
  readonly averageNorm: NormSpec | undefined;
  readonly averageBias: VectorSpec | undefined;
  readonly averageFactor: VectorSpec | undefined;
  /** By layer, `CLIPPED` by `BOUNDS`. */
  readonly bounds: readonly VectorSpec[];
  /** [the decoder's hidden, hidden * merge * merge], or of an average [.., hidden]. */
  readonly project: MatrixSpec | undefined;
  /** Instead: of what the last norm gives, then of what each tap's own does. */
  readonly mergers: readonly MergerSpecs[];
}

/** Matrices of a layer whose activations have bounds, and those. */
const CLIPPED = ['self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj', 'self_attn.out_proj'].concat(
  ['gate_proj', 'fc1', 'fc2'].map((part) => `mlp.${part}`),
);
export const BOUNDS = ['input_min', 'input_max', 'output_min', 'output_max'];

interface MergerSpecs {
  /** Of rows that are joined. */
  readonly norm: NormSpec | undefined;
  /** [width, hidden * merge * merge]. */
  readonly into: MatrixSpec;
  readonly intoBias: VectorSpec;
  /** [the decoder's hidden, width]. */
  readonly out: MatrixSpec;
  readonly outBias: VectorSpec;
}

/** The table that places are stretched from; it stays with the host. */
export const placesTable = ({ places, tower: { hiddenSize } }: VisionConfig) =>
  places && places.by !== 'none'
    ? {
        name: 'vision.positions.weight',
        shape: places.by === 'axes' ? [2, places.side, hiddenSize] : [places.side ** 2, hiddenSize],
      }
    : undefined;

/** @param textWidth hidden size of the decoder */
export function encoderSpecs(vision: VisionConfig, textWidth: number): EncoderSpecs {
  const { tower, patch, merge, average, merger, places, clipped } = vision;
  const { hiddenSize, norm, tensors } = tower;
  const joined = hiddenSize * merge * merge;
  const bias = (name: string, length: number): VectorSpec => wholeVector(`${name}_bias`, `${name}.bias`, length);
  const mergerOf = (at: string, width: number, own: NormConfig | undefined): MergerSpecs => ({
    norm: own && normSpec(own, `${at}.norm`, `${at}.norm`, joined),
    into: wholeMatrix(`${at}.fc1`, width, joined),
    intoBias: bias(`${at}.fc1`, width),
    out: wholeMatrix(`${at}.fc2`, textWidth, width),
    outBias: bias(`${at}.fc2`, textWidth),
  });
  const averageNorm = 'vision.average_norm';
  const { layers } = wholeSlice(tower);
  return {
    tower: modelMap(tower, { layers }),
    patches: wholeMatrix('vision.patches', hiddenSize, 3 * patch * patch),
    patchesBias: places?.by === 'axes' || places?.by === 'none' ? undefined : bias('vision.patches', hiddenSize),
    positions: places
      ? undefined
      : {
          name: 'vision.positions',
          inFeatures: hiddenSize,
          parts: [
            allRows('vision.positions.weight', patchesOf(vision), { order: patchOrder(vision, patchGrid(vision)) }),
          ],
          precision: 'f32',
        },
    norm: average?.plain ? undefined : normSpec(norm, 'vision.norm', String(tensors.norm), hiddenSize),
    averageNorm: average?.plain
      ? plainNorm(average.norm, averageNorm, hiddenSize)
      : average && normSpec(average.norm, averageNorm, averageNorm, hiddenSize),
    averageBias: average?.standardized
      ? { ...wholeVector('std_bias', 'vision.std_bias', hiddenSize), times: -1 / average.scale }
      : undefined,
    averageFactor: average?.standardized ? wholeVector('std_scale', 'vision.std_scale', hiddenSize) : undefined,
    bounds: clipped
      ? tower.layers.map((_, index) => ({
          name: `vision.bounds.${index}`,
          parts: CLIPPED.flatMap((name) =>
            BOUNDS.map((bound) => allRows(`vision.encoder.layers.${index}.${name}.${bound}`, 1)),
          ),
        }))
      : [],
    project: merger ? undefined : wholeMatrix('vision.project', textWidth, average ? hiddenSize : joined),
    mergers: merger
      ? [
          mergerOf('vision.merger', merger.width, merger.norm),
          ...merger.taps.map((_, at) => mergerOf(`vision.deepstack.${at}`, merger.width, norm)),
        ]
      : [],
  };
}
