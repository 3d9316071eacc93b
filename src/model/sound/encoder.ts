/**
 * Room: encoders of sound, which run beside a decoder on one rank: frames become rows (here). config/sound_config.ts says what
 * they are, sound_specs.ts what they load. Loaded by `import()`, as few models have one.
 */

import { PREFILL_TILE_ROWS } from '../../../shaders/attention/attention_prefill/index.js';
import { clip } from '../../../shaders/linear/clip/index.js';
import { lightConv } from '../../../shaders/sound/light_conv/index.js';
import { relativeAttention } from '../../../shaders/sound/relative_attention/index.js';
import { subsample } from '../../../shaders/sound/subsample/index.js';
import { nth } from '../../base/lists.js';
import { alignUp, ceilDiv } from '../../base/math.js';
import { type Buffer, type Device, type Program, Recorder, Submits } from '../../gpu/index.js';
import type { TensorReader } from '../../loader/index.js';
import { MEL_BINS, MOST_FRAMES, soundRows } from '../../sound/limits.js';
import type { ConformerConfig } from '../config/sound_config.js';
import { recordLinear } from '../layers/linear/linear.js';
import { recordNorm } from '../layers/norm.js';
import { activationStride, unpadRows } from '../layers/roles.js';
import type { RankStep } from '../layers/world.js';
import type { Matrix } from '../weights/matrix.js';
import type { Loaded } from '../weights/weight_map.js';
import { type LoadWeightsOptions, loadSpecs } from '../weights/weight_loader.js';
import { encoderType, type WeightTypes } from '../weights/weight_types.js';
import { CLIPPED, type SoundSpecs, soundSpecs } from './sound_specs.js';

/** Of what has no bounds. */
const UNBOUNDED = 3.4e38;

type SoundWeights = Loaded<SoundSpecs>;
type LayerWeights = SoundWeights['layers'][number];

/** Matrices as of images' encoders: f32 where the decoder's are, otherwise f16. @throws as `loadModelWeights` */
export async function loadSoundEncoder(
  device: Device,
  sound: ConformerConfig,
  textWidth: number,
  reader: TensorReader,
  types: WeightTypes,
  options: LoadWeightsOptions,
): Promise<SoundEncoder> {
  const type = encoderType(types);
  const { loaded, bytes } = await loadSpecs(device, reader, type, soundSpecs(sound, textWidth), options);
  return new SoundEncoder(device, sound, textWidth, loaded, bytes);
}

/** What recordings run through. */
interface SoundProgram {
  /** f32 [frames][MEL_BINS]. */
  readonly frames: Buffer;
  /** u32 [2]: frames, and lines behind the first convolution. */
  readonly counts: Buffer;
  readonly out: Buffer;
  readonly program: Program<RankStep>;
}

/** What a layer works in: f32 [rows][..], of `hidden` elements or four times as many. */
interface Workspace {
  readonly x: Buffer;
  readonly normed: Buffer;
  readonly wide: Buffer;
  readonly clipped: Buffer;
  readonly raw: Buffer;
  readonly positions: Buffer;
  readonly relative: Buffer;
  readonly unbounded: Buffer;
}

/** Where a clipped projection begins and ends. */
interface Clipped {
  readonly x: Buffer;
  readonly xStride: number;
  readonly out: Buffer;
  readonly outStride: number;
  readonly outOffset?: number;
  readonly silu?: boolean;
  readonly adds?: boolean;
}

export class SoundEncoder {
  #made: SoundProgram | undefined;
  #submits: Submits | undefined;
  /** Of the recording: lines behind each convolution, of which the last ones are rows. */
  #lines: readonly [number, number] = [0, 0];

  constructor(
    readonly device: Device,
    readonly sound: ConformerConfig,
    readonly textWidth: number,
    readonly loaded: SoundWeights,
    readonly bytes: number,
  ) {}

