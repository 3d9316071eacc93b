import { afterAll, describe, expect, test } from 'vitest';
import { GIVEN_ID } from '../../base/kv_units.js';
import { range } from '../../base/lists.js';
import { noise, pngOf } from '../../images/testing/noise.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { qwenSize } from '../../images/sizes.js';
import { resize } from '../../images/resize.js';
import { makeRandomVision } from '../../model/testing/random_vision.js';
import { familyLogits } from '../../model/testing/reference/families.js';
import { qwen25Rows, qwenPositions, qwenRows } from '../../model/testing/reference/vision.js';
import type { LoadOptions, Model } from '../contracts/api.js';
import { errorOf, expectAsOnPaper, expectSameBits, logitsOf } from '../testing/pictured.js';
import { load } from './load.js';
import { serve } from './serving_model.js';

// Pictures of any size, whose rows have three positions: Qwen3.5's, Qwen2.5-VL's and Qwen3-VL's.

const PAD = 300;
const [PATCH, UNIT] = [8, 16];
const adapter = (await testAdapters()).at(-1)!.name;
const options: LoadOptions = { images: true, kv: 'f32', contextLength: 600, adapter };
const models: Model[] = [];
afterAll(() => Promise.all(models.map((model) => model.dispose())));

/** Enlarged, made smaller, and only rounded; none is square. */
const pictures = [noise(20, 11, 1), noise(150, 60, 2), noise(30, 69, 3)];
const images = await Promise.all(pictures.map(pngOf));
const sizes = pictures.map((picture) => qwenSize(picture, UNIT, [16 * PATCH ** 2, 64 * PATCH ** 2]));
const grids = sizes.map(([width, height]): [number, number] => [height / UNIT, width / UNIT]);
const mark = '<|vision_start|><|image_pad|><|vision_end|>';
const prompt = { prompt: `the cat ${mark} ran ${mark}${mark} and saw the dog`, images };

test('sizes are those of the processor', () => {
  expect(sizes).toEqual([
    [48, 32],
    [96, 32],
    [32, 64],
  ]);
});

