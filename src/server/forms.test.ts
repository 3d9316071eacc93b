import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { ServingModel } from '../index.js';
import type { ApiServer } from './api_server.js';
import { openTestModel, startTestServer } from './testing/test_server.js';

let model: ServingModel;
let server: ApiServer;
const errors: unknown[] = [];
beforeAll(async () => {
  model = await openTestModel();
  server = await startTestServer(model, { onError: (error) => errors.push(error) });
});
afterEach(() => expect(errors.splice(0)).toEqual([]));
afterAll(async () => {
  await server.close();
  await model.dispose();
});

async function ask(body: object): Promise<{ status: number; text: string; message: string }> {
  const response = await fetch(`${server.url}/v1/completions`, {
    method: 'POST',
    body: JSON.stringify({ prompt: 'a', max_tokens: 8, ...body }),
  });
  const { choices, error } = (await response.json()) as {
    choices?: { text: string }[];
    error?: { message: string };
  };
  return { status: response.status, text: choices?.[0]?.text ?? '', message: error?.message ?? '' };
}

const schemaOf = (schema: unknown) => ({
  response_format: { type: 'json_schema', json_schema: { name: 'x', schema } },
});

test('a form that takes for ever: others are answered meanwhile, and it is refused', { timeout: 120_000 }, async () => {
  expect(await ask({ choice: ['yes'] })).toMatchObject({ status: 200, text: 'yes' });
  let isOver = false;
  const hostile = ask({ regex: '(a?){19000}' }).finally(() => (isOver = true));
  let meanwhile = 0;
  while (!isOver) {
    expect((await fetch(`${server.url}/livez`)).status).toBe(200);
    expect(await ask({ max_tokens: 2 })).toMatchObject({ status: 200 });
    // A form that is known waits for no turn.
    expect(await ask({ choice: ['yes'] })).toMatchObject({ status: 200, text: 'yes' });
    meanwhile++;
  }
  const { status, message } = await hostile;
  expect(status).toBe(400);
  expect(message.length).toBeLessThan(500);
  expect(meanwhile).toBeGreaterThan(0);
  // It is known, too: nothing is done for it again.
  expect(await ask({ regex: '(a?){19000}' })).toMatchObject({ status: 400, message });
});

test('a schema nested 20,000 deep is refused, and so is one that only the thread could read', async () => {
  for (const [depth, wrap] of [
    [20_000, '{"a":'],
    [5000, '{"items":'],
  ] as const) {
    const schema = `${wrap.repeat(depth)}{}${'}'.repeat(depth)}`;
    const body = JSON.stringify({ prompt: 'a', ...schemaOf('SCHEMA') }).replace('"SCHEMA"', () => schema);
    const response = await fetch(`${server.url}/v1/completions`, { method: 'POST', body });
    expect(response.status).toBe(400);
    expect(await response.text()).toContain('nested more than 500 deep');
  }
});

test('a client that goes away frees what waits for its form', async () => {
  // Where its client doesn't rest.
  const other = await startTestServer(model, { onError: (error) => errors.push(error) });
  const leaving = new AbortController();
  const gone = fetch(`${other.url}/v1/completions`, {
    method: 'POST',
    body: JSON.stringify({ prompt: 'a', max_tokens: 8, regex: '(b?){19000}' }),
    signal: leaving.signal,
  });
  await expect.poll(() => other.live).toBe(1);
  leaving.abort();
  await expect(gone).rejects.toThrow();
  await expect.poll(() => other.live).toBe(0);
  await other.close();
});
