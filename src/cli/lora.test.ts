import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { testAdapters } from '../gpu/testing/adapters.js';
import { startHub } from '../loader/testing/hub_server.js';
import { randomAdapter } from '../model/testing/random_adapter.js';
import { makeRandomModel, writeModelFolder } from '../model/testing/random_model.js';
import { servedAdapters } from './lora_options.js';
import { Options } from './options.js';
import { logitsHere, runHere } from './testing/run_here.js';

const folder = await mkdtemp(join(tmpdir(), 'lora-'));
const [model, lora] = [join(folder, 'model'), join(folder, 'lora')];
const adapter = (await testAdapters()).at(-1)!.name;
let loraFiles: ReturnType<typeof randomAdapter>['files'];

beforeAll(async () => {
  const made = makeRandomModel({ seed: 71 });
  await writeModelFolder(model, made.files);
  loraFiles = randomAdapter(made, { seed: 1 }).files;
  await writeModelFolder(lora, loraFiles);
});
afterAll(() => rm(folder, { recursive: true }));

test('logits with an adapter, and with half of it once or twice', { timeout: 120_000 }, async () => {
  const logits = async (...more: string[]): Promise<string> => {
    const args = [model, '--tokens', '1,2,3', '--adapter', adapter, '--json', ...more];
    return (await logitsHere(...args)).sha256;
  };
  const whole = await logits('--lora', lora);
  expect(await logits('--lora', `${lora}=1.0`)).toBe(whole);
  const half = await logits('--lora', `${lora}=0.5`);
  expect(half).not.toBe(whole);
  expect(await logits('--lora', `${lora}=0.5`, '--lora', `${lora}=0.5`)).not.toBe(half);
  expect(await logits()).not.toBe(whole);
  const hub = await startHub({ 'org/lora': { files: Object.fromEntries(loraFiles), private: true } });
  hub.tokens.set('hf_own', { accepted: true });
  vi.stubEnv('HF_HOME', folder);
  expect(await logits('--lora', 'hf:org/lora=1.0', '--hub', hub.url, '--hub-token', 'hf_own')).toBe(whole);
  vi.unstubAllEnvs();
  await hub[Symbol.asyncDispose]();
});

test('what is wrong is said', async () => {
  const args = ['generate', model, 'hi', '--adapter', adapter, '--lora'];
  const missing = await runHere([...args, join(folder, 'none')]);
  expect(missing).toMatchObject({ code: 1 });
  expect(missing.stderr).toMatch(/none/);
  const chrome = await runHere(['generate', model, 'hi', '--host', 'chrome', '--lora', lora]);
  expect(chrome).toMatchObject({ code: 2 });
  expect(chrome.stderr).toMatch(/--lora needs --host node/);
});

test('a server names each by its folder or file', () => {
  const of = (...texts: string[]) => servedAdapters(new Options(new Map([['lora', texts]])));
  expect(of('a/sql/', 'b/chat.gguf=0.5')).toEqual({
    adapters: { sql: { from: 'a/sql/' }, chat: { from: 'b/chat.gguf', scale: 0.5 } },
  });
  const hubs = of('hf:Org/My.LoRA@v2', 'org/two:Q8_0=0.5', 'org/g@v1/q/c.gguf', 'https://a.b/x/three/?sig=1/2');
  expect(Object.keys(hubs.adapters!)).toEqual(['My.LoRA', 'two', 'c', 'three']);
  expect(() => of('a/sql', 'b/sql')).toThrow(/there is one of the name sql/);
});
