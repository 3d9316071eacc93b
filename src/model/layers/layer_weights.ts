import type { NormConfig } from '../config/model_config.js';
import type { LayerSlice } from '../shape.js';
import type { VectorSpec } from '../weights/weight_map.js';
import { wholeVector } from '../weights/weight_map.js';

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

/** A vector that every rank of the layer holds whole. */
export const layerVector = (context: LayerContext, what: string, tensor: string, length: number): VectorSpec =>
  wholeVector(partName(context, what), tensor, length);

/** The same of the weights of a norm within a part: of heads, of latents. */
export const partNorm = (context: LayerContext, what: string, name: string, length: number): VectorSpec =>
  wholeVector(partName(context, what), `${name}.weight`, length, context.norm.offset);
