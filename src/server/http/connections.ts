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

interface Address {
  readonly name: string;
  /** Those of which nothing was heard for longest first. */
  readonly connections: Set<Connection>;
}

interface Connection {
  readonly socket: Socket;
  readonly address: Address;
  readonly since: number;
  /** Requests under way; undefined: it hasn't asked for anything. */
  requests: number | undefined;
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
    const address = valueIn(this.#addresses, name, (): Address => ({ name, connections: new Set() }));
    const connection = { socket, address, since: performance.now(), requests: undefined };
    address.connections.add(connection);
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
    const { connections } = connection.address;
    connection.requests = (connection.requests ?? 0) + change;
    connections.delete(connection);
    connections.add(connection);
  }

  #remove(connection: Connection): void {
    const { socket, address } = connection;
    if (!this.#open.delete(socket)) return;
    address.connections.delete(connection);
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

const sizeOf = ({ connections }: Address): number => connections.size;

/** The longest idle one, or one that has had time to ask and hasn't. */
function closable({ connections }: Address): Connection | undefined {
  const all = [...connections];
  const isLate = ({ since }: Connection): boolean => performance.now() - since >= BEGIN_MS;
  return all.find(({ requests }) => requests === 0) ?? all.find((one) => one.requests === undefined && isLate(one));
}

/** Who is counted as one: an IPv4 address, or an IPv6 network of 64 bits, as one client has all of them. What is neither is itself. */
export function addressOf(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address);
  if (mapped) return mapped[1]!;
  const [bare = ''] = address.split('%');
  if (!isIPv6(bare)) return address;
  // As URLs write them: without zeros before a group's digits, and without IPv4 in it.
  const [head = '', tail] = new URL(`http://[${bare}]`).hostname.slice(1, -1).split('::');
  const groups = [head, tail].map((text) => (text ? text.split(':') : []));
  const all = [...groups[0]!, ...Array<string>(8 - groups.flat().length).fill('0'), ...groups[1]!];
  return `${all.slice(0, 4).join(':')}::/64`;
}
