/** A model as one of the runtimes runs it. */
export interface PeerModel {
  /** The runtime and its version. */
  readonly name: string;
  /** What it computes on. */
  readonly device: string;
  /** Logits after the prompt, where the runtime gives them. */
  logits?(prompt: readonly number[]): Promise<Float32Array>;
  /** A greedy answer of `maxTokens` tokens that ends at no token. */
  answer(prompt: readonly number[], maxTokens: number): Promise<PeerAnswer>;
  dispose(): Promise<void>;
}

export interface PeerAnswer {
  readonly ids: readonly number[];
  readonly ttftMs: number;
  /** From the first token to the last: how long each of the others took. */
  readonly tokenMs: number;
}

/** The greedy choice; of equal ones the first. */
export const argmax = (logits: Float32Array): number =>
  logits.reduce((best, value, id) => (value > logits[best]! ? id : best), 0);
