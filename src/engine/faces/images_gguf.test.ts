import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import sharp from 'sharp';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { Random } from '../../base/random.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { startHub } from '../../loader/testing/hub_server.js';
import { adapterToGguf, randomAdapter } from '../../model/testing/random_adapter.js';
import { makeRandomVision, type RandomVisionOptions } from '../../model/testing/random_vision.js';
import { type MmprojOptions, mmprojOf, textGgufOf } from '../../model/testing/gguf/mmproj.js';
import type { LoadOptions, Model } from '../contracts/api.js';
import { load } from './load.js';
import { planModel } from './plan_model.js';

// Images for GGUF models: the encoder is in llama.cpp's mmproj file.

const adapter = (await testAdapters()).at(-1)!.name;
const options: LoadOptions = { images: true, kv: 'f32', contextLength: 600, adapter };
const models: Model[] = [];
afterAll(() => Promise.all(models.map((model) => model.dispose())));
const open = async (files: readonly File[], more: LoadOptions = {}): Promise<Model> => {
  const model = await load(files, { ...options, ...more });
  models.push(model);
  return model;
};

const random = new Random(5);
const data = Uint8Array.from({ length: 48 * 20 * 3 }, () => random.integer(256));
const image = new Uint8Array(
  await sharp(data, { raw: { width: 48, height: 20, channels: 3 } })
    .png()
    .toBuffer(),
);

const kinds: readonly (RandomVisionOptions & { mark: string })[] = [
  { kind: 'idefics3', seed: 21, mark: '<image>' },
  { kind: 'gemma3', seed: 22, tower: { image: 64 }, text: { sliding_window: 19 }, mark: '<start_of_image>' },
  { kind: 'qwen3_5', seed: 23, mark: '<|image_pad|>' },
  { kind: 'qwen2_5_vl', seed: 27, mark: '<|image_pad|>' },
  { kind: 'qwen3_vl', seed: 24, mark: '<|image_pad|>' },
  // Its files say nothing of sizes: patches are of 16 pixels.
  { kind: 'lfm2_vl', seed: 25, tower: { patch: 16, image: 512 }, mark: '<image>' },
  { kind: 'gemma4', seed: 26, tower: { rows: 280, places: 900, layers: 1 }, mark: '<|image|>' },
];
const fileOf = (name: string, bytes: Uint8Array<ArrayBuffer>): File => new File([bytes], name);

