import { EventEmitter, once } from 'node:events';
import type { Msg, Subscription } from '@nats-io/nats-core';
import { valueIn } from '../../base/lists.js';
import type { Cluster } from '../../cluster/connect.js';
import { type Choice, ReplicaTable, type RoutedRequest } from '../../cluster/routing/choose_replica.js';
import type { PrefixFilter } from '../../cluster/routing/prefixes.js';
import { EventQueue } from '../../engine/serving/text/event_queue.js';
import {
  type Beat,
  BEAT_MS,
  encode,
  isNobody,
  pieceBytes,
  PROTOCOL,
  readBeat,
  readToGateway,
  SILENCE_MS,
  type ToGateway,
  type ToReplica,
} from '../replicas/messages.js';

export interface ReplicaSetOptions {
  readonly cluster: Cluster;
  /** The gateway's own, as replicas' are. */
  readonly instance: string;
  /** Time that a replica may compute without a word before it is taken for hung; default 30 s. */
  readonly hangMs?: number;
  /** Hears of messages that are none, and of replicas that came, left or were lost: a line for the log. */
  readonly onNote?: (line: string) => void;
}

export interface Member {
  beat: Beat;
  /** On the clock of performance.now(). */
  heardAt: number;
  probedAt: number;
  prefixes: PrefixFilter | undefined;
  readonly calls: Map<number, GatewayCall>;
  /** Requests that were sent there. */
  asked: number;
}

const LOOK_MS = BEAT_MS / 2;
/** Silence after which the NATS server is asked whether it is still connected. */
const PROBE_MS = BEAT_MS * 1.5;
/** A thread that computes for longer without a word gets no new requests. */
const SLOW_MS = 2000;
/** Silence of a request whose replica is well: its messages were lost. */
const CALL_SILENCE_MS = 5000;
const DEFAULT_HANG_MS = 30_000;

/** The replicas of a cluster: who is there, who takes a request, and what they answer. */
export class ReplicaSet {
  readonly #options: ReplicaSetOptions;
  /** By name. */
  readonly #members = new Map<string, Member>();
  /** By model. */
  readonly #tables = new Map<string, ReplicaTable>();
  readonly #subscriptions: Subscription[];
  readonly #timer: NodeJS.Timeout;
  #lookedAt = performance.now();
  #connected = true;
  #nextCall = 0;
  /** A replica came, or changed. */
  readonly #news = new EventEmitter().setMaxListeners(0);

