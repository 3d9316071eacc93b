import { internalError, peerLostError, type SplitkvError, usageError } from '../base/errors.js';
import { valueIn } from '../base/lists.js';
import type { Buffer, Device } from '../gpu/index.js';
import type { CommStats, Communicator, Exchange } from './communicator.js';
import { BufferPool, encodeCopies, uploadRegions } from './copies.js';
import type { DeviceHub } from './device_hub.js';
import { type ExchangePlan, type Message, planExchange, sizeMismatch } from './exchange_plan.js';
import { peerLost, type Transport } from './transport.js';

/** One rank's exchanges: GPU copies to ranks on its device, the host and a transport to all others. */
export class RankCommunicator implements Communicator {
  readonly stats: CommStats = { exchanges: 0, messages: 0, bytesSent: 0, bytesReceived: 0, moveMs: 0, waitMs: 0 };
  readonly #clock = new ExchangeClock(this.stats, () => this.device.waitMs);
  readonly #staging: BufferPool;
  readonly #scratch: BufferPool;
  readonly #plans = new WeakMap<Exchange, ExchangePlan>();
  readonly #closedPeers = new Set<number>();
  /** By channel. */
  readonly #sent = new Map<number, number>();
  readonly #running = new Set<number>();
  /** Ends the waits under way. */
  readonly #rejects = new Set<(reason: unknown) => void>();
  #failure: { readonly reason: unknown } | undefined;
  #disposed = false;

  /**
   * @param timeoutMs that an exchange may take
   * @param hub where ranks on this rank's device meet
   * @param localPeers those ranks
   */
  constructor(
    readonly device: Device,
    private readonly transport: Transport,
    private readonly timeoutMs: number,
    private readonly hub?: DeviceHub,
    readonly localPeers: ReadonlySet<number> = new Set(),
  ) {
    this.#staging = new BufferPool(device, `rank ${this.rank} staging`, 'staging');
    this.#scratch = new BufferPool(device, `rank ${this.rank} scratch`, 'storage');
    this.transport.listen({
      aborted: (reason) => this.#fail(reason),
      closed: (peer) => {
        this.#closedPeers.add(peer);
        if (this.hub?.awaitedBy(this.rank).includes(peer)) this.#rejectAll(peerLost(this.rank, peer));
      },
    });
  }

  get rank(): number {
    return this.transport.rank;
  }

  get worldSize(): number {
    return this.transport.worldSize;
  }

