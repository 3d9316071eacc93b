import { type KV, Kvm } from '@nats-io/kv';
import { JetStreamApiError, jetstreamManager, StorageType } from '@nats-io/jetstream';
import { ioError, limitError, messageOf, SplitkvError, throwIfAborted, usageError } from '../../base/errors.js';
import { inParallel, pause } from '../../base/waits.js';
import type { Cluster } from '../connect.js';

/** A value of the bucket, and the number that it has there: a later one is larger. */
export interface Entry {
  readonly value: Uint8Array<ArrayBuffer>;
  readonly revision: number;
}

/** What is asked at the same time. */
export const WIDTH = 8;
/** A server that is started anew answers after a while. */
const TRIES = 6;
const PAUSE_MS = 1000;
const TIMEOUT_MS = 20_000;

/** JetStream's codes: no room for the account or the server, a stream that is full, and one that can't be made so large. */
const FULL = [10002, 10023, 10028, 10047, 10077];
const WRONG_REVISION = [10071, 10164];
const NOT_ENABLED = [10039, 10076];
/** It is there, and was made with other options. */
const OTHERWISE = [10058];

/** The key-value bucket that a cluster's NATS server keeps models in. Every call ends, and says what is wrong where something is. */
export class Bucket {
  private constructor(
    readonly cluster: Cluster,
    readonly name: string,
    readonly kv: KV,
  ) {}

  /**
   * Makes it where there is none yet.
   * @throws SplitkvError `io` where the server keeps nothing, `limit`, `usage` where the account may not
   */
  static async open(cluster: Cluster): Promise<Bucket> {
    if (!cluster.hasServer) throw usageError('pages without a server keep no models: name a URL or a model of the Hub');
    const name = `splitkv-${cluster.name}-models`;
    const options = { history: 1, storage: StorageType.File, allow_direct: true, timeout: TIMEOUT_MS };
    const kvm = new Kvm(cluster.connection);
    try {
      // One that was made by hand, with several replicas, say, is taken as it is.
      const other = (error: unknown) =>
        isApiError(error, OTHERWISE) ? kvm.open(name, options) : Promise.reject(error);
      return new Bucket(cluster, name, await kvm.create(name, options).catch(other));
    } catch (error) {
      throw storeError(error, cluster);
    }
  }

  async get(key: string, signal?: AbortSignal): Promise<Entry | undefined> {
    const entry = await this.#patiently(() => this.kv.get(key), signal);
    if (!entry || entry.operation !== 'PUT') return undefined;
    return { value: entry.value as Uint8Array<ArrayBuffer>, revision: entry.revision };
  }

  /** @param revision that it has now (0: none): another one is there otherwise, and nothing is put @returns its new one */
  async put(key: string, value: Uint8Array, signal?: AbortSignal, revision?: number): Promise<number | undefined> {
    const options = { timeout: TIMEOUT_MS, ...(revision !== undefined && { previousSeq: revision }) };
    try {
      return await this.#patiently(() => this.kv.put(key, value, options), signal);
    } catch (error) {
      if (revision !== undefined && isApiError(error, WRONG_REVISION)) return undefined;
      throw error;
    }
  }

  /** Those of a beginning, `model.`. */
  async keys(beginning: string, signal?: AbortSignal): Promise<string[]> {
    return this.#patiently(async () => {
      const keys: string[] = [];
      for await (const key of await this.kv.keys(`${beginning}>`)) keys.push(key);
      return keys;
    }, signal);
  }

  /** Removes keys, and that they were there. */
  async remove(keys: readonly string[], signal?: AbortSignal): Promise<void> {
    const { streams } = await jetstreamManager(this.cluster.connection, { timeout: TIMEOUT_MS });
    const filter = (key: string): string => `$KV.${this.name}.${key}`;
    await inParallel(keys, WIDTH, (key) =>
      this.#patiently(() => streams.purge(`KV_${this.name}`, { filter: filter(key) }), signal),
    );
  }

  async bytes(signal?: AbortSignal): Promise<number> {
    return this.#patiently(async () => (await this.kv.status()).size, signal);
  }

  async #patiently<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (let tries = 1; ; tries++) {
      throwIfAborted(signal, "the cluster's store");
      try {
        return await work();
      } catch (error) {
        if (tries === TRIES || !isPassing(error)) throw storeError(error, this.cluster);
      }
      await pause(PAUSE_MS);
    }
  }
}

const isApiError = (error: unknown, codes: readonly number[]): boolean =>
  error instanceof SplitkvError
    ? isApiError(error.cause, codes)
    : error instanceof JetStreamApiError && codes.includes(error.code);

const nameOf = (error: unknown): string => (error instanceof Error ? error.name : '');
/** Nobody answered in time, or nobody could. */
const isPassing = (error: unknown): boolean =>
  /Timeout|NoResponders|RequestError|Disconnect/.test(nameOf(error)) ||
  /timeout|no responders|503/i.test(messageOf(error));

function storeError(error: unknown, { name, connection }: Cluster): SplitkvError {
  if (error instanceof SplitkvError) return error;
  if (nameOf(error) === 'JetStreamNotEnabled' || isApiError(error, NOT_ENABLED)) {
    return ioError(
      `cluster ${name}: its NATS server keeps nothing, as JetStream is off there: switch it on (nats-server -js, or jetstream {} in its configuration)`,
      error,
    );
  }
  if (isApiError(error, FULL) || /insufficient|maximum bytes|no space/i.test(messageOf(error))) {
    const why = messageOf(error);
    return limitError(
      `cluster ${name}: its NATS server has no room for more (${why}): remove a model (splitkv push --remove NAME), or give JetStream more (max_file_store)`,
      error,
    );
  }
  if (/Permission|Authorization/i.test(nameOf(error) + messageOf(error) + nameOf((error as Error).cause))) {
    return usageError(
      `cluster ${name}: this account may not use the store (${messageOf(error)}): allow it to publish to $JS.API.> and $KV.splitkv-${name}-models.>`,
    );
  }
  const server = connection.getServer();
  return ioError(`cluster ${name}: its store doesn't answer (${messageOf(error)}; ${server})`, error);
}
