import { usageError } from '../base/errors.js';
import type { Device } from '../gpu/index.js';
import type { Communicator } from './communicator.js';
import { DeviceHub } from './device_hub.js';
import { createMemoryTransports } from './memory_transport.js';
import { RankCommunicator } from './rank_communicator.js';

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
  const transports = createMemoryTransports(devices.length);
  const hubs = new Map<Device, DeviceHub>();
  return devices.map((device, rank) => {
    const localPeers = new Set<number>();
    for (const [peer, other] of devices.entries()) if (peer !== rank && other === device) localPeers.add(peer);
    let hub = hubs.get(device);
    if (!hub) hubs.set(device, (hub = new DeviceHub()));
    return new RankCommunicator({ device, transport: transports[rank]!, hub, localPeers, timeoutMs });
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
