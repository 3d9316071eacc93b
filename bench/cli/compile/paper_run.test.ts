import { expect, test } from 'vitest';
import { recordOnPaper } from '../../../src/engine/ranks/rank_memory.js';
import { readModelConfig } from '../../../src/model/families/registry.js';
import { modelShape } from '../../../src/model/shape.js';
import { OTHERS, PUBLISHED } from '../../../src/model/testing/published_configs.js';
import { makePlan } from '../../../src/placement/index.js';
import { countDispatches, type StepDispatches } from './paper_run.js';

const { config: llama } = PUBLISHED['llama-3.2-1b-instruct']!;
const { text_config: qwen } = PUBLISHED['qwen3.5-0.8b']!.config as { readonly text_config: object };

const counted = async (raw: object, layers: number): Promise<StepDispatches> =>
  countDispatches(await readModelConfig({ ...raw, num_hidden_layers: layers }), 'q4', 'f16');

test('a dense layer takes 5 dispatches, and beyond 1024 tokens another, that merges chunks', async () => {
  // Beside: the embedding, the head, and two for the likeliest token.
  for (const layers of [1, 3]) {
    expect(await counted(llama, layers)).toMatchObject({
      dispatches_512: 5 * layers + 4,
      dispatches_4096: 6 * layers + 4,
      // Chunks of several rows are merged apart; more rows than fit a workgroup's memory are normalised apart, too.
      dispatches_2_rows: 6 * layers + 4,
      dispatches_8_rows: 8 * layers + 5,
    });
  }
});

test('latent attention whose queries have a bottleneck takes 7 dispatches a layer, of several rows 10', async () => {
  const { config } = PUBLISHED['minicpm3-4b'] ?? { config: OTHERS['minicpm3-4b']! };
  const [one, two] = [await counted(config, 1), await counted(config, 2)];
  expect(two.dispatches_512 - one.dispatches_512).toBe(7);
  expect(two.dispatches_8_rows - one.dispatches_8_rows).toBe(10);
});

test.each([
  ['dense layers', llama, 2],
  // Three with a state, and one with attention.
  ['layers with and without a state', qwen, 4],
])('%s: every step grows by as much for as many more', async (_, raw, layers) => {
  const [one, two, three] = await Promise.all([1, 2, 3].map((times) => counted(raw, layers * times)));
  for (const step of Object.keys(one!) as (keyof StepDispatches)[]) {
    const more = two![step] - one![step];
    expect(more, step).toBeGreaterThanOrEqual(layers);
    expect(three![step] - two![step], step).toBe(more);
  }
  // A step of several rows, or of a prompt, fuses no more than one of a lone row.
  expect(one!.dispatches_8_rows).toBeGreaterThanOrEqual(one!.dispatches_512);
});

test.each(['gemma-3-1b-it', 'deepseek-v2-lite-chat'])(
  '%s: a step runs what a rank says that it captured',
  async (name) => {
    const config = await readModelConfig(PUBLISHED[name]!.config);
    const subject = { config, type: 'q4' } as const;
    const runner = { slots: 1, contextLength: 4096, prefillChunk: 64, kvType: 'f16', kvBlocks: 64 } as const;
    const { facts } = await recordOnPaper(makePlan('single', 1, modelShape(config)), 0, subject, runner);
    expect((await countDispatches(config, 'q4', 'f16')).dispatches_512).toBe(facts.dispatchesPerStep);
  },
);
