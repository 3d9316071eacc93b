import { attentionMerge } from '../../shaders/attention/attention_merge/index.js';
import type { Transfer } from '../distributed/communicator.js';
import type { Buffer, Device, Recorder, StepShape } from '../gpu/index.js';
import { type RowRange, sequenceRanges } from '../placement/index.js';
import type { AttentionBlock, AttentionShape, MergeTables, StageAttention } from './attention_ranks.js';
import { rowsOf } from './record_ranks.js';
import { chunksOf, partialsOf, type Role } from './roles.js';
import type { DealtSequences, StageTopology } from './topology.js';
import type { World } from './world.js';

/**
 * Attention where whole sequences are dealt out to ranks (token parallelism): the root projects every row, each rank attends for
 * the rows of its sequences over its own cache, and its outputs go back to the root.
 *
 *   queries to their ranks; attention and merge there; outputs to the root
 *
 * Generated rows are slots, which members hold in runs; the rows of a prompt, or of tokens that are computed again, are all of one
 * sequence (`StepShape.blocks`: rows by member).
 */
export class DealtAttention implements StageAttention {
  readonly blocks: readonly AttentionBlock[];
  readonly partials: number;
  readonly share = { ranks: 1, index: 0 };
  readonly layout = 'row';
  readonly #dealt: DealtSequences;
  readonly #ranges: readonly RowRange[];
  readonly #isRoot: boolean;
  readonly #queries: Buffer;
  readonly #queryStride: number;
  readonly #rowInfo: Buffer;
  readonly #allRowInfo: Buffer;
  /** On a rank without weights: outputs on their way to the root. */
  readonly #merged: Buffer | undefined;

  constructor(
    readonly device: Pick<Device, 'createBuffer'>,
    readonly world: World,
    stage: StageTopology,
    readonly shape: AttentionShape,
    readonly rows: {
      readonly role: Role;
      readonly rows: number;
      readonly rowInfo: Buffer;
      readonly queries: Buffer | undefined;
      readonly outStride: number;
    },
  ) {
    const dealt = stage.dealt!;
    this.#dealt = dealt;
    this.#ranges = sequenceRanges(dealt.weights, rows.rows);
    this.#isRoot = dealt.index === 0;
    this.partials = partialsOf(rows.role, chunksOf(shape.contextLength));
    this.#queryStride = shape.queryStrideOf(dealt.root);
    const floats = (name: string, count: number): Buffer => device.createBuffer(`${rows.role} ${name}`, count * 4);
    this.#queries = rows.queries ?? floats('queries', rows.rows * this.#queryStride);
    this.#allRowInfo = rows.rowInfo;
    // The root's rows come first, so its row_info is everybody's.
    this.#rowInfo = this.#isRoot ? rows.rowInfo : floats('own row_info', rows.rows * 2);
    this.#merged = this.#isRoot ? undefined : floats('merged', rows.rows * rows.outStride);
    const heads = shape.headsOf(dealt.root);
    const states = rows.rows * heads * this.partials;
    this.blocks = [
      {
        share: dealt.root,
        own: true,
        heads,
        queries: this.#queries,
        queryStride: this.#queryStride,
        rowInfo: this.#rowInfo,
        stepOf: (step) => ({ ...step, rows: this.#rowsOf(dealt.index, step).count }),
        partialO: floats('partial o', states * shape.dim),
        partialMl: floats('partial ml', states * 2),
        homes: [dealt.root.rank],
      },
    ];
  }

  /** A member's rows among the root's. */
  #rowsOf(member: number, step: StepShape): { readonly first: number; readonly count: number } {
    if (step.blocks) return { first: 0, count: step.blocks[member]! };
    const [first, end] = this.#ranges[member]!;
    return { first, count: Math.max(0, Math.min(end, step.rows) - first) };
  }

  recordRows(recorder: Recorder): void {
    if (this.#isRoot) return;
    this.world.hop(recorder, 'own rows', (step) => {
      const { first, count } = this.#rowsOf(this.#dealt.index, step);
      const peer = this.world.rank;
      return {
        sends: [{ peer, regions: [rowsOf(this.#allRowInfo, 2, count, first)] }],
        receives: [{ peer, regions: [rowsOf(this.#rowInfo, 2, count)] }],
      };
    });
  }

  recordQueries(recorder: Recorder): void {
    const { root, members, index } = this.#dealt;
    this.world.hop(recorder, 'queries', (step) => {
      if (this.#isRoot) {
        const sends = members.slice(1).map(({ rank }, follower): Transfer => {
          const { first, count } = this.#rowsOf(follower + 1, step);
          return { peer: rank, regions: [rowsOf(this.#queries, this.#queryStride, count, first)] };
        });
        return { sends, receives: [] };
      }
      const { count } = this.#rowsOf(index, step);
      return { sends: [], receives: [{ peer: root.rank, regions: [rowsOf(this.#queries, this.#queryStride, count)] }] };
    });
  }

  target(block: AttentionBlock): { readonly partial_o: Buffer; readonly partial_ml: Buffer } {
    return { partial_o: block.partialO, partial_ml: block.partialMl };
  }

  recordLanes(): void {
    // One rank has every chunk of its sequences: nothing travels before the merge.
  }

  recordMerge(recorder: Recorder, out: Buffer | undefined, outStride: number, tables?: MergeTables): void {
    const { rows, shape } = this;
    const [block] = this.blocks;
    const { root, members, index } = this.#dealt;
    recorder.dispatch(
      attentionMerge,
      {
        rows: rows.rows,
        heads: block!.heads,
        headDim: shape.dim,
        partials: this.partials,
        outStride,
        ...(tables && { perHead: tables.perHead }),
      },
      {
        partial_o: block!.partialO,
        partial_ml: block!.partialMl,
        row_info: this.#rowInfo,
        block_table: tables?.blockTable,
        out: this.#merged ?? out,
      },
      block!.stepOf,
    );
    this.world.hop(recorder, 'attended', (step) => {
      if (this.#isRoot) {
        const receives = members.slice(1).map(({ rank }, follower): Transfer => {
          const { first, count } = this.#rowsOf(follower + 1, step);
          return { peer: rank, regions: [rowsOf(out!, outStride, count, first)] };
        });
        return { sends: [], receives };
      }
      const { count } = this.#rowsOf(index, step);
      return { sends: [{ peer: root.rank, regions: [rowsOf(this.#merged!, outStride, count)] }], receives: [] };
    });
  }
}
