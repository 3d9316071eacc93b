import type { ModelShape } from '../plan.js';
import type { ModelSizes } from '../sizes.js';

/** What a model asks of a machine, a row at a time. */
export interface ModelWork {
  readonly shape: ModelShape;
  readonly sizes: ModelSizes;
  /** Dispatches of a step besides its layers: embedding, head, sampling. */
  readonly stepDispatches: number;
  /** Experts that a token is routed to; 0 without experts. */
  readonly expertsPerToken: number;
  /** Bytes of one query head of a row as it travels (llama: head_dim f32; MLA: kv_lora_rank + qk_rope_head_dim). */
  readonly queryBytes: number;
  /** Bytes of a row's new K and V of one kv head as they travel (MLA: 0, every rank computes the latent). */
  readonly newKvBytes: number;
  /** Bytes of one query head's merge lane (o, m, l) as it travels (llama: head_dim + 2 f32; MLA: kv_lora_rank + 2). */
  readonly stateBytes: number;
}

/** Rows that run together through the layers. */
export interface StepRows {
  readonly role: 'generated' | 'prompt';
  readonly rows: number;
  /** Rows of each of `split` replicas that prompt rows are split over by the owner of their chunk. */
  readonly ownRows: (split: number) => readonly number[];
  /** Rows of each of some ranks that whole sequences are dealt out to, in proportion to these weights. */
  readonly dealt: (weights: readonly number[]) => readonly number[];
  /** Sum over rows of the cached tokens each attends to, of the chunks that each of `split` ranks owns. */
  readonly attended: (split: number) => readonly number[];
  /** Chunks of the longest sequence. */
  readonly chunks: number;
}
