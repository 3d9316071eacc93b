/**
 * Room: encoders of pictures, which run beside a decoder on one rank: the same layers, whose rows are a tile's patches.
 * config/vision_config.ts says what they are, encoder_specs.ts what they load. Loaded by `import()`, as few models have one.
 */

import { PREFILL_TILE_ROWS } from '../../../shaders/attention/attention_prefill/index.js';
import { outputGate } from '../../../shaders/attention/output_gate/index.js';
import { known } from '../../base/errors.js';
import { nth, range } from '../../base/lists.js';
import { alignUp, ceilDiv } from '../../base/math.js';
import { type Buffer, type Device, type Program, Recorder, Submits } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import { KV_BLOCK, MERGE_LANES } from '../../base/kv_units.js';
import type { Plan } from '../../placement/index.js';
import { attentionOf } from '../config/model_config.js';
import {
  type Grid,
  imageRows,
  patchesOf,
  patchGrid,
  patchOrder,
  rowWidth,
  type VisionConfig,
  windowsOf,
} from '../config/vision_config.js';
import { Decoder } from '../forward/decoder.js';
import { GqaLayers } from '../layers/attention/gqa.js';
import { recordLinear } from '../layers/linear/linear.js';
import { recordReduce } from '../layers/linear/parts.js';
import { DenseLayers } from '../layers/mlp/dense.js';
import { recordNorm } from '../layers/norm.js';
import { activationStride, chunksOf, DOWN_SEGMENTS, padRows, unpadRows } from '../layers/roles.js';
import { normedOf } from '../layers/rows.js';
import { type RankStep, World } from '../layers/world.js';
import { attentionSegments } from '../shape.js';
import type { Loaded } from '../weights/weight_map.js';
import { type LoadWeightsOptions, loadSpecs } from '../weights/weight_loader.js';
import { encoderType, type WeightTypes } from '../weights/weight_types.js';
import { type EncoderSpecs, encoderSpecs } from './encoder_specs.js';
import { ClippedLinears } from './clipped.js';
import { placeRows, readPlaces, turns } from './places.js';

interface EncoderWeights {
  readonly vision: VisionConfig;
  readonly textWidth: number;
  readonly type: WeightTypes;
  readonly loaded: Loaded<EncoderSpecs>;
  /** f32 [rows][hidden]: the table that places are stretched from, where they are. */
  readonly places: Float32Array | undefined;
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
  const type = encoderType(types);
  const { loaded, bytes } = await loadSpecs(device, reader, type, encoderSpecs(vision, textWidth), options);
  const places = await readPlaces(reader, vision, options.signal);
  return new ImageEncoder(device, { vision, textWidth, type, loaded, places }, bytes);
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

/** What a tile runs through, or a picture. */
interface TileProgram {
  readonly patches: Buffer;
  readonly out: Buffer;
  readonly program: Program<RankStep>;
  /** f32 [patches][hidden stride]: where what depends on places is put, before the patches are added. */
  readonly x: Buffer;
  readonly rowInfo: Buffer;
  /** u32 [2]: the second one is how many patches there are; behind them bounds of those that each sees (lib/runs.wgsl), where layers have some. */
  readonly counts: Buffer;
  readonly turns: Buffer | undefined;
}

export class ImageEncoder {
  /** Patches at most. */
  readonly #most: number;
  #made: TileProgram | undefined;
  #submits: Submits | undefined;
  /** What the buffers are written for. */
  #grid: Grid | undefined;
  /** Rows that it becomes. */
  #rows = 0;

  constructor(
    readonly device: Device,
    readonly weights: EncoderWeights,
    readonly bytes: number,
  ) {
    this.#most = patchesOf(weights.vision);
  }

