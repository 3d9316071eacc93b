import { listIn } from '../base/lists.js';
import { type BufferPool, encodeCopies } from './copies.js';
import { type Message, sizeMismatch } from './exchange_plan.js';

interface LocalMessages {
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
    const meet = (message: Message, sender: number, receiver: number): void => {
      const other = this.#match(`${sender}>${receiver} ${channel}`, { message, posting });
      if (!other) return;
      const [from, to] = sender === rank ? [message, other.message] : [other.message, message];
      if (from.size !== to.size) throw sizeMismatch(to.label, from.size, sender, to.size, receiver);
      encodeCopies(encoder, from.regions, to.regions, scratch);
      for (const half of [posting, other.posting]) if (--half.open === 0) finished.push(half);
    };
    for (const send of sends) meet(send, rank, send.peer);
    for (const receive of receives) meet(receive, receive.peer, rank);
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
      const left = halves.filter(({ posting }) => posting.rank !== rank);
      this.#halves.set(pair, left);
    }
  }

  /** The oldest waiting half of the other side; otherwise this half waits. */
  #match(pair: string, half: Half): Half | undefined {
    const waiting = listIn(this.#halves, pair);
    if (waiting[0] && waiting[0].posting.rank !== half.posting.rank) return waiting.shift();
    waiting.push(half);
    return undefined;
  }
}
