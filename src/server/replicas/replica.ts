import { randomBytes } from 'node:crypto';
import type { Msg, Subscription } from '@nats-io/nats-core';
import { usageError } from '../../base/errors.js';
import type { Cluster } from '../../cluster/connect.js';
import { isName } from '../../cluster/names.js';
import { PrefixRecord } from '../../cluster/routing/prefix_record.js';
import type { ServingModel } from '../../index.js';
import type { ApiServer } from '../api_server.js';
import { fingerprintOf } from '../fingerprint.js';
import type { Beats, Told } from './beats.js';
import {
  ALIVE_MS,
  BEAT_MS,
  encode,
  INSTANCE,
  isNobody,
  MAX_KEEPS,
  PROTOCOL,
  readBeat,
  readToReplica,
  type ToReplica,
} from './messages.js';
import { handOver, takeOver } from './handover.js';
import { ReplicaCall } from './replica_call.js';

export interface ReplicaOptions {
  readonly cluster: Cluster;
  readonly beats: Beats;
  /** Of its own in the cluster. */
  readonly name: string;
  readonly instance: string;
  /** Takes the requests; it knows the gateway's clients by what the gateway says. */
  readonly server: ApiServer;
  readonly model: ServingModel;
  readonly version: string;
  /** Answers that may wait. */
  readonly maxQueue: number;
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

/** A server that takes requests from gateways by NATS: it says how it is, and answers what comes. */
export class Replica {
  readonly #options: ReplicaOptions;
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
  #idle: (() => void) | undefined;

  private constructor(options: ReplicaOptions) {
    this.#options = options;
    const { cluster, instance, model } = options;
    this.#record = new PrefixRecord(model.info.prefixCaching ? model.info.kvBlocks : 0);
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

  /** @throws SplitkvError `usage` where another replica of this name is there */
  static async join(options: ReplicaOptions): Promise<Replica> {
    await checkAlone(options);
    const replica = new Replica(options);
    // From here on gateways may know it.
    await options.cluster.connection.flush();
    return replica;
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

  /** Takes nothing more, waits up to `graceMs` for what is under way, and leaves the rest to other replicas. */
  async close(graceMs: number): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#draining = true;
    this.#tell();
    await this.#untilIdle(graceMs);
    for (const call of this.#calls.values()) call.giveUp('it shuts down');
    await this.#handOver();
    this.#stop();
    await this.#options.cluster.connection.flush().catch(() => {});
    this.#subscription.unsubscribe();
    await this.#options.beats.leave(this.#beat());
  }

  /** What it keeps for clients goes to another replica, which gateways then hear of. */
  async #handOver(): Promise<void> {
    const { cluster, instance, server, onNote } = this.#options;
    const { modelName: model, responses } = server;
    if (cluster.connection.isClosed()) return;
    const { size } = responses;
    const heir = await handOver({ cluster, instance, model, responses, keeps: this.#keeps });
    if (size === 0) return;
    onNote?.(
      heir === undefined
        ? `${size} kept responses go with it: no replica takes them`
        : `${heir} has its ${size} kept responses`,
    );
    // Whoever asks for one meanwhile is told by the heir's next beat where it is.
    if (heir !== undefined) await new Promise((resolve) => setTimeout(resolve, BEAT_MS));
  }

  #stop(): void {
    for (const timer of this.#timers) clearInterval(timer);
  }

  #untilIdle(ms: number): Promise<void> {
    if (this.#calls.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#idle = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #tell(): void {
    const { model, beats, cluster } = this.#options;
    // It broke off for good.
    if (cluster.connection.isClosed()) return this.#stop();
    const { recoveriesTotal } = model.metrics;
    if (recoveriesTotal !== this.#recoveries) this.#record.clear();
    this.#recoveries = recoveriesTotal;
    const news = this.#toldPrefixes ? undefined : this.#record.filter();
    this.#toldPrefixes = true;
    beats.tell(this.#beat(), news);
  }

  #beat(): Told['beat'] {
    const { name, instance, server, model, version, maxQueue } = this.#options;
    const { info, metrics, failure } = model;
    const { running, unfinished } = metrics;
    return {
      protocol: PROTOCOL,
      name,
      instance,
      model: server.modelName,
      version,
      fingerprint: fingerprintOf(version, info),
      adapter: info.adapter?.name ?? '',
      status: failure !== undefined ? 'failed' : metrics.recovering ? 'recovering' : 'ok',
      slots: info.slots,
      room: info.slots + maxQueue,
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
      if (isNobody(message.data, message.headers?.code)) return this.#dropGateway(gateway);
      if (!INSTANCE.test(gateway)) return;
      if (what === 'heir') return void message.respond(this.#takeOver(message.data));
      if (what !== 'ask') return;
      const { head, bytes } = readToReplica(message.data);
      this.#hear(gateway, head, bytes);
    } catch (fault) {
      this.#options.onStrange?.(fault);
    }
  }

  #takeOver(data: Uint8Array): 'yes' | 'no' {
    const { cluster, server } = this.#options;
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
    const { cluster, server, instance } = this.#options;
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
      onEnd: () => {
        this.#calls.delete(key);
        if (this.#calls.size === 0) this.#idle?.();
      },
    });
    if (this.#closed || this.#calls.size >= MAX_CALLS) return call.giveUp('it takes nothing more');
    this.#calls.set(key, call);
    this.#use(head.prefix);
    call.start(bytes);
  }

  #use(prefix: string): void {
    const bytes = Buffer.from(prefix, 'base64');
    if (bytes.length === 0) return;
    const hashes = Uint32Array.from({ length: Math.floor(bytes.length / 4) }, (_, at) => bytes.readUInt32LE(at * 4));
    this.#record.use(hashes);
    this.#toldPrefixes = false;
  }

  /** Nobody waits for these. */
  #dropGateway(gateway: string): void {
    for (const [key, call] of this.#calls) if (key.startsWith(`${gateway} `)) call.cancel();
  }
}

/** For as long as another one's beat may take. */
async function checkAlone({ cluster, name, instance }: ReplicaOptions): Promise<void> {
  if (!isName(name)) throw usageError(`--name ${name.slice(0, 80)}: expected 1 to 63 letters, digits, - and _`);
  let other: string | undefined;
  const subscription = cluster.connection.subscribe(cluster.subject('beat', name), {
    callback: (_error, message) => {
      try {
        const { beat } = readBeat(message.data);
        if (beat.instance !== instance && !beat.left) other = beat.instance;
      } catch {
        // No beat.
      }
    },
  });
  await new Promise((resolve) => setTimeout(resolve, BEAT_MS * 1.5));
  subscription.unsubscribe();
  if (other === undefined) return;
  throw usageError(`--name ${name}: a replica of this name is in cluster ${cluster.name} already; choose another name`);
}
