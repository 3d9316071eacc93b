import { encode } from 'cborg/extended';
import { messageOf, SplitkvError, usageError } from '../../base/errors.js';
import { modelName } from '../../engine/files/model_name.js';
import { serveFiles } from '../../engine/files/port_source.js';
import { decodeReason, encodeReason, type Port } from '../../distributed/ports/port.js';
import {
  type LinkAddress,
  type RankRequest,
  rankWorkerStarter,
  type SliceRequest,
  type StartWorker,
  type WorkerCommand,
  type WorkerHandle,
  type WorkerReport,
} from '../../engine/workers/worker_protocol.js';
import type { RankFacts } from '../../engine/contracts/rank.js';
import { type AdapterRequest, openDevice } from '../../gpu/index.js';
import { VERSION } from '../../base/version.js';
import { checkName, type Cluster, type ClusterOptions, connectCluster } from '../connect.js';
import { bridgePort, isLinkAddress, NatsLink } from '../links/nats_link.js';
import { isStored } from '../../engine/contracts/cluster_options.js';
import { brokenReport, checkCommand, placeHere } from './check_messages.js';
import { callRoll, type RankCard, readObject } from './rank_card.js';

export interface RankHostOptions {
  readonly cluster: ClusterOptions;
  readonly name: string;
  readonly adapter: AdapterRequest;
  /** A file URL of a folder of models, for those that the coordinator has in a folder; default: none. */
  readonly models?: string | undefined;
  /** Bytes of GPU memory that it gives. */
  readonly memory?: number | undefined;
  /** For tests: another version of splitkv. */
  readonly version?: string;
  /** What happens, in a line. */
  readonly note?: ((line: string) => void) | undefined;
  /** What it is doing, whenever that changes. */
  readonly changed?: ((state: RankState) => void) | undefined;
}

export interface RankState {
  /** Whether the cluster's server answers; where it doesn't, the rank tries again until it does. */
  readonly connected: boolean;
  /** Its part of a model; undefined: it is free. */
  readonly serving?: Serving;
  /** Why the last coordinator went. */
  readonly left?: string;
  /** Why it is no rank any more: the server turned it away, or the page that invited it is gone. */
  readonly refused?: string;
}

interface Serving {
  /** Of the model, by the last part of its address; undefined until the coordinator has said. */
  readonly model?: string;
  /** Its number among so many. */
  readonly rank?: number;
  readonly ranks?: number;
  /** Of its weights, while they are read. */
  readonly loadedBytes?: number;
  readonly totalBytes?: number;
  /** Of GPU memory, once they are. */
  readonly weightBytes?: number;
  readonly kvBytes?: number;
  /** Why its GPU is lost. */
  readonly lost?: string;
}

/** A device of this machine as a rank of a cluster: it waits until a model is loaded on it, and then for the next one. */
export interface RankHost {
  readonly card: RankCard;
  /** Leaves; resolves when the GPU is free. */
  close(): Promise<void>;
}

/**
 * Joins a cluster as a rank. GPU work is done in a worker: what is recorded for seconds keeps nobody here from saying that the rank lives.
 * @throws SplitkvError `usage` for a name that is taken, as `connectCluster`, `openDevice`
 */
export async function hostRank(options: RankHostOptions): Promise<RankHost> {
  const name = checkName(options.name, 'rank');
  const start = await rankWorkerStarter();
  const device = await openDevice(options.adapter);
  const { adapter } = device;
  const described = { ...adapter, name: device.name };
  device.dispose();
  const cluster = await connectCluster(options.cluster);
  try {
    const host = new Host(cluster, start, options, {
      name,
      id: crypto.randomUUID(),
      version: options.version ?? VERSION,
      adapter: described,
      ...(options.memory !== undefined && { memory: options.memory }),
      busy: false,
    });
    const others = await callRoll(cluster);
    if (others.some((other) => other.name === name && other.id !== host.card.id)) {
      throw usageError(`rank ${name}: another rank of this cluster has that name; give each its own (--name)`);
    }
    host.listen();
    return host;
  } catch (error) {
    await cluster.close();
    throw error;
  }
}

class Host implements RankHost {
  #session: Session | undefined;
  #state: RankState = { connected: true };
  #leaving = false;

  constructor(
    readonly cluster: Cluster,
    readonly start: StartWorker,
    readonly options: RankHostOptions,
    readonly own: RankCard,
  ) {}

