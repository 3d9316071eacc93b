import { describe, expect, test } from 'vitest';
import { geluErf } from '../../../shaders/linear/reference.js';
import { Random } from '../../base/random.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { type TensorToWrite, writeSafetensors } from '../../loader/testing/write_safetensors.js';
import type { GgufValue } from '../../model/testing/gguf/file.js';
import { modelToGguf } from '../../model/testing/gguf/model.js';
import { BERT, makeRandomModel, type RandomModel } from '../../model/testing/random_model.js';
import { familyStates } from '../../model/testing/reference/families.js';
import { referenceLogits } from '../../model/testing/reference/reference.js';
import { byteLevelTokenizer, wordPieceTokenizer } from '../../tokenizer/testing/tiny_tokenizers.js';
import { load } from '../faces/load.js';
import { serve } from '../faces/serving_model.js';

const adapter = (await testAdapters()).at(-1)!.name;
const exact = { adapter, weights: 'f32', kv: 'f32' } as const;
const gemma = {
  model_type: 'gemma3_text',
  architectures: ['Gemma3TextModel'],
  use_bidirectional_attention: true,
  hidden_act: undefined,
  query_pre_attn_scalar: 16,
  rope_theta: undefined,
  tie_word_embeddings: undefined,
  sliding_window: 8,
};

const random = new Random(9);
const numbers = (name: string, shape: readonly number[]): TensorToWrite & { readonly values: Float32Array } => {
  const values = random.normals(
    shape.reduce((a, b) => a * b),
    shape.length > 1 ? shape[1]! ** -0.5 : 0.3,
  );
  return { name, dtype: 'F32', shape: [...shape], data: new Uint8Array(values.buffer), values };
};
const json = (value: unknown): string => JSON.stringify(value);
const raw = ({ files }: RandomModel): Record<string, unknown> =>
  JSON.parse(new TextDecoder().decode(files.get('config.json'))) as Record<string, unknown>;

/** A folder's files, with others beside and in place of them; `prefix` before the names of its tensors, and more of these. */
function folder(
  model: RandomModel,
  others: Readonly<Record<string, string | Uint8Array<ArrayBuffer>>>,
  { name = 'model', rename = (tensor: string) => tensor, more = [] as readonly TensorToWrite[] } = {},
): File[] {
  const tensors = [...model.weights].map(([tensor, { shape, data }]): TensorToWrite => {
    return { name: rename(tensor), dtype: 'F32', shape: [...shape], data: new Uint8Array(data.slice().buffer) };
  });
  const files = new Map<string, string | Uint8Array<ArrayBuffer>>([
    ...model.files,
    ['model.safetensors', writeSafetensors([...tensors, ...more], { format: 'pt' })],
    ...Object.entries(others),
  ]);
  return [...files].map(([file, content]) => new File([content], `${name}/${file}`));
}

type Vector = readonly number[] | Float64Array;
const through = (x: Vector, weight: Float32Array, bias?: Float32Array): number[] =>
  Array.from({ length: weight.length / x.length }, (_, row) =>
    Array.from(x).reduce((sum, value, i) => sum + value * weight[row * x.length + i]!, bias?.[row] ?? 0),
  );
const ofLengthOne = (x: Vector): number[] => Array.from(x, (value) => value / Math.hypot(...x));
const meanOf = (states: readonly Float64Array[]): number[] =>
  Array.from(states[0]!, (_, i) => states.reduce((sum, row) => sum + row[i]!, 0) / states.length);
const close = (got: ArrayLike<number>, expected: readonly number[]): void => {
  expect(got).toHaveLength(expected.length);
  for (const [i, value] of expected.entries()) expect(got[i]).toBeCloseTo(value, 4);
};

