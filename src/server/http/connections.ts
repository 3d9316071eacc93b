import { valueIn } from '../../base/lists.js';
import { isIPv6, type Socket } from 'node:net';

/** Connections beyond all limits at once: each may ask for /livez and its like, and is told to go otherwise. */
const SPARE = 64;
/** Time that such a one has to ask. */
const SPARE_MS = 2000;
/** Time that a connection has to begin before it may be closed for another's sake. */
const BEGIN_MS = 1000;

export interface ConnectionLimits {
  /** Connections at once. */
  readonly maxConnections: number;
  /** Of one address. */
  readonly maxPerAddress: number;
}

/** Connections of one address, each in one of the sets, the oldest first. */
interface Address {
  readonly name: string;
  /** A request of theirs is being read or answered. */
  readonly busy: Set<Connection>;
  /** Their last request was answered. */
  readonly idle: Set<Connection>;
  /** They haven't asked for anything. */
  readonly silent: Set<Connection>;
}

interface Connection {
  readonly socket: Socket;
  readonly address: Address;
  readonly since: number;
  /** Requests under way. */
  requests: number;
}

/**
 * Who has which connections: an address has no more than its share of them. For a new one the longest idle one is closed where there
 * are as many as may be, otherwise one that has asked for nothing. Where all are busy the new one is a spare: probes get through.
 */
export class Connections {
  readonly #addresses = new Map<string, Address>();
  readonly #open = new Map<Socket, Connection>();
  readonly #spare = new Set<Socket>();

  constructor(private readonly limits: ConnectionLimits) {}

  /** Takes a new connection; closes another one for it where that is needed. */
  add(socket: Socket): void {
    const name = addressOf(socket.remoteAddress ?? '');
    const { maxConnections, maxPerAddress } = this.limits;
    const own = this.#addresses.get(name);
    const hasShare = own !== undefined && sizeOf(own) >= maxPerAddress;
    if (hasShare || this.#open.size >= maxConnections) {
      const victim = hasShare ? closable(own) : this.#closable();
      if (!victim) return this.#addSpare(socket);
      // Counts no longer at once, not only when it is closed.
      this.#remove(victim);
      victim.socket.destroy();
    }
    const none = (): Address => ({ name, busy: new Set(), idle: new Set(), silent: new Set() });
    const address = valueIn(this.#addresses, name, none);
    const connection = { socket, address, since: performance.now(), requests: 0 };
    address.silent.add(connection);
    this.#open.set(socket, connection);
    socket.once('close', () => this.#remove(connection));
  }

  /** Whether it is beyond the limits. */
  isSpare(socket: Socket): boolean {
    return this.#spare.has(socket);
  }

  /** A request came on a connection (+1), or was answered (-1). */
  count(socket: Socket, change: 1 | -1): void {
    const connection = this.#open.get(socket);
    if (!connection) return; // a spare, or closed
    const { address } = connection;
    connection.requests += change;
    forget(connection);
    (connection.requests > 0 ? address.busy : address.idle).add(connection);
  }

  #remove(connection: Connection): void {
    const { socket, address } = connection;
    if (!this.#open.delete(socket)) return;
    forget(connection);
    if (sizeOf(address) === 0) this.#addresses.delete(address.name);
  }

  /** One that may be closed, of the address with most connections that has such. */
  #closable(): Connection | undefined {
    for (const address of [...this.#addresses.values()].toSorted((a, b) => sizeOf(b) - sizeOf(a))) {
      const connection = closable(address);
      if (connection) return connection;
    }
    return undefined;
  }

  #addSpare(socket: Socket): void {
    const [oldest] = this.#spare;
    if (oldest && this.#spare.size >= SPARE) {
      this.#spare.delete(oldest);
      oldest.destroy();
    }
    this.#spare.add(socket);
    const timer = setTimeout(() => socket.destroy(), SPARE_MS);
    socket.once('close', () => {
      clearTimeout(timer);
      this.#spare.delete(socket);
    });
  }
}

const sizeOf = ({ busy, idle, silent }: Address): number => busy.size + idle.size + silent.size;

function forget(connection: Connection): void {
  const { busy, idle, silent } = connection.address;
  for (const set of [busy, idle, silent]) set.delete(connection);
}

/** The longest idle one, or one that has had time to ask and hasn't. */
function closable({ idle, silent }: Address): Connection | undefined {
  const [longest] = idle;
  if (longest) return longest;
  const [oldest] = silent;
  return oldest && performance.now() - oldest.since >= BEGIN_MS ? oldest : undefined;
}

/** Who is counted as one: an IPv4 address, or an IPv6 network of 64 bits, as one client has all of them. What is neither is itself. */
export function addressOf(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address);
  if (mapped) return mapped[1]!;
  const [bare = ''] = address.split('%');
  if (!isIPv6(bare)) return address;
  const [head = '', tail] = bare.toLowerCase().split('::');
  const groups = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  // Four bytes may be written as IPv4 addresses are.
  const written = groups.length + after.length + (bare.includes('.') ? 1 : 0);
  const all =
    tail === undefined ? groups : [...groups, ...new Array<string>(Math.max(0, 8 - written)).fill('0'), ...after];
  return `${all
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`;
}
