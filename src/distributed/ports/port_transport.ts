/**
 * Room: ranks in workers: messages by MessagePort from worker to worker, and how the end of a peer is noticed. Read
 * port.ts next.
 */

import { usageError } from '../../base/errors.js';
import type { Device } from '../../gpu/index.js';
import { decodeReason, encodeReason, type Port, type PortMessage } from './port.js';
import type { Communicator } from '../communicator.js';
import { checkTimeout } from '../create_group.js';
import { RankCommunicator } from '../rank_communicator.js';
import { Inbox, peerLost, type Transport, type TransportEvents } from '../transport.js';

/** Time for messages that were sent before the end to arrive. */
const GRACE_MS = 200;
const SLOTS = 8;
/** Larger messages are transferred: their copy would cost more than a transfer. */
const SLOT_BYTES = 64 * 1024;

interface PeerLink {
  readonly port: Port;
  readonly inbox: Inbox;
  /** Shared memory for messages to the peer, and for messages from it. */
  out: SharedSlots | undefined;
  in: SharedSlots | undefined;
}

interface PortCommunicatorOptions {
  readonly rank: number;
  readonly worldSize: number;
  /** Opened in this worker: a device can't be sent to one. */
  readonly device: Device;
  /** A port to each peer: `createPorts(worldSize)[rank]`. */
  readonly ports: ReadonlyMap<number, Port>;
  /** Milliseconds that an exchange may take. Defaults to two minutes. */
  readonly timeoutMs?: number;
  /** Small messages go by memory shared with the peers, where pages may (cross-origin isolation) and in Node. Defaults to false. */
  readonly sharedMemory?: boolean;
}

/**
 * The communicator of a rank that runs in a worker of its own.
 * @throws SplitkvError `usage` for a rank or a port that is missing.
 */
export function createPortCommunicator(options: PortCommunicatorOptions): Communicator {
  const { rank, worldSize, device, timeoutMs } = options;
  if (!(Number.isInteger(rank) && rank >= 0 && rank < worldSize)) {
    throw usageError(`rank ${rank}: expected a whole number from 0 to ${worldSize - 1}`);
  }
  return new RankCommunicator(device, new PortTransport(options), checkTimeout(timeoutMs));
}

/** A rank in a worker of its own: a port to each peer, tensors as transferred ArrayBuffers or in shared memory. */
class PortTransport implements Transport {
  readonly rank: number;
  readonly worldSize: number;
  readonly #links = new Map<number, PeerLink>();
  readonly #share: boolean;
  readonly #presence = new Presence();
  #events: TransportEvents | undefined;
  #closed = false;

  /** @throws SplitkvError `usage` when a peer has no port. */
  constructor({ rank, worldSize, ports, sharedMemory = false }: PortCommunicatorOptions) {
    this.rank = rank;
    this.worldSize = worldSize;
    this.#share = sharedMemory && canShareMemory();
    for (let peer = 0; peer < worldSize; peer++) {
      if (peer === rank) continue;
      const port = ports.get(peer);
      if (!port) throw usageError(`rank ${rank} of ${worldSize} has no port to rank ${peer}; see createPorts`);
      this.#links.set(peer, { port, inbox: new Inbox(), out: undefined, in: undefined });
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
    if (link.inbox.closed) throw link.inbox.closed;
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
    return this.#links.get(from)!.inbox.receive(channel, take);
  }

  abort(reason: unknown): void {
    this.#tell({ type: 'abort', reason: encodeReason(reason) });
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#tell({ type: 'close' });
    this.#presence.close();
    for (const [peer, { port, inbox }] of this.#links) {
      inbox.close(peerLost(this.rank, peer));
      port.onmessage = null;
      port.close();
    }
  }

  #tell(message: PortMessage): void {
    for (const link of this.#links.values()) if (!link.inbox.closed) post(link, message);
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

  #peerGone(peer: number, { inbox }: PeerLink): void {
    if (this.#closed || inbox.closed) return;
    inbox.close(peerLost(this.rank, peer));
    this.#events?.closed(peer);
  }
}

function post({ port }: PeerLink, message: PortMessage, transfer: Transferable[] = []): void {
  port.postMessage(message, transfer);
}

function deliver({ inbox }: PeerLink, channel: number, bytes: Uint8Array): void {
  try {
    inbox.deliver(bytes, channel);
  } catch {
    // The receive that refused it rejects, and its rank aborts.
  }
}

/**
 * Whether peers' workers are alive, by Web Locks: a worker's locks are released however it ends, which its ports don't tell
 * in every browser. Does nothing where there are none (Node's ports tell by themselves).
 */
export class Presence {
  readonly #closed = new AbortController();
  readonly #locks: Pick<LockManager, 'request'> | undefined;

  constructor(locks = (globalThis.navigator as Partial<Navigator> | undefined)?.locks as Pick<LockManager, 'request'>) {
    this.#locks = locks;
  }

  /** Holds a lock until `close`, and announces its name as soon as it is held. */
  hold(announce: (lock: string) => void): void {
    const lock = `splitkv ${crypto.randomUUID()}`;
    this.#request(lock, () => {
      announce(lock);
      return new Promise((resolve) => this.#closed.signal.addEventListener('abort', () => resolve(undefined)));
    });
  }

  watch(lock: string, gone: () => void): void {
    this.#request(lock, () => void setTimeout(gone, GRACE_MS));
  }

  close(): void {
    this.#closed.abort();
  }

  #request(lock: string, granted: () => unknown): void {
    this.#locks?.request(lock, { signal: this.#closed.signal }, granted).catch(() => {
      // Closed before it was granted, or not allowed on this page: time limits remain.
    });
  }
}

/** Whether this page or process may share memory with its workers. */
const canShareMemory = (): boolean =>
  typeof SharedArrayBuffer !== 'undefined' && globalThis.crossOriginIsolated !== false;

/**
 * Small messages of one sender to one receiver in shared memory: slots that the sender fills and the receiver frees. Nobody
 * waits: without a free slot the sender transfers its message instead.
 */
export class SharedSlots {
  readonly #taken: Int32Array;

  constructor(
    readonly buffer: SharedArrayBuffer = new SharedArrayBuffer(
      SLOTS * Int32Array.BYTES_PER_ELEMENT + SLOTS * SLOT_BYTES,
    ),
  ) {
    this.#taken = new Int32Array(buffer, 0, SLOTS);
  }

  /** Copies a message into a free slot; undefined where it doesn't fit or all are taken. */
  put(bytes: Uint8Array): number | undefined {
    if (bytes.byteLength > SLOT_BYTES) return undefined;
    for (let slot = 0; slot < SLOTS; slot++) {
      if (Atomics.load(this.#taken, slot) !== 0) continue;
      this.#bytesOf(slot, bytes.byteLength).set(bytes);
      Atomics.store(this.#taken, slot, 1);
      return slot;
    }
    return undefined;
  }

  /** Copies a message out into `into`, and frees its slot. */
  take(slot: number, into: Uint8Array): void {
    into.set(this.#bytesOf(slot, into.byteLength));
    Atomics.store(this.#taken, slot, 0);
  }

  #bytesOf(slot: number, size: number): Uint8Array {
    return new Uint8Array(this.buffer, SLOTS * Int32Array.BYTES_PER_ELEMENT + slot * SLOT_BYTES, size);
  }
}
