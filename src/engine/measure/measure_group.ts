import { nth, range } from '../../base/lists.js';
import { median } from '../../base/stats.js';
import { createGroup } from '../../distributed/index.js';
import type { Communicator, Exchange } from '../../distributed/communicator.js';
import type { Buffer, Device } from '../../gpu/index.js';
import { modelSizes } from '../../model/model_sizes.js';
import type { LinkMeasure, MachineMeasure } from '../../placement/index.js';
import { Probe, type ProbeSubject } from './probe.js';
import { chooseLayers, layerKinds } from './probe_layers.js';
import { type Timed, timeProgram, timeAtOnce } from './timing.js';

export type GroupMeasure = Pick<MachineMeasure, 'links' | 'crowding' | 'slowdown'>;

/** One layer is work enough between two exchanges. */
const MOST_BYTES = 64 * 2 ** 20;
const PROMPT_ROWS = 16;
const FEW_BYTES = 256;
const MANY_BYTES = 2 ** 20;
const ROUNDS = 12;
/** Exchanges in a row that are timed together. */
const EXCHANGES = 4;
const MAX_SECONDS = 0.25;

/** The links between ranks, and what the ranks do to each other, with a layer of the model as their work. */
export async function measureGroup(devices: readonly Device[], subject: ProbeSubject): Promise<GroupMeasure> {
  if (devices.length === 1) return { links: [[undefined]], crowding: [1], slowdown: { generated: [1], prompt: [1] } };
  const { config, type, kvType } = subject;
  const kind = layerKinds(config).includes('expert') ? 'expert' : 'dense';
  const layers = chooseLayers(config, modelSizes(config, type, kvType), kind, 'whole', 1, MOST_BYTES);
  const opened = new Map<Device, Probe>();
  const probes: Probe[] = [];
  for (const device of devices) {
    const probe = opened.get(device) ?? (await Probe.open(device, subject, layers));
    opened.set(device, probe);
    probes.push(probe);
  }
  const generated = probes.map((probe) => probe.generated(1, 1));
  const links = await measureLinks(generated);
  const sizes = groupSizes(devices.length);
  const together = await sideBySide(generated, sizes);
  const slowest = (n: number): number => {
    const latencies = links.slice(0, n).flatMap((row) => row.slice(0, n).map((link) => link?.latencySeconds ?? 0));
    return Math.max(...latencies);
  };
  const crowding: [number, number][] = [];
  for (const [at, n] of sizes.entries()) {
    const latency = n === 1 ? 0 : await exchangeLatency(generated.slice(0, n).map(busy), nth(together.seconds, at));
    crowding.push([n, n <= 2 ? 1 : Math.max(1, latency / slowest(n))]);
  }
  const prompt = probes.map((probe) => probe.prompt(0, Math.min(PROMPT_ROWS, probe.promptRows)));
  return {
    links,
    crowding: between(crowding),
    slowdown: { generated: together.slowdown, prompt: (await sideBySide(prompt, sizes)).slowdown },
  };
}

/** Of every pair; pairs of the same adapters over the same kind of link are alike. */
async function measureLinks(ranks: readonly Timed[]): Promise<(LinkMeasure | undefined)[][]> {
  const known = new Map<string, LinkMeasure>();
  const links = ranks.map(() => ranks.map((): LinkMeasure | undefined => undefined));
  for (const [to, a] of ranks.entries()) {
    for (const [from, b] of ranks.slice(0, to).entries()) {
      const names = [a, b].map(({ device }) => JSON.stringify(device.adapter)).toSorted();
      const key = JSON.stringify([a.device === b.device, ...names]);
      let link = known.get(key);
      if (!link) known.set(key, (link = await measureLink([busy(a), busy(b)], await timeAtOnce([a, b]))));
      nth(links, to)[from] = link;
      nth(links, from)[to] = link;
    }
  }
  return links;
}

/** Time of the first n at once, for each size n, and its ratio to the slowest of them alone. */
async function sideBySide(
  all: readonly Timed[],
  sizes: readonly number[],
): Promise<{ readonly seconds: readonly number[]; readonly slowdown: readonly number[] }> {
  const seconds: number[] = [];
  const alone = new Map<string, number>();
  let slowest = 0;
  const slowdown: [number, number][] = [];
  for (const n of sizes) {
    for (const timed of all.slice(0, n)) {
      const name = JSON.stringify(timed.device.adapter);
      if (!alone.has(name)) alone.set(name, await timeProgram(timed));
      slowest = Math.max(slowest, alone.get(name)!);
    }
    const together = n === 1 ? slowest : await timeAtOnce(all.slice(0, n));
    seconds.push(together);
    // Sharing everything is the worst there is; beyond it is noise. Ranks of one device do.
    const shared = all.slice(0, n).every(({ device }) => device === nth(all, 0).device);
    slowdown.push([n, shared ? n : Math.min(n, Math.max(1, together / slowest))]);
  }
  return { seconds, slowdown: between(slowdown) };
}

/** 1, 2, 4, ... and the number itself. */
function groupSizes(ranks: number): number[] {
  const sizes: number[] = [];
  for (let n = 1; n < ranks; n *= 2) sizes.push(n);
  return [...sizes, ranks];
}

/** Values at 1, 2, 3, ... from those at some of them, 1 among them, on straight lines between. */
function between(known: readonly (readonly [n: number, value: number])[]): number[] {
  return known.flatMap(([n, value], at) => {
    const [low, before] = known[at - 1] ?? [n - 1, value];
    return range(low + 1, n + 1).map((here) => value - ((n - here) / (n - low)) * (value - before));
  });
}

/** A rank and the work that it does before each exchange. */
interface LinkRank {
  readonly device: Device;
  readonly work?: Timed;
}
const busy = (work: Timed): LinkRank => ({ device: work.device, work });

/**
 * Every rank works, then all tell all others a few bytes, again and again: what an exchange adds to the work of the slowest.
 * @param workSeconds of the ranks' work at the same time
 */
async function exchangeLatency(ranks: readonly LinkRank[], workSeconds: number): Promise<number> {
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
      return { communicator, work: nth(ranks, rank).work, exchange: allToAll(communicator, buffer, bytes) };
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
  const peers = range(0, worldSize).filter((peer) => peer !== rank);
  return {
    label: 'probe',
    sends: peers.map((peer) => ({ peer, regions: [part(rank)] })),
    receives: peers.map((peer) => ({ peer, regions: [part(peer)] })),
  };
}
