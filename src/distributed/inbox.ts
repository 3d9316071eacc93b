import { SplitkvError } from '../base/errors.js';

interface Taker {
  readonly take: (bytes: Uint8Array) => void;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** The messages of one sender on one channel that nobody has taken yet, or the receives that no message has come for. */
class Inbox {
  readonly #messages: Uint8Array[] = [];
  readonly #takers: Taker[] = [];
  #closed: SplitkvError | undefined;

  /** A receive waits: the next message is taken at once and needn't outlive its delivery. */
  get awaited(): boolean {
    return this.#takers.length > 0;
  }

  /** @throws whatever a waiting receive's `take` throws, which its promise rejects with too. */
  deliver(bytes: Uint8Array): void {
    const taker = this.#takers.shift();
    if (!taker) {
      this.#messages.push(bytes);
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

  async receive(take: (bytes: Uint8Array) => void): Promise<void> {
    const bytes = this.#messages.shift();
    if (bytes) return take(bytes);
    if (this.#closed) throw this.#closed;
    await new Promise<void>((resolve, reject) => this.#takers.push({ take, resolve, reject }));
  }

  /** No more messages will come; those that did can still be received. */
  close(reason: SplitkvError): void {
    this.#closed ??= reason;
    for (const taker of this.#takers.splice(0)) taker.reject(reason);
  }
}

/** One sender's messages, by channel. */
export class Inboxes {
  readonly #channels = new Map<number, Inbox>();
  #closed: SplitkvError | undefined;

  get closed(): SplitkvError | undefined {
    return this.#closed;
  }

  on(channel: number): Inbox {
    let inbox = this.#channels.get(channel);
    if (!inbox) {
      this.#channels.set(channel, (inbox = new Inbox()));
      if (this.#closed) inbox.close(this.#closed);
    }
    return inbox;
  }

  /** As `Inbox.close`, of all channels. */
  close(reason: SplitkvError): void {
    this.#closed ??= reason;
    for (const inbox of this.#channels.values()) inbox.close(reason);
  }
}

export const peerLost = (rank: number, peer: number): SplitkvError =>
  new SplitkvError(
    'peer_lost',
    `rank ${peer} is gone: it was disposed or its worker ended, while rank ${rank} still exchanges with it. Load the model again`,
  );
