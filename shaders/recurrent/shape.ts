/**
 * Room: mixers with a state of each sequence, in steps: a causal convolution (causal_conv), and linear attention by the gated delta rule
 * (delta_heads, delta_rule, gated_norm) or Mamba-2's (gated_squares in place of gated_norm). Rows of a sequence run through its state in order: lib/state_rows.wgsl.
 */

/** Widest head of keys: a column of the state is held in registers. */
export const MOST_KEY_DIM = 256;

/** Heads of linear attention on a rank. */
export interface DeltaShape {
  readonly keyHeads: number;
  /** Value heads of each key head: neighbours. */
  readonly ratio: number;
  /** A multiple of 4, up to `MOST_KEY_DIM`. */
  readonly keyDim: number;
  readonly valueDim: number;
  /** Mamba-2: q (C) and k (B) are taken as they are, and what k brings isn't corrected by what the memory has of it. Default false. */
  readonly plain?: boolean;
}
