import type { HandedKv } from './handed_kv.js';

/** Disaggregated prefill: prompts are computed on a device of their own, and handed over to the ranks that generate. */
export interface PrefillWorker {
  /** How it computes: by our own kernels. */
  readonly kind: 'splitkv';
  /** Prompts that it computes side by side: workers that are usable. */
  readonly atOnce: number;
  /** Where it computes, for people. */
  readonly adapter: string;
  readonly weightBytes: number;
  /**
   * Computes a prompt, checked before; one worker computes prompts in the order of the calls.
   * @throws SplitkvError `aborted`, `device_lost`, `peer_lost`
   */
  prefill(prompt: readonly number[], signal?: AbortSignal): Promise<HandedKv>;
  /** @throws SplitkvError when only `recover` helps. */
  assertUsable(): void;
  /** Makes it usable again after its device, or its thread, was lost. */
  recover(signal?: AbortSignal): Promise<void>;
  dispose(): Promise<void>;
}
