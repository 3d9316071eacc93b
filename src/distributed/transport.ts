/** What a transport tells its owner outside any `receive`. */
export interface TransportEvents {
  /** A peer gave up. */
  aborted(reason: unknown): void;
  /** A peer is gone: it disposed its end, or its worker ended. What it sent before can still be received. */
  closed(peer: number): void;
}

/** Moves messages between ranks through the host, in order for each pair and channel. */
export interface Transport {
  readonly rank: number;
  readonly worldSize: number;
  /** Where events go; at most one listener, set before the first message. */
  listen(events: TransportEvents): void;
  /** Sends a message. The bytes may be overwritten once it returns. @throws SplitkvError `peer_lost` when the peer is gone. */
  send(to: number, bytes: Uint8Array, channel: number): void;
  /**
   * Hands the next message of `from` on a channel to `take`, which may keep nothing of it: the bytes are only valid during the call.
   * Resolves after `take`; rejects with what `take` throws, or with `peer_lost` when the peer is gone and nothing more came.
   */
  receive(from: number, channel: number, take: (bytes: Uint8Array) => void): Promise<void>;
  /** Tells every peer that this rank gives up. The reason crosses as an error with the same code and message. */
  abort(reason: unknown): void;
  /** Leaves: peers get `closed`; receives that still wait here reject. */
  close(): void;
}
