import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { BOUND, chooseReplica, ReplicaTable, type ReplicaView, type RoutedRequest } from './choose_replica.js';
import {
  BLOCK_CHARACTERS,
  hashOfText,
  mixed,
  MOST_BLOCKS_TOLD,
  MOST_BYTES,
  PrefixFilter,
  prefixHashes,
  PrefixRecord,
} from './prefixes.js';

const view = (name: string, given: Partial<ReplicaView> = {}): ReplicaView => ({
  name,
  key: hashOfText(name),
  running: 0,
  waiting: 0,
  slots: 8,
  room: 24,
  draining: false,
  ...given,
});

const filterOf = (hashes: Iterable<number>): PrefixFilter => {
  const filter = PrefixFilter.forBlocks(64);
  for (const hash of hashes) filter.add(hash);
  return filter;
};

/** Prefixes that begin alike, and replicas that hold some of their beginnings. */
const BLOCKS = 6;
const familyPrefix = (family: number, length: number): Uint32Array =>
  Uint32Array.from({ length }, (_, block) => mixed(family * 1000 + block));
const replicas = fc.array(
  fc
    .record({
      running: fc.nat(8),
      waiting: fc.nat(20),
      slots: fc.integer({ min: 1, max: 8 }),
      room: fc.nat(24),
      draining: fc.boolean(),
      held: fc.array(fc.nat(BLOCKS), { maxLength: 3 }),
      // As a filter has them that takes a block for its own: an end without its beginning.
      strays: fc.array(fc.tuple(fc.nat(2), fc.nat(BLOCKS - 1)), { maxLength: 3 }),
    })
    .map(({ held, strays, ...rest }) => ({
      ...rest,
      prefixes: filterOf([
        ...held.flatMap((length, family) => [...familyPrefix(family, length)]),
        ...strays.map(([family, block]) => familyPrefix(family, BLOCKS)[block]!),
      ]),
    })),
  { maxLength: 12 },
);
const views = replicas.map((list) => list.map((given, at) => view(`replica-${at}`, given)));
const request: fc.Arbitrary<RoutedRequest> = fc
  .tuple(fc.nat(3), fc.nat(BLOCKS), fc.option(fc.constantFrom('ada', 'bob'), { nil: undefined }))
  .map(([family, length, session]) => ({ prefix: familyPrefix(family, length), session }));
const bound = fc.constantFrom(0, 0.25, BOUND, 3);

const load = ({ running, waiting, slots }: ReplicaView): number => (running + waiting) / slots;
const isFree = ({ draining, running, waiting, room }: ReplicaView): boolean => !draining && running + waiting < room;

/** The rule as it is written, without what makes it quick. */
function byDefinition({ prefix, session }: RoutedRequest, all: readonly ReplicaView[], limit: number): string {
  const there = all.filter(({ draining }) => !draining);
  if (there.length === 0) return 'none';
  const free = there.filter(isFree);
  if (free.length === 0) return 'full';
  const key = session === undefined ? (prefix.at(-1) ?? 0) : hashOfText(session);
  const byHash = (a: ReplicaView, b: ReplicaView): number => mixed(b.key ^ key) - mixed(a.key ^ key);
  const home = session === undefined ? undefined : there.toSorted(byHash)[0];
  const least = Math.min(...free.map(load));
  const within = free.filter((each) => load(each) <= least + limit).sort(byHash);
  const cached = (replica: ReplicaView): number => replica.prefixes!.matched(prefix);
  const score = (replica: ReplicaView): number => {
    const blocks = Math.min(prefix.length, cached(replica) + (replica === home ? 1 : 0));
    const share = prefix.length === 0 ? (replica === home ? 1 : 0) : blocks / prefix.length;
    return load(replica) - limit * share;
  };
  const best = within.toSorted((a, b) => score(a) - score(b))[0]!;
  if (best === home) return best.name;
  const peers = within.filter((each) => cached(each) >= cached(best)).slice(0, 3);
  return peers.sort((a, b) => load(a) - load(b))[0]!.name;
}

