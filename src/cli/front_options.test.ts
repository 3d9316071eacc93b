import { expect, test } from 'vitest';
import { frontOptions, frontSpecs } from './front_options.js';
import { modelOptions } from './model_options.js';
import { parseOptions } from './options.js';

const terminal = { write: async () => {}, note: () => {}, progress: () => {}, signal: new AbortController().signal };

test.each([
  [[], undefined],
  [['--images'], 2 ** 24],
  [['--images', '--max-body', '3MiB'], 3 * 2 ** 20],
])('a request has room for pictures where they are taken: %j', async (argv, bytes) => {
  const options = parseOptions('serve', { ...frontSpecs, ...modelOptions }, argv);
  expect((await frontOptions(options, terminal)).maxBodyBytes).toBe(bytes);
});