  constructor(options: ReplicaSetOptions) {
    this.#options = options;
    const { cluster, instance } = options;
    const { connection } = cluster;
    this.#subscriptions = [
      connection.subscribe(cluster.subject('beat', '*'), {
        callback: (error, message) => this.#hearBeat(error, message),
      }),
      connection.subscribe(cluster.subject('gateway', instance, '*'), {
        callback: (error, message) => this.#hear(error, message),
      }),
    ];
    this.#timer = setInterval(() => this.#look(), LOOK_MS);
    void this.#watchConnection();
  }

  get members(): readonly Member[] {
    return [...this.#members.values()];
  }

  get ready(): readonly Member[] {
    return this.members.filter((member) => takes(member));
  }

  get connected(): boolean {
    return this.#connected;
  }

  /** Models that somebody has, whether or not it is ready. */
  get models(): readonly string[] {
    return [...new Set(this.members.map(({ beat }) => beat.model))].toSorted();
  }

  member(name: string): Member | undefined {
    return this.#members.get(name);
  }

  /** Who has what an instance kept: another one, where that has handed it over. */
  ofInstance(instance: string): Member | undefined {
    return this.members.find(({ beat }) => beat.keeps?.includes(instance)) ?? this.#named(instance);
  }

  #named(instance: string): Member | undefined {
    return this.members.find(({ beat }) => beat.instance === instance);
  }

  /** Who takes a request for a model. @param accept leaves the others out */
  choose(model: string, request: RoutedRequest, accept: (member: Member) => boolean): Choice {
    const except = new Set(this.members.filter((member) => !accept(member)).map(({ beat }) => beat.name));
    return this.#tableOf(model).choose(request, except);
  }

  /** Sends a request to a replica. @throws ReplicaGoneError from its answer, when it goes away */
  ask(member: Member, request: AskedRequest, routed: RoutedRequest): GatewayCall {
    const { cluster, instance } = this.#options;
    const id = this.#nextCall++;
    const { name, instance: theirs, model } = member.beat;
    const table = this.#tableOf(model);
    const call = new GatewayCall(id, {
      maxPayload: cluster.maxPayload,
      send: (head, bytes) => {
        if (cluster.connection.isClosed()) return;
        // Where it is gone the NATS server says so there.
        cluster.connection.publish(cluster.subject('replica', theirs, 'ask', instance), encode(head, bytes), {
          reply: cluster.subject('gateway', instance, theirs),
        });
      },
      onEnd: () => {
        member.calls.delete(id);
        table.ended(name);
      },
    });
    member.calls.set(id, call);
    member.asked++;
    table.sent(name, routed);
    call.start(request);
    return call;
  }

  /** Resolves when a replica came or changed, or the time is over. */
  async news(ms: number, signal: AbortSignal): Promise<void> {
    const over = AbortSignal.any([signal, AbortSignal.timeout(Math.ceil(ms))]);
    await once(this.#news, 'news', { signal: over }).catch(() => {});
  }

  close(): void {
    clearInterval(this.#timer);
    for (const subscription of this.#subscriptions) subscription.unsubscribe();
    for (const member of this.members) this.#lose(member, 'the gateway shuts down');
  }

  #tableOf(model: string): ReplicaTable {
    return valueIn(this.#tables, model, () => new ReplicaTable());
  }

  #hearBeat(error: Error | null, { data, subject }: Msg): void {
    if (error) return;
    try {
      const { beat, prefixes } = readBeat(data);
      if (beat.protocol !== PROTOCOL || subject.split('.').at(-1) !== beat.name) return;
      this.#takeBeat(beat, prefixes);
    } catch (fault) {
      this.#options.onNote?.(`a beat that is none: ${String(fault)}`);
    }
  }

  #takeBeat(beat: Beat, prefixes: PrefixFilter | undefined): void {
    const known = this.#members.get(beat.name);
    if (known && (known.beat.instance !== beat.instance || known.beat.model !== beat.model)) {
      this.#lose(known, 'another process has its name');
    }
    if (beat.left) {
      const leaving = this.#named(beat.instance);
      if (leaving) this.#lose(leaving, 'it left');
      return;
    }
    let member = this.#members.get(beat.name);
    if (!member) {
      member = { beat, heardAt: 0, probedAt: 0, prefixes: undefined, calls: new Map(), asked: 0 };
      this.#members.set(beat.name, member);
      this.#options.onNote?.(`replica ${beat.name} is there: ${beat.model}, ${beat.slots} slots, ${beat.adapter}`);
    }
    member.beat = beat;
    member.heardAt = performance.now();
    member.prefixes = prefixes ?? member.prefixes;
    this.#tell(member);
    this.#news.emit('news');
  }

  #tell(member: Member): void {
    const { name, running, waiting, slots, room, model } = member.beat;
    const { prefixes } = member;
    this.#tableOf(model).tell({ name, running, waiting, slots, room, draining: !takes(member), prefixes });
  }

  #hear(error: Error | null, { data, subject, headers }: Msg): void {
    if (error) return;
    const member = this.#named(subject.split('.').at(-1) ?? '');
    if (!member) return;
    try {
      if (isNobody(data, headers?.code)) return this.#lose(member, 'its process is gone');
      const { head, bytes } = readToGateway(data);
      member.calls.get(head.id)?.hear(head, bytes);
    } catch (fault) {
      this.#options.onNote?.(`replica ${member.beat.name}: ${String(fault)}`);
    }
  }

  /** Who has been silent for too long? */
  #look(): void {
    const now = performance.now();
    const late = now - this.#lookedAt - LOOK_MS;
    this.#lookedAt = now;
    for (const member of this.members) {
      // What came while this thread was busy, or the NATS server away, hasn't been read yet.
      if (late > LOOK_MS || !this.#connected) {
        member.heardAt = now;
        for (const call of member.calls.values()) call.heardAt = now;
        continue;
      }
      this.#lookAt(member, now);
    }
  }

  #lookAt(member: Member, now: number): void {
    const { cluster, instance, hangMs = DEFAULT_HANG_MS } = this.#options;
    const { beat, heardAt, probedAt, calls } = member;
    const silence = now - heardAt;
    if (silence > SILENCE_MS) return this.#lose(member, `no sign of life for ${SILENCE_MS / 1000} s`);
    if (beat.lag > hangMs) return this.#lose(member, `it hangs: busy without a word for ${hangMs / 1000} s`);
    if (silence > PROBE_MS && now - probedAt > BEAT_MS) {
      member.probedAt = now;
      cluster.connection.publish(cluster.subject('replica', beat.instance, 'probe', instance), undefined, {
        reply: cluster.subject('gateway', instance, beat.instance),
      });
    }
    if (beat.lag > SLOW_MS) return this.#tell(member);
    for (const call of calls.values()) {
      if (now - call.heardAt > CALL_SILENCE_MS + beat.lag) call.fail('its answer stopped');
    }
  }

  #lose(member: Member, why: string): void {
    const { name, model } = member.beat;
    if (this.#members.get(name) === member) this.#members.delete(name);
    this.#tableOf(model).leave(name);
    this.#options.onNote?.(`replica ${name}: ${why}; ${member.calls.size} requests were there`);
    for (const call of member.calls.values()) call.fail(why);
  }

  async #watchConnection(): Promise<void> {
    for await (const { type } of this.#options.cluster.connection.status()) {
      if (type === 'disconnect') this.#connected = false;
      if (type !== 'reconnect') continue;
      this.#connected = true;
      this.#lookedAt = 0; // the next look begins anew
    }
  }
}

