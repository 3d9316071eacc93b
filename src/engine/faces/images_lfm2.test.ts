import { afterAll, expect, test } from 'vitest';
import { GIVEN_ID } from '../../base/kv_units.js';
import type { Picture } from '../../images/picture.js';
import { noise, pngOf } from '../../images/testing/noise.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { makeRandomVision } from '../../model/testing/random_vision.js';
import { familyLogits } from '../../model/testing/reference/families.js';
import { type Lfm2Mistake, lfm2Rows } from '../../model/testing/reference/vision.js';
import type { LoadOptions, Model } from '../contracts/api.js';
import { errorOf, expectAsOnPaper, expectGoesOn, expectSameBits, logitsOf, tilesOf } from '../testing/pictured.js';
import { load } from './load.js';

// LFM2-VL's pictures: of any size, or tiles and a thumbnail, beside layers with a state.

const IMAGE = 300;
const adapter = (await testAdapters()).at(-1)!.name;
const options: LoadOptions = { images: true, kv: 'f32', contextLength: 600, adapter };
const models: Model[] = [];
afterAll(() => Promise.all(models.map((model) => model.dispose())));

const made = makeRandomVision({ kind: 'lfm2_vl', seed: 8, imageToken: IMAGE });
const files = [...made.files].map(([name, bytes]) => new File([bytes], name));
const open = async (more: LoadOptions = {}, from = files): Promise<Model> => {
  const model = await load(from, { ...options, ...more });
  models.push(model);
  return model;
};

/** Enlarged, only rounded, and cut into two by three tiles. */
const pictures = [noise(20, 11, 1), noise(60, 30, 2), noise(140, 95, 3)];
const images = await Promise.all(pictures.map(pngOf));

const model = await open();
const prompt = { prompt: 'the cat <image> ran <image><image> and saw the dog', images };
const ids = await model.readPrompt(prompt);
const expected = await logitsOf(model, ids);
const places = [...ids.keys()].filter((at) => ids[at]! >= GIVEN_ID);

/** In float64, but for what is changed. */
function reference(mistake?: Lfm2Mistake, order = (tiles: readonly Picture[]) => tiles): Float64Array[] {
  const given = pictures.flatMap((picture) =>
    order(tilesOf(made, picture)).flatMap(({ data, width, height }) => {
      const pixels = [...data].map((value) => value / 127.5 - 1);
      return lfm2Rows(made.weights, made.tower, made.scale, 64, pixels, [width, height], mistake);
    }),
  );
  const tokens = ids.map((id) => (id >= GIVEN_ID ? IMAGE : id));
  return familyLogits(made.text, made.weights, tokens, { rows: new Map(places.map((at, row) => [at, given[row]!])) });
}
test('logits are those of float64', { timeout: 300_000 }, () => {
  const sizes = pictures.map((picture) => tilesOf(made, picture).map(({ width, height }) => [width, height]));
  const tile = [32, 32];
  expect(sizes).toEqual([[[48, 32]], [[64, 32]], [tile, tile, tile, tile, tile, tile, [64, 48]]]);
  expect(places.length).toBe(6 + 8 + 6 * 4 + 12);
  expect(errorOf(expected, reference())).toBeLessThan(2e-5);
  // What would show.
  for (const mistake of ['channels first', 'no antialiasing', 'corners', 'tanh', 'across first', 'no norm'] as const)
    expect(errorOf(expected, reference(mistake)), mistake).toBeGreaterThan(1e-4);
  const thumbnailFirst = (tiles: readonly Picture[]): readonly Picture[] =>
    tiles.toSpliced(6).toSpliced(0, 0, ...tiles.slice(6));
  expect(errorOf(expected, reference(undefined, thumbnailFirst))).toBeGreaterThan(1e-3);
});

test('what stands in the prompt', async () => {
  const read = await model.readPrompt({ prompt: 'a<image>b', images: [images[0]!] });
  const as = read.map((id) => (id >= GIVEN_ID ? IMAGE : id));
  expect(as).toEqual(model.tokenize(`a<|image_start|>${'<image>'.repeat(6)}<|image_end|>b`));
  expect(await model.readPrompt({ prompt: as, images: [images[0]!] })).toEqual(read);
  expect(model.info.imagePlaceholder).toBe('<image>');
  const cut = await model.readPrompt({ prompt: '<image>', images: [images[2]!] });
  const words = cut.map((id) => (id >= GIVEN_ID ? IMAGE : id)).filter((id) => id !== IMAGE);
  const tokenOf = (text: string): readonly number[] => model.tokenize(text, { addSpecial: false });
  const rows = [1, 2].flatMap((row) => [1, 2, 3].map((column) => `<|img_row_${row}_col_${column}|>`));
  const around = ['<|image_start|>', ...rows, '<|img_thumbnail|>', '<|image_end|>'];
  expect(words.slice(-around.length)).toEqual(around.flatMap(tokenOf));
  const content = [{ type: 'image', image: images[0]! } as const, { type: 'text', text: 'what?' } as const];
  const chat = await model.readPrompt({ messages: [{ role: 'user', content }] });
  const first = chat.findIndex((id) => id >= GIVEN_ID);
  expect([chat[first - 1], chat[first + 5]! - chat[first]!, chat[first + 6]]).toEqual([IMAGE + 1, 5, IMAGE + 2]);
  await expect(model.readPrompt({ prompt: '<image>', images: [await pngOf(noise(300, 1, 1))] })).rejects.toThrow(
    /sides up to 200 times/,
  );
  const changed = new File([JSON.stringify({ tile_size: 4096 })], 'preprocessor_config.json');
  await expect(open({}, [...files.filter(({ name }) => name !== changed.name), changed])).rejects.toThrow(
    /tiles of 4096 pixels; the encoder's are of 256/,
  );
});

const plans = [
  { ranks: 2, plan: 'tp', virtualRanks: true },
  { ranks: 2, plan: 'pp', virtualRanks: true },
  { ranks: 4, plan: 'pp x tp', virtualRanks: true },
  { ranks: 2, plan: 'token', virtualRanks: true },
  { ranks: 2, plan: 'adp', virtualRanks: true },
  { ranks: 2, plan: 'tp', workers: true },
  { prefillChunk: 16 },
  { prefillChunk: 37 },
] satisfies LoadOptions[];
test.each(drawn(plans, 3, 'plans of lfm2_vl'))('the same bits with %j', { timeout: 300_000 }, async (more) => {
  const other = await open(more);
  await expectSameBits(other, model, prompt, expected);
});

test('what goes on: token by token, and from the cache', { timeout: 300_000 }, async () => {
  const longer = { prompt: `${prompt.prompt} <image> too`, images: [...images, images[1]!] };
  await expectGoesOn(model, prompt, longer);
});

test('the encoder counts as weights of the first rank, as beforehand', async () => {
  const both = await open({ ranks: 2, plan: 'pp', virtualRanks: true });
  await expectAsOnPaper(both, made.config, 600);
});
