import { isLoss } from '../../../base/errors.js';
import { encodeReason } from '../../../distributed/ports/port.js';
import { Presence } from '../../../distributed/ports/port_transport.js';
import type { LoadedModel } from '../model.js';
import {
  type CallEvent,
  channelNames,
  hostCalls,
  type HostFacts,
  type ShareWorld,
  type ToClient,
  type ToHost,
  type Without,
} from './share_protocol.js';

/** A driver that goes away each time has to be given up. */
const RECOVERIES = 3;

interface Client {
  readonly channel: BroadcastChannel;
  /** What ends its calls that run. */
  readonly calls: Map<number, AbortController>;
}

/** The side that has the model, a tab's or the worker's: answers calls of all tabs until none is left. */
export class ShareHost {
  readonly id = crypto.randomUUID();
  readonly #names;
  readonly #in: BroadcastChannel;
  readonly #all: BroadcastChannel;
  readonly #presence: Presence;
  readonly #clients = new Map<string, Client>();
  readonly #ended = new AbortController();
  #lock: string | undefined;
  #facts: HostFacts | undefined;
  /** Undefined while nobody asks. */
  #model: Promise<LoadedModel> | undefined;
  #freed: Promise<void> | undefined;
  #resting: ReturnType<typeof setTimeout> | undefined;
  #recoveries = 0;
  #mending: Promise<void> | undefined;

  /** @param own the client of this tab that it begins for, if any */
  constructor(
    key: string,
    private readonly world: ShareWorld,
    own?: string,
  ) {
    this.#names = channelNames(key);
    this.#in = world.channel(this.#names.host);
    this.#all = world.channel(this.#names.all);
    this.#presence = new Presence(world.locks);
    if (own !== undefined) this.#client(own);
  }

  /** Nobody is left, or the GPU is lost for good. */
  get ended(): boolean {
    return this.#ended.signal.aborted;
  }

