import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import sharp from 'sharp';
import { afterAll, expect, test } from 'vitest';
import { modelCalls } from '../app/shared/model_calls.js';
import { testAdapters } from '../gpu/testing/adapters.js';
import { load } from '../index.js';
import { mmprojOf, textGgufOf } from '../model/testing/gguf/mmproj.js';
import { makeRandomVision } from '../model/testing/random_vision.js';
import { writeModelFolder } from '../model/testing/random_model.js';
import { logitsHere, runHere } from './testing/run_here.js';

const folder = await mkdtemp(join(tmpdir(), 'splitkv-images-'));
afterAll(() => rm(folder, { recursive: true, force: true }));
const made = makeRandomVision({ seed: 8 });
await writeModelFolder(join(folder, 'model'), made.files);
const [red, blue] = ['red.png', 'blue.png'].map((name) => join(folder, name)) as [string, string];
for (const [path, background] of [
  [red, 'red'],
  [blue, 'blue'],
] as const)
  await writeFile(
    path,
    await sharp({ create: { width: 24, height: 40, channels: 3, background } })
      .png()
      .toBuffer(),
  );
const adapter = (await testAdapters()).at(-1)!.name;
const common = [join(folder, 'model'), '--adapter', adapter, '--context', '600', '--json'];

const logits = (...args: string[]) => logitsHere(...common, ...args);

test('--image: of a text, of ids, and of a message', { timeout: 120_000 }, async () => {
  const files = [...made.files].map(([name, bytes]) => new File([bytes], name));
  const model = await load(files, { adapter, images: true, contextLength: 600 });
  try {
    const url = `data:image/*;base64,${(await sharp(red).png().toBuffer()).toString('base64')}`;
    const ids = await model.readPrompt({ prompt: 'so <image>', images: [url] });
    const asText = await logits('--prompt', 'so <image>', '--image', red);
    expect(asText.positions).toEqual([ids.length - 1]);
    const asIds = ids.map((id) => (id >= 2 ** 31 ? 300 : id)).join(',');
    expect(await logits('--tokens', asIds, '--image', red)).toEqual(asText);
    expect((await logits('--tokens', asIds, '--image', blue)).sha256).not.toBe(asText.sha256);
    const { generate } = modelCalls(model);
    const options = { maxTokens: 4, ignoreEos: true, seed: 1 };
    // Where the text has no placeholder, the image comes first.
    const first = await generate({}, { prompt: 'so', images: [url] }, {}, options);
    const content = [{ type: 'image', image: url } as const, { type: 'text', text: 'so' } as const];
    expect(first.tokens).toEqual(
      (await model.generate({ messages: [{ role: 'user', content }] }, options).result).tokens,
    );
    const between = await generate({}, { prompt: 'so <image>!', images: [url] }, {}, options);
    expect(between.prompt_tokens).toBeGreaterThan(first.prompt_tokens);
    await expect(generate({}, { prompt: '<image><image>', images: [url] }, {}, options)).rejects.toThrow(
      /2 placeholders <image>; there are 1 images/,
    );
  } finally {
    await model.dispose();
  }
});

test.each([
  ['lfm2_vl', '<image>'],
  ['gemma4', '<|image|>'],
] as const)('--image of %s: at its own placeholder %s', { timeout: 120_000 }, async (kind, mark) => {
  const own = join(folder, kind);
  await writeModelFolder(own, makeRandomVision({ kind, seed: 8 }).files);
  const sha = async (image: string): Promise<string> => {
    const prompt = ['--prompt', `so ${mark} there`, '--image', image];
    return (await logitsHere(own, ...common.slice(1), ...prompt)).sha256;
  };
  expect(await sha(red)).not.toBe(await sha(blue));
});

test(
  '--image of a GGUF file: with the mmproj file beside it, or the one that is named',
  { timeout: 120_000 },
  async () => {
    const gguf = join(folder, 'gguf');
    await mkdir(gguf);
    await writeFile(join(gguf, 'tiny-F32.gguf'), textGgufOf(made));
    const run = (...args: string[]) =>
      runHere(['generate', ...args, ...common.slice(1), '--prompt', 'so', '--image', red, '--max-tokens', '4']);
    const alone = await run(join(gguf, 'tiny-F32.gguf'));
    expect(alone.code).not.toBe(0);
    expect(alone.stderr).toMatch(/no mmproj file lies beside tiny-F32\.gguf of .*name it \(mmproj\)/s);
    await writeFile(join(gguf, 'mmproj-F16.gguf'), mmprojOf(made));
    await writeFile(join(gguf, 'mmproj-b-F16.gguf'), mmprojOf(made));
    const expected = JSON.parse((await run(join(folder, 'model'))).stdout) as { tokens: number[] };
    const found = await run(gguf, '--mmproj', 'mmproj-F16.gguf');
    expect(found.code, found.stderr).toBe(0);
    expect((JSON.parse(found.stdout) as typeof expected).tokens).toEqual(expected.tokens);
    expect((await run(gguf)).stderr).toMatch(/lie beside it; name the one that is meant/);
  },
);

test('what is refused before a model is loaded', async () => {
  const missing = await runHere(['generate', ...common, '--prompt', '<image>', '--image', join(folder, 'none.png')]);
  expect(missing.code).not.toBe(0);
  expect(missing.stderr).toMatch(/--image .*none\.png: can't be read/);
  const both = await runHere(['generate', ...common, '--prompts', join(folder, 'x.json'), '--image', red]);
  expect(both.stderr).toMatch(/has no --image/);
  const two = await runHere(['logits', ...common, '--prompt', 'a', '--tokens', '1']);
  expect(two.stderr).toMatch(/--prompt and --tokens are two prompts/);
});
