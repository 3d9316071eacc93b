import { createGroup } from '../../distributed/index.js';
import type { Communicator, Exchange } from '../../distributed/communicator.js';
import { median } from '../../base/stats.js';
import type { Buffer, Device } from '../../gpu/index.js';
import type { LinkMeasure } from '../../placement/index.js';
import type { Timed } from './timing.js';

/** A rank and the work that it does before each exchange. */
export interface LinkRank {
  readonly device: Device;
  readonly work?: Timed | undefined;
}

const FEW_BYTES = 256;
const MANY_BYTES = 2 ** 20;
const ROUNDS = 12;
/** Exchanges in a row that are timed together. */
const EXCHANGES = 4;
const MAX_SECONDS = 0.25;

/**
 * Every rank works, then all tell all others a few bytes, again and again: what an exchange adds to the work of the slowest.
 * @param workSeconds of the ranks' work at the same time
 */
export async function exchangeLatency(ranks: readonly LinkRank[], workSeconds: number): Promise<number> {
  const seconds = await timeExchanges(ranks, FEW_BYTES);
  // However the two times fall, an exchange isn't free.
  return Math.max(seconds - workSeconds, seconds / 20);
}

/** Latency beside the ranks' work, if any, and throughput with both directions at once. */
export async function measureLink(pair: readonly [LinkRank, LinkRank], workSeconds: number): Promise<LinkMeasure> {
  const latencySeconds = await exchangeLatency(pair, workSeconds);
  const idle = pair.map(({ device }) => ({ device }));
  return { ...(await linkOf((bytes) => timeExchanges(idle, bytes))), latencySeconds };
}

/** @param time seconds of an exchange of so many bytes */
async function linkOf(time: (bytes: number) => Promise<number>): Promise<LinkMeasure> {
  const [few, many] = [await time(FEW_BYTES), await time(MANY_BYTES)];
  return { latencySeconds: few, bytesPerSecond: MANY_BYTES / Math.max(many - few, many / 10) };
}

/**
 * One side of a link between two processes, both of which call it: as `measureLink`, without work beside it.
 * @param communicator of two ranks
 */
export async function measureSide(communicator: Communicator): Promise<LinkMeasure> {
  return linkOf(async (bytes) => {
    const buffer = communicator.device.createBuffer('probe exchange', bytes * communicator.worldSize);
    try {
      const exchange = allToAll(communicator, buffer, bytes);
      // As many on both sides, whatever either measures.
      return await usual((count) => runSome(communicator, undefined, exchange, count), Infinity);
    } finally {
      buffer.dispose();
    }
  });
}

/** Seconds of one exchange of `run(count)`: the median, as a step has so many that the usual one counts. */
async function usual(run: (count: number) => Promise<unknown>, maxSeconds: number): Promise<number> {
  const round = async (count: number): Promise<number> => {
    const started = performance.now();
    await run(count);
    return (performance.now() - started) / 1000 / count;
  };
  let spent = await round(1); // makes what is made once
  const samples: number[] = [];
  while (samples.length < ROUNDS && (samples.length === 0 || spent < maxSeconds)) {
    const seconds = await round(EXCHANGES);
    spent += seconds * EXCHANGES;
    samples.push(seconds);
  }
  return median(samples);
}

/** Seconds of one round of work and exchange among all ranks. */
async function timeExchanges(ranks: readonly LinkRank[], bytes: number): Promise<number> {
  const communicators = createGroup(ranks.map(({ device }) => device));
  const buffers: Buffer[] = [];
  try {
    const runs = communicators.map((communicator, rank) => {
      const buffer = communicator.device.createBuffer('probe exchange', bytes * ranks.length);
      buffers.push(buffer);
      return { communicator, work: ranks[rank]!.work, exchange: allToAll(communicator, buffer, bytes) };
    });
    return await usual(
      (count) =>
        Promise.all(runs.map(({ communicator, work, exchange }) => runSome(communicator, work, exchange, count))),
      MAX_SECONDS,
    );
  } finally {
    for (const communicator of communicators) communicator.dispose();
    for (const buffer of buffers) buffer.dispose();
  }
}

async function runSome(
  communicator: Communicator,
  work: Timed | undefined,
  exchange: Exchange,
  count: number,
): Promise<void> {
  for (let i = 0; i < count; i++) {
    const encoder = communicator.device.gpu.createCommandEncoder();
    if (work) {
      const pass = encoder.beginComputePass();
      work.program.encode(pass, work.step);
      pass.end();
    }
    await communicator.exchange(encoder, exchange);
  }
}

/** The rank's own part of the buffer goes to all others, theirs come beside it. */
function allToAll({ rank, worldSize }: Communicator, buffer: Buffer, bytes: number): Exchange {
  const part = (index: number) => ({ buffer, offset: index * bytes, size: bytes });
  const peers = Array.from({ length: worldSize }, (_, peer) => peer).filter((peer) => peer !== rank);
  return {
    label: 'probe',
    sends: peers.map((peer) => ({ peer, regions: [part(rank)] })),
    receives: peers.map((peer) => ({ peer, regions: [part(peer)] })),
  };
}
