import { embedding } from '../../../shaders/embedding/embedding/index.js';
import { packedLayout, packTiles } from '../../../shaders/linear/pack.js';
import { SEGMENT_SHIFT } from '../../base/kv_units.js';
import type { Buffer, Device } from '../../gpu/index.js';
import type { ModelConfig } from '../config/model_config.js';
import { blockOf, type RowBuffers, runsRows } from './rows.js';
import type { RankRecorder, World } from './world.js';

/**
 * Rows of a step that are given instead of embedded: of pictures or sound. They are a table behind the vocabulary, which the host writes before each
 * step that has any: the id of row r of it is vocabSize + r.
 */
export class GivenRows {
  /** f32, packed as tables of `rows` rows: what is embedded, then what is added behind the first layers. */
  readonly #tables: readonly Buffer[];

  constructor(
    readonly device: Device,
    readonly world: World,
    readonly config: Pick<ModelConfig, 'vocabSize' | 'hiddenSize' | 'vision'>,
    readonly buffers: RowBuffers,
    readonly hiddenStride: number,
  ) {
    const { role, rows } = buffers;
    const { weightBytes } = packedLayout('f32', rows, config.hiddenSize);
    const added = config.vision?.merger?.taps.map((_, layer) => ` behind layer ${layer}`) ?? [];
    this.#tables = ['', ...added].map((where) => device.createBuffer(`${role} given rows${where}`, weightBytes));
  }

  /** @param rows f32 [all][tables][hiddenSize]; @param own which of them the rank runs */
  write(rows: Float32Array, own: readonly number[]): void {
    const { hiddenSize } = this.config;
    const width = hiddenSize * this.#tables.length;
    for (const [which, table] of this.#tables.entries()) {
      const values = new Float32Array(own.length * hiddenSize);
      for (const [to, row] of own.entries()) {
        const from = row * width + which * hiddenSize;
        values.set(rows.subarray(from, from + hiddenSize), to * hiddenSize);
      }
      this.device.write(table, 0, packTiles('f32', values, own.length, hiddenSize).weight);
    }
  }

  /** Behind the embedding, which has nothing for their ids. */
  record(recorder: RankRecorder): void {
    if (runsRows(this.world.topology.stages[0])) this.#record(recorder, this.#tables[0]!);
  }

  /** Of the model's layers the first ones add rows to what they leave. */
  recordBehind(recorder: RankRecorder, layer: number): void {
    const table = this.#tables[layer + 1];
    if (table) this.#record(recorder, table, true);
  }

  #record(recorder: RankRecorder, weight: Buffer, adds = false): void {
    const { world, config, buffers, hiddenStride } = this;
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
        adds,
        index: { stride: 1, shift: 0, mask: (1 << SEGMENT_SHIFT) - 1, first: 0 },
      },
      { tokens: blockOf(world, buffers, buffers.tokens, 4), weight, out: x },
    );
  }
}
