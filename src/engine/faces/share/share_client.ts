import {
  abortedError,
  deviceLostError,
  messageOf,
  SplitkvError,
  unsupportedError,
  usageError,
} from '../../../base/errors.js';
import { decodeReason } from '../../../distributed/ports/port.js';
import { Presence } from '../../../distributed/ports/port_transport.js';
import type { LoadOptions } from '../../contracts/api.js';
import { ShareHost } from './share_host.js';
import {
  type Answered,
  type CallEvent,
  type CallName,
  channelNames,
  type Given,
  type HostFacts,
  type ShareWorld,
  type ToClient,
  type ToHost,
  type Without,
} from './share_protocol.js';

/** A call without an answer. */
interface Asked {
  readonly name: CallName;
  readonly given: readonly unknown[] | (() => Promise<readonly unknown[]>);
  readonly onEvent: (event: CallEvent) => void;
  readonly settle: (end: { readonly value: unknown } | { readonly error: unknown }) => void;
  /** What was told of it, in short; a host that begins anew tells it again, as far as `at`. */
  readonly told: string[];
  at: number;
  stopped: boolean;
}

/**
 * A tab's side that asks. It waits in the line for the host's lock as well: where the host ends, the first in line becomes it, and
 * every client asks the new one what has no answer yet.
 */
export class ShareClient {
  readonly id = crypto.randomUUID();
  /** Of the host's model, once there is one. */
  readonly ready: Promise<void>;
  facts: HostFacts | undefined;
  readonly #out: BroadcastChannel;
  readonly #in: readonly BroadcastChannel[];
  readonly #presence: Presence;
  readonly #left = new AbortController();
  readonly #calls = new Map<number, Asked>();
  readonly #answers = new Set<Promise<unknown>>();
  #next = 0;
  #lock: string | undefined;
  #host: string | undefined;
  #own: { readonly host: ShareHost; readonly done: Promise<void> } | undefined;
  readonly #failed = new Set<string>();
  #inLine = false;
  #closing = false;
  #opened!: { resolve(): void; reject(error: unknown): void };

  constructor(
    private readonly key: string,
    private readonly world: ShareWorld,
    private readonly events: Pick<LoadOptions, 'onProgress' | 'onWarning'>,
  ) {
    const names = channelNames(key);
    this.#out = world.channel(names.host);
    this.#in = [names.all, names.one(this.id)].map((name) => world.channel(name));
    for (const channel of this.#in) {
      channel.onmessage = ({ data }: MessageEvent) => this.#take(data as ToClient);
    }
    this.ready = new Promise((resolve, reject) => (this.#opened = { resolve, reject }));
    this.ready.catch(() => {}); // whoever loads awaits it
    this.#presence = new Presence(world.locks);
    this.#presence.hold((lock) => {
      this.#lock = lock;
      this.#hello();
    });
    this.#line();
  }

