import { embedding } from '../../../shaders/embedding/embedding/index.js';
import { packedLayout, packTiles } from '../../../shaders/linear/pack.js';
import { SEGMENT_SHIFT } from '../../base/kv_units.js';
import type { Buffer, Device } from '../../gpu/index.js';
import type { ModelConfig } from '../config/model_config.js';
import { blockOf, type RowBuffers, runsRows } from './rows.js';
import type { RankRecorder, World } from './world.js';

/**
 * Rows of a step that are given instead of embedded: of pictures. They are a table behind the vocabulary, which the host writes before each
 * step that has any: the id of row r of it is vocabSize + r.
 */
export class GivenRows {
  /** f32, packed as a table of `rows` rows. */
  readonly #table: Buffer;

  constructor(
    readonly device: Device,
    readonly world: World,
    readonly config: Pick<ModelConfig, 'vocabSize' | 'hiddenSize'>,
    readonly buffers: RowBuffers,
    readonly hiddenStride: number,
  ) {
    const { role, rows } = buffers;
    this.#table = device.createBuffer(`${role} given rows`, packedLayout('f32', rows, config.hiddenSize).weightBytes);
  }

  /** @param rows f32 [rows][hiddenSize] */
  write(rows: Float32Array): void {
    const { hiddenSize } = this.config;
    this.device.write(this.#table, 0, packTiles('f32', rows, rows.length / hiddenSize, hiddenSize).weight);
  }

  /** Behind the embedding, which has nothing for their ids. */
  record(recorder: RankRecorder): void {
    const { world, config, buffers, hiddenStride } = this;
    if (!runsRows(world.topology.stages[0])) return;
    const { rows, x } = buffers;
    recorder.dispatch(
      embedding,
      {
        rows,
        hidden: config.hiddenSize,
        outStride: hiddenStride,
        type: 'f32',
        shardFirst: config.vocabSize,
        shardRows: rows,
        index: { stride: 1, shift: 0, mask: (1 << SEGMENT_SHIFT) - 1, first: 0 },
      },
      { tokens: blockOf(world, buffers, buffers.tokens, 4), weight: this.#table, out: x },
    );
  }
}
