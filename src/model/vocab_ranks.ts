import { embedding } from '../../shaders/embedding/embedding/index.js';
import type { Region, Transfer } from '../distributed/communicator.js';
import type { Buffer, Device, Recorder, StepShape, Tensor } from '../gpu/index.js';
import { isKvOnly, type VocabShare } from '../placement/index.js';
import type { RowBuffers } from './forward.js';
import type { Matrix } from './matrix.js';
import { allocateParts, type Parts, recordReduce, rowsOf } from './record_ranks.js';
import type { World } from './world.js';

/** Rows of a table on this rank: its first row is row `firstRow` of the model's. */
export interface VocabMatrix {
  readonly matrix: Matrix;
  readonly firstRow: number;
}

const holders = (shares: readonly VocabShare[]): VocabShare[] => shares.filter(({ rows: [first, end] }) => end > first);

/** True where the embedding's rows are cut over ranks, so that each embeds some tokens for all. */
const isCut = (shares: readonly VocabShare[], vocabSize: number): boolean =>
  holders(shares).some(({ rows: [first, end] }) => end - first < vocabSize);

/** The embedding of a step's tokens on the first stage's ranks. */
export class EmbeddingRanks {
  readonly #embedded: readonly { readonly buffer: Buffer; readonly tokens: Tensor }[];
  readonly #parts: Parts | undefined;
  readonly #owners: readonly number[];

  constructor(
    readonly device: Device,
    readonly world: World,
    readonly config: { readonly vocabSize: number; readonly hiddenSize: number },
    readonly table: VocabMatrix | undefined,
    readonly buffers: RowBuffers,
    readonly hiddenStride: number,
  ) {
    const { role, rows, tokens } = buffers;
    const { plan } = world;
    this.#owners = holders(plan.embedding).map(({ rank }) => rank);
    this.#embedded = [];
    if (!this.#embeds || !isCut(plan.embedding, config.vocabSize)) return;
    this.#parts = allocateParts(device, role, 'embedding parts', this.#owners.length, rows, config.hiddenSize);
    if (!table) return;
    this.#embedded = Array.from({ length: this.#blocks }, (_, block) => ({
      buffer: device.createBuffer(`${role} embedded`, rows * this.#parts!.stride * 4),
      tokens: this.#blocks === 1 ? tokens : { buffer: tokens, offset: block * rows * 4, size: rows * 4 },
    }));
  }

  /** A rank of the first stage that runs rows. */
  get #embeds(): boolean {
    const first = this.world.topology.stages[0];
    return first !== undefined && !isKvOnly(first.share);
  }

  get #blocks(): number {
    return this.buffers.role === 'prompt' ? this.world.topology.rowBlocks : 1;
  }

  /** Embedding rows into `x`; nothing on ranks of later stages. */
  record(recorder: Recorder, scaleBy = 1): void {
    const { world, table, buffers, hiddenStride } = this;
    const { rows } = buffers;
    const parts = this.#parts;
    if (!this.#embeds) return;
    if (!parts) {
      const block = this.#blocks === 1 ? 0 : world.topology.rowBlock;
      const tokens: Tensor =
        this.#blocks === 1 ? buffers.tokens : { buffer: buffers.tokens, offset: block * rows * 4, size: rows * 4 };
      this.#recordTable(recorder, table!, { tokens, out: buffers.x, outStride: hiddenStride, scaleBy });
      return;
    }
    for (const [block, { buffer, tokens }] of this.#embedded.entries()) {
      this.#recordTable(
        recorder,
        table!,
        { tokens, out: buffer, outStride: parts.stride, scaleBy, zeroOthers: true },
        this.#blocks === 1 ? undefined : (step) => ({ ...step, rows: step.blocks![block]! }),
      );
    }
    const of = (buffer: Buffer, count: number, first = 0): Region[] => [rowsOf(buffer, parts.stride, count, first)];
    world.hop(recorder, 'embedding', (step) => ({
      sends: this.#embedded.flatMap(({ buffer }, block) =>
        this.#readers(block).map((peer): Transfer => ({
          peer,
          regions: of(buffer, this.#blocks === 1 ? step.rows : step.blocks![block]!),
        })),
      ),
      receives: this.#owners.map((peer, index): Transfer => ({
        peer,
        regions: of(parts.buffer, step.rows, index * parts.rows),
      })),
    }));
    // One part has the row, the others zeros.
    recordReduce(recorder, parts, {
      width: this.config.hiddenSize,
      out: buffers.x,
      outStride: hiddenStride,
      epilogue: 'none',
    });
  }

  /** Ranks of the first stage that run the rows of a block. */
  #readers(block: number): number[] {
    const { plan, topology } = this.world;
    const ranks = plan.stages[0]!.shares.filter((share) => !isKvOnly(share)).map(({ rank }) => rank);
    return this.#blocks === 1 ? ranks : ranks.filter((rank) => topology.blockRanks[block]!.includes(rank));
  }

  #recordTable(
    recorder: Recorder,
    { matrix, firstRow }: VocabMatrix,
    io: {
      readonly tokens: Tensor;
      readonly out: Buffer;
      readonly outStride: number;
      readonly scaleBy: number;
      readonly zeroOthers?: boolean;
    },
    stepOf?: (step: StepShape) => StepShape,
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
        stepOf,
      );
    }
  }
}

/** Rows of the output head that a rank's tokens are sampled from, by the ranks that have them, the one that samples first. */
export const headShares = ({ plan, rank, topology }: World): VocabShare[] =>
  holders(plan.head).filter((share) => !topology.ownRows || share.rank === rank);

/** Brings every rank's logits to the root: f32 [rows][logitsStride], each rank's at its rows of the vocabulary. */
export function recordGatherLogits(recorder: Recorder, world: World, logits: Buffer, logitsStride: number): void {
  recordGather(recorder, world, 'logits', ({ rows: [first, end] }, _part, rows) =>
    Array.from({ length: rows }, (_, row) => ({
      buffer: logits,
      offset: (row * logitsStride + first) * 4,
      size: (end - first) * 4,
    })),
  );
}

/**
 * Brings every rank's candidates to the root, which samples: 8 bytes each, [parts][slots][pairs]. A rank's own is its first part; on
 * the root the others' follow in the order of `headShares`.
 */
export function recordGatherCandidates(
  recorder: Recorder,
  world: World,
  candidates: Buffer,
  { slots, pairs }: { readonly slots: number; readonly pairs: number },
): void {
  const isRoot = world.rank === world.topology.root;
  recordGather(recorder, world, 'candidates', (_share, part, rows) => [
    { buffer: candidates, offset: isRoot ? part * slots * pairs * 8 : 0, size: rows * pairs * 8 },
  ]);
}

/** `regions`: where the rows of a share, the `part`-th of the head, lie on this rank. */
function recordGather(
  recorder: Recorder,
  world: World,
  label: string,
  regions: (share: VocabShare, part: number, rows: number) => Region[],
): void {
  const { rank, topology } = world;
  const { root } = topology;
  const shares = headShares(world);
  world.hop(recorder, label, (step) => {
    const transfer = (share: VocabShare, peer: number): Transfer => ({
      peer,
      regions: regions(share, shares.indexOf(share), step.rows),
    });
    return rank === root
      ? {
          sends: [],
          receives: shares.filter((share) => share.rank !== root).map((share) => transfer(share, share.rank)),
        }
      : { sends: shares.filter((share) => share.rank === rank).map((share) => transfer(share, root)), receives: [] };
  });
}
