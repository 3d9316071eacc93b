import type { PresentKv } from './onnx/prompt_filler.js';

/** A model as one of the runtimes runs it. */
export interface PeerModel {
  /** The runtime and its version. */
  readonly name: string;
  /** What it computes on. */
  readonly device: string;
  /** Answers to a prompt, which is computed in each of them. */
  prompted(prompt: readonly number[]): Answering;
  /** Answers after a context that is there before them: given, or, where the runtime takes none, computed here once. */
  filled(context: FilledContext): Promise<Answering>;
  dispose(): Promise<void>;
}

export interface Answering {
  /** Logits after the context, where the runtime gives them. */
  logits?(): Promise<Float32Array>;
  /** A greedy answer of `maxTokens` tokens that ends at no token. */
  answer(maxTokens: number): Promise<PeerAnswer>;
}

/** A prompt with its keys and values. */
export interface FilledContext extends PresentKv {
  readonly prompt: readonly number[];
}

export interface PeerAnswer {
  readonly ids: readonly number[];
  readonly ttftMs: number;
  /** From the first token to the last: how long each of the others took. */
  readonly tokenMs: number;
}

/** A runtime that wasn't run, or not timed. */
export interface LeftOut {
  readonly runtime: string;
  /** Of the prompt or the cache, where it was for one length only. */
  readonly tokens?: number;
  readonly why: string;
}

/** The greedy choice; of equal ones the first. */
export const argmax = (logits: Float32Array): number =>
  logits.reduce((best, value, id) => (value > logits[best]! ? id : best), 0);

/** Greedy tokens of a runtime that gives the logits after an id; the first comes of `first`. */
export async function greedy(
  first: () => Promise<Float32Array>,
  after: (id: number, generated: number) => Promise<Float32Array>,
  maxTokens: number,
): Promise<PeerAnswer> {
  const started = performance.now();
  const ids = [argmax(await first())];
  const firstAt = performance.now();
  while (ids.length < maxTokens) ids.push(argmax(await after(ids.at(-1)!, ids.length)));
  return { ids, ttftMs: firstAt - started, tokenMs: (performance.now() - firstAt) / (maxTokens - 1) };
}
