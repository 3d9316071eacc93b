import { Inboxes, peerLost } from './inbox.js';
import type { Transport, TransportEvents } from './transport.js';

/** Transports of ranks that live in one process. A message that its receiver waits for is handed over without a copy. */
export function createMemoryTransports(worldSize: number): Transport[] {
  const ends: MemoryTransport[] = [];
  for (let rank = 0; rank < worldSize; rank++) ends.push(new MemoryTransport(rank, ends));
  return ends;
}

class MemoryTransport implements Transport {
  readonly #inboxes = new Map<number, Inboxes>();
  #events: TransportEvents | undefined;
  #closed = false;

  constructor(
    readonly rank: number,
    readonly ends: readonly MemoryTransport[],
  ) {}

  get worldSize(): number {
    return this.ends.length;
  }

  listen(events: TransportEvents): void {
    this.#events = events;
  }

  send(to: number, bytes: Uint8Array, channel: number): void {
    const peer = this.ends[to]!;
    if (peer.#closed) throw peerLost(this.rank, to);
    const inbox = peer.#inboxesOf(this.rank).on(channel);
    inbox.deliver(inbox.awaited ? bytes : bytes.slice());
  }

  receive(from: number, channel: number, take: (bytes: Uint8Array) => void): Promise<void> {
    return this.#inboxesOf(from).on(channel).receive(take);
  }

  abort(reason: unknown): void {
    for (const peer of this.#peers()) peer.#events?.aborted(reason);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const peer of this.#peers()) {
      this.#inboxesOf(peer.rank).close(peerLost(this.rank, peer.rank));
      peer.#inboxesOf(this.rank).close(peerLost(peer.rank, this.rank));
      peer.#events?.closed(this.rank);
    }
  }

  #peers(): MemoryTransport[] {
    return this.ends.filter((end) => end !== this && !end.#closed);
  }

  #inboxesOf(from: number): Inboxes {
    let inboxes = this.#inboxes.get(from);
    if (!inboxes) this.#inboxes.set(from, (inboxes = new Inboxes()));
    return inboxes;
  }
}
