import type { NormConfig } from '../config/model_config.js';
import type { HeldSegments, LayerSlice } from '../shape.js';
import { allRows, type MatrixSpec, type Part, type VectorSpec, wholeVector } from '../weights/weight_map.js';
import { type NormSpec, normSpec } from './norm.js';

/** Bytes of all specs in some parts of a map. */
export type Bytes = (...parts: readonly unknown[]) => number;

/** Bytes that ranks cut by heads or by columns, and bytes that each of them holds. */
export interface CutBytes {
  readonly cut: number;
  readonly shared: number;
  /** Of each routed expert; default: there are none. */
  readonly expert?: number;
}

const named = (parts: readonly Part[], suffix: 'weight' | 'bias'): Part[] =>
  parts.map((part) => (part.tensor === undefined ? part : { ...part, tensor: `${part.tensor}.${suffix}` }));

/** What a layer's parts are told of the layer when they say which tensors they load, and what makes their specs. */
export class LayerContext {
  /** @param slice of a rank, or the whole */
  constructor(
    readonly hiddenSize: number,
    readonly norm: NormConfig,
    readonly slice: LayerSlice,
  ) {}

  name(what: string): string {
    return `layers.${this.slice.index}.${what}`;
  }

  /** A matrix of rows of tensors, which are named without `.weight`. */
  matrix<const More extends Partial<MatrixSpec>>(
    what: string,
    inFeatures: number,
    parts: readonly Part[],
    more?: More,
  ): MatrixSpec & More {
    return { name: this.name(what), inFeatures, parts: named(parts, 'weight'), ...more } as MatrixSpec & More;
  }

  /** A matrix back to the residual stream: columns of some segments of its contraction. */
  output(what: string, tensor: string, segments: HeldSegments): MatrixSpec {
    return this.matrix(what, segments.modelInFeatures, [allRows(tensor, this.hiddenSize)], { segments });
  }

  /** What is added to such rows: theirs in the tensors that are named without `.bias`. */
  bias(what: string, parts: readonly Part[]): VectorSpec {
    return this.vector(what, named(parts, 'bias'));
  }

  vector(what: string, parts: readonly Part[], more?: Partial<VectorSpec>): VectorSpec {
    return { name: this.name(what), parts, ...more };
  }

  /** A vector that every rank of the layer holds whole. @param plus as of `VectorSpec` */
  whole(what: string, tensor: string, length: number, plus?: number): VectorSpec {
    return wholeVector(this.name(what), tensor, length, plus);
  }

  residualNorm(what: string, tensors: string): NormSpec {
    return normSpec(this.norm, this.name(what), tensors, this.hiddenSize);
  }
}
