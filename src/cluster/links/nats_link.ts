/**
 * Room: links between ranks of different machines: messages in order over NATS, and how the end of a peer is noticed,
 * what goes over the wire, and how a link is joined to a MessagePort of a rank's worker.
 */

import type { Subscription } from '@nats-io/nats-core';
import { decode, encode } from 'cborg/extended';
import { formatError, messageOf } from '../../base/errors.js';
import type { LinkAddress } from '../../engine/workers/worker_protocol.js';
import { type Cluster, isName } from '../connect.js';
import { formatBytes, joinBytes } from '../../base/math.js';
import type { Port, PortMessage, PortReason } from '../../distributed/ports/port.js';

export interface LinkEvents {
  /** A message that came, in order. Throws where it is none that may come: that ends the link. */
  message(value: unknown): void;
  /** Nothing more will come; told once, and not after `close`. */
  ended(why: string): void;
}

/** A beat tells that an end lives; the other is told gone when so many are missed, counted by its own clock: a computer that slept has missed none. */
const BEAT_MS = 300;
const MISSED_BEATS = 5;
/** A page's links are in the thread that draws it, beside other pages. */
const MISSED_BEATS_OF_PAGES = 15;
/** Beats that a peer may take to come to a new link. */
const OPENING_BEATS = 50;
/** Beats that may go by between two pieces of a message: its sender has all of them. */
const UNFINISHED_BEATS = 50;
/** A page that is hidden for minutes has its timers called once a minute, messages still at once: its beats then follow those of the other end. */
const LATE_BEAT_MS = 2 * BEAT_MS;
/** Bytes that may be under way: a receiver that lags isn't cut off by the server for what it hasn't read yet. */
const WINDOW_BYTES = 8 * 2 ** 20;
const MAX_PIECE = 512 * 1024;

export const newLink = (): readonly [LinkAddress, LinkAddress] => {
  const id = crypto.randomUUID().replaceAll('-', '');
  return [
    { id, side: 'a' },
    { id, side: 'b' },
  ];
};

/** What somebody else sent as an address. */
export function isLinkAddress(value: unknown): value is LinkAddress {
  const { id, side } = (value ?? {}) as Partial<LinkAddress>;
  return isName(id) && (side === 'a' || side === 'b');
}

/** One end of a link: structured data with typed arrays, in order and whole, or the link ends. Never waits for a peer that is gone. */
export class NatsLink {
  readonly #subscription: Subscription;
  readonly #to: string;
  readonly #pieceBytes: number;
  readonly #assembler = new Assembler();
  readonly #timer: ReturnType<typeof setInterval>;
  /** Pieces that wait for room in the window; undefined: the end. */
  readonly #queue: ({ readonly total: number; readonly bytes: Uint8Array } | undefined)[] = [];
  /** Numbers and bytes of pieces that the peer hasn't said to have. */
  readonly #underWay: { readonly number: number; readonly bytes: number }[] = [];
  #underWayBytes = 0;
  #sent = 0;
  #received = 0;
  /** Bytes that came since the last beat. */
  #untold = 0;
  #heard = false;
  #missed = 0;
  /** Since the last piece. */
  #unfinished = 0;
  #beatAt = 0;
  #over = false;

