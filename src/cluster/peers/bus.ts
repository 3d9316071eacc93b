import type { NatsConnection } from '@nats-io/nats-core';
import { formatError, limitError, messageOf } from '../../base/errors.js';
import { pause } from '../../base/waits.js';

/** Of an RTCDataChannel what is used, in order and reliable. */
export type PeerChannel = Pick<
  RTCDataChannel,
  | 'binaryType'
  | 'bufferedAmount'
  | 'bufferedAmountLowThreshold'
  | 'close'
  | 'onbufferedamountlow'
  | 'onclose'
  | 'onmessage'
  | 'send'
>;

interface Message {
  readonly subject: string;
  readonly reply: string;
  readonly data: Uint8Array;
  respond(data: Uint8Array): void;
}

type Callback = (error: null, message: Message) => void;

/** Bytes of a message of a channel: all browsers take as many, and a large one keeps others waiting. */
const MOST_FRAME = 64 * 1024;
/** Kind, and the lengths of both subjects. */
const HEAD_BYTES = 3;
const MOST_SUBJECT = 255;
/** Bytes that the browser keeps for a channel: it closes one that has 16 MiB. */
const FULL = 2 ** 20;
const LOW = 2 ** 18;
/** Bytes that wait for a channel: links that keep to their windows come to less. What is beyond is lost, which a link notices. */
const MOST_WAITING = 2 ** 28;
const MOST_SUBJECTS = 10_000;
const KINDS = ['message', 'subscribe', 'unsubscribe'] as const;

/**
 * Subjects among pages, with what src/cluster uses of a NATS connection: a hub, which its members are joined to, or a member. Members
 * send the hub all they publish; it sends each what that one subscribed to. There are no wildcards: who isn't told a link's id can't
 * read it. A frame is a byte for its kind, the lengths of subject and reply, these in ASCII, and bytes.
 */
export class PeerBus {
  readonly info = { max_payload: MOST_FRAME - HEAD_BYTES - 2 * MOST_SUBJECT };
  readonly #callbacks = new Map<string, Set<Callback>>();
  readonly #members = new Set<Member>();
  #over: (why: Error | undefined) => void = () => {};
  readonly #closed = new Promise<Error | undefined>((resolve) => (this.#over = resolve));
  #isClosed = false;

  /** @param isHub otherwise it is closed when its one channel is */
  constructor(readonly isHub: boolean) {}

  /** As the rest of src/cluster knows it. */
  get connection(): NatsConnection {
    return this as unknown as NatsConnection;
  }

  /** @param left called once, when the channel is closed */
  join(channel: PeerChannel, left: () => void = () => {}): void {
    const member = new Member(
      channel,
      (frame) => this.#arrived(member, frame),
      (why) => {
        this.#members.delete(member);
        left();
        if (!this.isHub) this.end(new Error(why));
      },
    );
    this.#members.add(member);
    if (this.isHub) return;
    for (const subject of this.#callbacks.keys()) member.send(frameOf('subscribe', subject));
  }

  publish(subject: string, data: Uint8Array, { reply = '' }: { readonly reply?: string } = {}): void {
    if (this.#isClosed) throw new Error('the channel is closed');
    if (data.byteLength > this.info.max_payload) {
      throw limitError(`a message of ${data.byteLength} bytes: ${this.info.max_payload} are the most`);
    }
    this.#deliver(subject, reply, data);
    const frame = frameOf('message', subject, reply, data);
    for (const member of this.#members) {
      if (!this.isHub || member.subjects.has(subject)) member.send(frame);
    }
  }

  subscribe(subject: string, { callback }: { readonly callback: Callback }): { unsubscribe(): void } {
    const callbacks = this.#callbacks.get(subject) ?? new Set();
    this.#callbacks.set(subject, callbacks.add(callback));
    if (callbacks.size === 1) this.#tell('subscribe', subject);
    return {
      unsubscribe: () => {
        if (!callbacks.delete(callback) || callbacks.size > 0) return;
        this.#callbacks.delete(subject);
        this.#tell('unsubscribe', subject);
      },
    };
  }

  request(subject: string, data: Uint8Array, { timeout }: { readonly timeout: number }): Promise<Message> {
    return new Promise((resolve, reject) => {
      const { unsubscribe } = this.#ask(subject, data, (message) => end(() => resolve(message)));
      const end = (settle: () => void): void => {
        clearTimeout(timer);
        unsubscribe();
        settle();
      };
      const timer = setTimeout(() => end(() => reject(new Error('no answer in time'))), timeout);
    });
  }

  /** Answers until none comes for `stall` ms after the last, or `maxWait` ms are over. */
  async requestMany(
    subject: string,
    data: Uint8Array,
    { maxWait, stall }: { readonly maxWait: number; readonly stall: number },
  ): Promise<readonly Message[]> {
    const answers: Message[] = [];
    let last = Infinity;
    const { unsubscribe } = this.#ask(subject, data, (message) => {
      last = performance.now();
      answers.push(message);
    });
    for (const until = performance.now() + maxWait; performance.now() < Math.min(until, last + stall);) await pause(10);
    unsubscribe();
    return answers;
  }

  isClosed = (): boolean => this.#isClosed;
  closed = (): Promise<Error | undefined> => this.#closed;
  /** A page that is gone doesn't come back by itself. */
  status = (): readonly never[] => [];
  /** A model that is disposed of leaves; who was invited stays for the next one. */
  drain = (): Promise<void> => Promise.resolve();
  close = this.drain;

