import { expect, test } from 'vitest';
import { SplitkvError } from './errors.js';
import { checkOptions, oneOf, wholeNumber } from './options.js';

interface Options {
  readonly slots?: number;
  readonly seed?: number;
  readonly kv?: string;
  readonly signal?: AbortSignal;
}
const check = (options: object) => () =>
  checkOptions<Options>('serve', options, {
    slots: wholeNumber(1, 16),
    seed: wholeNumber(0),
    kv: oneOf(['f32', 'f16']),
    signal: true,
  });

test('options that are known, and left out', () => {
  check({})();
  check({ slots: 16, seed: 0, kv: 'f16', signal: 'anything' })();
  check({ slots: undefined, kv: undefined })();
});

test.each([
  [{ slot: 1 }, "serve: unknown option 'slot'. Did you mean 'slots'?"],
  [{ constructor: 1 }, "serve: unknown option 'constructor'."],
  [{ slots: 0 }, 'slots 0: expected an integer from 1 to 16'],
  [{ slots: 17 }, 'slots 17: expected'],
  [{ slots: '2' }, 'slots 2: expected an integer'],
  [{ seed: -1 }, 'seed -1: expected an integer of at least 0'],
  [{ seed: NaN }, 'seed NaN: expected'],
  [{ kv: 'F16' }, "kv 'F16': use f32, f16. Did you mean 'f16'?"],
  [{ kv: null }, "kv 'null': use f32, f16."],
  [null, 'serve: expected an object of options, not null'],
  [5, 'serve: expected an object of options, not 5'],
])('%j', (options, message) => {
  expect(check(options as object)).toThrow(message);
  expect(check(options as object)).toThrow(SplitkvError);
});