describe.each(['qwen3_5', 'qwen2_5_vl', 'qwen3_vl'] as const)('%s', async (kind) => {
  const made = makeRandomVision({ kind, seed: 8, imageToken: PAD });
  const files = [...made.files].map(([name, bytes]) => new File([bytes], name));
  const open = async (more: LoadOptions = {}, from = files): Promise<Model> => {
    const model = await load(from, { ...options, ...more });
    models.push(model);
    return model;
  };
  const model = await open();
  const ids = await model.readPrompt(prompt);
  const expected = await logitsOf(model, ids);
  const isRow = ids.map((id) => id >= GIVEN_ID);
  const places = [...ids.keys()].filter((at) => isRow[at]);
  const rope = (made.text['rope_parameters'] ?? made.text['rope_scaling']) as { mrope_section: number[] };

  /** In float64, but for what is changed. */
  function reference({ section = rope.mrope_section, of = grids, positions = true, levels = 2 } = {}): Float64Array[] {
    const given = pictures.flatMap((picture, at) => {
      const [width, height] = sizes[at]!;
      const { data } = resize(picture, width, height, 'bicubic');
      const pixels = [...data].map((value) => value / 127.5 - 1);
      const rowsOf = kind === 'qwen2_5_vl' ? qwen25Rows : qwenRows;
      return rowsOf(made.weights, made.tower, made.scale, 64, pixels, [width, height]);
    });
    const rows = new Map(places.map((place, at) => [place, given[at]!.slice(0, 64)]));
    const added = new Map(
      places.map((place, at) => [
        place,
        range(1, given[at]!.length / 64)
          .slice(0, levels)
          .map((level) => given[at]!.slice(level * 64, (level + 1) * 64)),
      ]),
    );
    const tokens = ids.map((id) => (id >= GIVEN_ID ? PAD : id));
    const more = positions && { positionOf: qwenPositions(isRow, of, section, kind !== 'qwen2_5_vl') };
    return familyLogits(made.text, made.weights, tokens, { rows, added, ...more });
  }
  test('logits are those of float64', { timeout: 300_000 }, () => {
    expect(places.length).toBe(grids.reduce((sum, [lines, columns]) => sum + lines * columns, 0));
    expect(errorOf(expected, reference())).toBeLessThan(2e-5);
    // What would show.
    expect(errorOf(expected, reference({ positions: false }))).toBeGreaterThan(1e-3);
    const turned = grids.map(([lines, columns]): [number, number] => [columns, lines]);
    expect(errorOf(expected, reference({ of: turned }))).toBeGreaterThan(1e-3);
    const [all = 0, lines = 0, columns = 0] = rope.mrope_section;
    expect(errorOf(expected, reference({ section: [all, columns - 1, lines] }))).toBeGreaterThan(1e-4);
    if (kind === 'qwen3_vl') expect(errorOf(expected, reference({ levels: 1 }))).toBeGreaterThan(1e-3);
  });

  test('what stands in the prompt', async () => {
    const read = await model.readPrompt({ prompt: `a${mark}b`, images: [images[0]!] });
    const as = read.map((id) => (id >= GIVEN_ID ? PAD : id));
    expect(as).toEqual(model.tokenize(`a<|vision_start|>${'<|image_pad|>'.repeat(6)}<|vision_end|>b`));
    expect(await model.readPrompt({ prompt: as, images: [images[0]!] })).toEqual(read);
    expect(model.info.imagePlaceholder).toBe('<|image_pad|>');
    const content = [{ type: 'image', image: images[0]! } as const, { type: 'text', text: 'what?' } as const];
    const chat = await model.readPrompt({ messages: [{ role: 'user', content }] });
    expect(model.detokenize(chat.filter((id) => id < GIVEN_ID))).toMatch(/^User:what\?\n?/);
    const first = chat.findIndex((id) => id >= GIVEN_ID);
    expect([chat[first - 1], chat[first + 5]! - chat[first]!, chat[first + 6]]).toEqual([PAD + 1, 5, PAD + 2]);
    // A part of a picture has no positions.
    await expect(model.logits(ids.slice(0, places[2]))).rejects.toThrow(/isn't whole/);
    const changed = new File([JSON.stringify({ size: { longest_edge: -1 } })], 'preprocessor_config.json');
    await expect(open({}, [...files.filter(({ name }) => name !== changed.name), changed])).rejects.toThrow(
      /size\.longest_edge -1; expected a number of pixels/,
    );
    await expect(model.readPrompt({ prompt: mark, images: [await pngOf(noise(300, 1, 1))] })).rejects.toThrow(
      /sides up to 200 times/,
    );
  });

  const plans = [
    { ranks: 2, plan: 'tp', virtualRanks: true },
    { ranks: 2, plan: 'pp', virtualRanks: true },
    { ranks: 4, plan: 'pp x tp', virtualRanks: true },
    { ranks: 2, plan: 'token', virtualRanks: true },
    { ranks: 2, plan: 'adp', virtualRanks: true },
    // A state isn't split.
    ...(kind !== 'qwen3_5'
      ? ([
          { ranks: 2, plan: 'sp' },
          { ranks: 2, plan: 'tp+sp' },
        ] as const)
      : []
    ).map((one) => {
      return { ...one, virtualRanks: true };
    }),
    { ranks: 2, plan: 'tp', workers: true },
    { prefillChunk: 16 },
    { prefillChunk: 37 },
  ] satisfies LoadOptions[];
  test.each(drawn(plans, 3, `plans of ${kind}`))('the same bits with %j', { timeout: 300_000 }, async (more) => {
    const other = await open(more);
    await expectSameBits(other, model, prompt, expected);
  });

  test('what goes on: token by token, from the cache, in a conversation', { timeout: 300_000 }, async () => {
    const answer = { maxTokens: 12, ignoreEos: true, temperature: 0 };
    const fresh = await model.generate(prompt, { ...answer, cachePrompt: false }).result;
    // What was generated is what a prompt of all of it would give next.
    const next = fresh.tokens.map(async (token, at) => {
      const row = (await model.logits([...ids, ...fresh.tokens.slice(0, at)])).rows.at(-1)!;
      expect(row.indexOf(Math.max(...row))).toBe(token);
    });
    await Promise.all(next);
    const again = await model.generate(prompt, answer).result;
    expect(again.tokens).toEqual(fresh.tokens);
    const longer = { ...prompt, prompt: `${prompt.prompt} ${mark} too`, images: [...images, images[1]!] };
    const cached = await model.generate(longer, answer).result;
    expect(cached.tokens).toEqual((await model.generate(longer, { ...answer, cachePrompt: false }).result).tokens);
    const talk = model.conversation();
    const asked = [{ type: 'image', image: images[1]! } as const, { type: 'text', text: 'what?' } as const];
    await talk.send(asked, answer).result;
    await talk.send('and what else?', answer).result;
    const third = await talk.send([{ type: 'image', image: images[2]! }], answer).result;
    expect(third.stats.cached_tokens).toBeGreaterThan(0);
    const restored = model.conversation({ restore: { ...talk.save(), turns: talk.save().turns.slice(0, 2) } });
    const same = await restored.send([{ type: 'image', image: images[2]! }], { ...answer, cachePrompt: false }).result;
    expect(same.tokens).toEqual(third.tokens);
    await model.recover();
    expect((await model.generate(prompt, answer).result).tokens).toEqual(fresh.tokens);
    // A slot that had pictures has none.
    const text = 'the cat ran and saw the dog';
    const alone = await load(files, { ...options, images: false });
    models.push(alone);
    expect((await logitsOf(model, model.tokenize(text))).at(-1)).toEqual(
      (await logitsOf(alone, alone.tokenize(text))).at(-1),
    );
  });

  test('many at once, with room for few: preempted, and the same', { timeout: 300_000 }, async () => {
    const serving = await serve(files, {
      ...options,
      contextLength: 300,
      slots: 3,
      kvBlocks: 7,
      tokensPerIteration: 16,
    });
    const answer = { maxTokens: 150, ignoreEos: true, seed: 4 };
    try {
      const prompts = [...images, images[0]!].map((image, at) => {
        return { prompt: `the dog ${'ran '.repeat(at)}${mark} saw the cat`, images: [image] };
      });
      const read = await Promise.all(prompts.map((each) => serving.readPrompt(each)));
      const texts = await Promise.all(
        read.map(async (each) => {
          let whole = '';
          for await (const piece of serving.complete(each, answer)) whole += piece.text;
          return whole;
        }),
      );
      expect(serving.metrics.preemptionsTotal).toBeGreaterThan(0);
      for (const [index, each] of prompts.entries())
        expect(texts[index]).toBe((await model.generate(each, answer).result).text);
    } finally {
      await serving.dispose();
    }
  });

  test('the encoder counts as weights of the first rank, as beforehand', async () => {
    const both = await open({ ranks: 2, plan: 'pp', virtualRanks: true });
    await expectAsOnPaper(both, made.config, 600);
  });
});
