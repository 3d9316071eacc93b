import { usageError } from '../../base/errors.js';
import { Inboxes, peerLost } from '../inbox.js';
import { decodeReason, encodeReason, type Port, type PortMessage } from './port.js';
import { Presence } from './presence.js';
import { canShareMemory, SharedSlots } from '../shared_slots.js';
import type { Transport, TransportEvents } from '../transport.js';

interface PeerLink {
  readonly port: Port;
  readonly inboxes: Inboxes;
  /** Shared memory for messages to the peer, and for messages from it. */
  out: SharedSlots | undefined;
  in: SharedSlots | undefined;
}

export interface PortTransportOptions {
  readonly rank: number;
  readonly worldSize: number;
  readonly ports: ReadonlyMap<number, Port>;
  /** Small messages go by shared memory where that is possible. */
  readonly sharedMemory: boolean;
}

/** A rank in a worker of its own: a port to each peer, tensors as transferred ArrayBuffers or in shared memory. */
export class PortTransport implements Transport {
  readonly rank: number;
  readonly worldSize: number;
  readonly #links = new Map<number, PeerLink>();
  readonly #share: boolean;
  readonly #presence = new Presence();
  #events: TransportEvents | undefined;
  #closed = false;

  /** @throws SplitkvError `usage` when a peer has no port. */
  constructor({ rank, worldSize, ports, sharedMemory }: PortTransportOptions) {
    this.rank = rank;
    this.worldSize = worldSize;
    this.#share = sharedMemory && canShareMemory();
    for (let peer = 0; peer < worldSize; peer++) {
      if (peer === rank) continue;
      const port = ports.get(peer);
      if (!port) throw usageError(`rank ${rank} of ${worldSize} has no port to rank ${peer}; see createPorts`);
      this.#links.set(peer, { port, inboxes: new Inboxes(), out: undefined, in: undefined });
    }
  }

  listen(events: TransportEvents): void {
    this.#events = events;
    for (const [peer, link] of this.#links) {
      const gone = (): void => this.#peerGone(peer, link);
      // A worker that ends closes its ports, in Node and in browsers that have this event.
      link.port.addEventListener('close', gone);
      link.port.addEventListener('messageerror', gone);
      link.port.onmessage = ({ data }) => this.#arrived(peer, link, data as PortMessage);
    }
    this.#presence.hold((lock) => this.#tell({ type: 'presence', lock }));
  }

  send(to: number, bytes: Uint8Array, channel: number): void {
    const link = this.#links.get(to)!;
    if (link.inboxes.closed) throw link.inboxes.closed;
    const slot = this.#share ? this.#slotsTo(link).put(bytes) : undefined;
    if (slot !== undefined) {
      post(link, { type: 'slot', channel, slot, size: bytes.byteLength });
      return;
    }
    const copy = new Uint8Array(bytes.byteLength);
    copy.set(bytes);
    post(link, { type: 'bytes', channel, bytes: copy.buffer }, [copy.buffer]);
  }

  receive(from: number, channel: number, take: (bytes: Uint8Array) => void): Promise<void> {
    return this.#links.get(from)!.inboxes.on(channel).receive(take);
  }

  abort(reason: unknown): void {
    this.#tell({ type: 'abort', reason: encodeReason(reason) });
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#tell({ type: 'close' });
    this.#presence.close();
    for (const [peer, { port, inboxes }] of this.#links) {
      inboxes.close(peerLost(this.rank, peer));
      port.onmessage = null;
      port.close();
    }
  }

  #tell(message: PortMessage): void {
    for (const link of this.#links.values()) if (!link.inboxes.closed) post(link, message);
  }

  #slotsTo(link: PeerLink): SharedSlots {
    if (!link.out) {
      link.out = new SharedSlots();
      post(link, { type: 'memory', buffer: link.out.buffer });
    }
    return link.out;
  }

  #arrived(peer: number, link: PeerLink, message: PortMessage): void {
    switch (message.type) {
      case 'bytes':
        deliver(link, message.channel, new Uint8Array(message.bytes));
        break;
      case 'slot': {
        const bytes = new Uint8Array(message.size);
        link.in!.take(message.slot, bytes);
        deliver(link, message.channel, bytes);
        break;
      }
      case 'memory':
        link.in = new SharedSlots(message.buffer);
        break;
      case 'presence':
        this.#presence.watch(message.lock, () => this.#peerGone(peer, link));
        break;
      case 'abort':
        this.#events?.aborted(decodeReason(message.reason));
        break;
      case 'close':
        this.#peerGone(peer, link);
    }
  }

  #peerGone(peer: number, { inboxes }: PeerLink): void {
    if (this.#closed || inboxes.closed) return;
    inboxes.close(peerLost(this.rank, peer));
    this.#events?.closed(peer);
  }
}

function post({ port }: PeerLink, message: PortMessage, transfer: Transferable[] = []): void {
  port.postMessage(message, transfer);
}

function deliver({ inboxes }: PeerLink, channel: number, bytes: Uint8Array): void {
  try {
    inboxes.on(channel).deliver(bytes);
  } catch {
    // The receive that refused it rejects, and its rank aborts.
  }
}
