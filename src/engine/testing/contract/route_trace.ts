import type { CommStats, Communicator, Exchange, Transfer } from '../../../distributed/communicator.js';
import type { Device } from '../../../gpu/index.js';
import { openRunner, type OpenRunnerOptions } from '../open_runner.js';
import { somePrompt } from '../run_bits.js';

/** What a rank sent and received, an exchange a line: label, then peers with their bytes. */
export type RankTrace = readonly string[];

export interface RouteTrace {
  /** By rank: of a prompt step of each of three sequences, the second's beyond a chunk. */
  readonly prompt: readonly RankTrace[];
  /** By rank: of a decode step of the three sequences. */
  readonly decode: readonly RankTrace[];
  /** Dispatches of a decode step, by rank. */
  readonly dispatches: readonly number[];
}

/** Notes what passes through a communicator. Messages to the rank itself, and empty ones, are left out: they are no exchange. */
class TracedCommunicator implements Communicator {
  readonly lines: string[] = [];

  constructor(readonly inner: Communicator) {}

  get rank(): number {
    return this.inner.rank;
  }
  get worldSize(): number {
    return this.inner.worldSize;
  }
  get device(): Device {
    return this.inner.device;
  }
  get stats(): Readonly<CommStats> {
    return this.inner.stats;
  }

  sentOn(channel: number): number {
    return this.inner.sentOn(channel);
  }

  exchange(encoder: GPUCommandEncoder, exchange: Exchange): Promise<void> {
    const sends = this.#describe(exchange.sends);
    const receives = this.#describe(exchange.receives);
    if (sends !== '' || receives !== '') this.lines.push(`${exchange.label}: to [${sends}] from [${receives}]`);
    return this.inner.exchange(encoder, exchange);
  }

  abort(reason: unknown): void {
    this.inner.abort(reason);
  }

  dispose(): void {
    this.inner.dispose();
  }

  #describe(transfers: readonly Transfer[]): string {
    const bytes = new Map<number, number>();
    for (const { peer, regions } of transfers) {
      const size = regions.reduce((sum, region) => sum + region.size, 0);
      if (peer !== this.rank && size > 0) bytes.set(peer, (bytes.get(peer) ?? 0) + size);
    }
    return [...bytes]
      .toSorted(([a], [b]) => a - b)
      .map(([peer, size]) => `${peer}: ${size}`)
      .join(', ');
  }
}

/** What every rank exchanges in a prompt step and in a decode step of a plan, as the runtime does it. `lengths`: of the prompts. */
export async function traceRoutes(options: OpenRunnerOptions, lengths = [40, 300, 9]): Promise<RouteTrace> {
  const slots = lengths.length;
  const { runner, group } = await openRunner({ contextLength: 600, prefillChunk: 512, slots, ...options });
  try {
    const traced = group.ranks.map(({ world }) => {
      const communicator = new TracedCommunicator(world.communicator!);
      world.communicator = communicator;
      return communicator;
    });
    const taken = (): string[][] => traced.map(({ lines }) => lines.splice(0));
    for (const [slot, length] of lengths.entries()) {
      await runner.prefill(somePrompt(length, slot), 8, { seed: 0 }, undefined, slot);
    }
    const prompt = taken();
    await runner.sampleFirst();
    taken();
    await runner.step();
    return { prompt, decode: taken(), dispatches: group.ranks.map(({ facts }) => facts.dispatchesPerStep) };
  } finally {
    group.dispose();
  }
}
