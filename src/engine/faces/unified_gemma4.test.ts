import { afterAll, describe, expect, test } from 'vitest';
import { GIVEN_ID } from '../../base/kv_units.js';
import type { Picture } from '../../images/picture.js';
import { noise, pngOf } from '../../images/testing/noise.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { mmprojOf, textGgufOf } from '../../model/testing/gguf/mmproj.js';
import { makeRandomVision } from '../../model/testing/random_vision.js';
import { gemma4Logits, type Gemma4Pictures } from '../../model/testing/reference/gemma4.js';
import { gemma4SampleRows } from '../../model/testing/reference/sound.js';
import { gemma4PatchRows, type UnifiedMistake } from '../../model/testing/reference/vision.js';
import { tone } from '../../sound/testing/wav.js';
import type { LoadOptions, Model } from '../contracts/api.js';
import {
  errorOf,
  expectAsOnPaper,
  expectGoesOn,
  expectSameBits,
  logitsOf,
  openedOnce,
  tilesOf,
} from '../testing/pictured.js';
import { load } from './load.js';
import { planModel } from './plan_model.js';

// Gemma 4 12B: rows of pictures and of recordings without an encoder; those of a picture see each other in layers with a window.

const IMAGE = 300;
const SOUND = 303;
const adapter = (await testAdapters()).at(-1)!.name;
const options: LoadOptions = { images: true, sound: true, kv: 'f32', contextLength: 300, adapter };
const models: Model[] = [];
afterAll(() => Promise.all(models.map((model) => model.dispose())));

/** So faint that a norm's eps shows. */
const faint = ({ data, ...size }: Picture): Picture => ({ ...size, data: data.map((value) => 127 + (value & 1)) });
const pictures = [noise(20, 11, 1), noise(90, 60, 2), faint(noise(24, 36, 3))];
const images = await Promise.all(pictures.map(pngOf));
/** Less than a row, and of several. */
const sounds = [tone(30), tone(333, 700), tone(200, 300).map((value) => value / 300)];
const prompt = {
  prompt: 'the <|image|> cat <|audio|> ran <|image|><|audio|><|image|> and <|audio|> saw the dog',
  images,
  sounds,
};
const made = makeRandomVision({ kind: 'gemma4_unified', imageToken: IMAGE, seed: 31, sound: { out: 40, eps: 1e-5 } });
const fileOf = (name: string, bytes: Uint8Array<ArrayBuffer>): File => new File([bytes], name);
const filesOf = ({ files }: typeof made) => [...files].map(([name, bytes]) => fileOf(name, bytes));
const open = async (more: LoadOptions = {}, from = filesOf(made)): Promise<Model> => {
  const model = await load(from, { ...options, ...more });
  models.push(model);
  return model;
};
const tiles = pictures.flatMap((picture) => tilesOf(made, picture));

const whole = openedOnce(open, prompt);

/** In float64, but for what is changed. */
function reference(
  ids: readonly number[],
  mistake?: UnifiedMistake,
  { heard, ...more }: Partial<Gemma4Pictures> & { heard?: 'no norm' | 'another eps' } = {},
) {
  const seen = tiles.map(({ data, width, height }) => {
    const pixels = [...data].map((value) => value / 255);
    return gemma4PatchRows(made.weights, made.tower, made.scale, 64, pixels, [width, height], mistake);
  });
  const given = sounds.map((samples) => gemma4SampleRows(made.weights, made.sound!, 64, samples, heard));
  // In the order of the prompt.
  const parts = [seen[0]!, given[0]!, seen[1]!, given[1]!, seen[2]!, given[2]!];
  const rows = new Map<number, Float64Array>();
  const runs: [number, number][] = [];
  const tokens = [...ids];
  let at = 0;
  for (const [index, part] of parts.entries()) {
    while (ids[at]! < GIVEN_ID) at++;
    const isPicture = seen.includes(part);
    if (isPicture) runs.push([at, at + part.length]);
    for (const row of part) {
      expect(ids[at], `part ${index}`).toBeGreaterThanOrEqual(GIVEN_ID);
      rows.set(at, row);
      tokens[at++] = isPicture ? IMAGE : SOUND;
    }
  }
  return gemma4Logits(made.text, made.weights, tokens, { rows, runs, ...more });
}

