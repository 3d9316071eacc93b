import { afterAll, describe, expect, test } from 'vitest';
import { GIVEN_ID } from '../../base/kv_units.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { noise, pngOf } from '../../images/testing/noise.js';
import { mmprojOf, textGgufOf } from '../../model/testing/gguf/mmproj.js';
import { makeRandomVision } from '../../model/testing/random_vision.js';
import { gemma4Logits } from '../../model/testing/reference/gemma4.js';
import { gemma4SoundRows, type SoundMistake } from '../../model/testing/reference/sound.js';
import { melFrames } from '../../sound/mel.js';
import { tone, wavOf } from '../../sound/testing/wav.js';
import type { LoadOptions, Model } from '../contracts/api.js';
import { errorOf, expectAsOnPaper, expectGoesOn, expectSameBits, logitsOf, openedOnce } from '../testing/pictured.js';
import { load } from './load.js';
import { planModel } from './plan_model.js';

// Gemma 4's recordings: rows of an encoder of sound, beside pictures or alone.

const IMAGE = 300;
const SOUND = 303;
const adapter = (await testAdapters()).at(-1)!.name;
const options: LoadOptions = { sound: true, kv: 'f32', contextLength: 300, adapter };
const models: Model[] = [];
afterAll(() => Promise.all(models.map((model) => model.dispose())));

const made = makeRandomVision({ kind: 'gemma4', imageToken: IMAGE, seed: 8, sound: {} });
const files = [...made.files].map(([name, bytes]) => new File([bytes], name));
const open = async (more: LoadOptions = {}, from = files): Promise<Model> => {
  const model = await load(from, { ...options, ...more });
  models.push(model);
  return model;
};

/** Less than a row, and of several: of samples, as a file, and at another rate. */
const samples = [tone(300), tone(5000, 700), tone(9000, 300)];
const sounds = [
  samples[0]!,
  wavOf(samples[1]!, { bits: 32, isFloat: true }),
  new Blob([wavOf(samples[2]!, { bits: 32, isFloat: true })]),
];
const counts = [1, 8, 14];
const prompt = { prompt: 'the cat <|audio|> ran <|audio|><|audio|> and saw the dog', sounds };

const whole = openedOnce(open, prompt);

/** In float64, but for what is changed. */
function reference(ids: readonly number[], mistake?: SoundMistake, padding?: number): Float64Array[] {
  const given = samples.flatMap((each) => gemma4SoundRows(made.weights, made.sound!, 64, melFrames(each), mistake));
  const places = [...ids.keys()].filter((at) => ids[at]! >= GIVEN_ID);
  const tokens = ids.map((id) => (id >= GIVEN_ID ? SOUND : id));
  const rows = new Map(places.map((at, row) => [at, given[row]!]));
  return gemma4Logits(made.text, made.weights, tokens, { rows, ...(padding !== undefined && { padding }) });
}

