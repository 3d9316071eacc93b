import { Random } from '../../base/random.js';
import { allGather, allToAll, broadcast, gather, scatter } from './collectives.js';
import type { Transfer } from '../communicator.js';
import { Reduction } from './reduction.js';
import { part, parts, sum, type TestRank, words } from './test_rank.js';

/** What is wrong with what a rank got; empty when all is right. */
type Findings = Promise<(string | undefined)[]>;

/** Every collective, with `counts[r]` words as rank r's part. */
export async function collectives(rank: TestRank, { counts, root }: { counts: number[]; root: number }): Findings {
  const { comm, rank: me, ranks } = rank;
  const mine = counts[me]!;
  const all = counts.map((count, r) => words(count, r));
  const total = sum(counts);
  const joined = new Uint32Array(all.flatMap((list) => [...list]));
  const source = rank.buffer('source', me === root ? joined : 1);
  const findings: (string | undefined)[] = [];

  const copy = me === root ? source : rank.buffer('broadcast', total);
  await rank.exchange(broadcast(comm, 'broadcast', root, part(copy, 0, total)));
  findings.push(await rank.difference(copy, joined));

  const own = rank.buffer('scattered', mine);
  const sourceParts = me === root ? parts(source, counts) : [];
  await rank.exchange(scatter(comm, 'scatter', root, sourceParts, part(own, 0, mine)));
  findings.push(await rank.difference(own, all[me]!));

  const home = rank.buffer('gathered', me === root ? total : 1);
  await rank.exchange(gather(comm, 'gather', root, part(own, 0, mine), me === root ? parts(home, counts) : []));
  if (me === root) findings.push(await rank.difference(home, joined));

  const everything = rank.buffer('all gathered', total);
  await rank.exchange(allGather(comm, 'all gather', part(own, 0, mine), parts(everything, counts)));
  findings.push(await rank.difference(everything, joined));

  // Rank a gives rank b the counts of rank (a + b) mod n.
  const between = (a: number, b: number): number => counts[(a + b) % counts.length]!;
  const given = ranks.map((b) => between(me, b));
  const taken = ranks.map((a) => between(a, me));
  const out = rank.buffer('given', new Uint32Array(ranks.flatMap((b) => [...words(between(me, b), me, b)])));
  const into = rank.buffer('taken', sum(taken));
  await rank.exchange(allToAll(comm, 'all to all', parts(out, given), parts(into, taken)));
  findings.push(await rank.difference(into, new Uint32Array(ranks.flatMap((a) => [...words(between(a, me), a, me)]))));
  return findings;
}

/** Each rank sends its successor one message. */
export async function ring(rank: TestRank, { count }: { count: number }): Findings {
  const { rank: me, worldSize } = rank;
  const from = (me + worldSize - 1) % worldSize;
  const out = rank.buffer('out', words(count, me));
  const into = rank.buffer('into', count);
  await rank.exchange({
    label: 'ring',
    sends: [{ peer: (me + 1) % worldSize, regions: [part(out, 0, count)] }],
    receives: [{ peer: from, regions: [part(into, 0, count)] }],
  });
  return [await rank.difference(into, words(count, from))];
}

/** Regions cut differently on both sides, several messages between two ranks, messages to oneself, and empty ones. */
export async function cuts(rank: TestRank): Findings {
  const { rank: me, worldSize } = rank;
  const to = (me + 1) % worldSize;
  const from = (me + worldSize - 1) % worldSize;
  const out = rank.buffer('out', words(100, me));
  const into = rank.buffer('into', 100);
  const self = rank.buffer('self', words(40, me, 7));
  const other = rank.buffer('other', 40);
  await rank.exchange({
    label: 'cuts',
    sends: [
      { peer: to, regions: [part(out, 0, 10), part(out, 50, 0), part(out, 20, 30)] },
      { peer: me, regions: [part(self, 0, 10)] },
      { peer: to, regions: [] },
      { peer: to, regions: [part(out, 99, 1)] },
      { peer: me, regions: [part(self, 20, 5), part(self, 30, 5)] },
    ],
    receives: [
      // Within one buffer, and to another.
      { peer: me, regions: [part(self, 15, 5), part(other, 0, 5)] },
      { peer: from, regions: [part(into, 60, 25), part(into, 0, 15)] },
      { peer: me, regions: [part(other, 30, 10)] },
      { peer: from, regions: [part(into, 40, 1)] },
      // The other side lists an empty message at another place; this one comes without a partner.
      { peer: to, regions: [part(into, 0, 0)] },
    ],
  });
  const sent = words(100, from);
  const message = [...sent.slice(0, 10), ...sent.slice(20, 50)];
  const kept = words(40, me, 7);
  return [
    await rank.difference(into, message.slice(0, 25), 60),
    await rank.difference(into, message.slice(25), 0),
    await rank.difference(into, sent.slice(99), 40),
    await rank.difference(self, kept.slice(0, 5), 15),
    await rank.difference(other, kept.slice(5, 10), 0),
    await rank.difference(other, [...kept.slice(20, 25), ...kept.slice(30, 35)], 30),
  ];
}

