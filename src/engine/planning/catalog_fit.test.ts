import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { load, planModel } from '../../entry.js';
import { bestOf, catalogFit } from './catalog_fit.js';

const GIB = 2 ** 30;
const best = async (memory: number, bytesPerSecond: number, weights: 'auto' | 'f16' = 'auto') =>
  bestOf(await catalogFit({ memory, weights }), bytesPerSecond);

test("'auto' is the largest model that fits and writes as fast as people read", async () => {
  expect((await best(GIB, 200e9)).why).toMatch(/^lfm2\.5-1\.2b-instruct, the largest of \d+ that fit .*expected: 270/);
  expect(await best(4 * GIB, 200e9)).toMatchObject({ name: 'gemma-4-e4b-it' });
  // Room for it, but too slow: 2.8 GiB a token.
  expect(await best(4 * GIB, 8e9)).toMatchObject({ name: 'lfm2.5-1.2b-instruct' });
  expect(await best(4 * GIB, 0.5e9)).toMatchObject({ name: 'smollm2-135m-instruct' });
  expect((await best(4 * GIB, 0.5e9)).why).toContain('the quickest: none writes 10 tokens/s here');
  // Other weights than the file's, if they are asked for.
  expect(await best(4 * GIB, 200e9, 'f16')).toMatchObject({ name: 'qwen3.5-2b' });
});

test('nothing is chosen that has no room', async () => {
  const fits = await catalogFit({ memory: 3 * GIB });
  for (const speed of [1e9, 10e9, 100e9, 1000e9]) {
    const { name } = bestOf(fits, speed);
    expect(
      fits.find((fit) => fit.model.name === name),
      name,
    ).toMatchObject({ missing: 0 });
  }
  await expect(load('auto', { memory: 10e6 })).rejects.toMatchObject({
    code: 'limit',
    message: expect.stringContaining('granite-4.0-h-350m takes') as string,
  });
  await expect(load('auto', { cluster: { servers: 'ws://127.0.0.1:1' } })).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringContaining('name a model for a cluster') as string,
  });
});

test('load and planModel ask the hub for what was chosen, by its repository', async () => {
  const asked = new Set<string>();
  const server = createServer(({ url = '' }, answer) => {
    asked.add(url.replace(/.*(bartowski\/[^/]+).*/, '$1'));
    answer.writeHead(404).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    const options = { memory: 400e6, hub: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
    const named = /SmolLM2-135M-Instruct-GGUF/;
    await expect(load('auto', options)).rejects.toMatchObject({ message: expect.stringMatching(named) as string });
    await expect(planModel('auto', options)).rejects.toMatchObject({ message: expect.stringMatching(named) as string });
    expect([...asked]).toEqual(['bartowski/SmolLM2-135M-Instruct-GGUF']);
  } finally {
    server.close();
  }
});
