import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { modelCalls } from '../app/shared/model_calls.js';
import { testAdapters } from '../gpu/testing/adapters.js';
import { load } from '../index.js';
import { writeModelFolder } from '../model/testing/random_model.js';
import { makeRandomVision } from '../model/testing/random_vision.js';
import { tone, wavOf } from '../sound/testing/wav.js';
import { logitsHere, runHere } from './testing/run_here.js';

const folder = await mkdtemp(join(tmpdir(), 'splitkv-sound-'));
afterAll(() => rm(folder, { recursive: true, force: true }));
const made = makeRandomVision({ kind: 'gemma4', seed: 8, sound: { layers: 1 } });
await writeModelFolder(join(folder, 'model'), made.files);
const low = wavOf(tone(3000, 200));
const [lowPath, highPath] = ['low.wav', 'high.wav'].map((name) => join(folder, name)) as [string, string];
await writeFile(lowPath, low);
await writeFile(highPath, wavOf(tone(3000, 900)));
const adapter = (await testAdapters()).at(-1)!.name;
const common = [join(folder, 'model'), '--adapter', adapter, '--context', '300', '--json'];

const logits = (...args: string[]) => logitsHere(...common, ...args);

test('--audio: of a text, of ids, and of a message', { timeout: 120_000 }, async () => {
  const files = [...made.files].map(([name, bytes]) => new File([bytes], name));
  const model = await load(files, { adapter, sound: true, contextLength: 300 });
  try {
    const url = `data:audio/*;base64,${Buffer.from(low).toString('base64')}`;
    const ids = await model.readPrompt({ prompt: 'so <|audio|>', sounds: [url] });
    const asText = await logits('--prompt', 'so <|audio|>', '--audio', lowPath);
    expect(asText.positions).toEqual([ids.length - 1]);
    const asIds = ids.map((id) => (id >= 2 ** 31 ? 303 : id)).join(',');
    expect(await logits('--tokens', asIds, '--audio', lowPath)).toEqual(asText);
    expect((await logits('--tokens', asIds, '--audio', highPath)).sha256).not.toBe(asText.sha256);
    const { generate } = modelCalls(model);
    const options = { maxTokens: 4, ignoreEos: true, seed: 1 };
    // Where the text has no placeholder, the recording comes first.
    const first = await generate({}, { prompt: 'so', sounds: [url] }, {}, options);
    const content = [{ type: 'audio', audio: url } as const, { type: 'text', text: 'so' } as const];
    const answer = await model.generate({ messages: [{ role: 'user', content }] }, options).result;
    expect(first.tokens).toEqual(answer.tokens);
    await expect(generate({}, { prompt: '<|audio|><|audio|>', sounds: [url] }, {}, options)).rejects.toThrow(
      /2 placeholders <\|audio\|>; there are 1 sounds/,
    );
    const told = await runHere(['generate', ...common, '--prompt', 'so', '--audio', lowPath, '--max-tokens', '3']);
    expect(told.code, told.stderr).toBe(0);
    expect((JSON.parse(told.stdout) as { tokens: number[] }).tokens.length).toBeGreaterThan(0);
  } finally {
    await model.dispose();
  }
});

test('what is refused', { timeout: 120_000 }, async () => {
  const missing = await runHere(['generate', ...common, '--prompt', 'a', '--audio', join(folder, 'none.wav')]);
  expect(missing.stderr).toMatch(/--audio .*none\.wav: can't be read/);
  const other = join(folder, 'a.mp3');
  await writeFile(other, new Uint8Array(100));
  const coded = await runHere(['generate', ...common, '--prompt', 'a', '--audio', other]);
  expect(coded.code).not.toBe(0);
  expect(coded.stderr).toMatch(/no WAV file is decoded in pages alone; convert it first: ffmpeg/);
});