  /** Records the program, once: all that it works in is allocated here. @throws SplitkvError `limit` where the adapter has no room */
  prepare(): SoundProgram {
    return (this.#made ??= this.#record());
  }

  #record(): SoundProgram {
    const { device, sound, textWidth, loaded } = this;
    const { hiddenSize: hidden, channels, eps, outSize } = sound;
    const [lines, most] = [MOST_FRAMES / 2, soundRows(MOST_FRAMES)];
    const rows = alignUp(most, PREFILL_TILE_ROWS);
    const buffer = (what: string, elements: number): Buffer => device.createBuffer(`sound ${what}`, elements * 4);
    const frames = buffer('frames', MOST_FRAMES * MEL_BINS);
    const counts = buffer('counts', 2);
    const middle = buffer('subsampled', lines * (MEL_BINS / 2) * channels[0]);
    const joined = (MEL_BINS / 4) * channels[1];
    const folded = buffer('rows of bins', rows * joined);
    const [outWidth, outStride] = [activationStride(outSize), activationStride(textWidth)];
    const [made, normed] = [buffer('encoded', rows * outWidth), buffer('encoded, normed', rows * outWidth)];
    const out = buffer('rows', rows * outStride);
    const space = this.#workspace(rows, buffer);
    const recorder = new Recorder<RankStep>(device, 'sound encoder');
    const halve = (at: 0 | 1, x: Buffer, to: Buffer): void => {
      const { kernel: weight, norm } = nth(loaded.subsample, at);
      const shape = { rows: at === 0 ? lines : most, columns: MEL_BINS / (2 << at), countsAt: at, eps };
      const problem = { ...shape, inputs: at === 0 ? 1 : channels[0], channels: channels[at] };
      recorder.dispatch(subsample, problem, { x, weight, norm, counts, out: to }, () => this.#lines[at]);
    };
    halve(0, frames, middle);
    halve(1, middle, folded);
    const linear = (matrix: Matrix, x: Buffer, xStride: number, to: Buffer, stride: number, bias?: Buffer): void =>
      recordLinear(recorder, { role: 'prompt', rows, normed: undefined }, matrix, {
        x,
        xStride,
        bias,
        out: to,
        outStride: stride,
      });
    linear(loaded.input, folded, joined, space.x, hidden);
    let { x } = space;
    let other = buffer('x of the next layer', rows * hidden);
    for (const layer of loaded.layers) {
      this.#recordLayer(recorder, rows, layer, { ...space, x }, other);
      [x, other] = [other, x];
    }
    linear(loaded.output, x, hidden, made, outWidth, loaded.outputBias);
    recordNorm(recorder, loaded.norm, { rows, width: outSize, stride: outWidth }, made, normed);
    linear(loaded.project, normed, outWidth, out, outStride);
    return { frames, counts, out, program: recorder.finish() };
  }

  #workspace(rows: number, buffer: (what: string, elements: number) => Buffer): Workspace {
    const { device, sound } = this;
    const { hiddenSize: hidden, keys } = sound;
    const places = alignUp(keys, PREFILL_TILE_ROWS);
    const positions = buffer('positions', places * hidden);
    device.write(positions, 0, positionRows(places, hidden));
    const unbounded = buffer('no bounds', 4 * CLIPPED.length);
    device.write(
      unbounded,
      0,
      Float32Array.from({ length: 4 * CLIPPED.length }, (_, i) => (i % 2 === 0 ? -UNBOUNDED : UNBOUNDED)),
    );
    return {
      x: buffer('x', rows * hidden),
      normed: buffer('normed', rows * hidden),
      wide: buffer('wide', rows * 4 * hidden),
      clipped: buffer('clipped', rows * 4 * hidden),
      raw: buffer('to clip', rows * 4 * hidden),
      positions,
      relative: buffer('relative', places * hidden),
      unbounded,
    };
  }

