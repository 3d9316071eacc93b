import { expect, test } from 'vitest';
import { Random } from '../../base/random.js';
import { describeOnAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { readTensorIndex, TensorReader } from '../../loader/index.js';
import { MemorySource } from '../../loader/testing/memory_source.js';
import { type Grid, patchGrid, patchOrder, type VisionConfig } from '../config/vision_config.js';
import { makeRandomVision, type RandomVision, type RandomVisionOptions } from '../testing/random_vision.js';
import {
  gemma3Rows,
  idefics3Rows,
  type Gemma4Mistake,
  gemma4Rows,
  type Lfm2Mistake,
  lfm2Rows,
  type Qwen25Mistake,
  qwen25Rows,
  qwenRows,
} from '../testing/reference/vision.js';
import { asNamed } from '../weights/stored_names.js';
import { loadEncoder } from './encoder.js';
import { patchRows } from './patch_rows.js';

/** Odd numbers of patches, of heads and of elements; chunks of 256 patches and beyond. */
const cases: Record<string, RandomVisionOptions> = {
  '4 x 4 patches': { seed: 3 },
  '9 x 9 patches, joined by threes, heads of 8': {
    seed: 4,
    scale: 3,
    tower: { image: 38, patch: 4, heads: 8, width: 100 },
    text: { hidden_size: 48, num_attention_heads: 3, num_key_value_heads: 1 },
  },
  'averaged by twos': { seed: 6, kind: 'gemma3' },
  '12 x 12 patches, averaged by threes, heads of 72': {
    seed: 7,
    kind: 'gemma3',
    scale: 3,
    tower: { image: 25, patch: 2, hidden: 576, heads: 8, layers: 1 },
    text: { sliding_window: 50 },
  },
  '20 x 20 patches, joined by fours': { seed: 5, scale: 4, tower: { image: 40, patch: 2, layers: 1 } },
};

/** Of any size: of patches, too, that the table's places lie upon and between, and fewer than its side. */
const grids: Record<string, readonly [RandomVisionOptions, readonly Grid[]]> = {
  'Qwen3.5': [
    { kind: 'qwen3_5', seed: 8 },
    [
      [4, 10],
      [18, 16],
      [2, 2],
      [6, 2],
    ],
  ],
  'Qwen2.5-VL': [
    { kind: 'qwen2_5_vl', seed: 15 },
    [
      [6, 10],
      [4, 4],
      [2, 14],
      [18, 16],
    ],
  ],
  'Qwen2.5-VL, heads of 72, wider windows': [
    {
      kind: 'qwen2_5_vl',
      seed: 16,
      tower: { hidden: 576, heads: 8, layers: 2, whole: [0], window: 3, patch: 2, width: 100 },
    },
    [
      [4, 10],
      [6, 4],
    ],
  ],
  'Qwen3-VL, heads of 72': [
    {
      kind: 'qwen3_vl',
      seed: 9,
      tower: { hidden: 576, heads: 8, layers: 2, taps: [0], patch: 2, places: 4, width: 100 },
    },
    [
      [2, 6],
      [6, 4],
    ],
  ],
  'LFM2-VL': [
    { kind: 'lfm2_vl', seed: 10 },
    [
      [4, 4],
      [2, 14],
      [6, 10],
    ],
  ],
  'Gemma 4 E2B': [
    { kind: 'gemma4', seed: 12 },
    [
      [6, 9],
      [3, 24],
      [9, 6],
    ],
  ],
  'Gemma 4 31B, heads of 72': [
    {
      kind: 'gemma4',
      seed: 13,
      tower: {
        hidden: 576,
        heads: 8,
        layers: 1,
        patch: 2,
        rows: 4,
        places: 60,
        width: 100,
        clipped: false,
        standardized: true,
      },
    },
    [
      [6, 6],
      [3, 6],
    ],
  ],
  'LFM2-VL, heads of 72, without a norm': [
    {
      kind: 'lfm2_vl',
      seed: 11,
      tower: { hidden: 576, heads: 8, layers: 1, patch: 2, places: 16, width: 100, inner: 130, normed: false },
    },
    [
      [6, 2],
      [8, 10],
    ],
  ],
};

const patchesOf = (pixels: Float32Array, vision: VisionConfig, width: number, grid: Grid): Float32Array =>
  patchRows(pixels, vision, width, grid, patchOrder(vision, grid));

function errorOf(rows: Float32Array, expected: readonly Float64Array[]): number {
  const flat = expected.flatMap((row) => [...row]);
  expect(rows.length).toBe(flat.length);
  const largest = flat.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return flat.reduce((most, value, i) => Math.max(most, Math.abs(value - rows[i]!)), 0) / largest;
}

const expectAlike = (rows: Float32Array, expected: readonly Float64Array[]): void =>
  expect(errorOf(rows, expected)).toBeLessThan(2e-5);

/** Before Gemma 4 normalises them. */
const unit = (pixels: Float32Array): Float64Array => Float64Array.from(pixels).map((value) => (value + 1) / 2);

type Mistake = Lfm2Mistake | Gemma4Mistake | Qwen25Mistake;

/** What would show. */
function mistakesOf({ tower }: RandomVision, { kind }: RandomVisionOptions): Mistake[] {
  if (kind === 'qwen2_5_vl')
    return ['no windows', 'windows everywhere', 'rows by window', 'no gate', 'another norm', 'tanh'];
  // Places of 4 by 4 patches are made of 5 by 5.
  if (kind === 'lfm2_vl')
    return tower.normed ? ['channels first', 'no antialiasing', 'corners', 'tanh', 'across first', 'no norm'] : [];
  if (kind !== 'gemma4') return [];
  return [
    'channels first',
    'lines before columns',
    'pairs of the whole head',
    'values not normalised',
    'scaled scores',
    'neighbours of a line',
    ...(tower.clipped ? (['no bounds', 'erf'] as const) : (['not standardised'] as const)),
  ];
}

async function readerOf({ config, files }: RandomVision): Promise<TensorReader> {
  const source = new MemorySource(Object.fromEntries(files));
  return new TensorReader(source, asNamed(await readTensorIndex(source), config));
}

await describeOnAdapters('image encoders', (device) => {
  test.each(drawn(Object.entries(cases), 2, 'pictures of one size'))('%s: as in float64', async (_name, options) => {
    const model = makeRandomVision(options);
    const { config, weights, tower, scale } = model;
    const vision = config.vision!;
    const encoder = await loadEncoder(device(), vision, config.hiddenSize, await readerOf(model), 'f32', {});
    const pixels = new Random(9).normals(tower.image ** 2 * 3, 0.5);
    const patches = (of: Float32Array) => patchesOf(of, vision, tower.image, patchGrid(vision));
    const rows = await encoder.encode(patches(pixels));
    const rowsOf = options.kind === 'gemma3' ? gemma3Rows : idefics3Rows;
    expectAlike(rows, rowsOf(weights, tower, scale, config.hiddenSize, pixels));
    // The same bits again: nothing of a tile stays.
    await encoder.encode(patches(new Random(10).normals(pixels.length, 0.5)));
    expect(await encoder.encode(patches(pixels))).toEqual(rows);
  });

  test.each(drawn(Object.entries(grids), 3, 'pictures of any size'))(
    '%s: pictures of any size as in float64',
    async (_name, [options, sizes]) => {
      const model = makeRandomVision(options);
      const { config, weights, tower, scale } = model;
      const vision = config.vision!;
      const encoder = await loadEncoder(device(), vision, config.hiddenSize, await readerOf(model), 'f32', {});
      const made: Float32Array[] = [];
      const encode = (grid: Grid, seed: number) => {
        const [height, width] = [grid[0] * tower.patch, grid[1] * tower.patch];
        const pixels = new Random(seed).normals(width * height * 3, 0.5);
        const size = [width, height] as const;
        const expected = (mistake?: Mistake) =>
          options.kind === 'qwen2_5_vl'
            ? qwen25Rows(weights, tower, scale, config.hiddenSize, pixels, size, mistake as Qwen25Mistake)
            : options.kind === 'lfm2_vl'
              ? lfm2Rows(weights, tower, scale, config.hiddenSize, pixels, [width, height], mistake as Lfm2Mistake)
              : options.kind === 'gemma4'
                ? gemma4Rows(
                    weights,
                    tower,
                    scale,
                    config.hiddenSize,
                    unit(pixels),
                    [width, height],
                    mistake as Gemma4Mistake,
                  )
                : qwenRows(weights, tower, scale, config.hiddenSize, pixels, [width, height]);
        return { rows: encoder.encode(patchesOf(pixels, vision, width, grid), grid), expected };
      };
      for (const grid of sizes) {
        const { rows, expected } = encode(grid, 9);
        made.push(await rows);
        expectAlike(made.at(-1)!, expected());
      }
      const first = encode(sizes[0]!, 9);
      const rows = await first.rows;
      for (const mistake of mistakesOf(model, options))
        expect(errorOf(rows, first.expected(mistake)), mistake).toBeGreaterThan(1e-4);
      // Whatever was before.
      for (const [at, grid] of sizes.entries()) expect(await encode(grid, 9).rows).toEqual(made[at]);
    },
  );
});
