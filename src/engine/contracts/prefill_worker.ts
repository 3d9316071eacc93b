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

/** Keys and values of a prompt that another device computed, and the prompt's last row. Plain data. */
export interface HandedKv {
  /** Tokens of the prompt. */
  readonly tokens: number;
  /** KV blocks that they take. */
  readonly blocks: number;
  /** Those before it aren't there; default 0. */
  readonly firstBlock?: number;
  /**
   * The sequence's blocks, one after the other, in each cache buffer, in the order of the layers, in the cache's own layout with all kv
   * heads; with `entries` each kv head's own blocks, one head after the other.
   */
  readonly buffers: readonly Uint8Array[];
  /** Of each buffer the model's layer; default: layers have as many each. */
  readonly layers?: readonly number[];
  /** Of recurrent layers: their states behind the last token (`KvLayout`). */
  readonly state?: Uint8Array | undefined;
  /** f32 [hiddenStride]: the last layer's output for the last token, before the final norm; where the prompt ends with it. */
  readonly lastRow?: Float32Array | undefined;
  /** Where heads have blocks of their own, as where prompts are compressed: entries of each, [layer][kv head]. */
  readonly entries?: readonly (readonly number[])[] | undefined;
}

/** What of a handover goes to one rank. */
export interface KvPiece {
  /** Tokens that the sequence has then. */
  readonly tokens: number;
  /** Logical block that the bytes begin with. */
  readonly firstBlock: number;
  /**
   * [cache buffer of the rank][block] in the rank's layout, or with `entries` [cache buffer of the rank][kv head][block]; undefined where the
   * rank keeps nothing of the sequence.
   */
  readonly bytes: Uint8Array | undefined;
  /** [state buffer of the rank], of the slot's sequence. */
  readonly states?: Uint8Array | undefined;
  /** For ranks that hold rows of the output head. */
  readonly lastRow: Float32Array | undefined;
  /** Where heads have blocks of their own: entries of all the model's kv heads, by those of its layers that the rank has. */
  readonly entries?: ReadonlyMap<number, readonly number[]>;
}
