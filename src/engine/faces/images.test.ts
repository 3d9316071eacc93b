import { afterAll, describe, expect, test } from 'vitest';
import type { Picture } from '../../images/picture.js';
import { noise, pngOf } from '../../images/testing/noise.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { idefics3Tiles } from '../../images/idefics3.js';
import { makeRandomVision } from '../../model/testing/random_vision.js';
import { referenceLogits } from '../../model/testing/reference/reference.js';
import { idefics3Rows } from '../../model/testing/reference/vision.js';
import { parseModelConfig } from '../../model/families/registry.js';
import type { LoadOptions, Model } from '../contracts/api.js';
import { randomFiles } from '../testing/random_source.js';
import { expectAsOnPaper, logitsOf } from '../testing/pictured.js';
import { load } from './load.js';
import { serve } from './serving_model.js';

const IMAGE = 300;
const made = makeRandomVision({ seed: 7, imageToken: IMAGE });
const filesOf = (of: ReadonlyMap<string, Uint8Array<ArrayBuffer>>): File[] =>
  [...of].map(([name, bytes]) => new File([bytes], name));
const files = filesOf(made.files);
const adapterName = (await testAdapters()).at(-1)!.name;
const options: LoadOptions = { images: true, kv: 'f32', contextLength: 600, adapter: adapterName };

const settings = { tile: 32, longestEdge: 96, splits: true, filter: 'lanczos' } as const;
const wide = noise(48, 20, 1);
const tall = noise(11, 30, 2);
const [widePng, tallPng] = [await pngOf(wide), await pngOf(tall)];

const models: Model[] = [];
const open = async (more: LoadOptions = {}): Promise<Model> => {
  const model = await load(files, { ...options, ...more });
  models.push(model);
  return model;
};
afterAll(() => Promise.all(models.map((model) => model.dispose())));
const model = await open();

/** All of its rows, in float64. */
function rowsOf(picture: Picture): Float64Array[] {
  const { tiles } = idefics3Tiles(picture, settings);
  return tiles.flatMap(({ data }) =>
    idefics3Rows(
      made.weights,
      made.tower,
      made.scale,
      64,
      [...data].map((value) => value / 127.5 - 1),
    ),
  );
}

const prompt = { prompt: 'the cat <image> and <image> ran', images: [widePng, tallPng] };

