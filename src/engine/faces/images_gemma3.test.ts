import { afterAll, expect, test } from 'vitest';
import { GIVEN_ID } from '../../base/kv_units.js';
import { range } from '../../base/lists.js';
import { noise, pngOf } from '../../images/testing/noise.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { resize } from '../../images/resize.js';
import { makeRandomVision } from '../../model/testing/random_vision.js';
import { familyLogits } from '../../model/testing/reference/families.js';
import { gemma3Rows } from '../../model/testing/reference/vision.js';
import type { LoadOptions, Model } from '../contracts/api.js';
import { expectSameBits, logitsOf } from '../testing/pictured.js';
import { load } from './load.js';
import { serve } from './serving_model.js';

// Pictures whose rows see each other: Gemma 3's.

const SOFT = 300;
/** Rows of a picture; windows are hardly wider. */
const ROWS = 16;
const made = makeRandomVision({
  kind: 'gemma3',
  seed: 8,
  imageToken: SOFT,
  tower: { image: 64 },
  text: { sliding_window: 19 },
});
const files = [...made.files].map(([name, bytes]) => new File([bytes], name));
const adapter = (await testAdapters()).at(-1)!.name;
const options: LoadOptions = { images: true, kv: 'f32', contextLength: 600, adapter };
const models: Model[] = [];
const open = async (more: LoadOptions = {}): Promise<Model> => {
  const model = await load(files, { ...options, ...more });
  models.push(model);
  return model;
};
afterAll(() => Promise.all(models.map((model) => model.dispose())));
const model = await open();

const pictures = [noise(48, 20, 1), noise(70, 90, 2), noise(30, 30, 3)];
const images = await Promise.all(pictures.map(pngOf));

/** Three pictures, of which the second lies over the end of the first 256 tokens, and one right behind the other's marks. */
const text = (words: number): string =>
  `the <start_of_image>cat ${'ran '.repeat(words)}<start_of_image><start_of_image>saw the dog`;
const before = (words: number): number =>
  ROWS + model.tokenize(text(words).split('<start_of_image>').slice(0, 2).join('')).length;
const words = range(1, 300).find((count) => before(count) > 240)!;
const prompt = { prompt: text(words), images };

const ids = await model.readPrompt(prompt);
const expected = await logitsOf(model, ids);

test('logits are those of float64, with all of a picture seen by its rows', () => {
  const given = pictures.flatMap((picture) =>
    gemma3Rows(
      made.weights,
      made.tower,
      made.scale,
      64,
      [...resize(picture, 64, 64, 'bilinear').data].map((value) => value / 127.5 - 1),
    ),
  );
  const places = [...ids.keys()].filter((at) => ids[at]! >= GIVEN_ID);
  const runs = range(0, 3).map((at): [number, number] => [places[at * ROWS]!, places[at * ROWS + ROWS - 1]! + 1]);
  expect(runs.every(([start, end]) => end - start === ROWS)).toBe(true);
  expect(runs.some(([start, end]) => start < 256 && end > 256)).toBe(true);
  const rows = new Map(places.map((place, at) => [place, given[at]!]));
  const tokens = ids.map((id) => (id >= GIVEN_ID ? SOFT : id));
  const reference = familyLogits(made.text, made.weights, tokens, { rows, runs });
  const largest = Math.max(...reference.flatMap((row) => [...row].map(Math.abs)));
  for (const [position, row] of expected.entries()) {
    const error = Math.max(...row.map((logit, id) => Math.abs(logit - reference[position]![id]!)));
    expect(error / largest, `position ${position}`).toBeLessThan(2e-5);
  }
  // Were each row to see what is up to it alone, it would show.
  const causal = familyLogits(made.text, made.weights, tokens, { rows });
  const end = runs[0]![1];
  expect(Math.max(...reference[end]!.map((logit, id) => Math.abs(logit - causal[end]![id]!)))).toBeGreaterThan(
    0.001 * largest,
  );
});

