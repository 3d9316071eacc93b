import type { NatsConnection } from '@nats-io/nats-core';
import { decode, encode } from 'cborg/extended';
import { formatError, limitError, messageOf } from '../../base/errors.js';

/** Of an RTCDataChannel, in order and reliable, what is used. */
export type PeerChannel = Pick<
  RTCDataChannel,
  | 'binaryType'
  | 'bufferedAmount'
  | 'bufferedAmountLowThreshold'
  | 'close'
  | 'send'
  | `on${'bufferedamountlow' | 'close' | 'message'}`
>;

interface Message {
  readonly data: Uint8Array;
  respond(data: Uint8Array): void;
}
type Callback = (error: null, message: Message) => void;

/** Bytes of a message of a channel: all browsers take as many, and a large one keeps others waiting. */
const MOST_FRAME = 64 * 1024;
/** Bytes that the browser keeps for a channel: it closes one that has 16 MiB. */
const FULL = 2 ** 20;
/** Frames that wait for a channel: links that keep to their windows have fewer. What is beyond is lost, which a link notices. */
const MOST_WAITING = 4096;
const MOST_SUBJECTS = 10_000;

/**
 * Subjects among pages, with what src/cluster uses of a NATS connection: a hub, or one of its members. Members send the hub all that they
 * publish; it sends each what that one subscribed to. There are no wildcards: who isn't told a link's id can't read it.
 */
export class PeerBus {
  readonly info = { max_payload: MOST_FRAME - 1024 };
  readonly #callbacks = new Map<string, Set<Callback>>();
  readonly #members = new Set<Member>();
  #over: (why?: Error) => void = () => {};
  readonly #closed = new Promise<Error | undefined>((resolve) => (this.#over = resolve));
  #isClosed = false;

  /** @param isHub otherwise it ends with its one channel */
  constructor(readonly isHub: boolean) {}

  /** As the rest of src/cluster knows it. */
  get connection(): NatsConnection {
    return this as unknown as NatsConnection;
  }

  /** @param left called when the channel is closed @returns ends it, where it is known to be out of reach */
  join(channel: PeerChannel, left: () => void = () => {}): () => void {
    const arrived = (frame: Uint8Array): void => this.#arrived(member, frame);
    const member = memberOf(channel, arrived, (why) => {
      this.#members.delete(member);
      left();
      if (!this.isHub) this.end(new Error(why));
    });
    this.#members.add(member);
    for (const subject of this.#callbacks.keys()) this.#tell('subscribe', subject);
    return () => member.leave('it is out of reach');
  }

  publish(subject: string, data: Uint8Array, { reply = '' }: { readonly reply?: string } = {}): void {
    if (this.#isClosed) throw new Error('the channel is closed');
    const { max_payload: most } = this.info;
    if (data.byteLength > most) throw limitError(`a message of ${data.byteLength} bytes: ${most} are the most`);
    this.#deliver(subject, data, reply);
    const frame = encode(['message', subject, data, reply]);
    for (const member of this.#members) if (!this.isHub || member.subjects.has(subject)) member.send(frame);
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

  async request(subject: string, data: Uint8Array, { timeout }: { readonly timeout: number }): Promise<Message> {
    const [answer] = await this.requestMany(subject, data, { maxWait: timeout, stall: 0 });
    if (!answer) throw new Error('no answer in time');
    return answer;
  }

  /** Answers until none comes for `stall` ms after the last, or `maxWait` ms are over. */
  async requestMany(
    subject: string,
    data: Uint8Array,
    { maxWait, stall }: { readonly maxWait: number; readonly stall: number },
  ): Promise<readonly Message[]> {
    const answers: Message[] = [];
    const reply = `inbox.${crypto.randomUUID()}`;
    const last = performance.now() + maxWait;
    await new Promise<void>((over) => {
      let timer = setTimeout(end, maxWait);
      const { unsubscribe } = this.subscribe(reply, {
        callback: (_, message) => {
          answers.push(message);
          clearTimeout(timer);
          timer = setTimeout(end, Math.min(stall, last - performance.now()));
        },
      });
      function end(): void {
        unsubscribe();
        over();
      }
      this.publish(subject, data, { reply });
    });
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

  #tell(kind: 'subscribe' | 'unsubscribe', subject: string): void {
    if (!this.isHub) for (const member of this.#members) member.send(encode([kind, subject]));
  }

  /** Never within a call of `publish`: as over a network. */
  #deliver(subject: string, data: Uint8Array, reply: string): void {
    const message = { data, respond: (answer: Uint8Array) => this.publish(reply, answer) };
    for (const callback of this.#callbacks.get(subject) ?? []) queueMicrotask(() => callback(null, message));
  }

  /** @throws Error for a frame that is none */
  #arrived(from: Member, frame: Uint8Array): void {
    const [kind, subject, data, reply] = decode(frame) as unknown[];
    if (typeof subject !== 'string' || subject.length > 255) throw formatError('a frame without a subject');
    if (kind === 'message' && data instanceof Uint8Array && typeof reply === 'string' && reply.length < 256) {
      this.#deliver(subject, data, reply);
      // A rank takes models from the page that it agreed with, not from other ranks of that page.
      if (!this.isHub || subject.includes('.claim.')) return;
      for (const member of this.#members) if (member !== from && member.subjects.has(subject)) member.send(frame);
    } else if (kind === 'unsubscribe') from.subjects.delete(subject);
    else if (kind !== 'subscribe' || !this.isHub || from.subjects.add(subject).size > MOST_SUBJECTS) {
      throw formatError('a frame that none sends');
    }
  }
}

/** One channel of a bus. */
interface Member {
  readonly subjects: Set<string>;
  send(frame: Uint8Array): void;
  /** Leaves, after what was sent; or at once. */
  end(): void;
  leave(why: string): void;
}

function memberOf(channel: PeerChannel, arrived: (frame: Uint8Array) => void, left: (why: string) => void): Member {
  const waiting: Uint8Array[] = [];
  let [isOver, isEnding] = [false, false];
  const leave = (why: string): void => {
    if (isOver) return;
    isOver = true;
    waiting.length = 0;
    // What it has is still sent.
    channel.close();
    left(why);
  };
  const pump = (): void => {
    try {
      while (waiting.length > 0 && channel.bufferedAmount < FULL) {
        channel.send(waiting.shift() as Uint8Array<ArrayBuffer>);
      }
      if (isEnding && waiting.length === 0) leave('it was left');
    } catch (error) {
      leave(messageOf(error));
    }
  };
  channel.binaryType = 'arraybuffer';
  channel.bufferedAmountLowThreshold = FULL / 4;
  channel.onbufferedamountlow = pump;
  channel.onclose = () => leave('it left');
  channel.onmessage = ({ data }: MessageEvent<unknown>) => {
    try {
      arrived(new Uint8Array(data as ArrayBuffer));
    } catch (error) {
      leave(`it sent what can't be read: ${messageOf(error)}`);
    }
  };
  return {
    subjects: new Set(),
    send: (frame) => {
      if (isOver || isEnding || waiting.length >= MOST_WAITING) return;
      waiting.push(frame);
      pump();
    },
    end: () => {
      isEnding = true;
      pump();
    },
    leave,
  };
}