describe('images in prompts', () => {
  test('logits are those of float64', async () => {
    const ids = await model.readPrompt(prompt);
    const given = [...rowsOf(wide), ...rowsOf(tall)];
    const rows = new Map<number, Float64Array>();
    for (const [position, id] of ids.entries()) if (id >= 2 ** 31) rows.set(position, given[rows.size]!);
    // 2 x 3 and 3 x 2 tiles, and the whole of each: 4 rows each.
    expect(rows.size).toBe(2 * 7 * 4);
    const text = parseModelConfig(JSON.parse(new TextDecoder().decode(made.files.get('config.json'))).text_config);
    const tokens = ids.map((id) => (id >= 2 ** 31 ? IMAGE : id));
    const expected = referenceLogits(text, made.weights, tokens, { rows });
    const found = await logitsOf(model, ids);
    const largest = Math.max(...expected.flatMap((row) => [...row].map(Math.abs)));
    for (const [position, row] of found.entries()) {
      const error = Math.max(...row.map((logit, id) => Math.abs(logit - expected[position]![id]!)));
      expect(error / largest).toBeLessThan(2e-5);
    }
  });

  test('what stands in the prompt, and token ids that a processor wrote', async () => {
    const tokens = model.tokenize('<image>', { addSpecial: false });
    expect(tokens).toEqual([IMAGE]);
    const ids = await model.readPrompt({ prompt: '<image>', images: [tallPng] });
    const as = ids.map((id) => (id >= 2 ** 31 ? IMAGE : id));
    const lines = [1, 2, 3].map((row) =>
      [1, 2].map((column) => `<fake_token_around_image><row_${row}_col_${column}>${'<image>'.repeat(4)}`).join(''),
    );
    const whole = `<fake_token_around_image><global-img>${'<image>'.repeat(4)}<fake_token_around_image>`;
    expect(as).toEqual(model.tokenize(`${lines.join('\n')}\n\n${whole}`));
    expect(await model.readPrompt({ prompt: as, images: [tallPng] })).toEqual(ids);
    // As part of a message, in both words.
    const content = [{ type: 'text', text: 'so: ' } as const, { type: 'image', image: tallPng } as const];
    const url = `data:image/png;base64,${Buffer.from(tallPng).toString('base64')}`;
    const asUrl = [content[0]!, { type: 'image_url', image_url: { url } } as const];
    const chat = await model.readPrompt({ messages: [{ role: 'user', content }] });
    expect(await model.readPrompt({ messages: [{ role: 'user', content: asUrl }] })).toEqual(chat);
    expect(model.detokenize(chat.filter((id) => id < 2 ** 31))).toMatch(/^User: so: .*\nAssistant:$/s);
    expect(chat.filter((id) => id >= 2 ** 31)).toEqual(ids.filter((id) => id >= 2 ** 31));
    // Text alone, by a template that wants parts.
    expect(model.detokenize(model.tokenize({ messages: [{ role: 'user', content: 'Hello <image>' }] }))).toMatch(
      /Hello/,
    );
  });

  const plans = [
    { ranks: 2, plan: 'tp', virtualRanks: true },
    { ranks: 2, plan: 'sp', virtualRanks: true },
    { ranks: 2, plan: 'pp', virtualRanks: true },
    { ranks: 2, plan: 'token', virtualRanks: true },
    { ranks: 2, plan: 'tp+sp', virtualRanks: true },
    { ranks: 2, plan: 'tp', workers: true },
    { prefillChunk: 16 },
    { prefillChunk: 80 },
  ] as const satisfies LoadOptions[];
  test.each(drawn(plans, 3, 'plans of images'))('the same bits with %j', async (more) => {
    const expected = await logitsOf(model, await model.readPrompt(prompt));
    const other = await open(more);
    const found = await logitsOf(other, await other.readPrompt(prompt));
    expect(found.length).toBe(expected.length);
    for (const [position, row] of found.entries()) expect(row).toEqual(expected[position]);
    const answer = { maxTokens: 6, ignoreEos: true, seed: 3 };
    const { tokens } = await other.generate(prompt, answer).result;
    expect(tokens).toEqual((await model.generate(prompt, answer).result).tokens);
  });

  test('the prefix cache knows pictures by what they show', async () => {
    const answer = { maxTokens: 4, ignoreEos: true, repetitionPenalty: 1.3, temperature: 0 };
    const fresh = await model.generate(prompt, { ...answer, cachePrompt: false }).result;
    const again = await model.generate(prompt, answer).result;
    expect(again.tokens).toEqual(fresh.tokens);
    expect(again.stats.cached_tokens).toBe(again.prompt_tokens - 1);
    // The same text about other pictures of the same size.
    const other = await pngOf(noise(48, 20, 9));
    const about = await model.generate({ ...prompt, images: [other, tallPng] }, answer).result;
    expect(about.prompt_tokens).toBe(again.prompt_tokens);
    expect(about.stats.cached_tokens).toBeLessThan(20);
    const alone = await model.generate({ ...prompt, images: [other, tallPng] }, { ...answer, cachePrompt: false })
      .result;
    expect(about.tokens).toEqual(alone.tokens);
    expect(await logitsOf(model, await model.readPrompt({ ...prompt, images: [other, tallPng] }))).not.toEqual(
      await logitsOf(model, await model.readPrompt(prompt)),
    );
  });

  test('a conversation: turns go on from what was computed, saved and restored too', async () => {
    const answer = { maxTokens: 5, ignoreEos: true, temperature: 0.8, seed: 6 };
    const talk = model.conversation();
    const url = `data:image/png;base64,${Buffer.from(widePng).toString('base64')}`;
    const asked = [{ type: 'image', image: widePng } as const, { type: 'text', text: 'what?' } as const];
    const first = await talk.send(asked, answer).result;
    const second = await talk.send('and <image> what else?', answer).result;
    expect(second.stats.cached_tokens).toBeGreaterThanOrEqual(first.prompt_tokens);
    const third = await talk.send([{ type: 'image_url', image_url: { url } }], answer).result;
    // Two pictures that are one.
    const ids = await model.readPrompt({ messages: talk.messages.slice(0, -1) });
    const given = ids.filter((id) => id >= 2 ** 31);
    expect(given.slice(0, given.length / 2)).toEqual(given.slice(given.length / 2));
    const saved = JSON.parse(JSON.stringify(talk.save())) as ReturnType<typeof talk.save>;
    expect(saved.turns[0]).toMatchObject({
      user: 'what?',
      parts: [{ type: 'image', image: expect.stringMatching(/^data:/) as string }, asked[1]],
    });
    const again = await talk.regenerate(answer).result;
    expect(again.tokens).toEqual(third.tokens);
    const restored = model.conversation({ restore: { ...saved, turns: saved.turns.slice(0, 2) } });
    const same = await restored.send([{ type: 'image', image: widePng }], { ...answer, cachePrompt: false }).result;
    expect(same.tokens).toEqual(third.tokens);
    expect(() =>
      model.conversation({ restore: { ...saved, turns: [{ ...saved.turns[0]!, parts: [5] as never }] } }),
    ).toThrow(/isn't what a conversation's save/);
  });

  test('after a recovery the same answer', async () => {
    const answer = { maxTokens: 6, ignoreEos: true, seed: 5 };
    const before = await model.generate(prompt, answer).result;
    await model.recover();
    expect((await model.generate(prompt, answer).result).tokens).toEqual(before.tokens);
  });

  test('many at once, with room for few: preempted, and the same', async () => {
    const serving = await serve(files, {
      ...options,
      contextLength: 300,
      slots: 3,
      kvBlocks: 7,
      tokensPerIteration: 64,
    });
    const answer = { maxTokens: 70, ignoreEos: true, seed: 4 };
    try {
      const pictures = await Promise.all([21, 22, 23, 24].map((seed) => pngOf(noise(40, 31, seed))));
      const prompts = pictures.map((picture) => ({ prompt: 'the dog <image> saw', images: [picture] }));
      const ids = await Promise.all(prompts.map((each) => serving.readPrompt(each)));
      const texts = await Promise.all(
        ids.map(async (each) => {
          let whole = '';
          for await (const { text } of serving.complete(each, answer)) whole += text;
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

  test('what is refused', async () => {
    const asked = (given: Parameters<Model['readPrompt']>[0]) => model.readPrompt(given);
    await expect(asked({ prompt: 'no placeholder', images: [tallPng] })).rejects.toThrow(
      /1 image and 0 placeholders <image>: give one for each/,
    );
    await expect(asked({ prompt: [1, IMAGE, IMAGE], images: [tallPng] })).rejects.toThrow(/2 placeholders .* 28 rows/);
    await expect(asked({ prompt: '<image>', images: [new TextEncoder().encode('<svg/>')] })).rejects.toMatchObject({
      code: 'unsupported',
    });
    const parts = (...content: unknown[]) => ({ messages: [{ role: 'user', content } as never] });
    const image = { type: 'image', image: tallPng };
    for (const [part, type] of [
      [null, 'undefined'],
      [{ type: 'video', video: 'x' }, '"video"'],
      [{ type: 'image_url' }, '"image_url"'],
      [{ type: 'input_audio', input_audio: { data: 'AA' } }, '"input_audio"'],
      [{ type: 'text' }, '"text"'],
    ] as const) {
      for (const given of [parts(image, part), parts({ type: 'text', text: 'x' }, part)])
        await expect(asked(given)).rejects.toThrow(
          `messages[0].content[1] is no part (its type: ${type}); expected {type:`,
        );
    }
    await expect(asked({ ...parts(image), images: [widePng] } as never)).rejects.toThrow(/images beside messages/);
    for (const images of [tallPng, 'data:image/png;base64,AA', null])
      await expect(asked({ prompt: '<image>', images } as never)).rejects.toThrow(/images: expected a list/);
    const many = Array.from({ length: 33 }, () => tallPng);
    await expect(asked({ prompt: '<image>'.repeat(33), images: many })).rejects.toThrow(/at most 32/);
    await expect(asked({ prompt: '<image>'.repeat(25), images: many.slice(0, 25) })).rejects.toMatchObject({
      code: 'context_full',
    });
    await expect(model.logits([1, 2 ** 31 + 10 ** 6])).rejects.toThrow(/isn't kept any more/);
    expect(() => model.tokenize({ prompt: '<image>', images: [tallPng] })).toThrow(/readPrompt/);
    // Models for text alone.
    const text = await load(files, { ...options, images: false });
    models.push(text);
    await expect(text.generate(prompt).result).rejects.toThrow(/loaded for text alone: .* images: true \(--images\)/);
    await expect(text.logits([1, 2 ** 31])).rejects.toMatchObject({ code: 'usage' });
    await expect(load(randomFiles({}).files, options)).rejects.toThrow(/llama of these files takes no images/);
    await expect(load(files, { ...options, prefill: { kind: 'splitkv' } })).rejects.toThrow(/leave prefill out/);
  });

  test('the encoder counts as weights of the first rank', async () => {
    const text = await load(files, { ...options, images: false, ranks: 2, plan: 'pp', virtualRanks: true });
    const both = await open({ ranks: 2, plan: 'pp', virtualRanks: true });
    models.push(text);
    const [a, b] = [text, both].map(({ info }) => info.ranks.map(({ weightBytes }) => weightBytes));
    const numbers =
      64 * 192 + 64 + 16 * 64 + 2 * (4 * (64 * 64 + 64) + 2 * 64 * 96 + 96 + 64 + 4 * 64) + 2 * 64 + 64 * 256;
    expect(b![0]! - a![0]!).toBeGreaterThanOrEqual(4 * numbers);
    expect(b![0]! - a![0]!).toBeLessThan(4.5 * numbers);
    expect(b![1]).toBe(a![1]);
    // As it is counted beforehand.
    await expectAsOnPaper(both, made.config, 600);
  });
});