  constructor(
    readonly cluster: Cluster,
    address: LinkAddress,
    readonly events: LinkEvents,
    /** Bytes of a message that the peer may send. */
    public largest = MAX_MESSAGE,
  ) {
    const { id, side } = address;
    this.#to = cluster.subject('link', id, side === 'a' ? 'b' : 'a');
    this.#pieceBytes = Math.min(cluster.maxPayload, MAX_PIECE) - HEADER_BYTES;
    this.#subscription = cluster.connection.subscribe(cluster.subject('link', id, side), {
      callback: (error, message) => (error ? this.#fail(error.message) : this.#arrived(message.data)),
    });
    this.#timer = setInterval(() => this.#tick(), BEAT_MS);
    // What is said before the peer has subscribed is lost: each says a beat until it hears the other's.
    this.#beat();
  }

  /** Sends a message. What can't be cloned can't be sent. @throws Error for such data */
  post(value: unknown): void {
    if (this.#over || this.#isLeaving) return;
    const bytes = encode(value);
    for (let at = 0; at < bytes.byteLength; at += this.#pieceBytes) {
      this.#queue.push({ total: bytes.byteLength, bytes: bytes.subarray(at, at + this.#pieceBytes) });
    }
    this.#pump();
  }

  /** Leaves, after what was posted. */
  close(): void {
    if (this.#over || this.#isLeaving) return;
    // Nobody came, and nothing is to be told.
    if (!this.#heard && this.#queue.length === 0) return this.#leave();
    this.#queue.push(undefined);
    this.#pump();
  }

  /** Only what was posted before is still sent. */
  get #isLeaving(): boolean {
    return this.#queue.length > 0 && this.#queue.at(-1) === undefined;
  }

  #tick(): void {
    this.#missed++;
    const most = this.cluster.hasServer ? MISSED_BEATS : MISSED_BEATS_OF_PAGES;
    if (this.#missed > (this.#heard ? most : OPENING_BEATS)) {
      const seconds = (this.#missed * BEAT_MS) / 1000;
      this.#fail(`nothing came from it for ${seconds.toFixed(1)} s`);
    } else if (this.#assembler.bytes > 0 && ++this.#unfinished > UNFINISHED_BEATS) {
      this.#fail('it began a message and sent no more of it');
    } else this.#beat();
  }

  #beat(): void {
    this.#untold = 0;
    this.#beatAt = performance.now();
    this.#publish({ type: 'beat', sent: this.#sent, received: this.#received });
  }

  #publish(frame: Frame): void {
    try {
      this.cluster.connection.publish(this.#to, frameOf(frame));
    } catch (error) {
      this.#fail(`the connection to the cluster's server is closed: ${messageOf(error)}`);
    }
  }

  #pump(): void {
    while (this.#heard && !this.#over && this.#queue.length > 0 && this.#underWayBytes < WINDOW_BYTES) {
      const piece = this.#queue.shift();
      if (!piece) {
        this.#publish({ type: 'end' });
        this.#leave();
        return;
      }
      const { total, bytes } = piece;
      const number = ++this.#sent;
      this.#underWay.push({ number, bytes: bytes.byteLength });
      this.#underWayBytes += bytes.byteLength;
      this.#publish({ type: 'piece', number, total, bytes });
    }
  }

  #arrived(data: Uint8Array): void {
    if (this.#over) return;
    try {
      this.#take(readFrame(data));
    } catch (error) {
      this.#fail(`it sent what can't be read: ${messageOf(error)}`);
    }
  }

  #take(frame: Frame): void {
    this.#missed = 0;
    const isFirst = !this.#heard;
    this.#heard = true;
    if (frame.type === 'end') return this.#fail('it left');
    if (frame.type === 'piece') this.#takePiece(frame);
    else this.#takeBeat(frame);
    if (this.#over) return;
    const isLate = performance.now() - this.#beatAt > LATE_BEAT_MS;
    if (isFirst || isLate || this.#untold >= WINDOW_BYTES / 4) this.#beat();
    this.#pump();
  }

  #takePiece(piece: Extract<Frame, { type: 'piece' }>): void {
    if (piece.number !== this.#received + 1) return this.#fail(lost(this.#received, piece.number - 1));
    if (piece.total > this.largest) {
      return this.#fail(
        `it began a message of ${formatBytes(piece.total)}, and ${formatBytes(this.largest)} are the most`,
      );
    }
    this.#received = piece.number;
    this.#unfinished = 0;
    this.#untold += piece.bytes.byteLength;
    const whole = this.#assembler.take(piece);
    if (whole) this.events.message(decode(whole));
  }

  #takeBeat({ sent, received }: Extract<Frame, { type: 'beat' }>): void {
    if (sent !== this.#received) return this.#fail(lost(this.#received, sent));
    if (received > this.#sent) return this.#fail(`it says to have ${received} pieces of ${this.#sent}`);
    while (this.#underWay.length > 0 && this.#underWay[0]!.number <= received) {
      this.#underWayBytes -= this.#underWay.shift()!.bytes;
    }
  }

  #fail(why: string): void {
    if (this.#over) return;
    const isLeaving = this.#isLeaving;
    this.#leave();
    if (!isLeaving) this.events.ended(why);
  }

  #leave(): void {
    this.#over = true;
    clearInterval(this.#timer);
    this.#queue.length = 0;
    if (!this.cluster.connection.isClosed()) this.#subscription.unsubscribe();
  }
}