describe('the policy', () => {
  test('is the rule as it is written, never beyond the bound, the same in any order', () => {
    fc.assert(
      fc.property(views, request, bound, fc.nat(), (all, asked, limit, seed) => {
        const choice = chooseReplica(asked, all, limit);
        expect(typeof choice === 'string' ? choice : choice.replica).toBe(byDefinition(asked, all, limit));
        const random = new Random(seed);
        const shuffled = all
          .map((each) => [random.next(), each] as const)
          .sort(([a], [b]) => a - b)
          .map(([, each]) => each);
        expect(chooseReplica(asked, shuffled, limit)).toEqual(choice);
        if (typeof choice === 'string') {
          expect(all.some(isFree)).toBe(false);
          expect(choice === 'none').toBe(all.every(({ draining }) => draining));
          return;
        }
        const chosen = all.find(({ name }) => name === choice.replica)!;
        expect(isFree(chosen)).toBe(true);
        const least = Math.min(...all.filter(isFree).map(load));
        expect(load(chosen)).toBeLessThanOrEqual(least + limit + 1e-9);
        expect(choice.cachedBlocks).toBe(chosen.prefixes!.matched(asked.prefix));
      }),
      { numRuns: 1000 },
    );
  });

  test('a cached prefix wins, up to the bound; a part of it for a part of the bound', () => {
    const prefix = familyPrefix(0, 4);
    const choose = (running: number, cached: number): unknown => {
      const warm = view('warm', { running, prefixes: filterOf(prefix.slice(0, cached)) });
      return chooseReplica({ prefix }, [view('idle'), warm]);
    };
    expect(choose(7, 4)).toEqual({ replica: 'warm', cachedBlocks: 4 });
    expect(choose(9, 4)).toEqual({ replica: 'idle', cachedBlocks: 0 });
    expect(choose(3, 2)).toEqual({ replica: 'warm', cachedBlocks: 2 });
    expect(choose(5, 2)).toEqual({ replica: 'idle', cachedBlocks: 0 });
  });

  test('load counts by slots: a large replica takes more', () => {
    const large = view('large', { slots: 64, running: 20 });
    expect(chooseReplica({ prefix: new Uint32Array(0) }, [large, view('small', { running: 4 })])).toMatchObject({
      replica: 'large',
    });
  });

  test('a session stays whatever it asks; when a replica leaves, only its sessions move', () => {
    const all = Array.from({ length: 20 }, (_, index) => view(`replica-${index}`));
    const homes = (of: readonly ReplicaView[], family = 0): string[] =>
      Array.from({ length: 400 }, (_, index) => {
        const prefix = familyPrefix(family + index, 2);
        return (chooseReplica({ prefix, session: `session-${index}` }, of) as { replica: string }).replica;
      });
    expect(homes(all, 1000)).toEqual(homes(all));
    const before = homes(all);
    expect(new Set(before).size).toBe(20);
    const after = homes(all.map((each) => (each.name === 'replica-3' ? { ...each, draining: true } : each)));
    for (const [index, home] of before.entries()) {
      if (home === 'replica-3') expect(after[index]).not.toBe(home);
      else expect(after[index]).toBe(home);
    }
  });

  test('of a session whose prefix another replica has, that one counts', () => {
    const prefix = familyPrefix(0, 6);
    const session = 'ada';
    const all = ['a', 'b', 'c'].map((name) => view(name));
    const { replica: home } = chooseReplica({ prefix, session }, all) as { replica: string };
    const other = all.find(({ name }) => name !== home)!;
    const with4 = all.map((each) => (each === other ? { ...each, prefixes: filterOf(prefix.slice(0, 4)) } : each));
    expect(chooseReplica({ prefix, session }, with4)).toEqual({ replica: other.name, cachedBlocks: 4 });
    // Its own replica is good for a block.
    const both = with4.map((each) => (each.name === home ? { ...each, prefixes: filterOf(prefix.slice(0, 4)) } : each));
    expect(chooseReplica({ prefix, session }, both)).toEqual({ replica: home, cachedBlocks: 4 });
  });

  test('gateways that see the same send to several, each the least loaded of three', () => {
    const all = Array.from({ length: 100 }, (_, index) => view(`replica-${index}`, { running: index % 8 }));
    const chosen = Array.from({ length: 1000 }, (_, index) => {
      const choice = chooseReplica({ prefix: familyPrefix(index, 2) }, all) as { replica: string };
      return all.find(({ name }) => name === choice.replica)!;
    });
    expect(new Set(chosen).size).toBeGreaterThan(50);
    // The least of three drawn from 0 to 7 is 1.53 on average; the mean of 1000 has a deviation of 0.05.
    const mean = chosen.reduce((sum, { running }) => sum + running, 0) / 1000;
    expect(Math.abs(mean - 1.53)).toBeLessThan(0.25);
  });

  test('requests that tie are spread over all', () => {
    const all = Array.from({ length: 10 }, (_, index) => view(`replica-${index}`));
    const counts = new Map<string, number>();
    for (let index = 0; index < 2000; index++) {
      const { replica } = chooseReplica({ prefix: prefixHashes(`request ${index}`) }, all) as { replica: string };
      counts.set(replica, (counts.get(replica) ?? 0) + 1);
    }
    // 200 each, a standard deviation of 13.4.
    for (const count of counts.values()) expect(Math.abs(count - 200)).toBeLessThan(70);
    expect(counts.size).toBe(10);
  });
});

