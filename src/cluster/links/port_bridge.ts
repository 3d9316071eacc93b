import { formatError } from '../../base/errors.js';
import type { Cluster } from '../connect.js';
import type { Port, PortMessage, PortReason } from '../../distributed/ports/port.js';
import { NatsLink } from './nats_link.js';
import type { LinkAddress } from '../../engine/workers/worker_protocol.js';

/** Exchanges of a step that run side by side have a channel each: far fewer. */
const MAX_CHANNEL = 2 ** 16;

/**
 * Joins a port of a rank's worker to a link: the worker's `PortTransport` doesn't know that its peer is elsewhere. The end of either
 * ends the other. What comes is checked: only what may come between machines is handed on.
 */
export function bridgePort(cluster: Cluster, address: LinkAddress, port: Port): { close(): void } {
  const link = new NatsLink(cluster, address, {
    message: (value) => {
      const { message, transfer } = checkedMessage(value);
      port.postMessage(message, transfer);
    },
    ended: () => port.close(),
  });
  port.onmessage = ({ data }) => {
    const message = data as PortMessage;
    // A lock of this machine, which tells others nothing.
    if (message.type !== 'presence') link.post(message);
  };
  port.addEventListener('close', () => link.close());
  return {
    close: () => {
      link.close();
      port.close();
    },
  };
}

/** @throws SplitkvError `format` */
export function checkedMessage(value: unknown): { readonly message: PortMessage; readonly transfer: Transferable[] } {
  const given = (value ?? {}) as Readonly<Record<string, unknown>>;
  if (given['type'] === 'bytes') {
    const { channel, bytes } = given;
    const isChannel = Number.isInteger(channel) && (channel as number) >= 0 && (channel as number) < MAX_CHANNEL;
    if (isChannel && bytes instanceof Uint8Array && bytes.byteLength === bytes.buffer.byteLength) {
      const buffer = bytes.buffer as ArrayBuffer;
      return { message: { type: 'bytes', channel: channel as number, bytes: buffer }, transfer: [buffer] };
    }
  } else if (given['type'] === 'abort' && isReason(given['reason'])) {
    return { message: { type: 'abort', reason: given['reason'] }, transfer: [] };
  } else if (given['type'] === 'close') return { message: { type: 'close' }, transfer: [] };
  throw formatError('a message that no rank sends another');
}

/** Why somebody gave up, as another machine says it. */
export function isReason(value: unknown): value is PortReason {
  const { kind, code, message } = (value ?? {}) as Readonly<Record<string, unknown>>;
  if (kind === 'value') return true;
  return kind === 'error' && typeof message === 'string' && (code === undefined || typeof code === 'string');
}