const lost = (had: number, sent: number): string =>
  `of its pieces ${had} came, and it sent ${sent}: some were lost on the way`;

/**
 * What goes over a link, one frame a NATS message: 24 bytes that say what it is, then the bytes of a piece.
 *
 *     byte 0   version (1)
 *     byte 1   type: 0 piece, 1 beat, 2 end
 *     8 to 15  float64: of a piece and of an end its number, from 1; of a beat the number of the last piece that was sent
 *     16 to 23 float64: of a piece the bytes of its message, of a beat the number of the last piece that was received
 *
 * A message's pieces come one after another. Little-endian.
 */
export type Frame =
  | { readonly type: 'piece'; readonly number: number; readonly total: number; readonly bytes: Uint8Array }
  | { readonly type: 'beat'; readonly sent: number; readonly received: number }
  | { readonly type: 'end' };

export const HEADER_BYTES = 24;
/** No message between ranks is as large: a slice's whole cache, handed over, is the largest. */
const MAX_MESSAGE = 2 ** 31;
const VERSION = 1;
const TYPES = ['piece', 'beat', 'end'] as const;

export function frameOf(frame: Frame): Uint8Array {
  const bytes = frame.type === 'piece' ? frame.bytes : undefined;
  const out = new Uint8Array(HEADER_BYTES + (bytes?.byteLength ?? 0));
  const view = new DataView(out.buffer);
  view.setUint8(0, VERSION);
  view.setUint8(1, TYPES.indexOf(frame.type));
  if (frame.type === 'piece') {
    view.setFloat64(8, frame.number, true);
    view.setFloat64(16, frame.total, true);
  } else if (frame.type === 'beat') {
    view.setFloat64(8, frame.sent, true);
    view.setFloat64(16, frame.received, true);
  }
  if (bytes) out.set(bytes, HEADER_BYTES);
  return out;
}

/** @throws SplitkvError `format` for bytes that are no frame */
export function readFrame(data: Uint8Array): Frame {
  if (data.byteLength < HEADER_BYTES)
    throw formatError(`a frame of ${data.byteLength} bytes: ${HEADER_BYTES} at least`);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (view.getUint8(0) !== VERSION) throw formatError(`a frame of version ${view.getUint8(0)}: expected ${VERSION}`);
  const type = TYPES[view.getUint8(1)];
  const first = view.getFloat64(8, true);
  const second = view.getFloat64(16, true);
  if (type === undefined || !isCount(first) || !isCount(second)) throw formatError('a frame whose head is no head');
  if (type !== 'piece' && data.byteLength > HEADER_BYTES) throw formatError(`a ${type} with bytes behind it`);
  switch (type) {
    case 'piece': {
      const bytes = data.subarray(HEADER_BYTES);
      if (second > MAX_MESSAGE || bytes.byteLength > second || bytes.byteLength === 0) {
        throw formatError(`a piece of ${bytes.byteLength} bytes of a message of ${second}`);
      }
      return { type, number: first, total: second, bytes };
    }
    case 'beat':
      return { type, sent: first, received: second };
    case 'end':
      return { type };
  }
}

const isCount = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;

/** Puts pieces together. Takes no more memory than the pieces that came. */
export class Assembler {
  #parts: Uint8Array[] = [];
  #total = 0;
  #bytes = 0;

  /** Of a message that isn't whole yet. */
  get bytes(): number {
    return this.#bytes;
  }

  /** A message, when this piece is its last one. @throws SplitkvError `format` for a piece of another message */
  take({ total, bytes }: Extract<Frame, { type: 'piece' }>): Uint8Array | undefined {
    if (this.#bytes > 0 && total !== this.#total) {
      throw formatError(`a piece of a message of ${total} bytes among those of one of ${this.#total}`);
    }
    if (this.#bytes + bytes.byteLength > total) throw formatError(`pieces of more than their message's ${total} bytes`);
    this.#total = total;
    // What NATS hands out lies in a buffer that it goes on using.
    this.#parts.push(bytes.slice());
    this.#bytes += bytes.byteLength;
    if (this.#bytes < total) return undefined;
    const parts = this.#parts;
    this.#parts = [];
    this.#bytes = 0;
    return parts.length === 1 ? parts[0] : joinBytes(parts);
  }
}

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
