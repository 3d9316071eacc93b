/**
 * Room: what every way to link ranks must do, as one suite: programs of exchanges (programs.ts), faults
 * (fault_programs.ts), in this thread and in workers.
 */

import { afterAll, describe, expect, test } from 'vitest';
import type { ProgramArgs, ProgramName, ProgramResult, TestLinks } from './programs.js';
import { RESOLVED } from './test_rank.js';

/** One suite for every kind of links: the same messages arrive, and every wait ends. */
export function conformance(title: string, links: TestLinks): void {
  const { worldSize } = links;
  const everyone = Array.from({ length: worldSize }, (_, rank) => rank);

  /** Runs a program in a group of its own, which must leave no buffers. */
  async function run<P extends ProgramName>(
    name: P,
    args: ProgramArgs<P>,
    options?: { readonly timeoutMs?: number },
  ): Promise<ProgramResult<P>[]> {
    const group = await links.open(options);
    const results = await group.run(name, args);
    expect((await group.close()).leaked, 'buffers left').toBe(0);
    return results;
  }

  async function expectData(name: Exclude<ProgramName, FaultName>, args: never): Promise<void> {
    const findings = (await run(name, args)) as (string | undefined)[][];
    expect(findings).toHaveLength(worldSize);
    expect(findings.flat().filter((finding) => finding !== undefined)).toEqual([]);
  }
  const data = <P extends Exclude<ProgramName, FaultName>>(name: P, args: ProgramArgs<P>): Promise<void> =>
    expectData(name, args as never);

  describe(`links: ${title}`, () => {
    afterAll(() => links.end());

    describe('data arrives', () => {
      const uneven = everyone.map((rank) => [1000, 0, 7, 33][rank % 4]!);
      test.each([
        ['one word each', everyone.map(() => 1), 0],
        ['uneven and empty parts', uneven, worldSize - 1],
        ['all parts empty', everyone.map(() => 0), 0],
        ['one part only', everyone.map((rank) => (rank === worldSize - 1 ? 5 : 0)), 0],
      ])('by every collective: %s', (_what, counts, root) => data('collectives', { counts, root }));
      test.each([1, 4 * 2 ** 20])('round the ring: %i words', (count) => data('ring', { count }));
      test('whose regions are cut differently on both sides, by several messages and to oneself', () =>
        data('cuts', undefined));
      test('from a source that is overwritten at once', () => data('reuse', { rounds: 20, count: 3000 }));
      test('from the dispatches before, and is seen by those after', () => data('relay', { laps: 20 }));
      test('of two programs side by side', () => data('sideBySide', { rounds: 20 }));
      test('in a storm of random messages', () => data('storm', { rounds: 60, seed: 5 }));
      test.each([1, 1000, 2 ** 18 + 77])('added up in a tree of ranks: %i elements', (count) =>
        data('sums', { count, root: worldSize - 1 }),
      );
    });

    describe('every wait ends', () => {
      test.each([0, worldSize - 1])('when rank %i aborts', async (culprit) => {
        const reason = { code: 'context_full', message: 'the reason' };
        expect(await run('aborts', { culprit })).toEqual(everyone.map(() => [reason, reason]));
      });

      test('when a device is lost', async () => {
        for (const ends of await run('losesDevice', { culprit: 0 })) {
          for (const end of ends) {
            expect(end.code).toBe('device_lost');
            expect(end.message).toContain('the GPU device was lost');
          }
        }
      });

      test('when a rank leaves, after what it had sent', async () => {
        const [left, ...others] = await run('leaves', undefined);
        expect(left).toEqual([RESOLVED, expect.objectContaining({ code: 'usage' })]);
        for (const [first, second] of others) {
          expect(first).toEqual(RESOLVED);
          expect(second.code).toBe('peer_lost');
          expect(second.message).toContain('rank 0 is gone');
        }
      });

      if (links.workers) {
        test('when a worker ends', async () => {
          const [gone, ...others] = await run('vanishes', { culprit: 0 });
          expect(gone).toBeUndefined();
          expect(others).toHaveLength(worldSize - 1);
          for (const end of others.flat()) {
            expect(end.code).toBe('peer_lost');
            expect(end.message).toMatch(/rank \d is gone/);
          }
        });
      }

      test.each(['sender', 'receiver'] as const)('when sizes disagree, the %s first', async (first) => {
        const [sender, receiver] = await run('disagree', { first });
        const mismatch = {
          code: 'internal',
          message: expect.stringContaining('uneven: rank 0 sends 8 bytes where rank 1 expects 12'),
        };
        expect(receiver).toEqual([mismatch, mismatch]);
        // Its bytes may be on their way, and its exchange over, before the receiver sees them.
        if (sender![0].code !== 'resolved') expect(sender![0]).toEqual(mismatch);
        expect(sender![1]).toEqual(mismatch);
      });

      test('at the time limit', async () => {
        const ends = await run('comesLate', { ms: 1200 }, { timeoutMs: 200 });
        for (const [first, second] of ends) {
          // Ranks whose time is up at the same moment each say so of themselves.
          expect(first.code).toBe('peer_lost');
          expect(first.message).toMatch(/^exchange 7: rank \d waited 0.2 s for rank 0;/);
          expect(second).toEqual(first);
        }
      });

      test.each([
        ['peer', 'usage', /^wrong: rank 0 sends to rank \d, but there are ranks 0 to \d$/],
        [
          'region',
          'usage',
          /^wrong: rank 0 sends to rank 1: 12 bytes at 8 of 'payload' \(16 bytes\); offset and size must be/,
        ],
        ['own', 'internal', /^wrong: rank 0 sends itself 1 messages and receives 0 of them/],
        ['twice', 'internal', /^wrong: rank 0 is in the middle of another exchange$/],
      ] as const)('when a rank asks for what cannot be: %s', async (how, code, message) => {
        for (const end of (await run('misuses', { how })).flat()) {
          expect(end.code).toBe(code);
          expect(end.message).toMatch(message);
        }
      });
    });
  });
}

type FaultName = 'aborts' | 'losesDevice' | 'leaves' | 'vanishes' | 'disagree' | 'comesLate' | 'misuses';
