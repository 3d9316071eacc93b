import { embedding } from '../../../../shaders/embedding/embedding/index.js';
import type { Buffer, Device, RowsOf, Tensor } from '../../../gpu/index.js';
import { embeddingRoutes, vocabHolders } from '../../../placement/index.js';
import { allocateParts, type Parts, recordReduce, rowsOf } from './parts.js';
import { ownBlock, type RowBuffers } from '../rows.js';
import type { Loaded, VocabSpec } from '../../weights/weight_map.js';
import type { RankRecorder, World } from '../world.js';

/** The embedding of a step's tokens on the first stage's ranks; ranks may hold different rows of the table. */
export class VocabParallelEmbedding {
  readonly #embedded: readonly { readonly buffer: Buffer; readonly tokens: Tensor }[];
  readonly #parts: Parts | undefined;

  constructor(
    readonly device: Device,
    readonly world: World,
    readonly config: { readonly vocabSize: number; readonly hiddenSize: number },
    readonly table: Loaded<VocabSpec> | undefined,
    readonly buffers: RowBuffers,
    readonly hiddenStride: number,
  ) {
    const { role, rows } = buffers;
    const { all, plan, rank } = world;
    this.#embedded = [];
    if (!this.#embeds || this.#routes.length === 0) return;
    const parts = vocabHolders(all, plan.embedding, rank).length;
    this.#parts = allocateParts(device, role, 'embedding parts', parts, rows, config.hiddenSize);
    if (!table) return;
    this.#embedded = Array.from({ length: this.#blocks }, (_, block) => ({
      buffer: device.createBuffer(`${role} embedded`, rows * this.#parts!.stride * 4),
      tokens: this.#tokensOf(block),
    }));
  }

  /** A rank of the first stage that runs rows. */
  get #embeds(): boolean {
    const first = this.world.topology.stages[0];
    return first !== undefined && first.holder === first.share;
  }

  get #blocks(): number {
    return this.world.all.rowPieces[this.buffers.role];
  }

  #tokensOf(block: number): Tensor {
    const { rows, tokens } = this.buffers;
    return this.#blocks === 1 ? tokens : { buffer: tokens, offset: block * rows * 4, size: rows * 4 };
  }

  get #routes() {
    const { world, config, buffers } = this;
    return embeddingRoutes(world.all, world.plan, config.vocabSize, buffers.role);
  }

  /** Embedding rows into `x`; nothing on ranks of later stages. */
  record(recorder: RankRecorder, scaleBy = 1): void {
    const { world, table, buffers, hiddenStride } = this;
    const parts = this.#parts;
    if (!this.#embeds) return;
    if (!parts) {
      const tokens = this.#tokensOf(ownBlock(world, buffers.role));
      this.#recordTable(recorder, table!, { tokens, out: buffers.x, outStride: hiddenStride, scaleBy });
      return;
    }
    for (const [block, { buffer, tokens }] of this.#embedded.entries()) {
      this.#recordTable(
        recorder,
        table!,
        { tokens, out: buffer, outStride: parts.stride, scaleBy, zeroOthers: true },
        this.#blocks === 1 ? undefined : (counts) => counts[block]!,
      );
    }
    world.exchangeRoutes(recorder, 'embedding', this.#routes, ({ cargo }, side, step) => {
      if (cargo.kind !== 'embedding') return [];
      const { group, part } = cargo;
      // A rank that embeds for others may not run their rows; then groups have room of their own.
      const first = this.#blocks > 1 ? 0 : world.rowRange(buffers.role, group, step).first;
      const count = step.rows[group]!;
      return side === 'send'
        ? [rowsOf(this.#embedded[this.#blocks > 1 ? group : 0]!.buffer, parts.stride, count, first)]
        : [rowsOf(parts.buffer, parts.stride, count, part * parts.rows + first)];
    });
    // One part has the row, the others zeros.
    recordReduce(recorder, parts, {
      width: this.config.hiddenSize,
      out: buffers.x,
      outStride: hiddenStride,
      epilogue: 'none',
    });
  }

  #recordTable(
    recorder: RankRecorder,
    { matrix, firstRow }: Loaded<VocabSpec>,
    io: {
      readonly tokens: Tensor;
      readonly out: Buffer;
      readonly outStride: number;
      readonly scaleBy: number;
      readonly zeroOthers?: boolean;
    },
    rowsOfStep?: RowsOf,
  ): void {
    const { tokens, out, outStride, scaleBy, zeroOthers = false } = io;
    for (const [index, shard] of matrix.shards.entries()) {
      recorder.dispatch(
        embedding,
        {
          rows: this.buffers.rows,
          hidden: matrix.inFeatures,
          outStride,
          type: matrix.type,
          shardFirst: firstRow + shard.firstRow,
          shardRows: shard.rows,
          scaleBy,
          // The first shard zeroes the rows that the others may fill.
          zeroOthers: zeroOthers && index === 0,
        },
        { tokens, weight: shard.weight, scale: shard.scale, out },
        rowsOfStep,
      );
    }
  }
}
