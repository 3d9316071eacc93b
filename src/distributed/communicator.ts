import type { Buffer, Device } from '../gpu/index.js';

/** Bytes of a buffer on this rank; offset and size are multiples of 4. */
export interface Region {
  readonly buffer: Buffer;
  readonly offset: number;
  readonly size: number;
}

/** One message to or from `peer`: its regions' bytes, one after another. The two sides needn't cut them alike. */
export interface Transfer {
  readonly peer: number;
  readonly regions: readonly Region[];
}

/**
 * What a rank sends and receives in one exchange. Messages of a (sender, receiver, channel) match in order, and a message has the same
 * number of bytes on both sides. `peer` may be the rank itself: a plain GPU copy. Transfers of zero bytes are dropped before
 * matching, so a side may list them or leave them out.
 * A receive may not overlap what the same exchange sends. An object that is used again is checked and sorted only once.
 */
export interface Exchange {
  /** Names the exchange in errors. */
  readonly label: string;
  /** Programs that run side by side exchange on channels of their own; default 0. */
  readonly channel?: number;
  readonly sends: readonly Transfer[];
  readonly receives: readonly Transfer[];
}

/** Counted since the communicator was made. */
export interface CommStats {
  exchanges: number;
  /** Messages sent to other ranks, whatever the link. */
  messages: number;
  bytesSent: number;
  bytesReceived: number;
  /**
   * Of the time inside `exchange`, that in which no exchange's own work was under way on the GPU: moving bytes (reading out, sending,
   * taking in), and waiting for what others send. Of exchanges side by side an instant counts once.
   */
  moveMs: number;
  waitMs: number;
}

export interface Communicator {
  readonly rank: number;
  readonly worldSize: number;
  readonly device: Device;
  readonly stats: Readonly<CommStats>;
  /** Of `stats.bytesSent`, those of exchanges on a channel. */
  sentOn(channel: number): number;
  /**
   * Submits `encoder` (the caller's dispatches, whose results the sends read; it may be empty) and resolves when every receive
   * is queued on this device: whatever the caller submits next sees it, and may overwrite what was sent. At most one exchange
   * of a rank and channel at a time.
   * @throws SplitkvError with the reason of a peer that aborted; `device_lost`; `peer_lost` when a link closed or nothing came in
   * time; `internal` when the two sides of a message disagree about its size.
   */
  exchange(encoder: GPUCommandEncoder, exchange: Exchange): Promise<void>;
  /** Tells every peer that this rank gives up: their waits reject with this reason. Idempotent. */
  abort(reason: unknown): void;
  /** Frees what the communicator holds; exchanges of peers that still wait for this rank reject. */
  dispose(): void;
}