describe('sound', () => {
  test('logits are those of float64', { timeout: 300_000 }, async () => {
    const { ids, expected } = await whole();
    expect(ids.filter((id) => id >= GIVEN_ID)).toHaveLength(counts.reduce((a, b) => a + b));
    expect(errorOf(expected, reference(ids))).toBeLessThan(2e-5);
    for (const mistake of ['no bounds', 'places turned round', 'plain scales'] as const)
      expect(errorOf(expected, reference(ids, mistake)), mistake).toBeGreaterThan(1e-4);
    expect(errorOf(expected, reference(ids, undefined, SOUND))).toBeGreaterThan(1e-3);
  });

  test('what stands in the prompt', async () => {
    const { model } = await whole();
    const read = await model.readPrompt({ prompt: 'a<|audio|>b', sounds: [sounds[1]!] });
    const as = read.map((id) => (id >= GIVEN_ID ? SOUND : id));
    expect(as).toEqual(model.tokenize(`a<|audio>${'<|audio|>'.repeat(8)}<audio|>b`));
    expect(await model.readPrompt({ prompt: as, sounds: [samples[1]!] })).toEqual(read);
    expect(model.info).toMatchObject({ soundPlaceholder: '<|audio|>' });
    expect(model.info).not.toHaveProperty('imagePlaceholder');
    const text = { type: 'text', text: 'what?' } as const;
    const data = Buffer.from(sounds[1] as Uint8Array).toString('base64');
    for (const part of [
      { type: 'audio', audio: sounds[1]! } as const,
      { type: 'input_audio', input_audio: { data, format: 'wav' } } as const,
    ]) {
      const chat = await model.readPrompt({ messages: [{ role: 'user', content: [part, text] }] });
      const first = chat.findIndex((id) => id >= GIVEN_ID);
      expect([chat[first - 1], chat[first], chat[first + 7], chat[first + 8]]).toEqual([
        SOUND + 1,
        read.find((id) => id >= GIVEN_ID),
        chat[first]! + 7,
        SOUND + 2,
      ]);
    }
  });

  const plans = [
    { ranks: 2, plan: 'tp', virtualRanks: true },
    { ranks: 2, plan: 'token', virtualRanks: true },
    { ranks: 2, plan: 'adp', virtualRanks: true },
    { ranks: 2, plan: 'sp', virtualRanks: true },
    { ranks: 2, plan: 'tp', workers: true },
    { prefillChunk: 16 },
    { prefillChunk: 37 },
  ] satisfies LoadOptions[];
  test.each(drawn(plans, 3, 'plans of sound'))('the same bits with %j', { timeout: 300_000 }, async (more) => {
    const { model, expected } = await whole();
    await expectSameBits(await open(more), model, prompt, expected);
  });

  test('what goes on: token by token, and from the cache', { timeout: 300_000 }, async () => {
    const { model } = await whole();
    const longer = { prompt: `${prompt.prompt} <|audio|> too`, sounds: [...sounds, samples[1]!] };
    await expectGoesOn(model, prompt, longer);
  });

  test('conversations keep recordings, also saved ones', async () => {
    const { model } = await whole();
    const asked = [{ type: 'text', text: 'hear' } as const, { type: 'audio', audio: sounds[1]! } as const];
    const say = { maxTokens: 3, ignoreEos: true, temperature: 0 };
    const talk = model.conversation();
    await talk.send(asked, say).result;
    const saved = talk.save();
    const next = await talk.send('and now?', say).result;
    expect(next.stats.cached_tokens).toBeGreaterThan(8);
    const restored = model.conversation({ restore: JSON.parse(JSON.stringify(saved)) as typeof saved });
    expect((await restored.send('and now?', say).result).tokens).toEqual(next.tokens);
    const plain = model.conversation();
    await plain.send([{ type: 'audio', audio: samples[0]! }], say).result;
    expect(() => plain.save()).toThrow(/recordings that were given as data: URLs/);
  });

  test('the encoder counts as weights of the first rank, as beforehand', async () => {
    const both = await open({ ranks: 2, plan: 'tp', virtualRanks: true });
    const { vision: _, ...config } = made.config;
    await expectAsOnPaper(both, config, 300);
    const alone = await open({ sound: false });
    expect((await whole()).model.info.weightBytes).toBeGreaterThan(alone.info.weightBytes);
  });

  test('pictures and recordings in one prompt', { timeout: 120_000 }, async () => {
    const model = await open({ images: true });
    const image = await pngOf(noise(20, 11, 1));
    const mixed = { prompt: 'a <|audio|> b <|image|> c <|audio|>', images: [image], sounds: [sounds[1]!, sounds[0]!] };
    const ids = await model.readPrompt(mixed);
    const apart = await Promise.all([
      model.readPrompt({ prompt: '<|audio|>', sounds: [sounds[1]!] }),
      model.readPrompt({ prompt: '<|image|>', images: [image] }),
      model.readPrompt({ prompt: '<|audio|>', sounds: [sounds[0]!] }),
    ]);
    const given = (list: readonly number[]): number[] => list.filter((id) => id >= GIVEN_ID);
    expect(given(ids)).toEqual(apart.flatMap(given));
    // What a recording gives doesn't depend on what else is loaded.
    const text = await model.readPrompt(prompt);
    expect(await logitsOf(model, text)).toEqual((await whole()).expected);
  });

  test('what is refused', async () => {
    const { model } = await whole();
    const refused = (of: Parameters<Model['readPrompt']>[0]) => expect(model.readPrompt(of)).rejects;
    await refused({ prompt: 'a', sounds: [sounds[0]!] }).toThrow(
      /1 recording and 0 placeholders <\|audio\|>: give one for each/,
    );
    await refused({ prompt: '<|audio|>', sounds: [] }).toThrow(/0 recordings and 1 placeholder <\|audio\|>/);
    await refused({ prompt: '<|audio|>', sounds: [new Float32Array(100)] }).toThrow(/100 samples at 16 kHz: too short/);
    await refused({ prompt: '<|audio|>', sounds: [tone(16_000 * 20)] }).toThrow(/context/);
    await refused({ prompt: '<|image|>', images: ['data:,'] }).toThrow(
      /loaded without their encoder: load one that takes images/,
    );
    await expect((await open({ sound: false })).readPrompt(prompt)).rejects.toThrow(
      /sounds.*for text alone: load Gemma 4 E2B, E4B or 12B, with sound: true/,
    );
    const deaf = [...makeRandomVision({ kind: 'gemma4', imageToken: IMAGE }).files].map(
      ([name, bytes]) => new File([bytes], name),
    );
    await expect(open({}, deaf)).rejects.toThrow(/takes no sound here.*Gemma 4 E2B, E4B or 12B/);
    const other = new File([JSON.stringify({ feature_extractor: { mel_floor: 0.01 } })], 'processor_config.json');
    await expect(open({}, [...files, other])).rejects.toThrow(/feature_extractor: mel_floor 0\.01; expected 0\.001/);
  });
});

