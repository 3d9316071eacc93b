import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { startPageServer } from './page_server.js';

test('serves the page and the model, and leaves signals to the command line', async () => {
  const listeners = process.listenerCount('SIGTERM');
  const server = await startPageServer('models/tiny-gqa');
  try {
    expect(process.listenerCount('SIGTERM')).toBe(listeners);
    expect((await fetch(`${server.url}host.html`)).status).toBe(200);
    expect(await (await fetch(`${server.modelUrl}config.json`)).json()).toHaveProperty('vocab_size');
    expect((await fetch(`${server.modelUrl}missing.json`)).status).toBe(404);
  } finally {
    await server.close();
  }
});

test('serves the parts of a GGUF model from the folder it is in', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'splitkv my '));
  await writeFile(join(folder, 'a #1.gguf'), 'GGUF');
  const server = await startPageServer(join(folder, 'a #1.gguf'));
  try {
    expect(server.modelUrl).toMatch(/\/a%20%231\.gguf$/);
    expect(await (await fetch(server.modelUrl)).text()).toBe('GGUF');
  } finally {
    await server.close();
    await rm(folder, { recursive: true });
  }
});
