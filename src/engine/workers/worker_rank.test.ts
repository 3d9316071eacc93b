import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { SplitkvError } from '../../base/errors.js';
import type { WorkerCommand, WorkerEvents } from './worker_protocol.js';
import { WorkerRank } from './worker_rank.js';

/** A worker that does nothing by itself, and the rank in it. */
function open() {
  const posted: WorkerCommand[] = [];
  const held: boolean[] = [];
  let events: WorkerEvents | undefined;
  let gone = (): void => {};
  const end = vi.fn(() => new Promise<void>((resolve) => (gone = resolve)));
  const died = vi.fn<(reason: SplitkvError) => void>();
  const rank = new WorkerRank(
    1,
    (given) => {
      events = given;
      return { post: (command) => void posted.push(command), hold: (value) => void held.push(value), end };
    },
    { warning: () => {}, died },
    { pingMs: 1000, pings: 3 },
  );
  const answer = (id: number, result: unknown): void => events!.message({ type: 'answer', id, result });
  return { rank, posted, held, end, died, events: events!, answer, gone: () => gone() };
}

const call = { type: 'call', method: 'counts', args: [] } as const;

describe('a rank in a worker', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  test('gives each request its answer, in any order, and holds the process only while it waits', async () => {
    const { rank, held, answer, posted } = open();
    expect(held).toEqual([false]);
    const asked = [rank.ask(call), rank.ask(call)];
    expect(posted).toHaveLength(2);
    answer(1, 'second');
    answer(0, 'first');
    expect(await Promise.all(asked)).toEqual(['first', 'second']);
    expect(held).toEqual([false, true, false]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(posted, 'nobody is pinged while nothing is asked').toHaveLength(2);
  });

  test('an error keeps code and message', async () => {
    const { rank, events } = open();
    const asked = rank.ask(call);
    events.message({ type: 'failure', id: 0, reason: { kind: 'error', code: 'limit', message: 'too small' } });
    await expect(asked).rejects.toMatchObject({ name: 'SplitkvError', code: 'limit', message: 'too small' });
  });

  test('a worker that is long at work but answers pings is waited for', async () => {
    const { rank, posted, answer, died } = open();
    const asked = rank.ask(call);
    for (let second = 0; second < 50; second++) {
      await vi.advanceTimersByTimeAsync(1000);
      const ping = posted.at(-1)!;
      expect(ping).toMatchObject({ request: { type: 'ping' } });
      if (ping.type === 'request') answer(ping.id, undefined);
    }
    answer(0, 'at last');
    expect(await asked).toBe('at last');
    expect(died).not.toHaveBeenCalled();
  });

  test('a silent worker ends every wait', async () => {
    const { rank, answer, died, end } = open();
    const first = rank.ask(call);
    answer(0, undefined);
    await first;
    const asked = [rank.ask(call), rank.ask(call)].map((wait) => wait.catch((error: unknown) => error));
    await vi.advanceTimersByTimeAsync(3999);
    expect(died).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    const errors = await Promise.all(asked);
    expect(errors[0]).toMatchObject({
      code: 'peer_lost',
      message: expect.stringMatching(/rank 1's worker.*3 s.*recover/),
    });
    expect(errors[1]).toBe(errors[0]);
    expect(died).toHaveBeenCalledExactlyOnceWith(errors[0]);
    expect(end).toHaveBeenCalled();
    await expect(rank.ask(call)).rejects.toBe(errors[0]);
    expect(rank.failure).toBe(errors[0]);
  });

  test('a worker that never starts says so', async () => {
    const { rank, events, died } = open();
    const asked = rank.ask(call);
    events.ended('no such file');
    events.ended('again');
    await expect(asked).rejects.toMatchObject({ code: 'io', message: expect.stringMatching(/started.*no such file/) });
    expect(died).toHaveBeenCalledTimes(1);
  });

  test('a message that cannot be sent fails its request alone', async () => {
    const { rank, answer } = open();
    const failing = new WorkerRank(
      0,
      () => ({
        post: () => {
          throw new Error("can't be cloned");
        },
        hold: () => {},
        end: () => Promise.resolve(),
      }),
      { warning: () => {}, died: () => {} },
    );
    await expect(failing.ask(call)).rejects.toThrow("can't be cloned");
    const asked = rank.ask(call);
    answer(0, 1);
    expect(await asked).toBe(1);
  });

  test('dispose asks the worker to free everything, then waits for its end, both not for ever', async () => {
    const { rank, posted, answer, end, gone } = open();
    const waiting = rank.ask(call);
    let over = false;
    const disposing = rank.close().then(() => (over = true));
    expect(posted.at(-1)).toMatchObject({ request: { type: 'dispose' } });
    expect(end).not.toHaveBeenCalled();
    answer(1, undefined);
    await expect(waiting).rejects.toMatchObject({ code: 'usage', message: expect.stringContaining('disposed') });
    expect(end).toHaveBeenCalled();
    expect(over).toBe(false);
    gone();
    await disposing;

    const deaf = open();
    let given = false;
    void deaf.rank.close().then(() => (given = true));
    await vi.advanceTimersByTimeAsync(60_000);
    expect(given).toBe(true);
    expect(deaf.held.at(-1)).toBe(false);
  });
});
