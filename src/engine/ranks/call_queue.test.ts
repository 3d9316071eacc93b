import { describe, expect, test } from 'vitest';
import { CallQueue } from './call_queue.js';

/** A call that ends when told to, and notes when it begins and ends. */
function calls() {
  const log: string[] = [];
  const ends = new Map<string, (error?: Error) => void>();
  const call = (name: string) => (): Promise<string> => {
    log.push(`+${name}`);
    return new Promise<string>((resolve, reject) => {
      ends.set(name, (error) => {
        log.push(`-${name}`);
        if (error) reject(error);
        else resolve(name);
      });
    });
  };
  const end = async (name: string, error?: Error): Promise<void> => {
    ends.get(name)!(error);
    await new Promise((resolve) => setTimeout(resolve, 0));
  };
  return { log, call, end };
}

describe('the order of calls', () => {
  test('calls alone run one after another, the first at once', async () => {
    const queue = new CallQueue();
    const { log, call, end } = calls();
    const results = [queue.alone(call('a')), queue.alone(call('b'))];
    expect(log).toEqual(['+a']);
    await end('a');
    await end('b');
    expect(log).toEqual(['+a', '-a', '+b', '-b']);
    expect(await Promise.all(results)).toEqual(['a', 'b']);
  });

  test('lanes run side by side, each in order, between calls alone', async () => {
    const queue = new CallQueue();
    const { log, call, end } = calls();
    void queue.alone(call('a'));
    void queue.inLane(0, call('x1'));
    void queue.inLane(1, call('y1'));
    void queue.inLane(0, call('x2'));
    void queue.alone(call('b'));
    void queue.inLane(1, call('y2'));
    expect(log).toEqual(['+a']);
    await end('a');
    expect(log.splice(0)).toEqual(['+a', '-a', '+x1', '+y1']);
    await end('x1');
    expect(log.splice(0)).toEqual(['-x1', '+x2']);
    await end('x2');
    expect(log.splice(0)).toEqual(['-x2']);
    await end('y1');
    expect(log.splice(0)).toEqual(['-y1', '+b']);
    await end('b');
    expect(log.splice(0)).toEqual(['-b', '+y2']);
    await end('y2');
    await queue.idle();
    void queue.inLane(1, call('y3'));
    expect(log).toEqual(['-y2', '+y3']);
  });

  test('a call that fails holds nobody up', async () => {
    const queue = new CallQueue();
    const { call, end } = calls();
    const first = queue.inLane(0, call('a'));
    const second = queue.alone(call('b'));
    const failed = expect(first).rejects.toThrow('no');
    await end('a', new Error('no'));
    await failed;
    await end('b');
    expect(await second).toBe('b');
    await queue.idle();
  });
});