  /** Loads and answers; resolves when all is freed. @throws as `load`, once all clients have been told */
  async run(): Promise<void> {
    const { signal } = this.#ended;
    try {
      this.#in.onmessage = ({ data }: MessageEvent) => this.#take(data as ToHost);
      this.#tell({ type: 'here' });
      const held = new Promise<string>((resolve) => this.#presence.hold(resolve));
      await this.#open();
      this.#lock = await held;
      for (const client of this.#clients.values()) this.#welcome(client);
      this.#rest();
      if (this.#clients.size === 0) this.#ended.abort(); // whoever put the worker in line is gone
      if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
    } catch (error) {
      if (!signal.aborted) {
        this.#tell({ type: 'failed', reason: encodeReason(error) });
        throw error;
      }
    } finally {
      this.#ended.abort();
      this.#in.close();
      this.#all.close();
      for (const client of this.#clients.keys()) this.leave(client);
      clearTimeout(this.#resting);
      await (await this.#model?.catch(() => undefined))?.dispose();
      await this.#freed;
      this.#presence.close();
    }
  }

  /** The model, which is loaded again where nobody asked for a time. */
  #open(): Promise<LoadedModel> {
    clearTimeout(this.#resting);
    return (this.#model ??= this.#load());
  }

  async #load(): Promise<LoadedModel> {
    try {
      await this.#freed;
      const model = await this.world.open({
        signal: this.#ended.signal,
        onProgress: (progress) => this.#tell({ type: 'progress', progress }),
        onWarning: (message) => this.#tell({ type: 'warning', message }),
      });
      const { info, adapters, reader, opened } = model;
      const { noTokenizer: why, contextLength } = reader;
      const noTokenizer = why && { code: why.code, message: why.message };
      const prompts = { tokenizerFiles: opened.tokenizerFiles, noTokenizer, contextLength };
      this.#facts = { info, prompts, adapters: adapters.list, stats: model.stats() };
      return model;
    } catch (error) {
      this.#model = undefined;
      throw error;
    }
  }

  /** From here on, unless somebody asks, the model has `idle` seconds. */
  #rest(): void {
    const { idle } = this.world;
    clearTimeout(this.#resting);
    if (idle === undefined || this.ended || [...this.#clients.values()].some(({ calls }) => calls.size > 0)) return;
    this.#resting = setTimeout(() => {
      this.#freed = this.#model?.then((model) => model.dispose()).catch(() => {});
      this.#model = undefined;
    }, idle * 1000);
  }

  #take(message: ToHost): void {
    const { client } = message;
    if (message.type === 'bye') return this.leave(client);
    if (message.type === 'hello') {
      const known = this.#clients.has(client);
      const entry = this.#client(client);
      if (!known) this.#presence.watch(message.lock, () => this.leave(client));
      if (this.#lock !== undefined) this.#welcome(entry);
      return;
    }
    if (message.host !== this.id) return;
    const entry = this.#clients.get(client);
    if (message.type === 'stop') return entry?.calls.get(message.call)?.abort();
    if (entry) void this.#run(entry, message).finally(() => this.#rest());
  }

  #client(id: string): Client {
    const known = this.#clients.get(id);
    if (known) return known;
    const client = { channel: this.world.channel(this.#names.one(id)), calls: new Map() };
    this.#clients.set(id, client);
    return client;
  }

  #welcome({ channel }: Client): void {
    this.#post(channel, { type: 'welcome', lock: this.#lock!, facts: this.#facts! });
  }

  /** A client closed or died: nobody hears what it asked for. */
  leave(id: string): void {
    const client = this.#clients.get(id);
    this.#clients.delete(id);
    const running = [...(client?.calls.values() ?? [])];
    client?.calls.clear();
    for (const call of running) call.abort();
    client?.channel.close();
    if (this.#clients.size === 0) this.#ended.abort();
  }

  async #run({ calls, channel }: Client, { client, call, name, given }: ToHost & { type: 'call' }): Promise<void> {
    const stop = new AbortController();
    calls.set(call, stop);
    const tell = (told: CallTold): void => {
      if (calls.get(call) === stop) this.#post(channel, { call, ...told });
    };
    const end = (told: CallTold): void => {
      if (calls.delete(call)) this.#post(channel, { call, ...told });
    };
    const hearing = {
      client,
      signal: stop.signal,
      onEvent: (event: CallEvent): void => tell({ type: 'event', event }),
    };
    for (let losses = 0; ; losses++) {
      const recoveries = this.#recoveries;
      try {
        const model = await this.#open();
        const run = hostCalls(model)[name] as (...all: readonly unknown[]) => Promise<unknown>;
        const value = await run(hearing, ...given);
        const stats = model.stats();
        this.#facts = { ...this.#facts!, stats };
        return end({ type: 'answer', value, stats });
      } catch (error) {
        if (!isLoss(error) || losses === RECOVERIES || stop.signal.aborted) {
          return end({ type: 'failure', reason: encodeReason(error) });
        }
        if (recoveries === this.#recoveries) await (this.#mending ??= this.#mend());
        if (this.ended) return;
        tell({ type: 'again' });
      }
    }
  }

  /** Where the GPU doesn't come back, this host is none any more: calls go on with the next one. */
  async #mend(): Promise<void> {
    try {
      await (await this.#model)?.recover({ signal: this.#ended.signal });
      this.#recoveries++;
    } catch {
      this.#ended.abort();
    } finally {
      this.#mending = undefined;
    }
  }

  #tell(message: Told): void {
    this.#post(this.#all, message);
  }

  #post(channel: BroadcastChannel, message: Told): void {
    if (!this.ended) channel.postMessage({ host: this.id, ...message });
  }
}

type Told = Without<ToClient, 'host'>;
type CallTold = Message<'event' | 'again' | 'answer' | 'failure'>;
type Message<Type> = Told extends infer Each ? (Each extends { type: Type } ? Omit<Each, 'call'> : never) : never;