describe('a GGUF file with its mmproj', () => {
  // Its files say nothing of pictures' rows.
  const of = { kind: 'gemma4', imageToken: IMAGE, seed: 9, tower: { rows: 280, places: 900, layers: 1 } } as const;
  const stored = makeRandomVision({ ...of, sound: { layers: 1 } });
  const gguf = new File([textGgufOf(stored)], 'tiny-F32.gguf');
  const mmproj = new File([mmprojOf(stored)], 'mmproj-tiny-F16.gguf');

  test('as the folder, on several ranks too; plans count the encoder', { timeout: 300_000 }, async () => {
    const folder = await open(
      {},
      [...stored.files].map(([name, bytes]) => new File([bytes], name)),
    );
    const ids = await folder.readPrompt(prompt);
    const own = await open({}, [gguf, mmproj]);
    expect(await own.readPrompt(prompt)).toEqual(ids);
    // Of scales the file has the softplus.
    const found = await logitsOf(own, ids);
    const expected = await logitsOf(folder, ids);
    const exact = expected.map((row) => Float64Array.from(row));
    expect(errorOf(found, exact)).toBeLessThan(5e-6);
    expect(own.info.weightBytes).toBe(folder.info.weightBytes);
    const workers = await open({ ranks: 2, plan: 'tp', workers: true }, [gguf, mmproj]);
    expect(await logitsOf(workers, await workers.readPrompt(prompt))).toEqual(found);
    const { pick } = await planModel([gguf, mmproj], { sound: true, contextLength: 300, plan: 'single' });
    expect(pick!.memory[0]!.weightBytes).toBe(own.info.weightBytes);
  });

  test('what is refused', async () => {
    const refused = (file: Uint8Array<ArrayBuffer>) =>
      expect(open({}, [gguf, new File([file], 'mmproj-F16.gguf')])).rejects;
    await refused(mmprojOf(makeRandomVision(of))).toThrow(/takes no sound here/);
    const metadata = { 'clip.audio.projector_type': { type: 'string', value: 'lfm2a' } } as const;
    await refused(mmprojOf(stored, { metadata })).toThrow(
      /clip\.audio\.projector_type is "lfm2a"; expected "gemma4a", "gemma4ua"/,
    );
    await refused(mmprojOf(stored, { rename: (name) => name.replace('a.blk.0.conv_dw', 'a.other') })).toThrow(
      /conv_kernel_size|depthwise_conv1d/,
    );
  });
});
