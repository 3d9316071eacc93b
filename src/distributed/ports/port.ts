import { nth } from '../../base/lists.js';
import { type ErrorDetails, SplitkvError } from '../../base/errors.js';

/** What a link needs of a MessagePort, in a page as in Node. */
export interface Port {
  postMessage(message: unknown, transfer: Transferable[]): void;
  onmessage: ((event: MessageEvent) => unknown) | null;
  addEventListener(type: 'close' | 'messageerror', listener: () => void): void;
  close(): void;
}

/** What goes over a port. Messages arrive in order. */
export type PortMessage =
  | { readonly type: 'bytes'; readonly channel: number; readonly bytes: ArrayBuffer }
  /** The bytes lie in a slot of the sender's shared memory. */
  | { readonly type: 'slot'; readonly channel: number; readonly slot: number; readonly size: number }
  /** The sender's shared memory for this pair, before its first slot. */
  | { readonly type: 'memory'; readonly buffer: SharedArrayBuffer }
  /** A Web Lock that the sender holds for as long as it lives. */
  | { readonly type: 'presence'; readonly lock: string }
  | { readonly type: 'abort'; readonly reason: PortReason }
  | { readonly type: 'close' };

/** An abort's reason as data: errors lose their class in a structured clone. */
export type PortReason =
  | {
      readonly kind: 'error';
      readonly code: SplitkvError['code'] | undefined;
      readonly message: string;
      readonly details?: ErrorDetails | undefined;
    }
  | { readonly kind: 'value'; readonly value: unknown };

export function encodeReason(reason: unknown): PortReason {
  if (reason instanceof Error) {
    const { code, details } = reason instanceof SplitkvError ? reason : {};
    return { kind: 'error', code, message: reason.message, details };
  }
  try {
    return { kind: 'value', value: structuredClone(reason) };
  } catch {
    return { kind: 'value', value: String(reason) };
  }
}

export function decodeReason(reason: PortReason): unknown {
  if (reason.kind === 'value') return reason.value;
  const { code, message, details } = reason;
  return code === undefined ? new Error(message) : new SplitkvError(code, message, { details });
}

/**
 * The ports of a group of ranks in workers: `result[rank]` maps each peer to its port. Transfer them to the rank's worker
 * and give them to `createPortCommunicator` there.
 */
export function createPorts(worldSize: number): Map<number, MessagePort>[] {
  const ports = Array.from({ length: worldSize }, () => new Map<number, MessagePort>());
  for (let a = 0; a < worldSize; a++) {
    for (let b = a + 1; b < worldSize; b++) {
      const { port1, port2 } = new MessageChannel();
      nth(ports, a).set(b, port1);
      nth(ports, b).set(a, port2);
    }
  }
  return ports;
}
