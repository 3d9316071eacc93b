import { listIn } from '../base/lists.js';
import { peerLostError, type SplitkvError } from '../base/errors.js';

export interface TransportEvents {
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

interface Taker {
  readonly take: (bytes: Uint8Array) => void;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** One sender's messages that nobody has taken yet, and the receives that no message has come for: by channel. */
export class Inbox {
  readonly #messages = new Map<number, Uint8Array[]>();
  readonly #takers = new Map<number, Taker[]>();
  /** Why no more messages will come; those that did can still be received. */
  closed: SplitkvError | undefined;

  /** A receive waits: the next message is taken at once and needn't outlive its delivery. */
  isAwaited(channel: number): boolean {
    return listIn(this.#takers, channel).length > 0;
  }

  /** @throws whatever a waiting receive's `take` throws, which its promise rejects with too. */
  deliver(bytes: Uint8Array, channel: number): void {
    const taker = listIn(this.#takers, channel).shift();
    if (!taker) {
      listIn(this.#messages, channel).push(bytes);
      return;
    }
    try {
      taker.take(bytes);
    } catch (error) {
      taker.reject(error);
      throw error;
    }
    taker.resolve();
  }

  async receive(channel: number, take: (bytes: Uint8Array) => void): Promise<void> {
    const bytes = listIn(this.#messages, channel).shift();
    if (bytes) return take(bytes);
    if (this.closed) throw this.closed;
    await new Promise<void>((resolve, reject) => listIn(this.#takers, channel).push({ take, resolve, reject }));
  }

  close(reason: SplitkvError): void {
    this.closed ??= reason;
    for (const takers of this.#takers.values()) for (const taker of takers.splice(0)) taker.reject(reason);
  }
}

export const peerLost = (rank: number, peer: number): SplitkvError =>
  peerLostError(
    `rank ${peer} is gone: it was disposed or its worker ended, while rank ${rank} still exchanges with it. Load the model again`,
  );
