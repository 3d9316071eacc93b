/**
 * Room: encoders of pictures, which run beside a decoder on one rank: the same layers, whose rows are a tile's patches.
 * config/vision_config.ts says what they are, encoder_specs.ts what they load. Loaded by `import()`, as few models have one.
 */

import { range } from '../../base/lists.js';
import { alignUp, ceilDiv } from '../../base/math.js';
import { type Buffer, type Device, type Program, Recorder, Submits } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import { KV_BLOCK, MERGE_LANES } from '../../base/kv_units.js';
import type { Plan } from '../../placement/index.js';
import { attentionOf } from '../config/model_config.js';
import { imageRows, patchesOf, type VisionConfig } from '../config/vision_config.js';
import { Decoder } from '../forward/decoder.js';
import { GqaLayers } from '../layers/attention/gqa.js';
import { recordLinear } from '../layers/linear/linear.js';
import { recordReduce } from '../layers/linear/parts.js';
import { DenseLayers } from '../layers/mlp/dense.js';
import { recordNorm } from '../layers/norm.js';
import { activationStride, chunksOf, DOWN_SEGMENTS } from '../layers/roles.js';
import { normedOf } from '../layers/rows.js';
import { type RankStep, World } from '../layers/world.js';
import { attentionSegments } from '../shape.js';
import type { Loaded } from '../weights/weight_map.js';
import { type LoadWeightsOptions, loadSpecs } from '../weights/weight_loader.js';
import { mostOf, type WeightTypes } from '../weights/weight_types.js';
import { type EncoderSpecs, encoderSpecs } from './encoder_specs.js';

/** Rows of prompts come in tiles of so many. */
const TILE_ROWS = 16;

/** An encoder's weights on a device. */
interface EncoderWeights {
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
): Promise<ImageEncoder> {
  const type = mostOf(types) === 'f32' ? 'f32' : 'f16';
  const { loaded, bytes } = await loadSpecs(device, reader, type, encoderSpecs(vision, textWidth), options);
  return new ImageEncoder(device, { vision, textWidth, type, loaded, bytes });
}

/** All of an encoder on one rank. */
function aloneOf({ layers, vocabSize }: VisionConfig['tower']): Plan {
  const heads = range(0, attentionSegments(attentionOf({ architecture: 'encoder', layers })).total);
  const lanes = range(0, MERGE_LANES);
  const mlp = range(0, DOWN_SEGMENTS.total);
  const vocabulary = [{ rank: 0, rows: [0, vocabSize] as const }];
  const shares = [{ rank: 0, heads, mlp, experts: [], kvHeads: heads, lanes }];
  const stages = [{ layers: [0, layers.length] as const, kind: 'tensor' as const, shares }];
  return { version: 1, policy: 'single', worldSize: 1, stages, embedding: vocabulary, head: vocabulary };
}

/** What a tile runs through. */
interface TileProgram {
  readonly patches: Buffer;
  readonly out: Buffer;
  readonly program: Program<RankStep>;
}

/** An encoder on a device. */
export class ImageEncoder {
  readonly #count: number;
  #made: TileProgram | undefined;
  #submits: Submits | undefined;

  constructor(
    readonly device: Device,
    readonly weights: EncoderWeights,
  ) {
    this.#count = patchesOf(weights.vision);
  }

  get bytes(): number {
    return this.weights.bytes;
  }

  /** Records the program, once: all that it works in is allocated here. @throws SplitkvError `limit` where the adapter has no room */
  prepare(): TileProgram {
    return (this.#made ??= this.#record());
  }

  #record(): TileProgram {
    const { device } = this;
    const { vision, loaded, textWidth, type, bytes } = this.weights;
    const { tower, patch, merge, averageNorm } = vision;
    const rows = alignUp(this.#count, TILE_ROWS);
    const blocks = ceilDiv(this.#count, KV_BLOCK);
    const blockTable = device.createBuffer('image block_table', blocks * 4);
    device.write(blockTable, 0, Uint32Array.from(range(0, blocks)));
    const zeros = device.createBuffer('image chunk_offsets', 8);
    device.write(zeros, 4, Uint32Array.of(this.#count));
    const world = new World(aloneOf(tower), 0);
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
        runEnds: 1,
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
    const patches = device.createBuffer('image patches', rows * patchStride * 4);
    const out = device.createBuffer('image rows', alignUp(made, TILE_ROWS) * outStride * 4);
    const recorder = new Recorder<RankStep>(device, 'image encoder');
    decoder.recordLayers(recorder, buffers, false, () =>
      recordLinear(recorder, buffers, loaded.patches, {
        x: patches,
        xStride: patchStride,
        bias: loaded.patchesBias,
        out: buffers.x,
        outStride: decoder.hiddenStride,
      }),
    );
    const shape = { rows, width: tower.hiddenSize, stride: decoder.hiddenStride };
    const normed = normedOf(buffers);
    recordNorm(recorder, loaded.norm, shape, buffers.x, normed);
    const { hiddenStride } = decoder;
    const joined = merge * merge;
    recorder.viewing(
      () => made,
      () => {
        if (loaded.averageNorm) {
          const summed = { buffer: normed, count: joined, first: 0, rows: made, stride: hiddenStride };
          const to = { width: tower.hiddenSize, out: buffers.x, outStride: hiddenStride };
          recordReduce(recorder, summed, { ...to, epilogue: 'none' });
          recordNorm(recorder, loaded.averageNorm, { ...shape, rows: made }, buffers.x, normed);
        }
        recordLinear(recorder, { role: 'prompt', rows: made, normed: undefined }, loaded.project, {
          x: normed,
          xStride: averageNorm ? hiddenStride : hiddenStride * joined,
          out,
          outStride,
        });
      },
    );
    return { patches, out, program: recorder.finish() };
  }

  /** @param patches f32 [patches][3 * patch * patch] of a tile, in the order of `patchOrder`. Resolves with f32 [rows][the decoder's hidden size] */
  async encode(patches: Float32Array): Promise<Float32Array<ArrayBuffer>> {
    const { device, weights } = this;
    const { vision, textWidth } = weights;
    const width = 3 * vision.patch ** 2;
    const stride = activationStride(width);
    const padded = new Float32Array(this.#count * stride);
    for (const row of range(0, this.#count)) padded.set(patches.subarray(row * width, (row + 1) * width), row * stride);
    const { patches: input, out: output, program } = this.prepare();
    device.write(input, 0, padded);
    const step = { rows: [alignUp(this.#count, TILE_ROWS)], chunks: chunksOf(this.#count) };
    const submits = (this.#submits ??= new Submits(device));
    await submits.submit(await program.run(device.gpu.createCommandEncoder(), step, { submits }));
    const made = imageRows(vision);
    const outStride = activationStride(textWidth);
    const stored = new Float32Array(await device.read(output, 0, made * outStride * 4));
    const out = new Float32Array(made * textWidth);
    for (const row of range(0, made))
      out.set(stored.subarray(row * outStride, row * outStride + textWidth), row * textWidth);
    return out;
  }
}
