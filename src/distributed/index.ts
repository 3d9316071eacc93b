/**
 * Room: messages between ranks: what one sends another in an exchange, on one device, through the host, or by ports
 * between workers. Knows buffers and ranks, nothing of models. Read communicator.ts next, then transport.ts.
 */

export type { CommStats, Communicator, Exchange, Region, Transfer } from './communicator.js';
export { createGroup, type GroupOptions } from './create_group.js';
export { createPortCommunicator, type PortCommunicatorOptions } from './ports/create_port_communicator.js';
export { createPorts, type Port } from './ports/port.js';
