import { expect, test } from 'vitest';
import { readParameters } from './parameters.js';

const read = (query: string): ReturnType<typeof readParameters> => readParameters(new URLSearchParams(query));

test('an address without parameters leaves everything to the library', () => {
  expect(read('')).toEqual({ model: undefined, maxTokens: 256, load: {} });
});

test('each parameter becomes an option', () => {
  const all =
    'model=/m/&weights=q4&kv=f16&context=512&max-tokens=9&ranks=4&plan=pp%20x%20tp&tensor=2&token=1&virtual=1&memory=1.5MB,300MiB&requests=2&tune=0&prefix-caching=1&kv-budget=0.2&attention-dp-config={"enable_balance":false}';
  expect(read(all)).toEqual({
    model: '/m/',
    maxTokens: 9,
    load: {
      weights: 'q4',
      kv: 'f16',
      contextLength: 512,
      ranks: 4,
      plan: 'pp x tp',
      tensor: 2,
      token: 1,
      virtualRanks: true,
      memory: [1_500_000, 300 * 2 ** 20],
      requests: 2,
      tune: false,
      prefixCaching: true,
      kvBudget: 0.2,
      attentionDpConfig: { enable_balance: false },
    },
  });
});

test('ranks are a number or adapters', () => {
  expect(read('ranks=high-performance,low-power').load.ranks).toEqual(['high-performance', 'low-power']);
  expect(read('ranks=2&virtual=0').load).toEqual({ ranks: 2, virtualRanks: false });
  expect(() => read('ranks=2.5')).toThrow('ranks=2.5 in the address: expected a number of ranks');
  expect(() => read('ranks=low-power,')).toThrow('ranks=low-power, in the address: expected a number of ranks');
});

test.each([
  ['top_k=2', "unknown parameter 'top_k' in the address."],
  ['kv=q9', "kv=q9 in the address: expected auto, f32, f16, q8. Did you mean 'q8'?"],
  ['rank=2', "unknown parameter 'rank' in the address. Did you mean 'ranks'?"],
  ['ranks=2&ranks=4', 'ranks is twice in the address; give it once'],
  ['context=-1', 'context=-1 in the address: expected an integer from 1 to 1048576'],
  ['requests=two', 'requests=two in the address: expected an integer from 1 to 64'],
  [
    'virtual=yes',
    'virtual=yes in the address: expected 1 (all ranks on one device: tries a plan without more GPUs) or 0',
  ],
  ['attention-dp-config=off', 'attention-dp-config=off in the address: expected JSON, such as'],
  ['memory=much', 'memory=much in the address: expected a size such as 500MB'],
])('%s is refused', (query, message) => {
  expect(() => read(query)).toThrow(message);
});