describe('what files say of vectors', () => {
  test('pooling, dense layers, prompts and names as of EmbeddingGemma', { timeout: 120_000 }, async () => {
    const model = makeRandomModel({ seed: 41, config: { ...gemma, num_hidden_layers: 3 } });
    const [first, second] = [numbers('linear.weight', [96, 64]), numbers('linear.weight', [64, 96])];
    const identity = json({ activation_function: 'torch.nn.modules.linear.Identity', bias: false });
    const files = folder(
      model,
      {
        'modules.json': json([
          { idx: 0, path: '', type: 'sentence_transformers.models.Transformer' },
          { idx: 1, path: '1_Pooling', type: 'sentence_transformers.models.Pooling' },
          { idx: 2, path: '2_Dense', type: 'sentence_transformers.models.Dense' },
          { idx: 3, path: '3_Dense', type: 'sentence_transformers.models.Dense' },
          { idx: 4, path: '4_Normalize', type: 'sentence_transformers.models.Normalize' },
        ]),
        '1_Pooling/config.json': json({
          word_embedding_dimension: 64,
          pooling_mode_mean_tokens: true,
          pooling_mode_cls_token: false,
        }),
        '2_Dense/config.json': identity,
        '2_Dense/model.safetensors': writeSafetensors([first], {}),
        '3_Dense/config.json': identity,
        '3_Dense/model.safetensors': writeSafetensors([second], {}),
        'config_sentence_transformers.json': json({
          prompts: { query: 'the query: ', title: 'cat' },
          default_prompt_name: null,
        }),
      },
      { rename: (tensor) => tensor.replace(/^model\./, '') },
    );
    const expected = (ids: readonly number[]): number[] =>
      through(through(meanOf(familyStates(raw(model), model.weights, ids)), first.values), second.values);
    for (const one of [await load(files, exact), await serve(files, { ...exact, slots: 2 })]) {
      const said = one.tokenize('the query: the cat sat');
      const plain = one.tokenize('the cat sat');
      const vector = async (options: object): Promise<Float32Array> =>
        (await one.embed('the cat sat', options)).embeddings[0]!;
      close(await vector({}), ofLengthOne(expected(plain)));
      close(await vector({ promptName: 'query' }), ofLengthOne(expected(said)));
      close(await vector({ prompt: 'the query: ' }), ofLengthOne(expected(said)));
      close(await vector({ dimensions: 7 }), ofLengthOne(expected(plain).slice(0, 7)));
      await expect(one.embed('a', { promptName: 'doc' })).rejects.toThrow('query, title');
      await expect(one.embed([[1]], { promptName: 'query' })).rejects.toMatchObject({ code: 'usage' });
      await expect(one.embed('a', { dimensions: 65 })).rejects.toThrow('64');
      await one.dispose();
    }
  });

  test('a model that was saved without its head embeds like the whole one', { timeout: 120_000 }, async () => {
    const config = { model_type: 'qwen3', head_dim: 16, tie_word_embeddings: false };
    const model = makeRandomModel({ seed: 61, config });
    const embedded = async (files: File[]) => {
      const loaded = await load(files, { ...exact, contextLength: 64 });
      const { embeddings } = await loaded.embed([[3, 9, 27], [5]], { pooling: 'last' });
      await loaded.dispose();
      return embeddings;
    };
    const whole = await embedded(folder(model, {}));
    const weights = new Map([...model.weights].filter(([name]) => name !== 'lm_head.weight'));
    for (const className of ['Qwen3Model', 'Qwen3ForCausalLM']) {
      const written = json({ ...raw(model), architectures: [className] });
      const bare = folder(
        { ...model, weights },
        { 'config.json': written },
        { rename: (name) => name.replace(/^model\./, '') },
      );
      expect(await embedded(bare)).toEqual(whole);
    }
  });

  test("what isn't supported is told", { timeout: 60_000 }, async () => {
    const model = makeRandomModel({ seed: 42, config: BERT });
    const modules = [{ idx: 1, path: '1_Pooling', type: 'sentence_transformers.models.Pooling' }];
    const wrong = async (modes: object, types: readonly object[] = modules): Promise<void> => {
      const one = await load(
        folder(model, { 'modules.json': json(types), '1_Pooling/config.json': json(modes) }),
        exact,
      );
      await expect(one.embed('a')).rejects.toMatchObject({ code: 'unsupported' });
      await one.dispose();
    };
    await wrong({ pooling_mode_max_tokens: true });
    await wrong({ pooling_mode_mean_tokens: true, pooling_mode_cls_token: true });
    await wrong({}, [{ idx: 1, path: '1_Pooling', type: 'sentence_transformers.models.LSTM' }]);
  });
});

/** As Qwen3-Reranker is asked. */
const ASKED =
  '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. ' +
  'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Find it\n<Query>: ';
const END = '<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n';