  /** Records the program, once: all that it works in is allocated here. @throws SplitkvError `limit` where the adapter has no room */
  prepare(): TileProgram {
    return (this.#made ??= this.#record());
  }

  /** Its layers, which work on `counts` patches of one sequence. */
  #layers(counts: Buffer): Decoder {
    const { device } = this;
    const { vision, loaded, type } = this.weights;
    const { tower } = vision;
    const blocks = ceilDiv(this.#most, KV_BLOCK);
    const blockTable = device.createBuffer('image block_table', blocks * 4);
    device.write(blockTable, 0, Uint32Array.from(range(0, blocks)));
    const { positions, tower: map } = loaded;
    return new Decoder(
      device,
      tower,
      { ...map, inputs: { positions, types: undefined, norm: undefined, joins: undefined }, type, bytes: this.bytes },
      {
        type: 'f32',
        block: KV_BLOCK,
        numBlocks: blocks,
        blockTable,
        tableStride: blocks,
        chunkOffsets: counts,
        runEnds: 1,
        contextLength: this.#most,
        states: { count: 0, places: counts, kept: 0 },
        passing: true,
      },
      new World(aloneOf(tower), 0),
      { attention: { gqa: GqaLayers }, mlp: { plain: DenseLayers, gated: DenseLayers } },
    );
  }

  #record(): TileProgram {
    const { device } = this;
    const { vision, loaded, textWidth } = this.weights;
    const { tower, patch, merge, average, merger, places } = vision;
    const rows = alignUp(this.#most, PREFILL_TILE_ROWS);
    const counts = device.createBuffer('image chunk_offsets', 8 + (vision.window ? 8 * this.#most : 0));
    const decoder = this.#layers(counts);
    if (loaded.bounds.length > 0) decoder.adapters = new ClippedLinears(loaded);
    const buffers = decoder.allocateRows('prompt', rows);
    const patchStride = activationStride(3 * patch * patch);
    const made = imageRows(vision);
    const outStride = activationStride(rowWidth(vision, textWidth));
    const patches = device.createBuffer('image patches', rows * patchStride * 4);
    const out = device.createBuffer('image rows', alignUp(made, PREFILL_TILE_ROWS) * outStride * 4);
    const recorder = new Recorder<RankStep>(device, 'image encoder');
    const { hiddenStride } = decoder;
    const shape = { rows, width: tower.hiddenSize, stride: hiddenStride };
    const normed = normedOf(buffers);
    const joined = { rows: made, width: hiddenStride * merge * merge, stride: hiddenStride * merge * merge };
    const merged = merger && alignUp(made, PREFILL_TILE_ROWS) * activationStride(merger.width);
    const inner = merged && device.createBuffer('image merged', merged * 4);
    const recordMerger = (level: number): void => {
      const { norm } = nth(loaded.mergers, level);
      // Of a tap's rows, and of those behind the last layer, which are normalised once before they are joined.
      const [from, to] = level > 0 ? [buffers.x, normed] : [normed, buffers.x];
      if (norm) recordNorm(recorder, norm, joined, from, to);
      this.#recordMerger(recorder, level, norm ? to : from, known(inner || undefined, 'buffer of merged rows'), out);
    };
    const viewing = (body: () => void): void => recorder.viewing(() => this.#rows, body);
    decoder.recordLayers(recorder, buffers, {
      embed: () =>
        recordLinear(recorder, buffers, loaded.patches, {
          x: patches,
          xStride: patchStride,
          bias: loaded.patchesBias,
          out: buffers.x,
          outStride: hiddenStride,
          ...(places && places.by !== 'none' && { epilogue: 'residual' }),
        }),
      behind: (layer) => {
        const level = merger?.taps.indexOf(layer) ?? -1;
        if (level >= 0) viewing(() => recordMerger(1 + level));
      },
    });
    if (loaded.norm) recordNorm(recorder, loaded.norm, shape, buffers.x, normed);
    viewing(() => {
      if (average && loaded.averageNorm) {
        const [from, to] = loaded.norm ? [normed, buffers.x] : [buffers.x, normed];
        const { averageNorm: norm, averageBias: bias, averageFactor: factor } = loaded;
        const summed = { buffer: from, count: merge * merge, first: 0, rows: made, stride: hiddenStride };
        const io = { width: tower.hiddenSize, out: to, outStride: hiddenStride, epilogue: 'none' } as const;
        recordReduce(recorder, summed, { ...io, bias, outScale: average.scale });
        const gates = { ...shape, rows: made, gateStride: 0, gateOffset: 0, open: true };
        if (factor) recorder.dispatch(outputGate, gates, { gate: factor, x: to });
        recordNorm(recorder, norm, { ...shape, rows: made }, to, from);
      }
      if (!loaded.project) return recordMerger(0);
      const xStride = average ? hiddenStride : joined.stride;
      recordLinear(recorder, { role: 'prompt', rows: made, normed: undefined }, loaded.project, {
        x: loaded.norm ? normed : buffers.x,
        xStride,
        out,
        outStride,
      });
    });
    const { rope } = attentionOf(tower, 'gqa');
    const turned = rope ? decoder.ropes.of(rope) : undefined;
    const { x, rowInfo } = buffers;
    return { patches, out, program: recorder.finish(), x, rowInfo, counts, turns: turned };
  }

  /** The MLP of what is joined in `x`, into its part of the rows in `out`. */
  #recordMerger(recorder: Recorder<RankStep>, level: number, x: Buffer, inner: Buffer, out: Buffer): void {
    const { vision, loaded, textWidth } = this.weights;
    const { into, intoBias, out: project, outBias } = nth(loaded.mergers, level);
    const stride = activationStride(vision.merger?.width ?? 0);
    const rows = { role: 'prompt', rows: imageRows(vision), normed: undefined } as const;
    recordLinear(recorder, rows, into, {
      x,
      xStride: vision.tower.hiddenSize * vision.merge ** 2,
      bias: intoBias,
      out: inner,
      outStride: stride,
      epilogue: 'gelu',
      activation: 'gelu',
    });
    recordLinear(recorder, rows, project, {
      x: inner,
      xStride: stride,
      bias: outBias,
      out,
      outStride: activationStride(rowWidth(vision, textWidth)),
      outOffset: level * textWidth,
    });
  }

  /** What is the same for all pictures of a size. */
  #fit({ rowInfo, counts, turns: table }: TileProgram, grid: Grid): void {
    if (this.#grid?.join() === grid.join()) return;
    const { device } = this;
    const { vision } = this.weights;
    const count = grid[0] * grid[1];
    const order = patchOrder(vision, grid);
    const info = new Uint32Array(2 * alignUp(this.#most, PREFILL_TILE_ROWS)).fill(0xffffffff);
    let position = 0;
    for (const [row, at] of order.entries()) if (at >= 0) info.set([position++, 0], 2 * row);
    device.write(rowInfo, 0, info);
    const bounds: number[] = [];
    for (const { length } of vision.window ? windowsOf(vision, grid) : []) {
      const first = bounds.length / 2;
      const patches = length * vision.merge ** 2;
      for (let at = 0; at < patches; at++) bounds.push(first, first + patches);
    }
    device.write(counts, 4, Uint32Array.of(count, ...bounds));
    if (table) device.write(table, 0, turns(vision.tower, grid, order));
    this.#rows = count / vision.merge ** 2;
    this.#grid = grid;
  }

  /**
   * @param patches f32 [patches][3 * patch * patch] of a tile or picture, in the order of `patchOrder`. Resolves with f32 [rows][`rowWidth` of
   * the decoder's hidden size]
   */
  async encode(patches: Float32Array, grid = patchGrid(this.weights.vision)): Promise<Float32Array<ArrayBuffer>> {
    const { device, weights } = this;
    const { vision, places } = weights;
    const made = this.prepare();
    this.#fit(made, grid);
    const width = 3 * vision.patch ** 2;
    const rows = patches.length / width;
    device.write(made.patches, 0, padRows(patches, width, activationStride(width)));
    if (places && vision.places)
      device.write(
        made.x,
        0,
        placeRows(places, vision.places, vision.tower.hiddenSize, grid, patchOrder(vision, grid)),
      );
    const step = { rows: [alignUp(rows, PREFILL_TILE_ROWS)], chunks: chunksOf(grid[0] * grid[1]) };
    const submits = (this.#submits ??= new Submits(device));
    await submits.submit(await made.program.run(device.gpu.createCommandEncoder(), step, { submits }));
    const outWidth = rowWidth(vision, weights.textWidth);
    const outStride = activationStride(outWidth);
    const stored = new Float32Array(await device.read(made.out, 0, this.#rows * outStride * 4));
    const out = unpadRows(stored, this.#rows, outWidth, outStride);
    if (!vision.window) return out;
    const inLines = new Float32Array(out.length);
    for (const [at, row] of windowsOf(vision, grid).flat().entries())
      inLines.set(out.subarray(at * outWidth, (at + 1) * outWidth), row * outWidth);
    return inLines;
  }
}
