/**
 * Room: messages between ranks: what one sends another in an exchange, on one device, through the host, or by ports
 * between workers. Knows buffers and ranks, nothing of models. Read communicator.ts next, then transport.ts.
 */

export { createGroup } from './create_group.js';
export { createPortCommunicator } from './ports/port_transport.js';
export { createPorts, type Port } from './ports/port.js';