/** The root overwrites what it sent as soon as its exchange is over, again and again. */
export async function reuse(rank: TestRank, { rounds, count }: { rounds: number; count: number }): Findings {
  const { comm, rank: me } = rank;
  const buffer = rank.buffer('reused', count);
  const kept = rank.buffer('kept', rounds * count);
  const exchange = broadcast(comm, 'reuse', 0, part(buffer, 0, count));
  for (let round = 0; round < rounds; round++) {
    if (me === 0) comm.device.write(buffer, 0, words(count, round));
    await rank.exchange(exchange);
    const encoder = rank.encoder();
    encoder.copyBufferToBuffer(buffer.gpu, 0, kept.gpu, round * count * 4, count * 4);
    comm.device.gpu.queue.submit([encoder.finish()]);
  }
  const expected = Array.from({ length: rounds }, (_, round) => [...words(count, round)]);
  return [await rank.difference(kept, new Uint32Array(expected.flat()))];
}

/** A message goes round the ring; what the caller's encoder does is in it, and nothing is read on the way. */
export async function relay(rank: TestRank, { laps }: { laps: number }): Findings {
  const { rank: me, worldSize } = rank;
  const marks = rank.buffer('marks', words(laps, me));
  const baton = rank.buffer('baton', laps * worldSize);
  const all = part(baton, 0, laps * worldSize);
  for (let lap = 0; lap < laps; lap++) {
    const label = `lap ${lap}`;
    if (me > 0) await rank.exchange({ label, sends: [], receives: [{ peer: me - 1, regions: [all] }] });
    const encoder = rank.encoder();
    encoder.copyBufferToBuffer(marks.gpu, lap * 4, baton.gpu, (lap * worldSize + me) * 4, 4);
    const sends = [{ peer: (me + 1) % worldSize, regions: [all] }];
    await rank.comm.exchange(encoder, { label, sends, receives: [] });
    if (me === 0) {
      await rank.exchange({ label, sends: [], receives: [{ peer: worldSize - 1, regions: [all] }] });
    }
  }
  if (me !== 0) return [];
  const marksOf = rank.ranks.map((r) => words(laps, r));
  return [
    await rank.difference(
      baton,
      Array.from({ length: laps * worldSize }, (_, i) => marksOf[i % worldSize]![Math.floor(i / worldSize)]!),
    ),
  ];
}

/** Random messages, round after round; ranks come to each at random times. */
export async function storm(rank: TestRank, { rounds, seed }: { rounds: number; seed: number }): Findings {
  const { rank: me, ranks } = rank;
  const shared = new Random(seed);
  const own = new Random(seed + 100 + me);
  const findings: (string | undefined)[] = [];
  for (let round = 0; round < rounds; round++) {
    const sends: Transfer[] = [];
    const receives: Transfer[] = [];
    const checks: (() => Promise<string | undefined>)[] = [];
    for (const from of ranks) {
      for (const to of ranks) {
        const messages = from === to ? 0 : shared.integer(3);
        for (let message = 0; message < messages; message++) {
          const count = shared.integer(8) === 0 ? shared.integer(50_000) : shared.integer(40);
          const contents = (): Uint32Array<ArrayBuffer> => words(count, round, from, to, message);
          if (from === me) {
            sends.push({ peer: to, regions: [part(rank.buffer('out', contents()), 0, count)] });
          }
          if (to !== me) continue;
          const into = rank.buffer(`round ${round}: message ${message} of rank ${from}`, count);
          receives.push({ peer: from, regions: [part(into, 0, count)] });
          checks.push(() => rank.difference(into, contents()));
        }
      }
    }
    if (own.integer(2) === 0) await new Promise((resolve) => setTimeout(resolve, own.integer(4)));
    await rank.exchange({ label: `round ${round}`, sends, receives });
    if (round % 8 === 0) for (const check of checks) findings.push(await check());
  }
  return findings;
}