describe.each(kinds)('$kind', ({ mark, ...of }) => {
  const made = makeRandomVision({ ...of, imageToken: 300 });
  const text = fileOf('tiny-F32.gguf', textGgufOf(made));
  const mmproj = fileOf('mmproj-tiny-F16.gguf', mmprojOf(made));
  const prompt = { prompt: `the cat ${mark} ran`, images: [image] };
  let opened: Promise<Model> | undefined;
  const own = (): Promise<Model> => (opened ??= open([text, mmproj]));
  const rowsOf = async (model: Model) => (await model.logits(await model.readPrompt(prompt), { all: true })).rows;

  test('the same bits as the safetensors folder, on each plan', async () => {
    const folder = await open([...made.files].map(([name, bytes]) => fileOf(name, bytes)));
    const expected = await rowsOf(folder);
    const model = await own();
    expect(model.info.weights).toBe('f32');
    expect(model.info.imagePlaceholder).toBe(mark);
    expect(await model.readPrompt(prompt)).toEqual(await folder.readPrompt(prompt));
    expect(await rowsOf(model)).toEqual(expected);
    expect(model.info.weightBytes).toBe(folder.info.weightBytes);
    const workers = await open([text, mmproj], { ranks: 2, plan: 'tp', workers: true });
    expect(await rowsOf(workers)).toEqual(expected);
  });

  test('other types and old names; the best of several, or the one that is named', async () => {
    const expected = (await rowsOf(await own())).at(-1)!;
    const largest = Math.max(...expected.map(Math.abs));
    const last = async (files: readonly File[], more: LoadOptions = {}): Promise<Float32Array> =>
      (await rowsOf(await open(files, more))).at(-1)!;
    const swapped = mmprojOf(made, {
      rename: (name) => name.replace(/ffn_(up|down)/, (_, part) => `ffn_${part === 'up' ? 'down' : 'up'}`),
    });
    expect(await last([text, fileOf('mmproj-old.gguf', swapped)])).toEqual(expected);
    const isMatrix = (name: string): boolean => /blk\.\d+\.(attn|ffn)_(?!.*norm).*weight$/.test(name);
    const inType = (type: 'F16' | 'BF16' | 'Q8_0' | 'Q4_0'): File =>
      fileOf(`mmproj-tiny-${type}.gguf`, mmprojOf(made, { typeOf: (name) => (isMatrix(name) ? type : undefined) }));
    const [q8, q4] = [inType('Q8_0'), inType('Q4_0')];
    // Which of them is read shows in the bits.
    const asQ8 = await last([text, q8, q4]);
    expect(asQ8).not.toEqual(expected);
    expect(Math.max(...asQ8.map((logit, id) => Math.abs(logit - expected[id]!))) / largest).toBeLessThan(0.1);
    expect(await last([text, q8, mmproj, q4], { images: false, mmproj: q8.name })).toEqual(asQ8);
  });

  test('what is refused; text alone needs no encoder', async () => {
    const refused = (files: readonly File[], more: LoadOptions = {}) => expect(open([text, ...files], more)).rejects;
    await refused([]).toThrow(/no mmproj file lies beside tiny-F32\.gguf .*put llama\.cpp's mmproj-\*\.gguf/);
    await refused([mmproj], { mmproj: 'mmproj-other.gguf' }).toThrow(/mmproj-other\.gguf is not in/);
    const whole = mmprojOf(made);
    await refused([fileOf('mmproj.gguf', whole.slice(0, whole.length - 4000))]).toThrow(
      /mmproj\.gguf of .*is it truncated\?/,
    );
    await refused([fileOf('mmproj.gguf', textGgufOf(made))]).toThrow(
      /mmproj\.gguf of .* is no encoder of images: general\.architecture is "(llama|gemma3|gemma4|qwen35|qwen2vl|qwen3vl|lfm2)"; expected "?'?clip/,
    );
    const said = (metadata: NonNullable<MmprojOptions['metadata']>): File =>
      fileOf('mmproj.gguf', mmprojOf(made, { metadata }));
    const key = of.kind === 'gemma4' ? 'clip.vision.projector_type' : 'clip.projector_type';
    const other = { [key]: { type: 'string', value: 'pixtral' } as const };
    await refused([said(other)]).toThrow(
      /clip\.projector_type is "pixtral"; .* expected "(idefics3|gemma3|qwen2.5vl_merger|qwen3vl_merger|lfm2|gemma4v)"/,
    );
    await refused([said({ 'clip.vision.projection_dim': { type: 'u32', value: 2048 } })]).toThrow(
      /is of another model: its rows have 2048 elements .*, the model's 64/,
    );
    // Gemma 4's says nothing of them.
    if (of.kind !== 'gemma4') {
      // Qwen2.5-VL's is SiLU.
      if (of.kind !== 'qwen2_5_vl')
        await refused([said({ 'clip.use_gelu': { type: 'bool', value: false } })]).toThrow(/hidden_act "quick_gelu"/);
      await refused([said({ 'clip.vision.image_mean': { type: 'f32[]', value: [0.5] } })]).toThrow(
        /mmproj\.gguf: image_mean \[0\.5\]; expected three numbers/,
      );
    }
    const [lacks, as] =
      of.kind === 'gemma4'
        ? ['v.blk.0.ffn_up.output_max', /fc1\.output_max/]
        : of.kind === 'qwen2_5_vl'
          ? ['v.post_ln.weight', /post_layernorm\.weight/]
          : ['v.post_ln.bias', /post_layernorm\.bias/];
    const short = mmprojOf(made, { rename: (name) => name.replace(lacks, 'v.other') });
    await refused([fileOf('mmproj.gguf', short)]).toThrow(as);
    const two = ['mmproj-a-F16.gguf', 'mmproj-b-F16.gguf'].map((name) => fileOf(name, whole));
    await refused(two).toThrow(/mmproj-a-F16\.gguf, mmproj-b-F16\.gguf lie beside it; name the one/);
    const alone = await open([text, ...two], { images: false });
    const answer = await alone.generate('the cat', { maxTokens: 3, ignoreEos: true }).result;
    expect(answer.tokens).toHaveLength(3);
    await expect(alone.readPrompt(prompt)).rejects.toThrow(/loaded for text alone/);
  });

  test('plans count the encoder', async () => {
    const plan = async (images: boolean) => {
      const { pick, download } = await planModel([text, mmproj], { images, contextLength: 600, plan: 'single' });
      return { bytes: pick!.memory[0]!.weightBytes, download: download!.bytes };
    };
    const [without, with_] = [await plan(false), await plan(true)];
    expect(with_.bytes).toBe((await own()).info.weightBytes);
    // Tables of places stay with the host.
    const host = of.kind === 'gemma4' ? 2 * (made.tower.places ?? 0) * made.tower.hidden * 4 : 0;
    expect(with_.bytes - without.bytes).toBeGreaterThan(0.9 * (mmproj.size - host));
    expect(with_.download - without.download).toBeGreaterThan(0.9 * (mmproj.size - host - 4096));
  });
});

test('by names of the Hub, a draft and an adapter beside it', { timeout: 300_000 }, async () => {
  const made = makeRandomVision({ seed: 28, imageToken: 300 });
  const [text, mmproj] = [textGgufOf(made), mmprojOf(made)];
  const lora = randomAdapter(made, { seed: 4, targets: /^model\.layers\.\d\.self_attn\.q_proj\.weight$/ });
  const files = { 'F32/tiny-F32.gguf': text, 'encoders/mmproj-F16.gguf': mmproj };
  const hub = await startHub({
    'org/seen': { files },
    'org/text': { files: { 'tiny-F32.gguf': text } },
    'org/draft': { files: { 'd-F32.gguf': text } },
    'org/lora': { files: { 'a-lora.gguf': adapterToGguf(made, lora, 8) } },
  });
  const home = await mkdtemp(join(tmpdir(), 'splitkv-images-'));
  for (const [name, value] of Object.entries({ HF_HOME: home, HF_HUB_CACHE: '', HF_TOKEN: '' }))
    vi.stubEnv(name, value);
  try {
    const named = 'encoders/mmproj-F16.gguf';
    const rowsOf = async (where: string | readonly File[], more: LoadOptions): Promise<readonly Float32Array[]> => {
      const model = await load(where, { ...options, hub: hub.url, ...more });
      try {
        const ids = await model.readPrompt({ prompt: 'the cat <image> ran', images: [image] });
        const own = model.adapters.list.map(({ name }) => ({ adapter: name }));
        const rows = await Promise.all([{}, ...own].map((request) => model.logits(ids, request)));
        return rows.map(({ rows: [row] }) => row!);
      } finally {
        await model.dispose();
      }
    };
    const { images: _, ...plain } = options;
    const adapters = { a: [fileOf('a-lora.gguf', adapterToGguf(made, lora, 8))] };
    const expected = await rowsOf([fileOf('t.gguf', text), fileOf('mmproj-t.gguf', mmproj)], { adapters });
    expect(expected[1]).not.toEqual(expected[0]);
    for (const offline of ['', '1']) {
      vi.stubEnv('HF_HUB_OFFLINE', offline);
      expect(await rowsOf('hf:org/seen', { adapters: { a: 'org/lora' } })).toEqual(expected);
      const beside = { mmproj: named, draft: 'org/draft:F32', adapters: { a: 'hf:org/lora/a-lora.gguf' } };
      expect(await rowsOf('org/seen:F32', { ...plain, images: false, ...beside })).toEqual(expected);
    }
    const workers = await rowsOf('org/seen', { ranks: 2, plan: 'tp', workers: true });
    expect(workers[0]).toEqual(expected[0]);
    vi.stubEnv('HF_HUB_OFFLINE', '');
    await expect(rowsOf('org/text', {})).rejects.toThrow(/no mmproj file lies beside tiny-F32\.gguf of org\/text/);
    expect(await readdir(join(home, 'hub'), { recursive: true })).not.toContainEqual(
      expect.stringMatching(/org--text/),
    );
    expect((await rowsOf('org/seen', { cache: false }))[0]).toEqual(expected[0]);
  } finally {
    vi.unstubAllEnvs();
    await hub[Symbol.asyncDispose]();
    await rm(home, { recursive: true });
  }
});
