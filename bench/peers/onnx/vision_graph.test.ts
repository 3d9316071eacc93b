import * as ort from 'onnxruntime-web';
import { expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { openModelFiles } from '../../../src/engine/files/model_files.js';
import { fileListSource } from '../../../src/loader/index.js';
import { makeRandomVision } from '../../../src/model/testing/random_vision.js';
import { idefics3Rows } from '../../../src/model/testing/reference/vision.js';
import { VISION_NAMES, visionGraph } from './vision_graph.js';

ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

const readVision = (files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>) =>
  openModelFiles(fileListSource([...files].map(([path, data]) => new File([data], path))));

test.each([
  [{ seed: 3 }],
  [
    {
      seed: 4,
      scale: 3,
      tower: { image: 38, patch: 4, heads: 8, width: 100 },
      text: { hidden_size: 48, head_dim: 16 },
    },
  ],
])('the encoder graph gives the rows of transformers in float64: %j', async (options) => {
  const { files, weights, tower, scale } = makeRandomVision(options);
  const { config, reader } = await readVision(files);
  const graph = await visionGraph(config, await reader(), 'f32');
  const session = await ort.InferenceSession.create(graph.model, { executionProviders: ['wasm'] });
  const { image } = config.vision!;
  const pixels = new Random(9).normals(3 * image * image);
  const byChannel = Float32Array.from(
    pixels,
    (_, at) => pixels[(at % (image * image)) * 3 + Math.floor(at / (image * image))]!,
  );
  const given = new ort.Tensor('float32', byChannel, [1, 1, 3, image, image]);
  const { data } = (await session.run({ [VISION_NAMES.pixels]: given }))[VISION_NAMES.rows]!;
  await session.release();
  const expected = idefics3Rows(weights, tower, scale, config.hiddenSize, pixels).flatMap((row) => [...row]);
  expect(data.length).toBe(expected.length);
  const largest = Math.max(...expected.map(Math.abs));
  // The graph's gelu is an approximation of the approximation.
  expect(Math.max(...expected.map((value, at) => Math.abs(value - Number(data[at])))) / largest).toBeLessThan(1e-4);
});

test('another encoder is refused', async () => {
  const { config, reader } = await readVision(makeRandomVision({ kind: 'gemma3' }).files);
  await expect(visionGraph(config, await reader(), 'f32')).rejects.toMatchObject({ code: 'unsupported' });
});
