import { usageError } from '../base/errors.js';
import { nth, range, valueIn } from '../base/lists.js';
import type { Device } from '../gpu/index.js';
import type { Communicator } from './communicator.js';
import { DeviceHub } from './device_hub.js';
import { RankCommunicator } from './rank_communicator.js';
import { Inbox, peerLost, type Transport, type TransportEvents } from './transport.js';

export interface GroupOptions {
  /** Milliseconds that an exchange may take; its error then names rank, peers and exchange. Defaults to two minutes. */
  readonly timeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 120_000;

/**
 * Communicators of ranks in one process, by rank. Ranks that are given the same `Device` exchange by GPU copies, all others
 * through the host. Dispose each before its device.
 */
export function createGroup(devices: readonly Device[], options: GroupOptions = {}): Communicator[] {
  const timeoutMs = checkTimeout(options.timeoutMs);
  const ends: MemoryTransport[] = [];
  for (const rank of devices.keys()) ends.push(new MemoryTransport(rank, ends));
  const hubs = new Map<Device, DeviceHub>();
  return devices.map((device, rank) => {
    const localPeers = new Set(range(0, devices.length).filter((peer) => peer !== rank && devices[peer] === device));
    const hub = valueIn(hubs, device, () => new DeviceHub());
    return new RankCommunicator(device, nth(ends, rank), timeoutMs, hub, localPeers);
  });
}

/** @throws SplitkvError `usage` for a time limit that isn't one. */
export function checkTimeout(timeoutMs: number = DEFAULT_TIMEOUT_MS): number {
  // A longer delay would wrap around in setTimeout and fire at once.
  if (!(timeoutMs > 0 && timeoutMs < 2 ** 31)) {
    throw usageError(`timeoutMs ${timeoutMs}: expected milliseconds above 0 and below 2^31`);
  }
  return timeoutMs;
}

/** Of a rank in this process. A message that its receiver waits for is handed over without a copy. */
class MemoryTransport implements Transport {
  readonly #inboxes = new Map<number, Inbox>();
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
    const peer = nth(this.ends, to);
    if (peer.#closed) throw peerLost(this.rank, to);
    const inbox = peer.#inboxOf(this.rank);
    inbox.deliver(inbox.isAwaited(channel) ? bytes : bytes.slice(), channel);
  }

  receive(from: number, channel: number, take: (bytes: Uint8Array) => void): Promise<void> {
    return this.#inboxOf(from).receive(channel, take);
  }

  abort(reason: unknown): void {
    for (const peer of this.#peers()) peer.#events?.aborted(reason);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const peer of this.#peers()) {
      this.#inboxOf(peer.rank).close(peerLost(this.rank, peer.rank));
      peer.#inboxOf(this.rank).close(peerLost(peer.rank, this.rank));
      peer.#events?.closed(this.rank);
    }
  }

  #peers(): MemoryTransport[] {
    return this.ends.filter((end) => end !== this && !end.#closed);
  }

  #inboxOf(from: number): Inbox {
    return valueIn(this.#inboxes, from, () => new Inbox());
  }
}