describe('prefix hashes', () => {
  test('are equal as far as whole blocks are, and no further', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 700, unit: 'grapheme' }), fc.string(), fc.string(), (common, one, other) => {
        const [a, b] = [prefixHashes(common + one), prefixHashes(common + other)];
        const same = Math.floor(common.length / BLOCK_CHARACTERS);
        expect(a.subarray(0, same)).toEqual(b.subarray(0, same));
        expect(a.length).toBe(Math.ceil((common + one).length / BLOCK_CHARACTERS));
        if (one === other) expect(a).toEqual(b);
      }),
    );
    const text = 'x'.repeat(5 * BLOCK_CHARACTERS);
    const changed = prefixHashes(`x${'y'}${text.slice(2)}`);
    // What differs in the first block differs in all behind it.
    for (const [block, hash] of prefixHashes(text).entries()) expect(hash).not.toBe(changed[block]);
    expect(prefixHashes('')).toHaveLength(0);
  });
});

describe('what a replica tells', () => {
  test('a full filter has all that was added, and under one in a hundred others', () => {
    for (const [blocks, bytes] of [
      [100, 1024],
      [MOST_BLOCKS_TOLD, MOST_BYTES],
    ] as const) {
      const filter = PrefixFilter.forBlocks(blocks);
      for (let block = 0; block < blocks; block++) filter.add(mixed(block));
      expect(filter.toBytes()).toHaveLength(bytes);
      const read = PrefixFilter.fromBytes(filter.toBytes());
      for (let block = 0; block < blocks; block++) expect(read.has(mixed(block))).toBe(true);
      let wrong = 0;
      for (let other = 0; other < 100_000; other++) if (read.has(mixed(1_000_000 + other))) wrong++;
      expect(wrong).toBeLessThan(1000);
      if (blocks === MOST_BLOCKS_TOLD) expect(wrong).toBeGreaterThan(300); // it is full
    }
  });

  test.each([0, 1023, 1025, 3000, 16_384])('%d bytes are no filter', (length) => {
    expect(() => PrefixFilter.fromBytes(new Uint8Array(length))).toThrow('expected a power of two');
  });

  test('a record forgets what was used longest ago, ends before beginnings', () => {
    const record = new PrefixRecord(10);
    const [one, two, three] = [familyPrefix(1, 4), familyPrefix(2, 4), familyPrefix(3, 4)];
    record.use(one);
    record.use(two);
    record.use(one);
    record.use(three);
    expect([one, two, three].map((prefix) => record.matched(prefix))).toEqual([4, 2, 4]);
    expect([one, two, three].map((prefix) => record.filter().matched(prefix))).toEqual([4, 2, 4]);
    record.use(familyPrefix(4, 50));
    expect(record.size).toBe(10);
    expect(record.matched(familyPrefix(4, 50))).toBe(10);
    record.clear();
    expect(record.matched(three)).toBe(0);
  });

  test('a record never holds more than it may, nor an end without its beginning', () => {
    const uses = fc.array(fc.tuple(fc.nat(5), fc.integer({ min: 1, max: BLOCKS })), { maxLength: 40 });
    fc.assert(
      fc.property(uses, fc.integer({ min: 1, max: 20 }), (list, capacity) => {
        const record = new PrefixRecord(capacity);
        for (const [family, length] of list) {
          record.use(familyPrefix(family, length));
          expect(record.size).toBeLessThanOrEqual(capacity);
          expect(record.matched(familyPrefix(family, length))).toBe(Math.min(length, capacity));
        }
        const held = [0, 1, 2, 3, 4, 5].map((family) => record.matched(familyPrefix(family, BLOCKS)));
        expect(held.reduce((sum, count) => sum + count, 0)).toBe(record.size);
      }),
    );
  });

  test('of a large cache what was used last is told', () => {
    const record = new PrefixRecord(3 * MOST_BLOCKS_TOLD);
    for (let family = 0; family < 200; family++) record.use(familyPrefix(family, 100));
    const filter = record.filter();
    expect(filter.toBytes()).toHaveLength(MOST_BYTES);
    expect(filter.matched(familyPrefix(199, 100))).toBe(100);
    expect(filter.matched(familyPrefix(10, 100))).toBeLessThan(5);
  });
});

