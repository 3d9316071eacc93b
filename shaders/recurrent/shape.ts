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