describe('scores', () => {
  const tokenizer = wordPieceTokenizer();
  const files = { 'tokenizer.json': json(tokenizer.json), 'tokenizer_config.json': json(tokenizer.config) };
  const documents = ['the dog ran', 'the cat sat on the mat', 'a small river runs under an old stone bridge'];
  const query = 'the cat';

  /** Ids of a pair, with their segments. */
  const pairOf = (one: { tokenize(text: string): number[] }, document: string, segment: number): number[] => {
    const [first, second] = [one.tokenize(query), one.tokenize(document)];
    return [...first, ...second.slice(1).map((id) => id + segment * 2 ** 24)];
  };

  for (const kind of ['BERT', 'RoBERTa'] as const) {
    test(`${kind}: a classifier's, as in float64`, { timeout: 120_000 }, async () => {
      const isBert = kind === 'BERT';
      const model = makeRandomModel({
        seed: 43,
        config: {
          ...BERT,
          architectures: [isBert ? 'BertForSequenceClassification' : 'XLMRobertaForSequenceClassification'],
          model_type: isBert ? 'bert' : 'xlm-roberta',
          type_vocab_size: isBert ? 2 : 1,
          pad_token_id: 1,
          ...(isBert && { sentence_transformers: { activation_fn: 'torch.nn.modules.linear.Identity' } }),
        },
      });
      const names = isBert ? ['bert.pooler.dense', 'classifier'] : ['classifier.dense', 'classifier.out_proj'];
      const head = names.flatMap((name, at) => [
        numbers(`${name}.weight`, at === 0 ? [64, 64] : [1, 64]),
        numbers(`${name}.bias`, [at === 0 ? 64 : 1]),
      ]);
      const rename = (tensor: string): string => `${isBert ? 'bert' : 'roberta'}.${tensor}`;
      const one = await load(folder(model, files, { rename, more: head }), exact);
      const expected = documents.map((document) => {
        const ids = pairOf(one, document, isBert ? 1 : 0);
        const [cls] = familyStates(raw(model), model.weights, ids) as [Float64Array];
        const [dense, bias, out, outBias] = head.map(({ values }) => values);
        const [logit] = through(through(cls, dense!, bias).map(Math.tanh), out!, outBias) as [number];
        return isBert ? logit : 1 / (1 + Math.exp(-logit));
      });
      const { results, prompt_tokens: tokens } = await one.rerank(query, documents);
      expect(tokens).toBe(documents.reduce((sum, document) => sum + pairOf(one, document, 0).length, 0));
      for (const { index, relevance_score: score } of results) expect(score).toBeCloseTo(expected[index]!, 4);
      const scores = results.map(({ relevance_score: score }) => score);
      expect(scores).toEqual(scores.toSorted((a, b) => b - a));
      expect((await one.rerank(query, documents, { topN: 1 })).results).toEqual(results.slice(0, 1));
      const alone = await one.rerank(query, [documents[results[0]!.index]!]);
      expect(alone.results[0]!.relevance_score).toBe(scores[0]);
      await expect(one.rerank(query, [])).rejects.toMatchObject({ code: 'usage' });
      await expect(one.rerank('', documents)).rejects.toMatchObject({ code: 'usage' });
      await expect(one.rerank(query, ['a '.repeat(2000)])).rejects.toMatchObject({ code: 'context_full' });
      await one.dispose();
    });
  }

  test("a GGUF file's are those of the folder", { timeout: 120_000 }, async () => {
    const config = { ...BERT, architectures: ['BertForSequenceClassification'] };
    const model = makeRandomModel({ seed: 46, config });
    const [dense, bias] = [numbers('pooler.dense.weight', [64, 64]), numbers('pooler.dense.bias', [64])];
    const [out, outBias] = [numbers('classifier.weight', [1, 64]), numbers('classifier.bias', [1])];
    const one = await load(folder(model, files, { more: [dense, bias, out, outBias] }), exact);
    const names = { 'cls.weight': dense, 'cls.bias': bias, 'cls.output.weight': out, 'cls.output.bias': outBias };
    const heads = Object.entries(names).map(([name, { shape, values }]) => [name, { shape, data: values }] as const);
    const { vocab } = tokenizer.json.model as { vocab: Record<string, number> };
    const tokens = Array.from({ length: 320 }, (_, id) => `[PAD${id}]`);
    for (const [token, id] of Object.entries(vocab))
      tokens[id] = /^\[.*\]$/.test(token) ? token : token.startsWith('##') ? token.slice(2) : `\u2581${token}`;
    const metadata: Record<string, GgufValue> = {
      'bert.pooling_type': { type: 'u32', value: 4 },
      'tokenizer.ggml.model': { type: 'string', value: 'bert' },
      'tokenizer.ggml.tokens': { type: 'string[]', value: tokens },
      'tokenizer.ggml.token_type': { type: 'i32[]', value: tokens.map((token) => (token.startsWith('[') ? 3 : 1)) },
      'tokenizer.ggml.cls_token_id': { type: 'u32', value: 2 },
      'tokenizer.ggml.seperator_token_id': { type: 'u32', value: 3 },
      'tokenizer.ggml.unknown_token_id': { type: 'u32', value: 1 },
    };
    const gguf = modelToGguf(model.config, new Map([...model.weights, ...heads]), { metadata });
    const other = await load([new File([gguf], 'reranker.gguf')], exact);
    expect(await other.rerank(query, documents)).toEqual(await one.rerank(query, documents));
    await one.dispose();
    await other.dispose();
  });

  test("ModernBERT: a classifier's, as in float64", { timeout: 120_000 }, async () => {
    const model = makeRandomModel({
      seed: 44,
      config: {
        ...BERT,
        model_type: 'modernbert',
        architectures: ['ModernBertForSequenceClassification'],
        classifier_pooling: 'mean',
        num_hidden_layers: 3,
        local_attention: 8,
      },
    });
    const head = [
      numbers('head.dense.weight', [64, 64]),
      numbers('head.norm.weight', [64]),
      numbers('classifier.weight', [1, 64]),
      numbers('classifier.bias', [1]),
    ];
    const one = await load(folder(model, files, { more: head }), exact);
    const { results } = await one.rerank(query, documents);
    for (const { index, relevance_score: score } of results) {
      const states = familyStates(raw(model), model.weights, pairOf(one, documents[index]!, 0));
      const [dense, norm, out, bias] = head.map(({ values }) => values);
      const active = through(meanOf(states), dense!).map(geluErf);
      const mean = active.reduce((a, b) => a + b) / 64;
      const deviation = Math.sqrt(active.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 64 + 1e-5);
      const [logit] = through(
        active.map((value, i) => ((value - mean) / deviation) * norm![i]!),
        out!,
        bias,
      ) as [number];
      expect(score).toBeCloseTo(1 / (1 + Math.exp(-logit)), 4);
    }
    await one.dispose();
  });

  test('of a model that judges by "yes" or "no"', { timeout: 120_000 }, async () => {
    const config = { model_type: 'qwen3', max_position_embeddings: 2048 };
    const model = makeRandomModel({ seed: 45, config });
    const { json: own, config: about } = byteLevelTokenizer(318);
    const word = (content: string, id: number) => {
      return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: false };
    };
    const words = [...(own.added_tokens as object[]), word('yes', 318), word('no', 319)];
    const tokens = {
      'tokenizer.json': json({ ...own, added_tokens: words }),
      'tokenizer_config.json': json(about),
    };
    const one = await load(folder(model, tokens, { name: 'Qwen3-Reranker' }), exact);
    const { results } = await one.rerank(query, documents.slice(0, 2), { instruction: 'Find it' });
    for (const { index, relevance_score: score } of results) {
      const text = `${ASKED}${query}\n<Document>: ${documents[index]!}${END}`;
      const ids = one.tokenize(text, { addSpecial: false });
      const last = referenceLogits(model.config, model.weights, ids).at(-1)!;
      expect(score).toBeCloseTo(1 / (1 + Math.exp(last[319]! - last[318]!)), 3);
    }
    // A document that has no room is cut, and the question behind it stays.
    const long = `${documents[0]!} `.repeat(600);
    await expect(one.rerank(query, [long])).rejects.toThrow(/truncate: true/);
    const cut = await one.rerank(query, [long], { truncate: true, instruction: 'Find it' });
    expect(cut.prompt_tokens).toBe(2048);
    const begun = `${ASKED}${query}\n<Document>: ${long}`;
    const ids = one.tokenize(begun.slice(0, 6000), { addSpecial: false });
    const ends = one.tokenize(END, { addSpecial: false });
    const { rows } = await one.logits([...ids.slice(0, 2048 - ends.length), ...ends], { all: false });
    const chance = 1 / (1 + Math.exp(rows.at(-1)![319]! - rows.at(-1)![318]!));
    expect(cut.results[0]!.relevance_score).toBe(chance);
    await one.dispose();
    const plain = await load(folder(model, tokens), exact);
    await expect(plain.rerank(query, documents)).rejects.toMatchObject({ code: 'unsupported' });
    await plain.dispose();
  });
});