describe('pictures and sound without an encoder', () => {
  test('logits are those of float64', { timeout: 300_000 }, async () => {
    const { ids, expected } = await whole();
    expect(tiles.map(({ width, height }) => [width, height])).toEqual([
      [36, 24],
      [36, 24],
      [24, 36],
    ]);
    expect(errorOf(expected, reference(ids))).toBeLessThan(2e-5);
    const mistakes: UnifiedMistake[] = [
      'channels first',
      'lines before columns',
      'no places',
      'no norm before',
      'no norm behind',
      'pixels from -1',
    ];
    for (const mistake of mistakes) expect(errorOf(expected, reference(ids, mistake)), mistake).toBeGreaterThan(1e-4);
    for (const heard of ['no norm', 'another eps'] as const)
      expect(errorOf(expected, reference(ids, undefined, { heard })), heard).toBeGreaterThan(1e-4);
    expect(errorOf(expected, reference(ids, undefined, { runs: [] }))).toBeGreaterThan(1e-3);
    expect(errorOf(expected, reference(ids, undefined, { runsInAll: true }))).toBeGreaterThan(1e-3);
  });

  test('what stands in the prompt', async () => {
    const { model } = await whole();
    const read = await model.readPrompt({ prompt: 'a<|image|>b<|audio|>', images: [images[0]!], sounds: [sounds[1]!] });
    expect(read.map((id, at) => (id < GIVEN_ID ? id : at < 10 ? IMAGE : SOUND))).toEqual(
      model.tokenize(`a<|image>${'<|image|>'.repeat(6)}<image|>b<|audio>${'<|audio|>'.repeat(9)}<audio|>`),
    );
    expect(model.info).toMatchObject({ imagePlaceholder: '<|image|>', soundPlaceholder: '<|audio|>' });
    const other = fileOf(
      'processor_config.json',
      new TextEncoder().encode('{"feature_extractor":{"feature_size":128}}'),
    );
    await expect(open({}, [...filesOf(made), other])).rejects.toThrow(
      /feature_extractor: feature_size 128; expected 40/,
    );
    await expect(model.readPrompt({ prompt: '<|audio|>', sounds: [new Float32Array()] })).rejects.toThrow(/too short/);
  });

  const plans = [
    { ranks: 2, plan: 'tp', virtualRanks: true },
    { ranks: 2, plan: 'pp', virtualRanks: true },
    { ranks: 2, plan: 'token', virtualRanks: true },
    { ranks: 2, plan: 'adp', virtualRanks: true },
    { ranks: 2, plan: 'sp', virtualRanks: true },
    { ranks: 2, plan: 'tp', workers: true },
    { prefillChunk: 16 },
    { prefillChunk: 37 },
  ] satisfies LoadOptions[];
  test.each(drawn(plans, 3, 'plans of the 12B'))('the same bits with %j', { timeout: 300_000 }, async (more) => {
    const { model, expected } = await whole();
    await expectSameBits(await open(more), model, prompt, expected);
  });

  test('what goes on: token by token, and from the cache', { timeout: 300_000 }, async () => {
    const { model } = await whole();
    const more = { images: [...images, images[1]!], sounds: [...sounds, sounds[1]!] };
    await expectGoesOn(model, prompt, { prompt: `${prompt.prompt} <|audio|> <|image|> too`, ...more });
  });

  test('what makes rows counts as weights of the first rank, as beforehand', async () => {
    await expectAsOnPaper(await open({ ranks: 2, plan: 'tp', virtualRanks: true }), made.config, 300);
  });
});

test('a GGUF file with its mmproj is as the folder', { timeout: 300_000 }, async () => {
  // Its files say nothing of pictures' rows.
  const of = {
    kind: 'gemma4_unified',
    imageToken: IMAGE,
    seed: 32,
    tower: { rows: 280, places: 900, eps: 1e-6 },
    text: { sliding_window: 300 },
  } as const;
  const stored = makeRandomVision({ ...of, sound: { out: 40 } });
  const [gguf, mmproj] = [
    fileOf('tiny-F32.gguf', textGgufOf(stored)),
    fileOf('mmproj-tiny-F16.gguf', mmprojOf(stored)),
  ];
  const short = { prompt: 'the <|image|> cat <|audio|>', images: [images[1]!], sounds: [sounds[1]!] };
  const more = { contextLength: 600 };
  const folder = await open(more, filesOf(stored));
  const ids = await folder.readPrompt(short);
  const own = await open(more, [gguf, mmproj]);
  expect(await own.readPrompt(short)).toEqual(ids);
  expect(await logitsOf(own, ids)).toEqual(await logitsOf(folder, ids));
  expect(own.info.weightBytes).toBe(folder.info.weightBytes);
  const { pick } = await planModel([gguf, mmproj], { images: true, sound: true, ...more, plan: 'single' });
  expect(pick!.memory[0]!.weightBytes).toBe(own.info.weightBytes);
});