  /** Leaves the others, after what was published. */
  end(why?: Error): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const member of this.#members) member.end();
    this.#over(why);
  }

  #ask(subject: string, data: Uint8Array, answered: (message: Message) => void): { unsubscribe(): void } {
    const reply = `inbox.${crypto.randomUUID()}`;
    const subscription = this.subscribe(reply, { callback: (_, message) => answered(message) });
    this.publish(subject, data, { reply });
    return subscription;
  }

  #tell(kind: 'subscribe' | 'unsubscribe', subject: string): void {
    if (!this.isHub) for (const member of this.#members) member.send(frameOf(kind, subject));
  }

  /** Never within a call of `publish`: as over a network. */
  #deliver(subject: string, reply: string, data: Uint8Array): void {
    const message = { subject, reply, data, respond: (answer: Uint8Array) => this.publish(reply, answer) };
    for (const callback of this.#callbacks.get(subject) ?? []) queueMicrotask(() => callback(null, message));
  }

  /** @throws SplitkvError `format` */
  #arrived(from: Member, frame: Uint8Array): void {
    const { kind, subject, reply, data } = readFrame(frame);
    if (kind === 'message') {
      this.#deliver(subject, reply, data);
      // A rank takes models from the page that it agreed with, not from other ranks of that page.
      if (!this.isHub || subject.includes('.claim.')) return;
      for (const member of this.#members) if (member !== from && member.subjects.has(subject)) member.send(frame);
    } else if (!this.isHub) throw formatError('the page that invites subscribes to nothing');
    else if (kind === 'unsubscribe') from.subjects.delete(subject);
    else if (from.subjects.add(subject).size > MOST_SUBJECTS) throw formatError('too many subjects');
  }
}

/** One channel of a bus. */
class Member {
  readonly subjects = new Set<string>();
  readonly #waiting: Uint8Array<ArrayBuffer>[] = [];
  #waitingBytes = 0;
  #isOver = false;
  #isEnding = false;

  constructor(
    readonly channel: PeerChannel,
    arrived: (frame: Uint8Array) => void,
    readonly left: (why: string) => void,
  ) {
    channel.binaryType = 'arraybuffer';
    channel.bufferedAmountLowThreshold = LOW;
    channel.onbufferedamountlow = () => this.#pump();
    channel.onclose = () => this.#leave('it left');
    channel.onmessage = ({ data }: MessageEvent<unknown>) => {
      try {
        if (!(data instanceof ArrayBuffer)) throw formatError('a text among frames');
        arrived(new Uint8Array(data));
      } catch (error) {
        this.#leave(`it sent what can't be read: ${messageOf(error)}`);
      }
    };
  }

  send(frame: Uint8Array<ArrayBuffer> | Uint8Array): void {
    if (this.#isOver || this.#isEnding || this.#waitingBytes + frame.byteLength > MOST_WAITING) return;
    this.#waitingBytes += frame.byteLength;
    this.#waiting.push(frame as Uint8Array<ArrayBuffer>);
    this.#pump();
  }

  end(): void {
    this.#isEnding = true;
    this.#pump();
  }

  #pump(): void {
    try {
      while (!this.#isOver && this.#waiting.length > 0 && this.channel.bufferedAmount < FULL) {
        const frame = this.#waiting.shift()!;
        this.#waitingBytes -= frame.byteLength;
        this.channel.send(frame);
      }
    } catch (error) {
      this.#leave(messageOf(error));
    }
    // A channel sends what it has before it is closed.
    if (this.#isEnding && this.#waiting.length === 0) this.#leave('it was left');
  }

  #leave(why: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#waiting.length = 0;
    this.channel.close();
    this.left(why);
  }
}

function frameOf(
  kind: (typeof KINDS)[number],
  subject: string,
  reply = '',
  data: Uint8Array = new Uint8Array(),
): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(HEAD_BYTES + subject.length + reply.length + data.byteLength);
  out.set([KINDS.indexOf(kind), subject.length, reply.length]);
  out.set(new TextEncoder().encode(subject + reply), HEAD_BYTES);
  out.set(data, HEAD_BYTES + subject.length + reply.length);
  return out;
}

const SUBJECT = /^[\w.-]+$/;

/** @throws SplitkvError `format` */
function readFrame(frame: Uint8Array): {
  readonly kind: (typeof KINDS)[number];
  readonly subject: string;
  readonly reply: string;
  readonly data: Uint8Array;
} {
  const [kind, length = 0, replyLength = 0] = frame;
  const ends = [HEAD_BYTES + length, HEAD_BYTES + length + replyLength] as const;
  const text = new TextDecoder('latin1').decode(frame.subarray(HEAD_BYTES, ends[1]));
  const [subject, reply] = [text.slice(0, length), text.slice(length)];
  const name = KINDS[kind ?? -1];
  const isWhole = frame.byteLength >= ends[1] && frame.byteLength <= MOST_FRAME;
  if (name === undefined || !isWhole || !SUBJECT.test(subject) || (reply !== '' && !SUBJECT.test(reply))) {
    throw formatError('a frame that is none');
  }
  return { kind: name, subject, reply, data: frame.subarray(ends[1]) };
}
