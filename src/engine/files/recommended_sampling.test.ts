import { describe, expect, test } from 'vitest';
import { openSource } from '../../loader/index.js';
import { f32, u32 } from '../../model/testing/gguf/file.js';
import { modelToGguf } from '../../model/testing/gguf/model.js';
import { makeRandomModel } from '../../model/testing/random_model.js';
import type { RecommendedSampling } from '../contracts/api.js';
import { openModelFiles, recommendedSampling } from './model_files.js';

describe("a model's recommended sampling", () => {
  const all = { temperature: 0.6, top_k: 20, top_p: 0.95, min_p: 0.05, repetition_penalty: 1.05 };
  test.each<[string, unknown, RecommendedSampling]>([
    ['all of it', all, { temperature: 0.6, topK: 20, topP: 0.95, minP: 0.05, repetitionPenalty: 1.05 }],
    ['other keys beside it', { bos_token_id: 1, temperature: 0.7, max_length: 100 }, { temperature: 0.7 }],
    ['nulls', { temperature: null, top_p: 0.8 }, { topP: 0.8 }],
    ['drawing without a temperature', { do_sample: true, top_p: 0.9 }, { temperature: 1, topP: 0.9 }],
    ['drawing with one', { do_sample: true, temperature: 0.3 }, { temperature: 0.3 }],
    ['no drawing', { do_sample: false, ...all }, { repetitionPenalty: 1.05 }],
    ['nothing', { do_sample: false }, {}],
    ['no file', undefined, {}],
  ])('%s', (_what, config, sampling) => {
    const warnings: string[] = [];
    expect(recommendedSampling(config, (message) => warnings.push(message))).toEqual(sampling);
    expect(warnings).toEqual([]);
  });

  test.each<[string, unknown, string]>([
    [
      'temperature',
      'hot',
      'generation_config.json: temperature is "hot"; expected a number of at least 0. It is ignored',
    ],
    ['temperature', -1, 'temperature is -1'],
    ['top_k', 2.5, 'top_k is 2.5; expected an integer'],
    ['top_p', 0, 'top_p is 0; expected a number above 0'],
    ['top_p', [0.9], 'top_p is [0.9]'],
    ['min_p', 2, 'min_p is 2; expected a number from 0 to 1'],
    ['repetition_penalty', true, 'repetition_penalty is true'],
  ])('%s: %o is left out, with a warning', (name, value, warning) => {
    const warnings: string[] = [];
    const { [name]: _, ...others } = { ...all } as Record<string, number>;
    const told = (message: string): void => void warnings.push(message);
    expect(recommendedSampling({ ...all, [name]: value }, told)).toEqual(recommendedSampling(others));
    expect(warnings).toEqual([expect.stringContaining(warning)]);
  });

  test('is read with the files of a folder, and from general.sampling of a GGUF file', async () => {
    const { config, files, weights } = makeRandomModel({ config: { num_hidden_layers: 1 } });
    const generation = new TextEncoder().encode(JSON.stringify({ eos_token_id: 2, temperature: 0.5, top_k: 'few' }));
    const folder = [...new Map([...files, ['generation_config.json', generation]])];
    const warnings: string[] = [];
    const told = (message: string): void => void warnings.push(message);
    const source = await openSource(folder.map(([name, bytes]) => new File([bytes], name)));
    expect((await openModelFiles(source, undefined, told)).sampling).toEqual({ temperature: 0.5 });
    expect(warnings).toEqual([expect.stringContaining('top_k is "few"')]);
    const metadata = {
      'general.sampling.temp': f32(0.75),
      'general.sampling.top_k': u32(40),
      'general.sampling.top_p': f32(0.5),
      'general.sampling.min_p': f32(0),
      'general.sampling.penalty_repeat': f32(1.25),
    };
    const gguf = await openSource([new File([modelToGguf(config, weights, { metadata })], 'm.gguf')]);
    const expected = { temperature: 0.75, topK: 40, topP: 0.5, minP: 0, repetitionPenalty: 1.25 };
    expect((await openModelFiles(gguf)).sampling).toEqual(expected);
    const plain = await openSource([new File([modelToGguf(config, weights)], 'm.gguf')]);
    expect((await openModelFiles(plain)).sampling).toEqual({});
  });
});
