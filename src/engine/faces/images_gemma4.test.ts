import { afterAll, describe, expect, test } from 'vitest';
import { GIVEN_ID } from '../../base/kv_units.js';
import { noise, pngOf } from '../../images/testing/noise.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { makeRandomVision, type RandomVisionOptions } from '../../model/testing/random_vision.js';
import { gemma4Logits, type Gemma4Pictures } from '../../model/testing/reference/gemma4.js';
import { type Gemma4Mistake, gemma4Rows } from '../../model/testing/reference/vision.js';
import type { LoadOptions, Model } from '../contracts/api.js';
import { errorOf, expectAsOnPaper, expectGoesOn, expectSameBits, openedOnce, tilesOf } from '../testing/pictured.js';
import { load } from './load.js';

// Gemma 4's pictures: of any size, up to so many rows; of the larger models' a picture's rows see each other in layers with a window.

const IMAGE = 300;
const adapter = (await testAdapters()).at(-1)!.name;
const options: LoadOptions = { images: true, kv: 'f32', contextLength: 300, adapter };
const models: Model[] = [];
afterAll(() => Promise.all(models.map((model) => model.dispose())));

/** Enlarged, made smaller, and of one line of rows. */
const pictures = [noise(20, 11, 1), noise(90, 60, 2), noise(16, 100, 3)];
const images = await Promise.all(pictures.map(pngOf));
const prompt = { prompt: 'the cat <|image|> ran <|image|><|image|> and saw the dog', images };
const kinds: Record<string, RandomVisionOptions> = {
  'inputs for each layer, bounds': { seed: 8 },
  'rows that see each other, standardised': {
    seed: 9,
    tower: { clipped: false, standardized: true },
    text: {
      hidden_size_per_layer_input: 0,
      num_kv_shared_layers: 0,
      use_bidirectional_attention: 'vision',
      sliding_window: 11,
    },
  },
};

describe.each(Object.entries(kinds))('%s', (_name, of) => {
  const made = makeRandomVision({ kind: 'gemma4', imageToken: IMAGE, ...of });
  const files = [...made.files].map(([name, bytes]) => new File([bytes], name));
  const seen = made.config.vision!.runs !== undefined;
  const open = async (more: LoadOptions = {}, from = files): Promise<Model> => {
    const model = await load(from, { ...options, ...more });
    models.push(model);
    return model;
  };
  const tiles = pictures.flatMap((picture) => tilesOf(made, picture));
  const whole = openedOnce(open, prompt);

  /** In float64, but for what is changed. */
  function reference(ids: readonly number[], mistake?: Gemma4Mistake, more: Partial<Gemma4Pictures> = {}) {
    const given = tiles.flatMap(({ data, width, height }) => {
      const pixels = [...data].map((value) => value / 255);
      return gemma4Rows(made.weights, made.tower, made.scale, 64, pixels, [width, height], mistake);
    });
    const places = [...ids.keys()].filter((at) => ids[at]! >= GIVEN_ID);
    const starts = places.filter((at) => (ids[at - 1] ?? 0) < GIVEN_ID);
    const runs = starts.map((start): [number, number] => [
      start,
      start + ids.slice(start).findIndex((id) => id < GIVEN_ID),
    ]);
    const tokens = ids.map((id) => (id >= GIVEN_ID ? IMAGE : id));
    const rows = new Map(places.map((at, row) => [at, given[row]!]));
    return gemma4Logits(made.text, made.weights, tokens, { rows, ...(seen && { runs }), ...more });
  }
  test('logits are those of float64', { timeout: 300_000 }, async () => {
    const { ids, expected } = await whole();
    expect(tiles.map(({ width, height }) => [width, height])).toEqual([
      [36, 24],
      [36, 24],
      [12, 84],
    ]);
    expect(ids.filter((id) => id >= GIVEN_ID)).toHaveLength(6 + 6 + 7);
    expect(errorOf(expected, reference(ids))).toBeLessThan(2e-5);
    const mistakes = ['lines before columns', 'pairs of the whole head', 'neighbours of a line'] as const;
    for (const mistake of mistakes) expect(errorOf(expected, reference(ids, mistake)), mistake).toBeGreaterThan(1e-4);
    if (seen) {
      expect(errorOf(expected, reference(ids, undefined, { runs: [] }))).toBeGreaterThan(1e-3);
      expect(errorOf(expected, reference(ids, undefined, { runsInAll: true }))).toBeGreaterThan(1e-3);
    } else expect(errorOf(expected, reference(ids, undefined, { padding: IMAGE }))).toBeGreaterThan(1e-3);
  });

  test('what stands in the prompt', async () => {
    const { model } = await whole();
    const read = await model.readPrompt({ prompt: 'a<|image|>b', images: [images[0]!] });
    const as = read.map((id) => (id >= GIVEN_ID ? IMAGE : id));
    expect(as).toEqual(model.tokenize(`a<|image>${'<|image|>'.repeat(6)}<image|>b`));
    expect(await model.readPrompt({ prompt: as, images: [images[0]!] })).toEqual(read);
    expect(model.info.imagePlaceholder).toBe('<|image|>');
    const content = [{ type: 'image', image: images[0]! } as const, { type: 'text', text: 'what?' } as const];
    const chat = await model.readPrompt({ messages: [{ role: 'user', content }] });
    const first = chat.findIndex((id) => id >= GIVEN_ID);
    expect([chat[first - 1], chat[first + 5]! - chat[first]!, chat[first + 6]]).toEqual([IMAGE + 1, 5, IMAGE + 2]);
    const changed = new File([JSON.stringify({ max_soft_tokens: 70 })], 'preprocessor_config.json');
    await expect(open({}, [...files.filter(({ name }) => name !== changed.name), changed])).rejects.toThrow(
      /pictures of up to 10080 pixels; the encoder takes 1296/,
    );
  });

  const plans = [
    { ranks: 2, plan: 'tp', virtualRanks: true },
    // Layers that share keys, or inputs, aren't cut.
    ...(seen ? [{ ranks: 2, plan: 'pp' } as const, { ranks: 4, plan: 'pp x tp' } as const] : []).map((one) => {
      return { ...one, virtualRanks: true };
    }),
    { ranks: 2, plan: 'token', virtualRanks: true },
    { ranks: 2, plan: 'adp', virtualRanks: true },
    { ranks: 2, plan: 'sp', virtualRanks: true },
    { ranks: 2, plan: 'tp', workers: true },
    { prefillChunk: 16 },
    { prefillChunk: 37 },
  ] satisfies LoadOptions[];
  test.each(drawn(plans, 3, `plans of gemma4, ${seen}`))(
    'the same bits with %j',
    { timeout: 300_000 },
    async (more) => {
      const { model, expected } = await whole();
      const other = await open(more);
      await expectSameBits(other, model, prompt, expected);
    },
  );

  test('what goes on: token by token, and from the cache', { timeout: 300_000 }, async () => {
    const { model } = await whole();
    const longer = { prompt: `${prompt.prompt} <|image|> too`, images: [...images, images[1]!] };
    await expectGoesOn(model, prompt, longer);
  });

  test('the encoder counts as weights of the first rank, as beforehand', async () => {
    const both = await open({ ranks: 2, plan: 'tp', virtualRanks: true });
    await expectAsOnPaper(both, made.config, 300);
  });
});
