import { internalError, messageOf, peerLostError, type SplitkvError, usageError } from '../../base/errors.js';
import { createPortCommunicator, type Port } from '../../distributed/index.js';
import { decodeReason, encodeReason } from '../../distributed/ports/port.js';
import { type AdapterRequest, type Device, openDevice } from '../../gpu/index.js';
import { openRank, type RankProgress } from '../ranks/open_rank.js';
import { World } from '../../model/layers/world.js';
import { openModelFiles } from '../files/model_files.js';
import { withoutEncoders } from '../../model/config/model_config.js';
import { networkAt, whereOf } from './model_place.js';
import { openFiles } from '../files/open_files.js';
import type { RankFacts } from '../contracts/rank.js';
import type { NamedAdapter } from '../ranks/rank_group.js';
import type { RankRunner } from '../ranks/rank_runner.js';
import type { RankRequest, SliceRequest, WorkerCommand, WorkerReport } from './worker_protocol.js';

const PROGRESS_MS = 50;

/** Serves one rank's requests in a worker: its own device, its own reading of the files, its own programs. */
export class RankServer {
  #adapter: AdapterRequest | undefined;
  #device: Device | undefined;
  #runner: RankRunner | undefined;
  readonly #running = new Set<Promise<void>>();
  readonly #disposal = new AbortController();

  /** @param leave called when everything is freed and nothing more will be served */
  constructor(
    readonly port: Pick<Port, 'postMessage' | 'onmessage'>,
    readonly leave: () => void = () => {},
  ) {
    port.onmessage = ({ data }) => this.#take(data as WorkerCommand);
  }

  #post(report: WorkerReport, transfer: Transferable[] = []): void {
    this.port.postMessage(report, transfer);
  }

  #take(command: WorkerCommand): void {
    if (command.type === 'abort') {
      this.#runner?.abort(decodeReason(command.reason));
      return;
    }
    const { id, request } = command;
    if (request.type === 'dispose') {
      void this.#dispose(usageError('the model was disposed; load it again')).then(() => {
        this.#post({ type: 'answer', id, result: undefined });
        this.leave();
      });
      return;
    }
    const served = this.#serve(request)
      .then(
        (result) => this.#post({ type: 'answer', id, result }, ArrayBuffer.isView(result) ? [result.buffer] : []),
        (error: unknown) => this.#post({ type: 'failure', id, reason: encodeReason(error) }),
      )
      .finally(() => this.#running.delete(served));
    this.#running.add(served);
  }

  /** An error that nobody caught: tells the other side, frees everything and leaves. */
  fail(error: unknown): void {
    this.#post({ type: 'broken', reason: encodeReason(error) });
    const advice = "Call the model's recover(), or load it again";
    const reason = peerLostError(`a rank's worker broke: ${messageOf(error)}. ${advice}`);
    void this.#dispose(reason).then(this.leave);
  }

  /** Ends what is under way and waits for it: nothing may be pending on the GPU when the worker ends. */
  async #dispose(reason: SplitkvError): Promise<void> {
    this.#disposal.abort(reason);
    this.#runner?.abort(reason);
    await Promise.allSettled(this.#running);
    this.#runner?.dispose();
    this.#device?.dispose();
  }

  async #serve(request: Exclude<RankRequest, { type: 'dispose' }>): Promise<unknown> {
    this.#disposal.signal.throwIfAborted();
    switch (request.type) {
      case 'open':
        this.#adapter = request.adapter;
        this.#device = await openDevice(request.adapter);
        return this.#watch(this.#device);
      case 'load': {
        const { place } = request.slice;
        const close = (): void => void (place.kind === 'port' && place.port.close());
        try {
          const facts = await this.#load(request.slice);
          if (facts.readsRows) this.#disposal.signal.addEventListener('abort', close);
          else close();
          return facts;
        } catch (error) {
          close();
          throw error;
        }
      }
      case 'connect':
        return this.#connect(request.ports as ReadonlyMap<number, MessagePort>, request.sharedMemory);
      case 'measure':
        return (await import('../measure/node_rank_measure.js')).measureRank(this.#adapter!, request.subject);
      case 'exchanges': {
        const { measureExchanges } = await import('../measure/node_rank_measure.js');
        return measureExchanges(this.#device!, request.rank, request.ports as ReadonlyMap<number, MessagePort>);
      }
      case 'call': {
        const runner = this.#loaded();
        return (runner[request.method] as (...args: readonly unknown[]) => Promise<unknown>)(...request.args);
      }
      case 'ping':
        return undefined;
    }
  }

  #watch(device: Device): NamedAdapter {
    void device.lost.then(() => {
      if (this.#disposal.signal.aborted) return;
      try {
        device.assertAlive();
      } catch (error) {
        this.#post({ type: 'lost', reason: encodeReason(error) });
      }
    });
    return { ...device.adapter, name: device.name };
  }

  async #load(slice: SliceRequest): Promise<RankFacts> {
    const { place, cache, integrity, digest, type, plan, rank, mixed, runner } = slice;
    const device = this.#device!;
    const { signal } = this.#disposal;
    const onWarning = (message: string): void => this.#post({ type: 'warning', message });
    const { onProgress, onWait } = this.#progress();
    const encoder = runner.images ?? runner.sound;
    const network = { ...networkAt(place), images: encoder };
    const source = await openFiles(whereOf(place), { network, cache, integrity, onWarning, onWait, signal });
    const files = await openModelFiles(source, signal, undefined, encoder);
    const { vision, sound } = files.config;
    const config = {
      ...withoutEncoders(files.config),
      ...(runner.images && { vision }),
      ...(runner.sound && { sound }),
    };
    const reader = await files.reader();
    if (digest !== undefined) await (await import('../files/model_digest.js')).checkDigest(digest, config, reader);
    const world = new World(plan, rank, mixed);
    const again = (): Promise<Device> => openDevice(this.#adapter!);
    const request = { config, reader, type, runner, signal, again, onWarning };
    this.#runner = await openRank(device, world, request, onProgress);
    // What this rank downloaded is there for the next one.
    await source.flush?.();
    await device.settle();
    return this.#runner.facts;
  }

  #progress() {
    let last = -PROGRESS_MS;
    let told: RankProgress | undefined;
    return {
      onProgress: (progress: RankProgress): void => {
        told = progress;
        const now = performance.now();
        if (now - last < PROGRESS_MS && progress.loadedBytes < progress.totalBytes) return;
        last = now;
        this.#post({ type: 'progress', progress });
      },
      onWait: (waiting: string | undefined): void => {
        if (told) this.#post({ type: 'progress', progress: { ...told, waiting } });
      },
    };
  }

  async #connect(ports: ReadonlyMap<number, MessagePort>, sharedMemory: boolean): Promise<void> {
    const { world, device } = this.#loaded();
    world.communicator?.dispose();
    const { rank, plan } = world;
    world.communicator = createPortCommunicator({ rank, worldSize: plan.worldSize, device, ports, sharedMemory });
  }

  #loaded(): RankRunner {
    if (!this.#runner) throw internalError("a rank's worker was called before it had loaded its slice");
    return this.#runner;
  }
}
