import { PREFILL_TILE_ROWS } from '../../../shaders/attention/attention_prefill/index.js';
import { alignUp, ceilDiv } from '../../base/math.js';
import { type Buffer, type Device, type Program, Recorder, Submits } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import { SAMPLE_RATE, SOUND_LIMITS } from '../../sound/limits.js';
import type { SamplesConfig } from '../config/sound_config.js';
import { type Grid, patchesOf, patchOrder, type VisionConfig } from '../config/vision_config.js';
import { recordLinear } from '../layers/linear/linear.js';
import { recordNorm } from '../layers/norm.js';
import { activationStride, padRows, unpadRows } from '../layers/roles.js';
import type { RankStep } from '../layers/world.js';
import type { Matrix } from '../weights/matrix.js';
import type { Loaded } from '../weights/weight_map.js';
import { type LoadWeightsOptions, loadSpecs } from '../weights/weight_loader.js';
import { encoderType, type WeightTypes } from '../weights/weight_types.js';
import { type EmbedderSpecs, embedderSpecs } from './embedder_specs.js';
import { placeRows, readPlaces } from './places.js';

/** Matrices as of encoders: f32 where the decoder's are, otherwise f16. @throws as `loadModelWeights` */
export async function loadEmbedder(
  device: Device,
  of: VisionConfig | SamplesConfig,
  textWidth: number,
  reader: TensorReader,
  types: WeightTypes,
  options: LoadWeightsOptions,
): Promise<Embedder> {
  const type = encoderType(types);
  const { loaded, bytes } = await loadSpecs(device, reader, type, embedderSpecs(of, textWidth), options);
  const places = 'frame' in of ? undefined : await readPlaces(reader, of, options.signal);
  return new Embedder(device, of, textWidth, loaded, places, bytes);
}

interface EmbedderProgram {
  /** f32 [rows][stride]: patches or samples. */
  readonly values: Buffer;
  /** Of patches, f32 [rows][hidden stride]: their places, to which they are added. */
  readonly places: Buffer | undefined;
  readonly out: Buffer;
  readonly program: Program<RankStep>;
}

/** Rows of a decoder for pictures or sound whose model has no encoder of them: each patch, or so many samples, becomes one by itself. */
export class Embedder {
  #made: EmbedderProgram | undefined;
  #submits: Submits | undefined;
  /** Elements of what becomes a row, and rows at most. */
  readonly #width: number;
  readonly #most: number;

  constructor(
    readonly device: Device,
    readonly of: VisionConfig | SamplesConfig,
    readonly textWidth: number,
    readonly loaded: Loaded<EmbedderSpecs>,
    readonly places: Float32Array | undefined,
    readonly bytes: number,
  ) {
    this.#width = 'frame' in of ? of.frame : 3 * of.patch ** 2;
    const most = 'frame' in of ? ceilDiv(SOUND_LIMITS.seconds * SAMPLE_RATE, of.frame) : patchesOf(of);
    this.#most = alignUp(most, PREFILL_TILE_ROWS);
  }

  /** Records the program, once: all that it works in is allocated here. @throws SplitkvError `limit` where the adapter has no room */
  prepare(): EmbedderProgram {
    return (this.#made ??= this.#record());
  }

  #record(): EmbedderProgram {
    const { device, loaded } = this;
    const rows = this.#most;
    const buffer = (what: string, width: number): Buffer =>
      device.createBuffer(`given ${what}`, rows * activationStride(width) * 4);
    const recorder = new Recorder<RankStep>(device, 'rows without an encoder');
    const shape = (width: number) => ({ rows, width, stride: activationStride(width) });
    const linear = (matrix: Matrix, x: Buffer, out: Buffer, bias?: Buffer): void =>
      recordLinear(recorder, { role: 'prompt', rows, normed: undefined }, matrix, {
        x,
        xStride: activationStride(matrix.inFeatures),
        bias,
        out,
        outStride: activationStride(matrix.outFeatures),
      });
    const { patches, norm, project } = loaded;
    const values = buffer('values', this.#width);
    const normed = buffer('values, normed', this.#width);
    const out = buffer('rows', this.textWidth);
    let [x, behind, places]: [Buffer, Buffer, Buffer | undefined] = [values, normed, undefined];
    if (patches) {
      const hidden = project.inFeatures;
      const [embedded, placed] = [buffer('patches', hidden), buffer('places', hidden)];
      recordNorm(recorder, patches.before, shape(this.#width), values, normed);
      linear(patches.matrix, normed, embedded, patches.bias);
      recordNorm(recorder, patches.behind, shape(hidden), embedded, placed, placed);
      recordNorm(recorder, patches.placed, shape(hidden), placed, embedded);
      [x, behind, places] = [embedded, placed, placed];
    }
    recordNorm(recorder, norm, shape(project.inFeatures), x, behind);
    linear(project, behind, out);
    return { values, places, out, program: recorder.finish() };
  }

  /**
   * @param values f32 [rows][3 * patch * patch] of a picture's patches, or [rows][frame] of samples. Resolves with f32 [rows][the decoder's
   * hidden size]
   */
  async encode(values: Float32Array, grid?: Grid): Promise<Float32Array<ArrayBuffer>> {
    const { device, of, textWidth, places } = this;
    const made = this.prepare();
    const width = this.#width;
    const rows = values.length / width;
    device.write(made.values, 0, padRows(values, width, activationStride(width)));
    if (made.places && places && grid && 'places' in of && of.places) {
      const { hiddenSize: hidden } = of.tower;
      const own = placeRows(places, of.places, hidden, grid, patchOrder(of, grid));
      device.write(made.places, 0, padRows(own, hidden, activationStride(hidden)));
    }
    const submits = (this.#submits ??= new Submits(device));
    const step = { rows: [alignUp(rows, PREFILL_TILE_ROWS)], chunks: 1 };
    await submits.submit(await made.program.run(device.gpu.createCommandEncoder(), step, { submits }));
    const stride = activationStride(textWidth);
    const stored = new Float32Array(await device.read(made.out, 0, rows * stride * 4));
    return unpadRows(stored, rows, textWidth, stride);
  }
}
