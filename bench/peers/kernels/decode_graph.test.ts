import * as ort from 'onnxruntime-web';
import { describe, expect, test } from 'vitest';
import { BLOCK, packTiles, unpackTiles } from '../../../shaders/linear/pack.js';
import { Random } from '../../../src/base/random.js';
import { openModelFiles } from '../../../src/engine/files/model_files.js';
import { testAdapters } from '../../../src/gpu/testing/adapters.js';
import { load } from '../../../src/index.js';
import { fileListSource, openSource } from '../../../src/loader/index.js';
import { attentionOf, type ModelConfig } from '../../../src/model/config/model_config.js';
import { makeRandomModel } from '../../../src/model/testing/random_model.js';
import { randomPrompt } from '../../prompt.js';
import { DECODE_NAMES, decodeGraph, type DecodeGraphOptions } from './decode_graph.js';
import { nBitsBlocks } from './n_bits_blocks.js';

const { name: adapter } = (await testAdapters()).at(-1)!;
ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

const integers = (values: readonly number[], dims: readonly number[]) =>
  new ort.Tensor('int64', BigInt64Array.from(values, BigInt), dims);

/** Logits after the first `split` ids, and after all of them with the others as a second run over the cache. */
async function ortLogits(
  config: ModelConfig,
  model: Awaited<ReturnType<typeof decodeGraph>>,
  { lengths, weights }: Pick<DecodeGraphOptions, 'lengths' | 'weights'>,
  ids: readonly number[],
  split: number,
): Promise<Float32Array[]> {
  const session = await ort.InferenceSession.create(model.model, {
    executionProviders: ['wasm'],
    externalData: [...model.files],
  });
  const names = config.layers
    .map((_, layer) =>
      (['key', 'value'] as const).map(
        (which) => [DECODE_NAMES.past(layer, which), DECODE_NAMES.present(layer, which)] as const,
      ),
    )
    .flat();
  const { kvHeads, headDim } = attentionOf(config, 'gqa');
  const dims = [1, kvHeads, 0, headDim];
  const none =
    weights === 'f16'
      ? new ort.Tensor('float16', new Uint16Array(), dims)
      : new ort.Tensor('float32', new Float32Array(), dims);
  let past: Record<string, ort.Tensor> = Object.fromEntries(names.map(([name]) => [name, none]));
  const rows: Float32Array[] = [];
  for (const [first, end] of [
    [0, split],
    [split, ids.length],
  ] as const) {
    const told =
      lengths === 'mask'
        ? {
            [DECODE_NAMES.mask]: integers(
              Array.from({ length: end }, () => 1),
              [1, end],
            ),
          }
        : {
            [DECODE_NAMES.lastIndex]: new ort.Tensor('int32', Int32Array.of(end - 1), [1]),
            [DECODE_NAMES.total]: new ort.Tensor('int32', Int32Array.of(end), [1]),
          };
    const results = await session.run({
      ...past,
      ...told,
      [DECODE_NAMES.ids]: integers(ids.slice(first, end), [1, end - first]),
    });
    rows.push(results[DECODE_NAMES.logits]!.data as Float32Array);
    past = Object.fromEntries(names.map(([before, after]) => [before, results[after]!]));
  }
  await session.release();
  return rows;
}

describe('the decode graph in ONNX Runtime gives our logits', () => {
  test.each([
    ['models/tiny-gqa', 'f32', 'counts', 'files'],
    ['models/tiny-gqa', 'q4', 'mask', 'model'],
    ['models/tiny-gqa', 'q8', 'counts', 'files'],
    ['models/tiny-gqa', 'f16', 'counts', 'files'],
    ['qwen2', 'f32', 'mask', 'model'],
  ] as const)('%s as %s, lengths as %s, weights in the %s', async (name, weights, lengths, place) => {
    const random = name === 'qwen2' ? makeRandomModel({ seed: 3, config: { model_type: 'qwen2' } }) : undefined;
    const files = random && [...random.files].map(([path, data]) => new File([data], path));
    const read = await openModelFiles(files ? fileListSource(files) : await openSource(name));
    const { config } = read;
    const ids = randomPrompt(21, config.vocabSize);
    const graph = await decodeGraph(config, await read.reader(), { weights, positions: 64, lengths, place });
    expect(graph.files.length > 0).toBe(place === 'files');
    const theirs = await ortLogits(config, graph, { lengths, weights }, ids, 20);
    const kv = weights === 'f16' ? 'f16' : 'f32';
    const model = await load(files ?? name, { weights, kv, adapter, contextLength: 64 });
    for (const [index, length] of [20, 21].entries()) {
      const { rows } = await model.logits(ids.slice(0, length));
      const largest = rows[0]!.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      const error = rows[0]!.reduce((most, value, id) => Math.max(most, Math.abs(value - theirs[index]![id]!)), 0);
      // In f16 the graph rounds every activation.
      expect(error / largest).toBeLessThan(weights === 'f16' ? 0.01 : 1e-4);
    }
    await model.dispose();
  });

  test('a model with q and k norms is refused', async () => {
    const { files } = makeRandomModel({ seed: 3, config: { model_type: 'qwen3' } });
    const read = await openModelFiles(fileListSource([...files].map(([path, data]) => new File([data], path))));
    const options = { weights: 'f32', positions: 8, lengths: 'mask', place: 'model' } as const;
    await expect(decodeGraph(read.config, await read.reader(), options)).rejects.toMatchObject({
      code: 'unsupported',
    });
  });
});

test.each(['q8', 'q4'] as const)('%s blocks are the numbers that our kernels multiply by', (type) => {
  const [rows, columns] = [37, 96];
  const values = new Random(8).normals(rows * columns);
  values.fill(0, columns, columns + BLOCK); // a block of zeros has no scale
  const { data, scales } = nBitsBlocks(type, values, rows, columns);
  const level = (i: number): number => (type === 'q8' ? data[i]! - 128 : ((data[i >> 1]! >> (4 * (i & 1))) & 15) - 8);
  const unpacked = Float32Array.from(values, (_, i) => level(i) * scales[i >> 5]!);
  expect(unpacked).toEqual(unpackTiles(type, packTiles(type, values, rows, columns), rows, columns));
});
