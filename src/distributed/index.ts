export type { CommStats, Communicator, Exchange, Region, Transfer } from './communicator.js';
export { createGroup, type GroupOptions } from './create_group.js';
export { createPortCommunicator, type PortCommunicatorOptions } from './ports/create_port_communicator.js';
export { createPorts, type Port } from './ports/port.js';