test('the names that transformers 5 writes', async () => {
  const bytes = made.files.get('model.safetensors')!;
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const header = new TextDecoder().decode(bytes.subarray(8, 8 + length));
  const renamed = header.replaceAll('vision_tower.vision_model.', 'vision_tower.').padEnd(length);
  const weights = bytes.slice();
  weights.set(new TextEncoder().encode(renamed), 8);
  const other = await load(
    files.map((file) => (file.name === 'model.safetensors' ? new File([weights], file.name) : file)),
    options,
  );
  models.push(other);
  const own = await other.readPrompt(prompt);
  expect((await logitsOf(other, own)).at(-1)).toEqual(expected.at(-1));
});

test('what stands in the prompt', async () => {
  const read = await model.readPrompt({ prompt: 'a<start_of_image>b', images: [images[0]!] });
  const as = read.map((id) => (id >= GIVEN_ID ? SOFT : id));
  const soft = '<image_soft_token>'.repeat(ROWS);
  expect(as).toEqual(model.tokenize(`a\n\n<start_of_image>${soft}<end_of_image>\n\nb`));
  expect(await model.readPrompt({ prompt: as, images: [images[0]!] })).toEqual(read);
  expect(model.info.imagePlaceholder).toBe('<start_of_image>');
  // A part of a picture's rows can't be computed.
  await expect(model.logits(read.slice(0, -6))).rejects.toThrow(/isn't whole/);
});

const plans = [
  { ranks: 2, plan: 'tp', virtualRanks: true },
  { ranks: 2, plan: 'sp', virtualRanks: true },
  { ranks: 2, plan: 'pp', virtualRanks: true },
  { ranks: 2, plan: 'token', virtualRanks: true },
  { ranks: 3, plan: 'token x sp', virtualRanks: true },
  { ranks: 2, plan: 'adp', virtualRanks: true },
  { ranks: 2, plan: 'tp+sp', virtualRanks: true },
  { ranks: 2, plan: 'sp', workers: true },
  { prefillChunk: 16 },
  { prefillChunk: 37 },
] as const satisfies LoadOptions[];
test.each(drawn(plans, 4, 'plans of images both ways'))('the same bits with %j', async (more) => {
  const other = await open(more);
  await expectSameBits(other, model, prompt, expected);
});

test('many at once, with fewer tokens an iteration than a picture has rows', async () => {
  const serving = await serve(files, { ...options, contextLength: 300, slots: 3, kvBlocks: 9, tokensPerIteration: 7 });
  const answer = { maxTokens: 60, ignoreEos: true, seed: 4 };
  try {
    const prompts = images.map((image) => ({ prompt: 'the dog <start_of_image> saw the cat', images: [image] }));
    const read = await Promise.all(prompts.map((each) => serving.readPrompt(each)));
    const texts = await Promise.all(
      read.map(async (each) => {
        let whole = '';
        for await (const piece of serving.complete(each, answer)) whole += piece.text;
        return whole;
      }),
    );
    for (const [index, each] of prompts.entries())
      expect(texts[index]).toBe((await model.generate(each, answer).result).text);
  } finally {
    await serving.dispose();
  }
});

test('the prefix cache, cut within a picture, too', async () => {
  const answer = { maxTokens: 4, ignoreEos: true, temperature: 0 };
  const fresh = await model.generate(prompt, { ...answer, cachePrompt: false }).result;
  const again = await model.generate(prompt, answer).result;
  expect(again.tokens).toEqual(fresh.tokens);
  expect(again.stats.cached_tokens).toBe(again.prompt_tokens - 1);
  const [first] = ids.filter((id) => id >= GIVEN_ID);
  // 64 tokens are kept together: of the second prompt they end within the picture.
  const filler = model.tokenize('the '.repeat(60), { addSpecial: false }).slice(0, 58);
  const run = range(first!, first! + ROWS);
  const alike = [...filler, ...run];
  const own = await model.generate([...alike, 5, 6, 7], answer).result;
  const other = await model.generate([...alike, 8, 9], answer).result;
  expect(own.stats.cached_tokens).toBe(0);
  expect(other.stats.cached_tokens).toBeGreaterThanOrEqual(64);
  const alone = await model.generate([...alike, 8, 9], { ...answer, cachePrompt: false }).result;
  expect(other.tokens).toEqual(alone.tokens);
});
