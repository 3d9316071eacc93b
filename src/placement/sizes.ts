/** Bytes of one layer's weights as a device holds them (in their type, padded and packed), and of its cache. */
export interface LayerSizes {
  /** Of each attention segment: q, k, v and o (MLA: q or q_b, kv_b, o). */
  readonly attentionSegments: readonly number[];
  /** What every rank of the layer holds besides: norms, biases; MLA's q_a and kv_a. */
  readonly attentionShared: number;
  /** Of each MLP segment: gate, up and down, those of shared experts in an expert layer. */
  readonly mlpSegments: readonly number[];
  /** What every rank of the layer holds besides: norm, router. */
  readonly mlpShared: number;
  /** Of one routed expert; 0 in a dense layer. */
  readonly expert: number;
  /** Of a recurrent layer, which has no cache that grows: bytes of a sequence's state, by attention segment. */
  readonly stateSegments?: readonly number[];
  /**
   * Of one token in the cache of an attention segment's kv heads, K and V (MLA: the latent and the rotary key); 0 in a recurrent layer.
   */
  readonly kvToken: number;
  /** Keys that a row of its attention sees; undefined: all before it. */
  readonly window?: number | undefined;
}

/** Bytes of a model as placement adds them up. */
export interface ModelSizes {
  /** Copies of recurrent layers' states that ranks keep, for each place that sequences are dealt out to; default 0. */
  readonly keptStates?: number;
  /** Cache blocks of each head that ranks keep whole prompts in, beside compressed ones; default 0. */
  readonly keptBlocks?: number;
  readonly layers: readonly LayerSizes[];
  /** Of one row of the embedding table. */
  readonly embeddingRow: number;
  /** Of one row of the output head. */
  readonly headRow: number;
  /** The head's rows are the embedding's: a rank that holds a row for both holds it once. */
  readonly tied: boolean;
  readonly finalNorm: number;
}
