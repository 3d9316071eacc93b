import type { BufferPool } from './buffer_pool.js';
import { type Message, sizeMismatch } from './exchange_plan.js';
import { encodeCopies } from './region_copy.js';

/** A rank's messages of one exchange with ranks on its device. */
export interface LocalMessages {
  readonly rank: number;
  readonly channel: number;
  readonly sends: readonly Message[];
  readonly receives: readonly Message[];
  /** Called when every one has been copied, or its copy is submitted. */
  readonly done: () => void;
}

interface Posting extends LocalMessages {
  /** Messages whose other half isn't posted yet. */
  open: number;
}

interface Half {
  readonly message: Message;
  readonly posting: Posting;
}

/**
 * Where ranks on one device meet. Whoever posts the second half of a message encodes its copy behind its own dispatches: the
 * other rank's were submitted when it posted, and one queue runs everything in order.
 */
export class DeviceHub {
  /** Halves that wait, by sending and receiving rank and channel. One of these never has both kinds: they would match. */
  readonly #halves = new Map<string, Half[]>();

  /**
   * Posts a rank's messages, and encodes the copies that are now possible. Submit the encoder, then call what is returned.
   * @throws SplitkvError `internal` when the halves of a message differ in size.
   */
  post(encoder: GPUCommandEncoder, messages: LocalMessages, scratch: BufferPool): () => void {
    const { rank, channel, sends, receives } = messages;
    const posting: Posting = { ...messages, open: sends.length + receives.length };
    const finished: Posting[] = posting.open === 0 ? [posting] : [];
    const copied = (half: Posting): void => {
      if (--half.open === 0) finished.push(half);
    };
    for (const send of sends) {
      const other = this.#match(`${rank}>${send.peer} ${channel}`, { message: send, posting });
      if (!other) continue;
      checkSizes(send, rank, other.message, send.peer);
      encodeCopies(encoder, send.regions, other.message.regions, scratch);
      copied(posting);
      copied(other.posting);
    }
    for (const receive of receives) {
      const other = this.#match(`${receive.peer}>${rank} ${channel}`, { message: receive, posting });
      if (!other) continue;
      checkSizes(other.message, receive.peer, receive, rank);
      encodeCopies(encoder, other.message.regions, receive.regions, scratch);
      copied(posting);
      copied(other.posting);
    }
    return () => {
      for (const { done } of finished) done();
    };
  }

  /** Peers that this rank's posted messages wait for; `channel`: of that one only. */
  awaitedBy(rank: number, channel?: number): number[] {
    const peers = new Set<number>();
    for (const halves of this.#halves.values()) {
      for (const { message, posting } of halves) {
        if (posting.rank === rank && (channel ?? posting.channel) === posting.channel) peers.add(message.peer);
      }
    }
    return [...peers];
  }

  /** Forgets what a rank posted: nobody copies from or to its buffers any more. */
  withdraw(rank: number): void {
    for (const [pair, halves] of this.#halves) {
      this.#halves.set(
        pair,
        halves.filter(({ posting }) => posting.rank !== rank),
      );
    }
  }

  /** The oldest waiting half of the other side; otherwise this half waits. */
  #match(pair: string, half: Half): Half | undefined {
    let waiting = this.#halves.get(pair);
    if (!waiting) this.#halves.set(pair, (waiting = []));
    if (waiting.length > 0 && waiting[0]!.posting.rank !== half.posting.rank) return waiting.shift();
    waiting.push(half);
    return undefined;
  }
}

function checkSizes(from: Message, sender: number, to: Message, receiver: number): void {
  if (from.size !== to.size) throw sizeMismatch(to.label, from.size, sender, to.size, receiver);
}
