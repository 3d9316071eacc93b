import { randomBytes } from 'node:crypto';
import type { Msg, Subscription } from '@nats-io/nats-core';
import { usageError } from '../../base/errors.js';
import { VERSION } from '../../base/version.js';
import { pause, until } from '../../base/waits.js';
import { checkName, type Cluster, type ClusterOptions, connectCluster } from '../../cluster/connect.js';
import { PrefixRecord } from '../../cluster/routing/prefixes.js';
import type { ServingModel } from '../../index.js';
import { ApiServer, type ServerOptions } from '../api_server.js';
import { DEFAULT_BODY } from '../front.js';
import { Beats, heardBeats, type Told } from './beats.js';
import {
  ALIVE_MS,
  BEAT_MS,
  encode,
  INSTANCE,
  isNobody,
  MAX_KEEPS,
  PROTOCOL,
  readToReplica,
  type ToReplica,
} from './messages.js';
import { handOver, takeOver } from './handover.js';
import { ReplicaCall } from './replica_call.js';

export interface ReplicaOptions {
  readonly cluster: ClusterOptions;
  /** Of its own in the cluster: 1 to 63 letters, digits, - and _. */
  readonly name: string;
  readonly model: ServingModel;
  /** What clients call the model, and its limits; who may ask is the gateways' business. */
  readonly server: Omit<ServerOptions, 'apiKeys' | 'priorityKeys' | 'port'>;
  /** Hears of messages that are none. */
  readonly onStrange?: (error: unknown) => void;
  /** Hears what becomes of what it keeps: a line for the log. */
  readonly onNote?: (line: string) => void;
}

/** Between two looks at what is to be told. */
const TELL_MS = BEAT_MS / 2;
/** Requests of gateways at once, whose bodies may be on their way. */
const MAX_CALLS = 4096;

/** What a process calls itself each time it starts: 8 hexadecimal digits. */
export const newInstance = (): string => randomBytes(4).toString('hex');

/** A gateway may add a field to a body. */
const ADDED = 1024;

/** A model's server that takes requests from gateways by NATS: it says how it is, and answers what comes. */
export class Replica {
  /** By gateway and number. */
  readonly #calls = new Map<string, ReplicaCall>();
  readonly #record: PrefixRecord;
  readonly #subscription: Subscription;
  readonly #timers: NodeJS.Timeout[];
  #recoveries = 0;
  /** Instances that left, whose responses are here. */
  #keeps: readonly string[] = [];
  #toldPrefixes = false;
  #draining = false;
  #closed = false;

