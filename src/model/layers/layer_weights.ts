import type { NormConfig } from '../config/model_config.js';
import type { LayerSlice } from '../shape.js';
import { type MatrixSpec, type Part, type VectorSpec, wholeVector } from '../weights/weight_map.js';

/** What a layer's parts are told of the layer when they say which tensors they load. */
export interface LayerContext {
  readonly hiddenSize: number;
  readonly norm: NormConfig;
  /** Of a rank, or the whole. */
  readonly slice: LayerSlice;
}

/** Bytes of all specs in some parts of a map. */
export type Bytes = (...parts: readonly unknown[]) => number;

/** Bytes that ranks cut by heads or by columns, and bytes that each of them holds. */
export interface CutBytes {
  readonly cut: number;
  readonly shared: number;
  /** Of each routed expert; default: there are none. */
  readonly expert?: number;
}

/** What messages and buffers call a part of a layer. */
export const partName = ({ slice }: LayerContext, what: string): string => `layers.${slice.index}.${what}`;

const named = (parts: readonly Part[], suffix: 'weight' | 'bias'): Part[] =>
  parts.map((part) => (part.tensor === undefined ? part : { ...part, tensor: `${part.tensor}.${suffix}` }));

/** A matrix of rows of tensors, which are named without `.weight`. */
export const matrixSpec = <const More extends Partial<MatrixSpec>>(
  context: LayerContext,
  what: string,
  inFeatures: number,
  parts: readonly Part[],
  more?: More,
): MatrixSpec & More =>
  ({ name: partName(context, what), inFeatures, parts: named(parts, 'weight'), ...more }) as MatrixSpec & More;

/** What is added to such rows: theirs in the tensors that are named without `.bias`. */
export const biasSpec = (context: LayerContext, what: string, parts: readonly Part[]): VectorSpec =>
  vectorSpec(context, what, named(parts, 'bias'));

export const vectorSpec = (
  context: LayerContext,
  what: string,
  parts: readonly Part[],
  more?: Partial<VectorSpec>,
): VectorSpec => ({ name: partName(context, what), parts, ...more });

/** A vector that every rank of the layer holds whole. @param plus as of `VectorSpec` */
export const layerVector = (
  context: LayerContext,
  what: string,
  tensor: string,
  length: number,
  plus?: number,
): VectorSpec => wholeVector(partName(context, what), tensor, length, plus);
