import type { ModelShape } from '../plan.js';
import type { CargoWidths } from '../routes.js';
import type { ModelSizes } from '../sizes.js';

/** What a model asks of a machine, a row at a time. */
export interface ModelWork {
  readonly shape: ModelShape;
  readonly sizes: ModelSizes;
  /** Dispatches of a step besides its layers: embedding, head, sampling. */
  readonly stepDispatches: number;
  /** Experts that a token is routed to; 0 without experts. */
  readonly expertsPerToken: number;
  /** Of what travels between ranks. */
  readonly widths: CargoWidths;
}

/** Rows that run together through the layers. */
export interface StepRows {
  readonly role: 'generated' | 'prompt';
  readonly rows: number;
  /** Rows of each of `split` replicas that prompt rows are split over by the owner of their chunk. */
  readonly splitRows: (split: number) => readonly number[];
  /** Rows of each of some ranks that whole sequences are sharded over, in proportion to these weights. */
  readonly sharded: (weights: readonly number[]) => readonly number[];
  /** Sum over rows of the cached tokens each attends to, of the chunks that each of `split` ranks owns. */
  readonly attended: (split: number) => readonly number[];
  /** Of those tokens, the part that a head still has, [layer][kv head]: its prompt was compressed. Default: all. */
  readonly left?: readonly (readonly number[])[] | undefined;
  /** Chunks of the longest sequence. */
  readonly chunks: number;
  /** Offsets of the sequences, which say who has their first chunks; undefined where there may be any. */
  readonly offsets?: readonly number[];
}
