/**
 * Room: encoders of pictures, which run beside a decoder on one rank: the same layers, whose rows are a tile's patches.
 * config/vision_config.ts says what they are, encoder_specs.ts what they load. Loaded by `import()`, as few models have one.
 */

import { KV_BLOCK } from '../../base/kv_units.js';
import { nth, range } from '../../base/lists.js';
import { alignUp, ceilDiv } from '../../base/math.js';
import { type Buffer, type Device, type Program, Recorder } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import { makePlan } from '../../placement/index.js';
import { imageRows, patchesOf, type VisionConfig } from '../config/vision_config.js';
import { Decoder } from '../forward/decoder.js';
import { GqaLayers } from '../layers/attention/gqa.js';
import { recordLinear } from '../layers/linear/linear.js';
import { DenseLayers } from '../layers/mlp/dense.js';
import { recordNorm } from '../layers/norm.js';
import { activationStride, chunksOf } from '../layers/roles.js';
import { normedOf } from '../layers/rows.js';
import { type RankStep, World } from '../layers/world.js';
import { modelShape } from '../shape.js';
import type { Loaded } from '../weights/weight_map.js';
import { type LoadWeightsOptions, loadSpecs } from '../weights/weight_loader.js';
import { mostOf, type WeightTypes } from '../weights/weight_types.js';
import { type EncoderSpecs, encoderSpecs } from './encoder_specs.js';

/** Rows of prompts come in tiles of so many. */
const TILE_ROWS = 16;

/** An encoder's weights on a device. */
export interface EncoderWeights {
  readonly vision: VisionConfig;
  readonly textWidth: number;
  readonly type: WeightTypes;
  readonly loaded: Loaded<EncoderSpecs>;
  readonly bytes: number;
}

/**
 * Matrices are f32 where the decoder's are, otherwise f16: quantised, an encoder loses more than it saves.
 * @throws as `loadModelWeights`
 */
export async function loadEncoder(
  device: Device,
  vision: VisionConfig,
  textWidth: number,
  reader: TensorReader,
  types: WeightTypes,
  options: LoadWeightsOptions,
): Promise<EncoderWeights> {
  const type = mostOf(types) === 'f32' ? 'f32' : 'f16';
  const { loaded, bytes } = await loadSpecs(device, reader, type, encoderSpecs(vision, textWidth), options);
  return { vision, textWidth, type, loaded, bytes };
}

/** The program of a tile, which is recorded once: all that it works in is allocated here. */
export class ImageEncoder {
  readonly #patches: Buffer;
  readonly #out: Buffer;
  readonly #program: Program<RankStep>;
  readonly #count: number;

  /** @throws SplitkvError `limit` where a tile's rows exceed the adapter's bindings */
  constructor(
    readonly device: Device,
    readonly weights: EncoderWeights,
  ) {
    const { vision, loaded, textWidth, type, bytes } = weights;
    const { tower, patch, merge } = vision;
    this.#count = patchesOf(vision);
    const rows = alignUp(this.#count, TILE_ROWS);
    const blocks = ceilDiv(this.#count, KV_BLOCK);
    const blockTable = device.createBuffer('image block_table', blocks * 4);
    device.write(blockTable, 0, Uint32Array.from(range(0, blocks)));
    const zeros = device.createBuffer('image chunk_offsets', 4);
    const world = new World(makePlan('single', 1, modelShape(tower)), 0);
    const { positions, tower: map } = loaded;
    const decoder = new Decoder(
      device,
      tower,
      { ...map, inputs: { positions, types: undefined, norm: undefined }, type, bytes },
      {
        type: 'f32',
        block: KV_BLOCK,
        numBlocks: blocks,
        blockTable,
        tableStride: blocks,
        chunkOffsets: zeros,
        contextLength: this.#count,
        states: { count: 0, places: zeros, kept: 0 },
        passing: true,
      },
      world,
      { attention: { gqa: GqaLayers }, mlp: { plain: DenseLayers } },
    );
    const buffers = decoder.allocateRows('prompt', rows);
    const info = Uint32Array.from(range(0, rows).flatMap((row) => [row < this.#count ? row : 0xffffffff, 0]));
    device.write(buffers.rowInfo, 0, info);
    const patchStride = activationStride(3 * patch * patch);
    const made = imageRows(vision);
    const outStride = activationStride(textWidth);
    this.#patches = device.createBuffer('image patches', rows * patchStride * 4);
    this.#out = device.createBuffer('image rows', alignUp(made, TILE_ROWS) * outStride * 4);
    const recorder = new Recorder<RankStep>(device, 'image encoder');
    decoder.recordLayers(recorder, buffers, false, () =>
      recordLinear(recorder, buffers, loaded.patches, {
        x: this.#patches,
        xStride: patchStride,
        bias: loaded.patchesBias,
        out: buffers.x,
        outStride: decoder.hiddenStride,
      }),
    );
    const shape = { rows, width: tower.hiddenSize, stride: decoder.hiddenStride };
    const normed = normedOf(buffers);
    recordNorm(recorder, loaded.norm, shape, buffers.x, normed);
    recorder.viewing(
      () => made,
      () =>
        recordLinear(recorder, { role: 'prompt', rows: made, normed: undefined }, loaded.project, {
          x: normed,
          xStride: decoder.hiddenStride * merge * merge,
          out: this.#out,
          outStride,
        }),
    );
    this.#program = recorder.finish();
  }

  /** @param patches f32 [patches][3 * patch * patch] of a tile, in the order of `patchOrder`. Resolves with f32 [rows][the decoder's hidden size] */
  async encode(patches: Float32Array): Promise<Float32Array<ArrayBuffer>> {
    const { device, weights } = this;
    const { vision, textWidth } = weights;
    const width = 3 * vision.patch ** 2;
    const stride = activationStride(width);
    const padded = new Float32Array(this.#count * stride);
    for (const row of range(0, this.#count)) padded.set(patches.subarray(row * width, (row + 1) * width), row * stride);
    device.write(this.#patches, 0, padded);
    const step = { rows: [alignUp(this.#count, TILE_ROWS)], chunks: chunksOf(this.#count) };
    const encoder = await this.#program.run(device.gpu.createCommandEncoder(), step);
    device.gpu.queue.submit([encoder.finish()]);
    const made = imageRows(vision);
    const outStride = activationStride(textWidth);
    const stored = new Float32Array(await device.read(this.#out, 0, made * outStride * 4));
    const out = new Float32Array(made * textWidth);
    for (const row of range(0, made))
      out.set(stored.subarray(row * outStride, row * outStride + textWidth), row * textWidth);
    return out;
  }
}

/** Of normalised pixels f32 [side][side][3], row by row: what `encode` takes, [patch][channel][y][x]. */
export function patchRows(
  pixels: Float32Array,
  { image, patch }: Pick<VisionConfig, 'image' | 'patch'>,
  order: readonly number[],
): Float32Array<ArrayBuffer> {
  const side = Math.floor(image / patch);
  const out = new Float32Array(order.length * 3 * patch * patch);
  let to = 0;
  for (const at of order) {
    const [top, left] = [Math.floor(at / side) * patch, (at % side) * patch];
    for (let channel = 0; channel < 3; channel++) {
      for (let y = 0; y < patch; y++) {
        for (let x = 0; x < patch; x++) out[to++] = nth(pixels, ((top + y) * image + left + x) * 3 + channel);
      }
    }
  }
  return out;
}
