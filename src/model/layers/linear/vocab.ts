import { embedding } from '../../../../shaders/embedding/embedding/index.js';
import { known } from '../../../base/errors.js';
import { SEGMENT_SHIFT } from '../../../base/kv_units.js';
import { nth, range } from '../../../base/lists.js';
import type { Region } from '../../../distributed/communicator.js';
import { allRows, type Buffer, type Device, type RowsOf, type Tensor } from '../../../gpu/index.js';
import { embeddingRoutes, samplingRoutes, vocabHolders, type VocabShare } from '../../../placement/index.js';
import { allocateParts, type Parts, recordReduce, rowsOf } from './parts.js';
import { blockOf, type RowBuffers, runsRows } from '../rows.js';
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
    const holders = vocabHolders(all, plan.embedding, rank).length;
    const parts = allocateParts(device, role, 'embedding parts', holders, rows, config.hiddenSize);
    this.#parts = parts;
    if (!table) return;
    this.#embedded = range(0, this.#blocks).map((block) => ({
      buffer: device.createBuffer(`${role} embedded`, rows * parts.stride * 4),
      tokens: blockOf(world, buffers, buffers.tokens, 4, block),
    }));
  }

  get #embeds(): boolean {
    return runsRows(this.world.topology.stages[0]);
  }

  get #blocks(): number {
    return this.world.all.rowPieces[this.buffers.role];
  }

  get #routes() {
    const { world, config, buffers } = this;
    return embeddingRoutes(world.all, world.plan, config.vocabSize, buffers.role);
  }

  /** Embedding rows into `x`, and what their adapters add; nothing on ranks of later stages. */
  record(recorder: RankRecorder, scaleBy = 1): void {
    if (!this.#embeds) return;
    const { world, buffers, hiddenStride: outStride } = this;
    const { vocabSize, hiddenSize: outFeatures } = this.config;
    const { adapters, x: out } = buffers;
    const tokens = blockOf(world, buffers, buffers.tokens, 4);
    this.#recordRows(recorder, tokens, scaleBy);
    const embedded = { tokens, vocabSize, out, outFeatures, outStride };
    if (adapters) adapters.loaded()?.recordEmbedded?.(recorder, { ...buffers, adapters }, embedded);
  }

  #recordRows(recorder: RankRecorder, tokens: Tensor, scaleBy: number): void {
    const { world, buffers, hiddenStride } = this;
    const parts = this.#parts;
    if (!parts) {
      this.#recordTable(recorder, { tokens, out: buffers.x, outStride: hiddenStride, scaleBy });
      return;
    }
    for (const [block, { buffer, tokens }] of this.#embedded.entries()) {
      this.#recordTable(
        recorder,
        { tokens, out: buffer, outStride: parts.stride, scaleBy, zeroOthers: true },
        this.#blocks === 1 ? undefined : (counts) => nth(counts, block),
      );
    }
    world.exchangeRoutes(recorder, 'embedding', this.#routes, ({ cargo }, side, step) => {
      if (cargo.kind !== 'embedding') return [];
      const { group, part } = cargo;
      // A rank that embeds for others may not run their rows; then groups have room of their own.
      const first = this.#blocks > 1 ? 0 : world.rowRange(buffers.role, group, step).first;
      const count = nth(step.rows, group);
      return side === 'send'
        ? [rowsOf(nth(this.#embedded, this.#blocks > 1 ? group : 0).buffer, parts.stride, count, first)]
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
    const { matrix, firstRow } = known(this.table, 'embedding on this rank');
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
          index: { stride: 1, shift: 0, mask: (1 << SEGMENT_SHIFT) - 1, first: 0 },
        },
        { tokens, weight: shard.weight, scale: shard.scale, out },
        rowsOfStep,
      );
    }
  }
}

/** Rows of the output head that a rank's tokens are sampled from, by the ranks that have them, the one that samples first. */
export const headShares = ({ plan, rank, all }: World): VocabShare[] => vocabHolders(all, plan.head, rank);

/**
 * Brings every rank's logits to the root: f32 [rows][logitsStride], each rank's at its rows of the vocabulary. `rowsOf`: a step's rows that
 * are there.
 */
export function recordGatherLogits(
  recorder: RankRecorder,
  world: World,
  logits: Buffer,
  { logitsStride, rowsOf: rowsOfStep = allRows }: { readonly logitsStride: number; readonly rowsOf?: RowsOf },
): void {
  const routes = samplingRoutes(world.all, world.plan, 'logits');
  world.exchangeRoutes(recorder, 'logits', routes, ({ cargo }, _side, { rows }): Region[] => {
    const [first, end] = (cargo.kind === 'logits' && cargo.share?.rows) || [0, 0];
    return Array.from({ length: rowsOfStep(rows) }, (_, row) => ({
      buffer: logits,
      offset: (row * logitsStride + first) * 4,
      size: (end - first) * 4,
    }));
  });
}

/**
 * Brings every rank's candidates to the root, which samples: 8 bytes each, [parts][slots][pairs]. A rank's own is its first part; on
 * the root the others' follow in the order of `headShares`.
 */
export function recordGatherCandidates(
  recorder: RankRecorder,
  world: World,
  candidates: Buffer,
  { slots, pairs, rowsOf: rowsOfStep }: { readonly slots: number; readonly pairs: number; readonly rowsOf: RowsOf },
): void {
  const parts = headShares(world).map(({ rank }) => rank);
  const routes = samplingRoutes(world.all, world.plan, 'candidates');
  world.exchangeRoutes(recorder, 'candidates', routes, ({ from }, side, { rows }) => {
    const part = side === 'receive' ? parts.indexOf(from) : 0;
    return [{ buffer: candidates, offset: part * slots * pairs * 8, size: rowsOfStep(rows) * pairs * 8 }];
  });
}