/** Whether it gets new requests. */
export const takes = ({ beat }: Member): boolean => !beat.draining && beat.status === 'ok' && beat.lag <= SLOW_MS;

/** The replica went away, or doesn't answer: another one may. */
export class ReplicaGoneError extends Error {
  override readonly name = 'ReplicaGoneError';
}

export interface AnswerHead {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** What is asked of a replica. */
export interface AskedRequest extends Omit<Extract<ToReplica, { kind: 'ask' }>, 'kind' | 'id' | 'bytes' | 'prefix'> {
  readonly prefix: Uint32Array;
  readonly body: Uint8Array;
}

export interface GatewayCallPlace {
  readonly send: (head: ToReplica, bytes?: Uint8Array) => void;
  readonly maxPayload: number;
  /** Once, however it ends. */
  readonly onEnd: () => void;
}

/** Hashes of a prompt's beginnings that travel with it. */
const MAX_HASHES = 4096;

/** A request that a replica has, and its answer: the head, then the bytes in order. */
export class GatewayCall {
  /** On the clock of performance.now(). */
  heardAt = performance.now();
  readonly #head: Promise<AnswerHead>;
  #settleHead!: { resolve(head: AnswerHead): void; reject(error: Error): void };
  readonly #chunks = new EventQueue<Uint8Array>();
  #seq = 0;
  #hasHead = false;
  #isOpen = true;

  constructor(
    private readonly id: number,
    private readonly place: GatewayCallPlace,
  ) {
    this.#head = new Promise((resolve, reject) => (this.#settleHead = { resolve, reject }));
    // Whoever waits for it hears of it.
    this.#head.catch(() => {});
  }

  start({ prefix, body, ...request }: AskedRequest): void {
    const { id, place } = this;
    const most = pieceBytes(place.maxPayload);
    const hashes = Buffer.from(prefix.slice(0, MAX_HASHES).buffer);
    const ask = { ...request, kind: 'ask', id, bytes: body.length } as const;
    place.send({ ...ask, prefix: hashes.toString('base64') }, body.subarray(0, most));
    for (let at = most, seq = 0; at < body.length; at += most, seq++) {
      place.send({ kind: 'body', id, seq }, body.subarray(at, at + most));
    }
  }

  /** @throws ReplicaGoneError */
  head(): Promise<AnswerHead> {
    return this.#head;
  }

  /** The answer's bytes. @throws ReplicaGoneError when they don't end */
  chunks(): AsyncGenerator<Uint8Array, void, undefined> {
    return this.#chunks.read();
  }

  hear(head: ToGateway, bytes: Uint8Array): void {
    if (!this.#isOpen) return;
    this.heardAt = performance.now();
    if (head.seq !== this.#seq++) return this.fail('a piece of its answer is missing');
    if (head.kind === 'gone') return this.#end(new ReplicaGoneError(head.why));
    if (head.kind === 'alive') return;
    if ((head.kind === 'head') === this.#hasHead) return this.fail("its answer's pieces are out of order");
    if (head.kind === 'head') {
      this.#hasHead = true;
      this.#settleHead.resolve({ status: head.status, headers: head.headers });
    } else if (head.kind === 'data') {
      this.#chunks.push(bytes);
    } else {
      this.#end();
    }
  }

  /** It is given up; the replica, if it lives, is told. */
  fail(why: string): void {
    if (!this.#isOpen) return;
    this.place.send({ kind: 'cancel', id: this.id });
    this.#end(new ReplicaGoneError(why));
  }

  #end(reason?: ReplicaGoneError): void {
    this.#isOpen = false;
    if (reason) this.#settleHead.reject(reason);
    this.#chunks.end(reason && { reason });
    this.place.onEnd();
  }
}
