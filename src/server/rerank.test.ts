import { expect, test } from 'vitest';
import { testAdapters } from '../gpu/testing/adapters.js';
import { writeSafetensors } from '../loader/testing/write_safetensors.js';
import { BERT, makeRandomModel } from '../model/testing/random_model.js';
import { loadTokenizer } from '../tokenizer/testing/load_tokenizer.js';
import { wordPieceTokenizer } from '../tokenizer/testing/tiny_tokenizers.js';
import { serve } from '../index.js';
import { startTestServer } from './testing/test_server.js';

const documents = ['the dog ran', 'the cat sat on the mat', 'a small river runs under an old stone bridge'];

/** A classifier of pairs, of random weights. */
function classifier(): File[] {
  const model = makeRandomModel({
    seed: 43,
    config: {
      ...BERT,
      architectures: ['BertForSequenceClassification'],
      type_vocab_size: 2,
    },
  });
  const f32 = (name: string, shape: readonly number[], data: Float32Array) => ({
    name,
    dtype: 'F32' as const,
    shape: [...shape],
    data: new Uint8Array(data.slice().buffer),
  });
  const numbers = (count: number): Float32Array => Float32Array.from({ length: count }, (_, i) => Math.sin(i * i) / 4);
  const tensors = [
    ...[...model.weights].map(([name, { shape, data }]) => f32(`bert.${name}`, shape, Float32Array.from(data))),
    f32('bert.pooler.dense.weight', [64, 64], numbers(64 * 64)),
    f32('bert.pooler.dense.bias', [64], numbers(64)),
    f32('classifier.weight', [1, 64], numbers(64)),
    f32('classifier.bias', [1], numbers(1)),
  ];
  const tokenizer = wordPieceTokenizer();
  const files: Record<string, string | Uint8Array<ArrayBuffer>> = {
    ...Object.fromEntries(model.files),
    'model.safetensors': writeSafetensors(tensors, { format: 'pt' }),
    'tokenizer.json': JSON.stringify(tokenizer.json),
    'tokenizer_config.json': JSON.stringify(tokenizer.config),
  };
  return Object.entries(files).map(([file, content]) => new File([content], `classifier/${file}`));
}

test('documents are told by their scores, with their texts where these are wanted', { timeout: 120_000 }, async () => {
  const adapter = (await testAdapters()).at(-1)!.name;
  const model = await serve(classifier(), { adapter, slots: 2, contextLength: 64 });
  const server = await startTestServer(model);
  const ask = async (path: string, body: object): Promise<Record<string, unknown>> => {
    const response = await fetch(`${server.url}${path}`, { method: 'POST', body: JSON.stringify(body) });
    expect(response.status).toBe(200);
    return (await response.json()) as Record<string, unknown>;
  };
  const { results, prompt_tokens: tokens } = await model.rerank('the cat', documents);
  expect(new Set(results.map(({ relevance_score: score }) => score)).size).toBe(3);
  const usage = { prompt_tokens: tokens, total_tokens: tokens };
  const whole = await ask('/v1/rerank', { model: 'tiny', query: 'the cat', documents });
  expect(whole).toEqual({ object: 'list', model: 'tiny', results, usage });
  const told = { query: 'the cat', documents: documents.map((text) => ({ text })), top_n: 2, return_documents: true };
  expect((await ask('/rerank', told))['results']).toEqual(
    results.slice(0, 2).map((result) => ({ ...result, document: { text: documents[result.index] } })),
  );
  // As Text Embeddings Inference has it.
  expect(await ask('/rerank', { query: 'the cat', texts: documents, top_n: 2 })).toEqual(
    results.slice(0, 2).map(({ index, relevance_score: score }) => ({ index, score })),
  );
  for (const body of [{}, { documents, texts: documents }]) {
    const sent = { method: 'POST', body: JSON.stringify({ query: 'the cat', ...body }) };
    expect((await fetch(`${server.url}/rerank`, sent)).status).toBe(400);
  }
  // What has no room is refused, unless it may be cut.
  const long = 'the cat '.repeat(model.info.contextLength);
  for (const [path, body] of [
    ['/v1/rerank', { query: 'the cat', documents: ['the dog', long] }],
    ['/v1/embeddings', { input: long }],
  ] as const) {
    const tooLong = await fetch(`${server.url}${path}`, { method: 'POST', body: JSON.stringify(body) });
    expect(tooLong.status).toBe(400);
    expect(await tooLong.text()).toMatch(/truncate: true/);
    const wrong = { method: 'POST', body: JSON.stringify({ ...body, truncate: 'START' }) };
    expect(await (await fetch(`${server.url}${path}`, wrong)).text()).toMatch(/truncate.*true or false/);
  }
  const cut = await ask('/v1/rerank', { query: 'the cat', documents: ['the dog', long], truncate: true });
  const same = await model.rerank('the cat', ['the dog', `${'the cat '.repeat(14)}the`]);
  expect(cut['results']).toEqual(same.results);
  const { json, config } = wordPieceTokenizer();
  const ids = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config }).encode(long);
  const { embeddings } = await model.embed([[...ids.slice(0, 63), ids.at(-1)!]]);
  for (const truncate of [true, 'END']) {
    const told = (await ask('/v1/embeddings', { input: long, truncate }))['data'] as { embedding: number[] }[];
    expect(told[0]!.embedding).toEqual([...embeddings[0]!]);
  }
  // Ollama cuts by itself.
  expect((await ask('/api/embed', { model: 'tiny', input: long }))['embeddings']).toEqual([[...embeddings[0]!]]);
  const kept = { method: 'POST', body: JSON.stringify({ model: 'tiny', input: long, truncate: false }) };
  expect((await fetch(`${server.url}/api/embed`, kept)).status).toBe(400);
  // An encoder generates nothing.
  const refused = await fetch(`${server.url}/v1/completions`, {
    method: 'POST',
    body: JSON.stringify({ prompt: 'a' }),
  });
  expect(refused.status).toBe(400);
  expect(await refused.text()).toMatch(/encoder/);
  await server.close();
  await model.dispose();
});
