import { expect, test } from 'vitest';
import { limitError, usageError } from '../../src/base/errors.js';
import { openFitting } from './throughput.js';

/** Opens two rivals; the second one finds no room beyond `most` tokens. */
function rivalsUpTo(most: number) {
  const open = new Set<number>();
  return {
    open,
    async *opener(longest: number) {
      const contextLength = longest + 1;
      for (const rival of [0, 1]) {
        if (rival === 1 && contextLength > most) throw limitError(`${contextLength} tokens are too many`);
        open.add(rival);
        yield Promise.resolve({ group: { dispose: () => void open.delete(rival) } });
      }
    },
  };
}

test.each([
  [1000, [16, 512, 64], []],
  [100, [16, 64], ['4 sequences of 512 tokens are left out: 513 tokens are too many']],
  [
    10,
    [],
    [
      '4 sequences of 512 tokens are left out: 513 tokens are too many',
      '4 sequences of 64 tokens are left out: 65 tokens are too many',
      '4 sequences of 16 tokens are left out: 17 tokens are too many',
    ],
  ],
])('room for %i tokens: contexts %j are measured', async (most, expected, told) => {
  const { open, opener } = rivalsUpTo(most);
  const warnings: string[] = [];
  const hooks = { onWarning: (message: string) => void warnings.push(message) };
  const { rivals, fitting } = await openFitting([16, 512, 64], hooks, 4, opener);
  expect(fitting).toEqual(expected);
  expect(warnings).toEqual(told);
  // What was opened before an adapter had no room is closed.
  expect([rivals.length, open.size]).toEqual(expected.length > 0 ? [2, 2] : [0, 0]);
});

test('other errors end the suite', async () => {
  // oxlint-disable-next-line require-yield
  const opener = async function* (): AsyncGenerator<{ group: { dispose(): void } }> {
    await Promise.resolve();
    throw usageError('no such plan');
  };
  await expect(openFitting([16], { onWarning: () => {} }, 4, opener)).rejects.toThrow('no such plan');
});
