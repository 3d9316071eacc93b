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
