import { embedding } from '../../../shaders/embedding/embedding/index.js';
import { known } from '../../base/errors.js';
import { SEGMENT_SHIFT } from '../../base/kv_units.js';
import type { Buffer, Device, Tensor } from '../../gpu/index.js';
import type { ModelConfig } from '../config/model_config.js';
import type { Matrix } from '../weights/matrix.js';
import { type HeldSegments, holdSegments } from '../shape.js';
import { allRows, type Loaded, type MatrixSpec } from '../weights/weight_map.js';
import { recordLinear } from './linear/linear.js';
import { type NormSpec, normSpec, recordNorm } from './norm.js';
import { padRows, type Role } from './roles.js';
import { ownRowInfo, type RowBuffers } from './rows.js';
import type { RankRecorder, World } from './world.js';

/** Which tensors are added to what is embedded, and its norm. Whole on each rank that runs rows of the first layer. */
export interface InputSpecs {
  readonly positions: MatrixSpec | undefined;
  readonly types: MatrixSpec | undefined;
  readonly norm: NormSpec | undefined;
  readonly joins: JoinSpecs | undefined;
}

/** Of `InputsConfig.joins`. */
interface JoinSpecs {
  readonly embedding: NormSpec;
  readonly hidden: NormSpec;
  /** Of the rows of this step or of the model's, the norm before the head. */
  readonly before: Readonly<Record<Role, NormSpec>>;
  /** The columns that multiply what is embedded, then those of the other row. */
  readonly project: readonly [MatrixSpec, MatrixSpec];
}

const joinedSegments = (hiddenSize: number): readonly [HeldSegments, HeldSegments] => {
  const whole = { modelInFeatures: 2 * hiddenSize, total: 2, align: hiddenSize };
  return [holdSegments(whole, [0, 1]), holdSegments(whole, [1, 2])];
};

function joinSpecs({ hiddenSize, norm, tensors }: ModelConfig): JoinSpecs {
  const names = known(tensors.inputs, 'names of inputs');
  const named = (what: string, name: string | undefined): NormSpec =>
    normSpec(norm, what, known(name, `name of ${what}`), hiddenSize);
  const [embedded, other] = joinedSegments(hiddenSize).map((segments): MatrixSpec => ({
    name: `joined ${segments.first}`,
    inFeatures: 2 * hiddenSize,
    segments,
    parts: [allRows(`${known(names.project, 'name of the projection')}.weight`, hiddenSize)],
  })) as [MatrixSpec, MatrixSpec];
  return {
    embedding: named('embedding_norm', names.embeddingNorm),
    hidden: named('hidden_norm', names.hiddenNorm),
    before: { prompt: named('before_norm', names.before), generated: named('own_norm', tensors.norm) },
    project: [embedded, other],
  };
}

export function inputSpecs(config: ModelConfig): InputSpecs | undefined {
  const { inputs, hiddenSize, norm, tensors } = config;
  if (!inputs) return undefined;
  const names = known(tensors.inputs, 'names of inputs');
  const table = (name: string, tensor: string | undefined, rows: number): MatrixSpec => ({
    name,
    inFeatures: hiddenSize,
    parts: [allRows(`${known(tensor, `name of ${name}`)}.weight`, rows)],
    precision: 'f32',
  });
  return {
    positions: inputs.positions && table('positions', names.positions, inputs.positions.rows),
    types: inputs.types === undefined ? undefined : table('types', names.types, inputs.types),
    norm: inputs.norm ? normSpec(norm, 'inputs_norm', known(names.norm, 'name of a norm'), hiddenSize) : undefined,
    joins: inputs.joins && joinSpecs(config),
  };
}

/** What is done with embedded tokens, of some rows. */
export class Inputs {
  /** f32 [rows][hiddenStride]: where they are embedded. */
  readonly x: Buffer;
  readonly #normed: readonly Buffer[];

  constructor(
    readonly device: Device,
    readonly world: World,
    readonly config: ModelConfig,
    readonly weights: Loaded<InputSpecs> | undefined,
    readonly buffers: RowBuffers,
    readonly hiddenStride: number,
  ) {
    const { role, rows, x } = buffers;
    const floats = (name: string): Buffer => device.createBuffer(`${role} ${name}`, rows * hiddenStride * 4);
    this.x = weights?.norm || weights?.joins ? floats('inputs') : x;
    this.#normed = weights?.joins ? [floats('joined'), floats('joined, normed')] : [];
  }

  /** Before a step of prompt rows: what they are joined with. @param rows f32 [rows][hiddenSize] */
  write(rows: Float32Array): void {
    this.device.write(this.buffers.x, 0, padRows(rows, this.config.hiddenSize, this.hiddenStride));
  }

  record(recorder: RankRecorder): void {
    const { config, weights, buffers, world, hiddenStride: stride } = this;
    if (!weights) return;
    const { positions, types, norm, joins } = weights;
    const first = config.inputs?.positions?.first ?? 0;
    const info = ownRowInfo(world, buffers);
    if (positions) this.#recordRows(recorder, positions, info, { stride: 2, shift: 0, mask: 0xffffffff, first });
    if (types)
      this.#recordRows(recorder, types, buffers.tokens, { stride: 1, shift: SEGMENT_SHIFT, mask: 0xff, first: 0 });
    const { rows, x } = buffers;
    if (norm) recordNorm(recorder, norm, { rows, width: config.hiddenSize, stride }, this.x, x);
    if (joins) this.#join(recorder, joins);
  }

  /** x has the rows that these are joined with, and then what comes of it. */
  #join(recorder: RankRecorder, { embedding: embedded, hidden, before, project }: Loaded<JoinSpecs>): void {
    const { buffers, config, hiddenStride: stride } = this;
    const { rows, role, x } = buffers;
    const [one, other] = this.#normed as [Buffer, Buffer];
    const shape = { rows, width: config.hiddenSize, stride };
    const [ofEmbedded, ofOther] = joinedSegments(config.hiddenSize);
    recordNorm(recorder, before[role], shape, x, one);
    recordNorm(recorder, hidden, shape, one, other);
    recordNorm(recorder, embedded, shape, this.x, one);
    const io = { xStride: stride, out: x, outStride: stride };
    recordLinear(recorder, buffers, project[0], { ...io, x: one, segments: ofEmbedded });
    recordLinear(recorder, buffers, project[1], { ...io, x: other, segments: ofOther, epilogue: 'residual' });
  }

  #recordRows(
    recorder: RankRecorder,
    { type, shards, inFeatures: hidden }: Matrix,
    tokens: Tensor,
    index: { readonly stride: number; readonly shift: number; readonly mask: number; readonly first: number },
  ): void {
    for (const { firstRow, rows, weight, scale } of shards) {
      recorder.dispatch(
        embedding,
        {
          rows: this.buffers.rows,
          hidden,
          outStride: this.hiddenStride,
          type,
          shardFirst: firstRow,
          shardRows: rows,
          adds: true,
          index,
        },
        { tokens, weight, scale, out: this.x },
      );
    }
  }
}