  async exchange(encoder: GPUCommandEncoder, exchange: Exchange): Promise<void> {
    const { channel = 0 } = exchange;
    let entered = false;
    try {
      if (this.#failure) throw this.#failure.reason;
      if (this.#running.has(channel)) {
        throw internalError(`${exchange.label}: rank ${this.rank} is in the middle of another exchange`);
      }
      this.#running.add(channel);
      entered = true;
      this.device.assertAlive();
      const plan = valueIn(this.#plans, exchange, () => planExchange(exchange, this));
      await this.#perform(encoder, plan);
      this.stats.messages += plan.messages;
      this.stats.bytesSent += plan.bytesSent;
      this.#sent.set(channel, this.sentOn(channel) + plan.bytesSent);
      this.stats.bytesReceived += plan.bytesReceived;
      this.stats.exchanges++;
    } catch (error) {
      // The ranks no longer agree on what comes next: nothing can be exchanged any more.
      this.abort(error);
      throw this.#failure?.reason ?? error;
    } finally {
      if (entered) {
        this.#running.delete(channel);
        this.#clock.enter(channel, undefined);
      }
    }
  }

  sentOn(channel: number): number {
    return this.#sent.get(channel) ?? 0;
  }

  abort(reason: unknown): void {
    if (this.#failure) return;
    this.#fail(reason);
    this.transport.abort(reason);
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#fail(usageError(`rank ${this.rank}'s communicator was disposed; load the model again`));
    this.transport.close();
    this.#staging.dispose();
    this.#scratch.dispose();
  }

  #fail(reason: unknown): void {
    if (this.#failure) return;
    this.#failure = { reason };
    this.hub?.withdraw(this.rank);
    this.#rejectAll(reason);
  }

  #rejectAll(reason: unknown): void {
    for (const reject of this.#rejects) reject(reason);
  }

  async #perform(encoder: GPUCommandEncoder, plan: ExchangePlan): Promise<void> {
    const work: Promise<void>[] = [];
    let staging: Buffer | undefined;
    if (plan.stagedBytes > 0) {
      staging = this.#staging.take(plan.stagedBytes);
      for (const { regions, offset, size } of plan.staged) {
        encodeCopies(encoder, regions, [{ buffer: staging, offset, size }], this.#scratch);
      }
    }
    for (const { from, to } of plan.own) encodeCopies(encoder, from.regions, to.regions, this.#scratch);
    const copied = this.#postLocal(encoder, plan, work);
    this.device.gpu.queue.submit([encoder.finish()]);
    // Without bytes to read out, when the own work ends isn't known, nor waited for.
    this.#clock.enter(plan.channel, staging ? 'work' : 'wait');
    copied?.();
    const awaited = new Set(plan.remoteReceives);
    for (const message of plan.remoteReceives) work.push(this.#receive(message, plan.channel, awaited));
    if (staging) work.push(this.#sendStaged(staging, plan));
    if (work.length > 0) await this.#bounded(plan, awaited, Promise.all(work));
  }

  #postLocal(encoder: GPUCommandEncoder, plan: ExchangePlan, work: Promise<void>[]): (() => void) | undefined {
    const { channel, localSends: sends, localReceives: receives } = plan;
    if (!this.hub || sends.length + receives.length === 0) return undefined;
    const gone = [...sends, ...receives].find(({ peer }) => this.#closedPeers.has(peer));
    if (gone) throw peerLost(this.rank, gone.peer);
    let done = (): void => {};
    work.push(new Promise((resolve) => (done = resolve)));
    return this.hub.post(encoder, { rank: this.rank, channel, sends, receives, done }, this.#scratch);
  }

  async #receive(message: Message, channel: number, awaited: Set<Message>): Promise<void> {
    try {
      await this.transport.receive(message.peer, channel, (bytes) => {
        if (bytes.byteLength !== message.size) {
          throw sizeMismatch(message.label, bytes.byteLength, message.peer, message.size, this.rank);
        }
        if (this.#failure) return;
        this.#clock.moving(channel, () => uploadRegions(this.device, bytes, message.regions));
      });
    } finally {
      awaited.delete(message);
    }
  }

  async #sendStaged(staging: Buffer, { channel, remoteSends, stagedBytes }: ExchangePlan): Promise<void> {
    await this.device.wait(staging.gpu.mapAsync(GPUMapMode.READ, 0, stagedBytes));
    if (this.#running.has(channel)) this.#clock.enter(channel, 'move');
    try {
      const bytes = new Uint8Array(staging.gpu.getMappedRange(0, stagedBytes));
      if (this.#failure) return;
      for (const { peer, offset, size } of remoteSends) {
        this.transport.send(peer, bytes.subarray(offset, offset + size), channel);
      }
    } finally {
      staging.gpu.unmap();
      this.#staging.give(staging);
      if (this.#running.has(channel)) this.#clock.enter(channel, 'wait');
    }
  }

  /** Every way that a wait can end: the work, an abort from any side, a lost device, the time limit. */
  async #bounded(plan: ExchangePlan, awaited: ReadonlySet<Message>, work: Promise<unknown>): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let giveUp = (_reason: unknown): void => {};
    try {
      await new Promise<unknown>((resolve, reject) => {
        giveUp = reject;
        this.#rejects.add(reject);
        timer = setTimeout(() => reject(this.#late(plan, awaited)), this.timeoutMs);
        this.device.orLost(work).then(resolve, reject);
      });
    } finally {
      clearTimeout(timer);
      this.#rejects.delete(giveUp);
    }
  }

  #late({ label, channel }: ExchangePlan, awaited: ReadonlySet<Message>): SplitkvError {
    const local = this.hub?.awaitedBy(this.rank, channel) ?? [];
    const peers = new Set([...local, ...[...awaited].map(({ peer }) => peer)]);
    const limit = `${this.timeoutMs / 1000} s`;
    const what =
      peers.size > 0
        ? `rank ${this.rank} waited ${limit} for rank ${[...peers].sort((a, b) => a - b).join(', ')}`
        : `the GPU of rank ${this.rank} didn't finish its work within ${limit}`;
    return peerLostError(`${label}: ${what}; a rank hangs or is far slower than the others`);
  }
}

/** What a rank is at in an exchange: its GPU still makes what is to be sent, bytes move, or others are waited for. */
type Phase = 'work' | 'move' | 'wait';

/** Adds up what a rank's exchanges do with its time, by the clock of its thread. */
export class ExchangeClock {
  /** By channel, when its phase began. */
  readonly #running = new Map<number, { readonly phase: Phase; readonly since: number }>();
  readonly #count: Record<Phase, number> = { work: 0, move: 0, wait: 0 };
  #last = 0;

  /** @param readMs what reading a few bytes from a GPU that has nothing else to do takes, which the end of its work can't be told from */
  constructor(
    private readonly stats: CommStats,
    private readonly readMs: () => number,
  ) {}

  /** The exchange on a channel is at something else now; undefined: it has ended. */
  enter(channel: number, phase: Phase | undefined): void {
    const now = performance.now();
    if (this.#count.work === 0) {
      if (this.#count.move > 0) this.stats.moveMs += now - this.#last;
      else if (this.#count.wait > 0) this.stats.waitMs += now - this.#last;
    }
    this.#last = now;
    const before = this.#running.get(channel);
    if (before) {
      this.#count[before.phase]--;
      // The last part of the work was reading it out, unless another exchange's work went on meanwhile.
      if (before.phase === 'work' && this.#count.work === 0)
        this.stats.moveMs += Math.min(now - before.since, this.readMs());
    }
    if (phase === undefined) {
      this.#running.delete(channel);
      return;
    }
    this.#count[phase]++;
    this.#running.set(channel, { phase, since: now });
  }

  /** Moves bytes that have come meanwhile. */
  moving(channel: number, body: () => void): void {
    const before = this.#running.get(channel)?.phase;
    if (before !== 'wait') return body();
    this.enter(channel, 'move');
    try {
      body();
    } finally {
      this.enter(channel, before);
    }
  }
}
