/**
 * Room: ranks in workers: messages by MessagePort from worker to worker, and how the end of a peer is noticed. Read
 * port_transport.ts next.
 */

import { usageError } from '../../base/errors.js';
import type { Device } from '../../gpu/index.js';
import type { Communicator } from '../communicator.js';
import { checkTimeout } from '../create_group.js';
import type { Port } from './port.js';
import { PortTransport } from './port_transport.js';
import { RankCommunicator } from '../rank_communicator.js';

export interface PortCommunicatorOptions {
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
  const { rank, worldSize, device, ports, timeoutMs, sharedMemory = false } = options;
  if (!(Number.isInteger(rank) && rank >= 0 && rank < worldSize)) {
    throw usageError(`rank ${rank}: expected a whole number from 0 to ${worldSize - 1}`);
  }
  return new RankCommunicator({
    device,
    transport: new PortTransport({ rank, worldSize, ports, sharedMemory }),
    hub: undefined,
    localPeers: new Set(),
    timeoutMs: checkTimeout(timeoutMs),
  });
}
