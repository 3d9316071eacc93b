import { expect, test } from 'vitest';
import type { RankState } from '../../src/cluster/ranks/rank_host.js';
import { heldText, stateText, stateWord, wrongParameters } from './rank_words.js';

const part = { model: 'tiny-gqa', rank: 1, ranks: 2 };

test.each<[word: string, state: RankState, text: RegExp, held: RegExp]>([
  ['free', { connected: true }, /^Free: it waits for a model\.$/, /^nothing$/],
  ['free', { connected: true, left: 'the coordinator is gone: it left' }, /The last one went: .*left\.$/, /^nothing$/],
  ['busy', { connected: true, serving: {} }, /somebody came/, /^nothing$/],
  [
    'busy',
    { connected: true, serving: { ...part, loadedBytes: 2 ** 20, totalBytes: 2 ** 21 } },
    /^Loading its part of tiny-gqa, as rank 1 of 2\.$/,
    /^1\.0 MiB of 2\.0 MiB of weights$/,
  ],
  [
    'busy',
    { connected: true, serving: { model: 'tiny-gqa', rank: 0, ranks: 1, weightBytes: 2 ** 21, kvBytes: 2 ** 20 } },
    /^Busy with tiny-gqa\.$/,
    /^2\.0 MiB of weights, 1\.0 MiB of KV cache$/,
  ],
  ['lost', { connected: true, serving: { ...part, lost: 'the driver restarted' } }, /lost \(the driver/, /^nothing$/],
  ['away', { connected: false, serving: part }, /doesn't answer/, /^nothing$/],
  ['refused', { connected: false, refused: 'it was turned away: no' }, /^It was turned away: no\.$/, /^nothing$/],
])('%s', (word, state, text, held) => {
  expect(stateWord(state)).toBe(word);
  expect(stateText(state)).toMatch(text);
  expect(heldText(state)).toMatch(held);
});

test('an address says what it may say, and no token', () => {
  const wrong = (query: string): string => wrongParameters(new URLSearchParams(query));
  expect(wrong('cluster=wss://host&name=a&cluster-name=b&adapter=low-power&memory=1GB')).toBe('');
  expect(wrong('token=secret')).toMatch(/isn't used/);
  expect(wrong('token=secret')).not.toContain('secret');
  expect(wrong('clustr=wss://host')).toMatch(/'clustr', which means nothing here.*cluster/);
});
