import { beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { Random } from '../../base/random.js';
import { headDrafts } from '../../model/testing/reference/recurrent.js';
import type { RandomModel } from '../../model/testing/random_model.js';
import type { GenerateOptions, GenerateResult, LoadOptions, Model } from '../contracts/api.js';
import { randomFiles } from '../testing/random_source.js';
import type { DraftModel, DraftText } from '../serving/speculation/draft_model.js';
import { load } from './load.js';
import type { LoadedModel } from './model.js';

const adapter = (await testAdapters()).at(-1)!.name;
const VOCAB = 320;
const QWEN = {
  model_type: 'qwen3_5_text',
  num_hidden_layers: 4,
  head_dim: 32,
  linear_num_key_heads: 2,
  linear_num_value_heads: 4,
  linear_key_head_dim: 16,
  linear_value_head_dim: 24,
  mtp_num_hidden_layers: 1,
};
const random = new Random(7);
const ids = (count: number): number[] => Array.from({ length: count }, () => random.integer(VOCAB));
const PROMPT = ids(90);

const open = (files: readonly File[], options: LoadOptions): Promise<Model> =>
  load(files, { adapter, contextLength: 512, weights: 'f32', kv: 'f32', prefillChunk: 64, ...options });
const ask = (model: Model, prompt: readonly number[], options: GenerateOptions = {}): Promise<GenerateResult> =>
  model.generate(prompt, { maxTokens: 24, ignoreEos: true, ...options }).result;
const always = (model: Model, tries = 4): void => void ((model as LoadedModel).how.speculation!.tries = tries);
const headOf = (model: Model): DraftModel => (model as LoadedModel).how.speculation!.options.draft as DraftModel;

describe("Qwen3.5's own head", { timeout: 300_000 }, () => {
  let made: RandomModel;
  let files: readonly File[];
  beforeAll(() => {
    ({ model: made, files } = randomFiles({ config: QWEN, seed: 3 }));
  });

  test('proposes what its equation says, and the answer is the same', async () => {
    const raw = JSON.parse(new TextDecoder().decode(made.files.get('config.json'))) as Record<string, unknown>;
    const plain = await open(files, { speculate: 'off' });
    const expected = await ask(plain, PROMPT);
    await plain.dispose();
    const model = await open(files, { speculate: 'mtp' });
    always(model);
    const head = headOf(model);
    const asked: { readonly text: readonly number[]; readonly ids: readonly number[] }[] = [];
    const propose = head.propose.bind(head);
    head.propose = async (text: DraftText, count) => {
      const tokens = [...text.tokens];
      const found = await propose(text, count);
      asked.push({ text: tokens, ids: found });
      return found;
    };
    expect((await ask(model, PROMPT)).tokens).toEqual(expected.tokens);
    expect(asked.length).toBeGreaterThan(3);
    for (const { text, ids: drafts } of asked)
      expect(drafts, `behind ${text.length} tokens`).toEqual(headDrafts(raw, made.weights, text, drafts.length));
    await model.dispose();
  });
});