  /** Half a feed-forward part, attention, the convolution, another half, and a norm into `out`. */
  #recordLayer(recorder: Recorder<RankStep>, rows: number, layer: LayerWeights, space: Workspace, out: Buffer): void {
    const { hiddenSize: hidden, heads, keys, cap, taps, eps, softened = false } = this.sound;
    const { x, normed, wide, clipped, raw, positions, relative } = space;
    const bounds = layer.bounds ?? space.unbounded;
    const shape = { rows, width: hidden, stride: hidden };
    const project = (name: string, matrix: Matrix, { x: from, xStride, out: to, ...io }: Clipped): void => {
      const { inFeatures, outFeatures } = matrix;
      const boundsAt = 4 * CLIPPED.indexOf(name);
      const given = { rows, width: inFeatures, xStride, outStride: inFeatures, boundsAt };
      recorder.dispatch(clip, given, { x: from, bounds, out: clipped });
      const strides = { xStride: inFeatures, outStride: outFeatures };
      recordLinear(recorder, { role: 'prompt', rows, normed: undefined }, matrix, { x: clipped, out: raw, ...strides });
      const made = { rows, width: outFeatures, xStride: outFeatures, ...io, boundsAt: boundsAt + 2 };
      recorder.dispatch(clip, made, { x: raw, bounds, out: to });
    };
    const fromNormed = { x: normed, xStride: hidden };
    const toNormed = { out: normed, outStride: hidden };
    const feedForward = (name: string, { before, into, out: back, behind }: LayerWeights['before']): void => {
      recordNorm(recorder, before, shape, x, normed);
      project(`${name}.ffw_layer_1`, into, { ...fromNormed, out: wide, outStride: 4 * hidden, silu: true });
      project(`${name}.ffw_layer_2`, back, { x: wide, xStride: 4 * hidden, ...toNormed });
      recordNorm(recorder, behind, shape, normed, x, x);
    };
    feedForward('feed_forward1', layer.before);
    const { attention, conv } = layer;
    recordNorm(recorder, attention.before, shape, x, normed);
    for (const [at, name] of ['q', 'k', 'v'].entries()) {
      const to = { out: wide, outStride: 3 * hidden, outOffset: at * hidden };
      project(`self_attn.${name}_proj`, nth(attention.parts, at), { ...fromNormed, ...to });
    }
    const places = alignUp(keys, PREFILL_TILE_ROWS);
    recorder.viewing(
      () => places,
      () =>
        recordLinear(recorder, { role: 'prompt', rows: places, normed: undefined }, attention.relative, {
          x: positions,
          xStride: hidden,
          out: relative,
          outStride: hidden,
        }),
    );
    const strides = { xStride: 3 * hidden, relativeStride: hidden, outStride: hidden };
    recorder.dispatch(
      relativeAttention,
      { rows, heads, dim: hidden / heads, keys, softened, cap, ...strides },
      { x: wide, relative, scale: attention.scale, out: normed },
    );
    // Not where it is read from.
    project('self_attn.post', attention.out, { ...fromNormed, out: wide, outStride: hidden });
    recordNorm(recorder, attention.behind, shape, wide, x, x);
    recordNorm(recorder, conv.before, shape, x, normed);
    project('lconv1d.linear_start', conv.into, { ...fromNormed, out: wide, outStride: 2 * hidden });
    recorder.dispatch(
      lightConv,
      { rows, width: hidden, taps, xStride: 2 * hidden, outStride: hidden, eps },
      { x: wide, weight: conv.taps, norm: conv.norm, out: normed },
    );
    project('lconv1d.linear_end', conv.out, { ...fromNormed, out: x, outStride: hidden, adds: true });
    feedForward('feed_forward2', layer.behind);
    recordNorm(recorder, layer.norm, shape, x, out);
  }

  /** @param frames f32 [frames][MEL_BINS], at most MOST_FRAMES. Resolves with f32 [rows][the decoder's hidden size] */
  async encode(frames: Float32Array): Promise<Float32Array<ArrayBuffer>> {
    const { device, textWidth } = this;
    const made = this.prepare();
    const count = frames.length / MEL_BINS;
    const rows = soundRows(count);
    this.#lines = [ceilDiv(count, 2), rows];
    device.write(made.frames, 0, Float32Array.from(frames));
    device.write(made.counts, 0, Uint32Array.of(count, this.#lines[0]));
    const submits = (this.#submits ??= new Submits(device));
    const step = { rows: [alignUp(rows, PREFILL_TILE_ROWS)], chunks: 1 };
    await submits.submit(await made.program.run(device.gpu.createCommandEncoder(), step, { submits }));
    const stride = activationStride(textWidth);
    const stored = new Float32Array(await device.read(made.out, 0, rows * stride * 4));
    return unpadRows(stored, rows, textWidth, stride);
  }
}

/** By distance: sines of it times falling frequencies, then cosines. */
function positionRows(count: number, width: number): Float32Array<ArrayBuffer> {
  const half = width / 2;
  const fall = Math.log(10_000) / Math.max(1, half - 1);
  return Float32Array.from({ length: count * width }, (_, at) => {
    const [distance, i] = [Math.floor(at / width), at % width];
    const angle = distance * Math.exp(-(i % half) * fall);
    return i < half ? Math.sin(angle) : Math.cos(angle);
  });
}
