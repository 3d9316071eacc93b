import { afterAll, describe, expect, test, vi } from 'vitest';
import { SplitkvError } from '../base/errors.js';
import { type Device, openDevice } from '../gpu/index.js';
import { testAdapters } from '../gpu/testing/adapters.js';
import { allGather, broadcast, receive, scatter } from './testing/collectives.js';
import type { Communicator } from './communicator.js';
import { createGroup } from './create_group.js';
import { createPortCommunicator } from './ports/port_transport.js';
import { Reduction } from './testing/reduction.js';
import { part, TestRank } from './testing/test_rank.js';

const { name } = (await testAdapters()).at(-1)!;
const devices = await Promise.all([0, 1, 2].map(() => openDevice({ adapterName: name })));
afterAll(() => devices.forEach((device) => device.dispose()));

/** Runs the body on every rank of a group. */
async function withGroup<T>(on: readonly Device[], body: (rank: TestRank) => Promise<T>): Promise<T[]> {
  const ranks = createGroup(on).map((comm) => new TestRank(comm));
  try {
    return await Promise.all(ranks.map(body));
  } finally {
    for (const rank of ranks) rank.dispose();
    for (const { comm } of ranks) comm.dispose();
  }
}

describe('the cost of an exchange', () => {
  test.each([
    ['on one device', [devices[0]!, devices[0]!]],
    ['through the host', [devices[0]!, devices[1]!]],
  ])('%s: one submit a rank, and no new buffer in a steady loop', async (_where, on) => {
    const ranks = createGroup(on).map((comm) => new TestRank(comm));
    const loops = ranks.map((rank) => {
      const all = rank.buffer('all', 20);
      const parts = rank.ranks.map((r) => part(all, r * 10, 10));
      const exchange = allGather(rank.comm, 'all gather', parts[rank.rank]!, parts);
      return async (rounds: number): Promise<void> => {
        for (let round = 0; round < rounds; round++) await rank.exchange(exchange);
      };
    });
    await Promise.all(loops.map((loop) => loop(3)));
    const distinct = [...new Set(on)];
    const submits = distinct.map((device) => vi.spyOn(device.gpu.queue, 'submit'));
    const creations = distinct.map((device) => vi.spyOn(device.gpu, 'createBuffer'));
    await Promise.all(loops.map((loop) => loop(20)));
    expect(submits.flatMap((spy) => spy.mock.calls)).toHaveLength(20 * on.length);
    for (const spy of creations) expect(spy).not.toHaveBeenCalled();
    vi.restoreAllMocks();
    for (const rank of ranks) {
      rank.dispose();
      rank.comm.dispose();
    }
  });

  test('a broadcast is staged once, however many ranks get it', async () => {
    const [root] = devices;
    const maps = vi.spyOn(GPUBuffer.prototype, 'mapAsync');
    await withGroup(devices, async (rank) => {
      const region = part(rank.buffer('payload', 1000), 0, 1000);
      await rank.exchange(broadcast(rank.comm, 'broadcast', 0, region));
    });
    expect(maps.mock.calls).toEqual([[GPUMapMode.READ, 0, 4000]]);
    expect(root!.usage.buffers).toBe(0);
    vi.restoreAllMocks();
  });

  test('is counted', async () => {
    const stats = await withGroup(devices, async (rank) => {
      const { comm } = rank;
      const source = rank.buffer('source', 8);
      const mine = rank.buffer('mine', 4);
      const counts = [2, 1, 0];
      const parts = counts.map((words, r) => part(source, r * 2, words));
      await rank.exchange(scatter(comm, 'scatter', 0, parts, part(mine, 0, counts[rank.rank]!)));
      return { ...comm.stats };
    });
    const times = { moveMs: expect.any(Number), waitMs: expect.any(Number) };
    // A rank's part to itself and an empty part are no messages.
    expect(stats).toEqual([
      { exchanges: 1, messages: 1, bytesSent: 4, bytesReceived: 0, ...times },
      { exchanges: 1, messages: 0, bytesSent: 0, bytesReceived: 4, ...times },
      { exchanges: 1, messages: 0, bytesSent: 0, bytesReceived: 0, ...times },
    ]);
  });
});

describe('an abort', () => {
  const waiting = (rank: TestRank): Promise<void> =>
    rank.exchange(receive('wait', 0, part(rank.buffer('never', 1), 0, 1)));

  test.each([
    ['an error', new Error('why')],
    ['a value', 'stop'],
    ['nothing', undefined],
  ])('gives every rank of a process the reason itself: %s', async (_what, reason) => {
    const [root, ...others] = await withGroup(devices, async (rank) => {
      if (rank.rank > 0)
        return waiting(rank).then(
          () => 'resolved',
          (error: unknown) => ({ error }),
        );
      rank.comm.abort(reason);
      return undefined;
    });
    expect(root).toBeUndefined();
    for (const other of others) expect((other as { error: unknown }).error).toBe(reason);
  });

  test('while bytes are on their way leaves nothing behind', async () => {
    const ends = await withGroup(devices.slice(0, 2), async (rank) => {
      const region = part(rank.buffer('payload', 2 ** 20), 0, 2 ** 20);
      const end = rank.exchange(broadcast(rank.comm, 'broadcast', 0, region)).catch((error: unknown) => error);
      if (rank.rank === 0) rank.comm.abort(new SplitkvError('aborted', 'enough'));
      return end;
    });
    for (const end of ends) expect(end).toMatchObject({ code: 'aborted', message: 'enough' });
    for (const device of devices) {
      await device.gpu.queue.onSubmittedWorkDone();
      expect(device.usage.buffers).toBe(0);
    }
  });
});

describe('wrong use is refused', () => {
  const [device] = devices;
  const usage = (message: RegExp) =>
    expect.objectContaining({ code: 'usage', message: expect.stringMatching(message) });

  test.each([0, -1, Number.NaN, 2 ** 31])('time limit %d', (timeoutMs) => {
    expect(() => createGroup([device!], { timeoutMs })).toThrow(usage(/^timeoutMs .*: expected milliseconds/));
  });

  test('a rank without ports to all peers, and one that is not in the group', () => {
    const options = { worldSize: 3, device: device!, ports: new Map() };
    expect(() => createPortCommunicator({ ...options, rank: 1 })).toThrow(usage(/no port to rank 0; see createPorts/));
    expect(() => createPortCommunicator({ ...options, rank: 3 })).toThrow(usage(/expected a whole number from 0 to 2/));
  });

  test('collectives with a root or parts that cannot be', async () => {
    await withGroup([device!, device!], async (rank) => {
      const region = part(rank.buffer('payload', 4), 0, 4);
      const group: Communicator = rank.comm;
      expect(() => broadcast(group, 'b', 2, region)).toThrow(usage(/^b: root 2, but there are ranks 0 to 1$/));
      expect(() => allGather(group, 'g', region, [region])).toThrow(usage(/^g: 1 parts for 2 ranks/));
      expect(() => Reduction.allReduce(group, 'r', region, part(region.buffer, 0, 3))).toThrow(
        usage(/^r: the input has 16 bytes and the output 12/),
      );
    });
  });

  test('another device’s buffer', async () => {
    const foreign = devices[1]!.createBuffer('foreign', 4);
    const [end] = await withGroup([device!], (rank) =>
      rank.exchange(receive('wrong', 0, { buffer: foreign, offset: 0, size: 4 })).catch((error: unknown) => error),
    );
    expect(end).toEqual(usage(/buffer 'foreign' is another device's/));
    foreign.dispose();
  });
});
