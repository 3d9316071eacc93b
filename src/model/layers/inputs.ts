import { embedding } from '../../../shaders/embedding/embedding/index.js';
import { known } from '../../base/errors.js';
import { SEGMENT_SHIFT } from '../../base/kv_units.js';
import type { Buffer, Device, Tensor } from '../../gpu/index.js';
import type { ModelConfig } from '../config/model_config.js';
import type { Matrix } from '../weights/matrix.js';
import { allRows, type Loaded, type MatrixSpec } from '../weights/weight_map.js';
import { type NormSpec, normSpec, recordNorm } from './norm.js';
import { ownRowInfo, type RowBuffers } from './rows.js';
import type { RankRecorder, World } from './world.js';

/** Which tensors are added to what is embedded, and its norm. Whole on each rank that runs rows of the first layer. */
export interface InputSpecs {
  readonly positions: MatrixSpec | undefined;
  readonly types: MatrixSpec | undefined;
  readonly norm: NormSpec | undefined;
}

export function inputSpecs({ inputs, hiddenSize, norm, tensors }: ModelConfig): InputSpecs | undefined {
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
  };
}

/** What is done with embedded tokens, of some rows. */
export class Inputs {
  /** f32 [rows][hiddenStride]: where they are embedded. */
  readonly x: Buffer;

  constructor(
    device: Device,
    readonly world: World,
    readonly config: ModelConfig,
    readonly weights: Loaded<InputSpecs> | undefined,
    readonly buffers: RowBuffers,
    readonly hiddenStride: number,
  ) {
    const { role, rows, x } = buffers;
    this.x = weights?.norm ? device.createBuffer(`${role} inputs`, rows * hiddenStride * 4) : x;
  }

  record(recorder: RankRecorder): void {
    const { config, weights, buffers, world, hiddenStride: stride } = this;
    if (!weights) return;
    const { positions, types, norm } = weights;
    const first = config.inputs?.positions?.first ?? 0;
    const info = ownRowInfo(world, buffers);
    if (positions) this.#recordRows(recorder, positions, info, { stride: 2, shift: 0, mask: 0xffffffff, first });
    if (types)
      this.#recordRows(recorder, types, buffers.tokens, { stride: 1, shift: SEGMENT_SHIFT, mask: 0xff, first: 0 });
    const { rows, x } = buffers;
    if (norm) recordNorm(recorder, norm, { rows, width: config.hiddenSize, stride }, this.x, x);
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
