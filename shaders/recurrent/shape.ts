/**
 * Room: mixers with a state of each sequence, in steps: a causal convolution (causal_conv), and linear attention by the gated delta rule
 * (delta_heads, delta_rule, gated_norm). Rows of a sequence run through its state in order: lib/state_rows.wgsl.
 */

/** Widest head of keys: a column of the state is held in registers. */
export const MOST_KEY_DIM = 256;

/** Heads of the gated delta rule on a rank. */
export interface DeltaShape {
  readonly keyHeads: number;
  /** Value heads of each key head: neighbours. */
  readonly ratio: number;
  /** A multiple of 4, up to `MOST_KEY_DIM`. */
  readonly keyDim: number;
  readonly valueDim: number;
}