/** Pairs of neighbours, then pairs of these; the last of an odd number goes up as it is. */
function treeSum(vectors: readonly Float32Array<ArrayBuffer>[]): Float32Array<ArrayBuffer> {
  const [first, second] = vectors;
  if (!first || !second) return first ?? new Float32Array();
  const pairs = vectors.flatMap((vector, at) => {
    const next = vectors[at + 1];
    if (at % 2 === 1) return [];
    return [next ? vector.map((x, i) => Math.fround(x + next[i]!)) : vector];
  });
  return treeSum(pairs);
}

/** Numbers of which sums round. */
const floats = (count: number, seed: number, scale: number): Float32Array<ArrayBuffer> =>
  Float32Array.from(words(count, seed), (word) => (word / 2 ** 32 - 0.5) * scale);

/** Sums in a tree of ranks, bit by bit; the second run has new inputs. */
export async function sums(rank: TestRank, { count, root }: { count: number; root: number }): Findings {
  const { comm, rank: me, ranks } = rank;
  const findings: (string | undefined)[] = [];
  const input = rank.buffer('input', count + 3);
  const output = rank.buffer('output', count + 5);
  const reduce = Reduction.reduce(comm, 'reduce', root, part(input, 3, count), part(output, 5, count));
  const inPlace = Reduction.allReduce(comm, 'all reduce', part(input, 3, count), part(input, 3, count));
  try {
    for (let run = 0; run < 2; run++) {
      const vectors = ranks.map((r) => floats(count, run * 10 + r, 10 ** (r - 1)));
      const expected = treeSum(vectors);
      comm.device.write(input, 12, vectors[me]!);
      await reduce.run(comm, rank.encoder());
      if (me === root) findings.push(await rank.difference(output, expected, 5));
      await inPlace.run(comm, rank.encoder());
      findings.push(await rank.difference(input, expected, 3));
      findings.push(await rank.difference(input, [0, 0, 0]));
    }
  } finally {
    reduce.dispose();
    inPlace.dispose();
  }
  return findings;
}

/** Two programs side by side, each on a channel of its own: a round of one may run many rounds ahead of the other's. */
export async function sideBySide(rank: TestRank, { rounds }: { rounds: number }): Findings {
  const { rank: me, worldSize } = rank;
  const to = (me + 1) % worldSize;
  const from = (me + worldSize - 1) % worldSize;
  const program = async (channel: number, counts: (round: number) => number): Findings => {
    const out = rank.buffer(`out ${channel}`, 600);
    const into = rank.buffer(`into ${channel}`, 600);
    const findings: (string | undefined)[] = [];
    for (let round = 0; round < rounds; round++) {
      const count = counts(round);
      rank.comm.device.write(out, 0, words(count, me, channel, round));
      await rank.exchange({
        label: `round ${round} of ${channel}`,
        channel,
        sends: [{ peer: to, regions: [part(out, 0, count)] }],
        receives: [{ peer: from, regions: [part(into, 0, count)] }],
      });
      findings.push(await rank.difference(into, words(count, from, channel, round)));
    }
    return findings;
  };
  const programs = [() => program(0, (round) => 1 + round * 7), () => program(3, (round) => 500 - round * 9)];
  // Ranks begin them in different order: messages of a pair that matched by order alone would be mixed up.
  if (me % 2 === 1) programs.reverse();
  return (await Promise.all(programs.map((run) => run()))).flat();
}