  /**
   * Asks the host, whichever it is by then.
   * @param given a function is called for every host
   * @param onEvent hears each event once
   */
  ask<Name extends CallName>(
    name: Name,
    given: Given<Name> | (() => Promise<Given<Name>>),
    signal?: AbortSignal,
    onEvent: (event: CallEvent) => void = () => {},
  ): Promise<Answered<Name>> {
    if (this.#closing) return Promise.reject(disposed());
    const id = this.#next++;
    const stop = (): void => this.#stop(id);
    const answer = new Promise<unknown>((resolve, reject) => {
      this.#calls.set(id, {
        name,
        given,
        onEvent,
        settle: (end) => {
          if (!this.#calls.delete(id)) return;
          signal?.removeEventListener('abort', stop);
          if ('error' in end) reject(end.error as Error);
          else resolve(end.value);
        },
        told: [],
        at: 0,
        stopped: signal?.aborted ?? false,
      });
    });
    this.#answers.add(answer);
    answer.catch(() => {}).finally(() => void this.#answers.delete(answer));
    signal?.addEventListener('abort', stop);
    this.#line();
    void this.#send(id);
    return answer as Promise<Answered<Name>>;
  }

  /** Ends what runs, and leaves the others alone; resolves when that is done, and the model freed where nobody else uses it. */
  async close(): Promise<void> {
    if (!this.#closing) {
      this.#closing = true;
      this.#opened.reject(disposed());
      for (const id of this.#calls.keys()) this.#stop(id);
      if (this.#host === undefined) this.#failAll(abortedError('the call'));
      await Promise.allSettled(this.#answers);
      this.#post({ type: 'bye' });
      this.#own?.host.leave(this.id);
      for (const channel of [this.#out, ...this.#in]) channel.close();
      this.#presence.close();
      this.#left.abort();
    }
    if (this.#own?.host.ended) await this.#own.done;
  }

  /** Becomes the host when its turn comes. */
  #line(): void {
    if (this.#inLine || this.#closing) return;
    this.#inLine = true;
    const { signal } = this.#left;
    const stand = async (): Promise<void> => {
      await this.world.putWorkerInLine?.();
      await this.world.locks.request(this.key, { signal }, () => {
        const host = new ShareHost(this.key, this.world, this.id);
        const done = host.run().catch((error: unknown) => {
          this.#failed.add(host.id); // before its own message comes
          this.#fail(error);
        });
        this.#own = { host, done };
        return done;
      });
    };
    stand()
      .catch((error: unknown) => {
        if (signal.aborted) return;
        this.#fail(
          unsupportedError(`share: this page may hold no Web Locks (${messageOf(error)}): load without share`),
        );
      })
      .finally(() => {
        this.#inLine = false;
        if (this.#calls.size > 0) this.#line();
      });
  }

  #hello(): void {
    if (this.#lock !== undefined) this.#post({ type: 'hello', lock: this.#lock });
  }

  #take(message: ToClient): void {
    const { host } = message;
    const isLoading = this.facts === undefined;
    switch (message.type) {
      case 'here':
        return this.#hello();
      case 'progress':
        if (isLoading) this.events.onProgress?.(message.progress);
        return;
      case 'warning':
        return this.events.onWarning?.(message.message);
      case 'failed':
        if (!this.#failed.has(host)) this.#fail(decodeReason(message.reason));
        return;
      case 'welcome':
        return this.#welcome(message);
    }
    const asked = this.#calls.get(message.call);
    if (host !== this.#host || !asked) return;
    switch (message.type) {
      case 'event':
        return this.#told(message.call, asked, message.event);
      case 'again':
        asked.at = 0;
        return;
      case 'answer':
        this.facts = { ...this.facts!, stats: message.stats };
        return asked.settle({ value: message.value });
      case 'failure':
        return asked.settle({ error: decodeReason(message.reason) });
    }
  }

  #welcome({ host, lock, facts }: ToClient & { type: 'welcome' }): void {
    if (host === this.#host) return;
    this.#host = host;
    this.facts = facts;
    this.#presence.watch(lock, () => {
      if (this.#host !== host) return;
      this.#host = undefined;
      if (this.#closing) return this.#failAll(abortedError('the call'));
      this.#hello();
    });
    if (this.#closing) return this.#failAll(abortedError('the call'));
    this.#opened.resolve();
    for (const id of this.#calls.keys()) void this.#send(id);
  }

  async #send(id: number): Promise<void> {
    const host = this.#host;
    const asked = this.#calls.get(id);
    if (host === undefined || !asked) return;
    asked.at = 0;
    try {
      const given = typeof asked.given === 'function' ? await asked.given() : asked.given;
      if (this.#host !== host || this.#calls.get(id) !== asked) return;
      this.#post({ type: 'call', host, call: id, name: asked.name, given });
      this.#stopAgain(id, asked);
    } catch (error) {
      asked.settle({ error: error instanceof SplitkvError ? error : notSent(error) });
    }
  }

  #told(id: number, asked: Asked, event: CallEvent): void {
    const short = inShort(event);
    const before = asked.told[asked.at++];
    if (before === undefined) {
      asked.told.push(short);
      asked.onEvent(event);
    } else if (before !== short) {
      this.#stop(id);
      asked.settle({ error: otherBits() });
    }
    this.#stopAgain(id, asked);
  }

  #stop(id: number): void {
    const asked = this.#calls.get(id);
    if (asked) asked.stopped = true;
    if (this.#host !== undefined) this.#post({ type: 'stop', host: this.#host, call: id });
  }

  /** A host that begins anew stops where the one before was told to. */
  #stopAgain(id: number, { stopped, told, at }: Asked): void {
    if (stopped && at >= told.length) this.#stop(id);
  }

  /** There is no model: neither for the load that waits for it nor for what was asked. */
  #fail(error: unknown): void {
    this.#opened.reject(error);
    this.#failAll(error);
  }

  #failAll(error: unknown): void {
    for (const asked of this.#calls.values()) asked.settle({ error });
  }

  #post(message: Without<ToHost, 'client'>): void {
    if (!this.#left.signal.aborted) this.#out.postMessage({ client: this.id, ...message });
  }
}

const disposed = (): SplitkvError => usageError('this model was disposed; load it again');

const notSent = (error: unknown): SplitkvError =>
  usageError(
    `share: the tab that has the model can't be sent this (${messageOf(error)}): give plain data, and images as URLs, bytes or blobs`,
  );

const otherBits = (): SplitkvError =>
  deviceLostError(
    'the tab with the model is gone, and the one that took over computes other bits, as on another GPU: ask again',
  );

/** What is the same where it is told again. Calls of tools get another id. */
const inShort = (event: CallEvent): string =>
  'delta' in event
    ? JSON.stringify(event.delta, (name, value: unknown) => (name === 'id' ? undefined : value))
    : String(event.position);