  get card(): RankCard {
    return { ...this.own, busy: this.#session !== undefined };
  }

  listen(): void {
    const { connection, subject } = this.cluster;
    connection.subscribe(subject('roll'), {
      callback: (error, message) => void (error || message.respond(encode(this.card))),
    });
    connection.subscribe(subject('claim', this.own.name), {
      callback: (error, message) => {
        if (!error) message.respond(encode(this.#claimed(message.data)));
      },
    });
    void this.#watch();
  }

  /** Tells whether the server is there, until the connection is closed for good. */
  async #watch(): Promise<void> {
    const { connection } = this.cluster;
    for await (const { type } of connection.status()) {
      if (type === 'disconnect' || type === 'reconnect') this.#become({ connected: type === 'reconnect' });
    }
    const error = await connection.closed();
    if (this.#leaving) return;
    const why = this.cluster.hasServer ? "the cluster's server turned it away" : 'the page that invited it is gone';
    const refused = `${why}: ${error instanceof Error ? error.message : 'it closed the connection'}`;
    this.options.note?.(refused);
    this.#become({ connected: false, refused });
    this.#session?.end(refused);
  }

  #become(change: Partial<RankState>): void {
    this.#state = { ...this.#state, ...change };
    this.options.changed?.(this.#state);
  }

  /** Whoever claims the rank has it until the link ends. */
  #claimed(data: Uint8Array): { readonly ok: boolean; readonly why?: string } {
    try {
      const { id, version, link } = readObject(data);
      if (id !== this.own.id) return { ok: false, why: 'it was started anew' };
      if (version !== this.own.version)
        return { ok: false, why: `it runs splitkv ${this.own.version}, not ${String(version)}` };
      if (!isLinkAddress(link)) return { ok: false, why: 'the claim names no link' };
      if (this.#session) return { ok: false, why: 'it serves a model' };
      const session = new Session(this.cluster, link, this.start, this.options, (serving) => this.#become({ serving }));
      this.#session = session;
      this.options.note?.('a coordinator came');
      this.#become({ serving: {} });
      void session.over.then((why) => {
        this.#session = undefined;
        this.options.note?.(`free again: ${why}`);
        const { serving: _, ...free } = this.#state;
        this.#state = free;
        this.#become({ left: why });
      });
      return { ok: true };
    } catch (error) {
      return { ok: false, why: messageOf(error) };
    }
  }

  async close(): Promise<void> {
    this.#leaving = true;
    this.#session?.end('the rank leaves');
    await this.#session?.over;
    await this.cluster.close();
  }
}

/** Bytes of a coordinator's message, beside the cache that a prefill worker hands over. */
const MOST_BYTES = 64 * 2 ** 20;

/** One model's time on a rank: from a coordinator's claim until either of them ends it. */
class Session {
  /** Resolves with why, when the worker is gone. */
  readonly over: Promise<string>;
  readonly #worker: WorkerHandle;
  readonly #link: NatsLink;
  readonly #bridges: { close(): void }[] = [];
  #end: (why: string) => void = () => {};
  #ending = false;
  readonly #left = new AbortController();
  #serving: Serving = {};
  #loading: number | undefined;

  constructor(
    readonly cluster: Cluster,
    address: LinkAddress,
    start: StartWorker,
    readonly options: RankHostOptions,
    readonly told: (serving: Serving) => void,
  ) {
    const ended = new Promise<string>((resolve) => (this.#end = resolve));
    this.#worker = start({
      message: (report) => {
        this.#link.post(report);
        this.#heard(report);
      },
      ended: (why) => {
        if (!this.#ending) this.#link.post(brokenReport(why));
        this.end(why);
      },
    });
    const events = {
      message: (value: unknown) => this.#command(checkCommand(value)),
      ended: (why: string) => this.end(`the coordinator is gone: ${why}`),
    };
    this.#link = new NatsLink(cluster, address, events, MOST_BYTES);
    this.over = ended.then(async (why) => {
      // The worker waits for its GPU work, and for nothing else.
      this.#worker.post({ type: 'request', id: 0, request: { type: 'dispose' } }, []);
      await this.#worker.end();
      return why;
    });
  }

  end(why: string): void {
    if (this.#ending) return;
    this.#ending = true;
    this.#left.abort();
    for (const bridge of this.#bridges.splice(0)) bridge.close();
    this.#link.close();
    this.#end(why);
  }

  #command(command: WorkerCommand): void {
    if (command.type === 'abort') return this.#worker.post(command, []);
    const { id, request } = command;
    if (request.type === 'load' && request.slice.place.kind === 'url' && isStored(request.slice.place.href)) {
      return void this.#loadStored(id, request.slice, request.slice.place.href);
    }
    try {
      const { mine, transfer } = this.#asHere(request);
      if (request.type === 'load') this.#loads(id, request.slice);
      this.#worker.post({ type: 'request', id, request: mine }, transfer);
    } catch (error) {
      if (!(error instanceof SplitkvError)) throw error;
      this.#link.post({ type: 'failure', id, reason: encodeReason(error) });
    }
  }

  /** A slice of a model that the cluster's server keeps: the worker has no connection to it, this thread reads for it. */
  async #loadStored(id: number, slice: SliceRequest, where: string): Promise<void> {
    try {
      const { openStored } = await import('../store/model_store.js');
      const source = await openStored(this.cluster, where, this.#left.signal);
      if (this.#ending) return;
      const { port1: port, port2 } = new MessageChannel();
      serveFiles(source, port2 as unknown as Port);
      this.#bridges.push(port2);
      const { name, gguf, files } = source;
      const mine = { ...slice, place: { kind: 'port', name, gguf, files, port } } as const;
      this.#loads(id, mine);
      this.#worker.post({ type: 'request', id, request: { type: 'load', slice: mine } }, [port]);
    } catch (error) {
      if (!this.#ending) this.#link.post({ type: 'failure', id, reason: encodeReason(error) });
    }
  }

  #loads(id: number, { place, plan, rank }: SliceRequest): void {
    this.#loading = id;
    const where = place.kind === 'url' ? place.href : place.kind === 'port' ? place.name : 'files';
    this.#serve({ model: modelName(where).slice(0, 100), rank, ranks: plan.worldSize });
  }

  /** What the worker's reports tell people. */
  #heard(report: WorkerReport): void {
    if (report.type === 'progress') {
      const { loadedBytes, totalBytes } = report.progress;
      this.#serve({ ...this.#serving, loadedBytes, totalBytes });
    } else if (report.type === 'lost') {
      const reason = decodeReason(report.reason);
      this.#serve({ ...this.#serving, lost: reason instanceof Error ? reason.message : String(reason) });
    } else if (report.type === 'answer' && report.id === this.#loading) {
      const { weightBytes, kvBytes } = report.result as RankFacts;
      // The cache may be kept in bytes and handed over as floats.
      this.#link.largest = MOST_BYTES + 4 * kvBytes;
      const { loadedBytes: _, totalBytes: __, ...serving } = this.#serving;
      this.#serve({ ...serving, weightBytes, kvBytes });
    }
  }

  #serve(serving: Serving): void {
    this.#serving = serving;
    if (!this.#ending) this.told(serving);
  }

  /** What the coordinator asks, as this machine's worker understands it. */
  #asHere(request: RankRequest): { readonly mine: RankRequest; readonly transfer: Transferable[] } {
    switch (request.type) {
      case 'open': {
        const { variants } = request.adapter;
        const adapter = { ...this.options.adapter, ...(variants && { variants }) };
        return { mine: { type: 'open', adapter }, transfer: [] };
      }
      case 'load': {
        const place = placeHere(request.slice.place, this.options.models);
        return { mine: { type: 'load', slice: { ...request.slice, place } }, transfer: [] };
      }
      case 'connect':
      case 'exchanges': {
        const { ports, transfer } = this.#ports(request.ports as ReadonlyMap<number, LinkAddress>);
        return request.type === 'connect'
          ? { mine: { type: 'connect', ports, sharedMemory: false }, transfer }
          : { mine: { ...request, ports }, transfer };
      }
      default:
        return { mine: request, transfer: [] };
    }
  }

  /** Ports that are joined to links with the peers; those that there were end. */
  #ports(peers: ReadonlyMap<number, LinkAddress>): {
    readonly ports: ReadonlyMap<number, MessagePort>;
    readonly transfer: Transferable[];
  } {
    for (const bridge of this.#bridges.splice(0)) bridge.close();
    const ports = new Map<number, MessagePort>();
    for (const [peer, address] of peers) {
      const { port1, port2 } = new MessageChannel();
      ports.set(peer, port1);
      this.#bridges.push(bridgePort(this.cluster, address, port2 as unknown as Port));
    }
    return { ports, transfer: [...ports.values()] };
  }
}