describe("a gateway's table", () => {
  const told = (name: string, running = 0): Parameters<ReplicaTable['tell']>[0] => ({
    name,
    running,
    waiting: 0,
    slots: 4,
    room: 8,
    draining: false,
    prefixes: filterOf([]),
  });
  const prefix = familyPrefix(7, 3);

  test('own requests count before the replica tells of them, and until they end', () => {
    const table = new ReplicaTable();
    for (const name of ['a', 'b']) table.tell(told(name));
    const sent = Array.from({ length: 16 }, (_, index) => {
      const choice = table.choose({ prefix: familyPrefix(index, 3) }) as { replica: string };
      table.sent(choice.replica, { prefix: familyPrefix(index, 3) });
      return choice.replica;
    });
    expect(sent.filter((name) => name === 'a')).toHaveLength(8);
    expect(table.choose({ prefix })).toBe('full');
    table.ended('b');
    expect(table.choose({ prefix })).toEqual({ replica: 'b', cachedBlocks: 0 });
    // What is told replaces what was thought.
    table.tell(told('a', 1));
    expect(table.choose({ prefix })).toMatchObject({ replica: 'a' });
    table.ended('a');
    table.ended('a');
    expect(table.there.map(({ running, waiting }) => running + waiting)).toEqual([0, 7]);
  });

  test('a prefix that was sent is found again before the replica tells of it; the told filter is left as it is', () => {
    const table = new ReplicaTable();
    const state = told('a');
    for (const name of ['a', 'b', 'c']) table.tell(name === 'a' ? state : told(name));
    table.sent('a', { prefix });
    expect(table.choose({ prefix })).toEqual({ replica: 'a', cachedBlocks: 3 });
    expect(state.prefixes!.matched(prefix)).toBe(0);
    table.tell(state);
    expect(table.choose({ prefix })).toMatchObject({ cachedBlocks: 0 });
  });

  test('who leaves or failed already is not chosen', () => {
    const table = new ReplicaTable();
    table.tell(told('a'));
    table.tell(told('b', 3));
    expect(table.choose({ prefix })).toMatchObject({ replica: 'a' });
    expect(table.choose({ prefix }, new Set(['a']))).toMatchObject({ replica: 'b' });
    table.leave('a');
    expect(table.choose({ prefix })).toMatchObject({ replica: 'b' });
    expect(table.there).toHaveLength(1);
    table.sent('a', { prefix }); // it is gone: nothing to count
    table.ended('a');
    table.leave('b');
    expect(table.choose({ prefix })).toBe('none');
    table.tell({ ...told('c'), draining: true });
    expect(table.choose({ prefix })).toBe('none');
  });
});