  private constructor(
    private readonly options: ReplicaOptions,
    private readonly instance: string,
    private readonly cluster: Cluster,
    private readonly server: ApiServer,
    private readonly beats: Beats,
  ) {
    const { info } = options.model;
    this.#record = new PrefixRecord(info.prefixCaching ? info.kvBlocks : 0);
    this.#subscription = cluster.connection.subscribe(cluster.subject('replica', instance, '>'), {
      callback: (error, message) => this.#take(error, message),
    });
    this.#timers = [
      setInterval(() => this.#tell(), TELL_MS),
      setInterval(() => {
        for (const call of this.#calls.values()) call.alive();
      }, ALIVE_MS),
    ];
    this.#tell();
  }

  /**
   * Makes a model a replica of a cluster.
   * @throws SplitkvError as `connectCluster`; `usage` for a name that is none, or where another replica of this name is there
   */
  static async join(options: ReplicaOptions): Promise<Replica> {
    const { cluster: where, model, server: given } = options;
    const name = checkName(options.name, 'replica');
    const instance = newInstance();
    const cluster = await connectCluster(where);
    const server = new ApiServer({
      ...given,
      priorityKeys: 'all', // gateways check who may have one
      maxBodyBytes: (given.maxBodyBytes ?? DEFAULT_BODY) + ADDED,
      allowedHosts: ['*'],
      place: instance,
    });
    server.open(model);
    let beats: Beats | undefined;
    try {
      const { signal: _, ...own } = where;
      beats = await Beats.start(own);
      const others = await heardBeats(cluster, name);
      if (others.some((beat) => beat.instance !== instance && !beat.left)) {
        throw usageError(
          `--name ${name}: a replica of this name is in cluster ${cluster.name} already; choose another name`,
        );
      }
      const replica = new Replica(options, instance, cluster, server, beats);
      // From here on gateways may know it.
      await cluster.connection.flush();
      return replica;
    } catch (error) {
      await beats?.stop();
      await server.close();
      await cluster.close();
      throw error;
    }
  }

  /** Requests under way. */
  get live(): number {
    return this.#calls.size;
  }

  /** Gateways send nothing more; what they send before they know is taken. `close` follows. */
  drain(): void {
    this.#draining = true;
    this.#tell();
  }

  /** Takes nothing more, waits up to `graceMs` for what is under way, leaves the rest to other replicas, and then the cluster. */
  async close(graceMs: number): Promise<void> {
    if (!this.#closed) await this.#leave(graceMs);
    await this.server.close();
    await this.cluster.close();
  }

  /** Its connections break, as when its process is killed: nobody is told anything. */
  async vanish(): Promise<void> {
    await Promise.all([this.cluster.connection.close(), this.beats.stop()]);
    await this.server.close();
  }

  async #leave(graceMs: number): Promise<void> {
    this.#closed = true;
    this.drain();
    await until(() => this.#calls.size === 0, graceMs);
    for (const call of this.#calls.values()) call.giveUp('it shuts down');
    await this.#handOver();
    this.#stop();
    await this.cluster.connection.flush().catch(() => {});
    this.#subscription.unsubscribe();
    await this.beats.leave(this.#beat());
  }

  /** What it keeps for clients goes to another replica, which gateways then hear of. */
  async #handOver(): Promise<void> {
    const { cluster, instance } = this;
    const { modelName: model, responses } = this.server;
    if (cluster.connection.isClosed()) return;
    const { size } = responses;
    const heir = await handOver({ cluster, instance, model, responses, keeps: this.#keeps });
    if (size === 0) return;
    this.options.onNote?.(
      heir === undefined
        ? `${size} kept responses go with it: no replica takes them`
        : `${heir} has its ${size} kept responses`,
    );
    // Whoever asks for one meanwhile is told by the heir's next beat where it is.
    if (heir !== undefined) await pause(BEAT_MS);
  }

  #stop(): void {
    for (const timer of this.#timers) clearInterval(timer);
  }

  #tell(): void {
    // It broke off for good.
    if (this.cluster.connection.isClosed()) return this.#stop();
    const { recoveriesTotal } = this.options.model.metrics;
    if (recoveriesTotal !== this.#recoveries) this.#record.clear();
    this.#recoveries = recoveriesTotal;
    const news = this.#toldPrefixes ? undefined : this.#record.filter();
    this.#toldPrefixes = true;
    this.beats.tell(this.#beat(), news);
  }

  #beat(): Told['beat'] {
    const { instance, server } = this;
    const { name, model } = this.options;
    const { info, metrics, failure } = model;
    const { running, unfinished } = metrics;
    return {
      protocol: PROTOCOL,
      name,
      instance,
      model: server.modelName,
      version: VERSION,
      fingerprint: server.fingerprint,
      adapter: info.adapter?.name ?? '',
      status: failure !== undefined ? 'failed' : metrics.recovering ? 'recovering' : 'ok',
      slots: info.slots,
      room: server.places,
      running,
      waiting: Math.max(0, unfinished - running),
      draining: this.#draining,
      left: false,
      ...(this.#keeps.length > 0 && { keeps: [...this.#keeps] }),
      promptTokens: metrics.promptTokensTotal,
      cachedTokens: metrics.cachedTokensTotal,
      generatedTokens: metrics.generatedTokensTotal,
    };
  }

  #take(error: Error | null, message: Msg): void {
    if (error) return;
    try {
      // The last part says what it is, and of which gateway.
      const [gateway = '', what] = message.subject.split('.').slice(-2).toReversed();
      if (isNobody(message.data, message.headers?.code)) {
        // Nobody waits for these.
        for (const [key, call] of this.#calls) if (key.startsWith(`${gateway} `)) call.cancel();
        return;
      }
      if (!INSTANCE.test(gateway)) return;
      if (what === 'heir') return void message.respond(this.#takeOver(message.data));
      if (what !== 'ask') return;
      const { head, bytes } = readToReplica(message.data);
      this.#hear(gateway, head, bytes);
    } catch (fault) {
      this.options.onStrange?.(fault);
    }
  }

  #takeOver(data: Uint8Array): 'yes' | 'no' {
    const { cluster, server } = this;
    if (this.#draining) return 'no';
    return takeOver({ cluster, model: server.modelName, responses: server.responses }, data, (keeps) => {
      this.#keeps = [...new Set([...keeps, ...this.#keeps])].slice(0, MAX_KEEPS);
      this.#tell();
    });
  }

  #hear(gateway: string, head: ToReplica, bytes: Uint8Array): void {
    const key = `${gateway} ${head.id}`;
    if (head.kind === 'cancel') {
      this.#calls.get(key)?.cancel();
      return;
    }
    if (head.kind === 'body') {
      this.#calls.get(key)?.body(head.seq, bytes);
      return;
    }
    // A message that came twice.
    if (this.#calls.has(key)) return;
    const { cluster, server, instance } = this;
    const call = new ReplicaCall(head, {
      connect: (client) => server.connect(client),
      maxPayload: cluster.maxPayload,
      flush: () => cluster.connection.flush(),
      send: (reply, data) => {
        if (cluster.connection.isClosed()) return;
        // Where that gateway is gone the NATS server says so there.
        cluster.connection.publish(cluster.subject('gateway', gateway, instance), encode(reply, data), {
          reply: cluster.subject('replica', instance, 'lost', gateway),
        });
      },
      onEnd: () => this.#calls.delete(key),
    });
    if (this.#closed || this.#calls.size >= MAX_CALLS) return call.giveUp('it takes nothing more');
    this.#calls.set(key, call);
    this.#use(head.prefix);
    call.start(bytes);
  }

  #use(prefix: string): void {
    const bytes = Uint8Array.from(Buffer.from(prefix, 'base64'));
    if (bytes.length === 0) return;
    this.#record.use(new Uint32Array(bytes.buffer, 0, Math.floor(bytes.length / 4)));
    this.#toldPrefixes = false;
  }
}
