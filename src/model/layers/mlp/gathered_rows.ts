import { nth } from '../../../base/lists.js';
import type { Region } from '../../../distributed/communicator.js';
import { allRows, type Buffer } from '../../../gpu/index.js';
import { gatherRoutes, type SegmentSum, type StageTopology } from '../../../placement/index.js';
import type { StageContext } from '../layer.js';
import { type Parts, partRegions, rowsOf, sumNumber } from '../linear/parts.js';
import type { RowAdapters, StageRows } from '../rows.js';
import type { RankRecorder, RankStep, RegionsOf } from '../world.js';

/** Places that run rows of their own and share out the MLP's segments; 0 where they don't. */
export const gatheringPlaces = ({ gathersMlp, placeRanks }: StageTopology): number =>
  gathersMlp ? placeRanks.length : 0;

/**
 * Where places run rows of their own: the rows of all side by side, in the order of the places and without gaps, for what ranks do for
 * each other. A place's rows are a row group; some may have none.
 */
export class GatheredRows {
  /** The most that all places may have together. */
  readonly rows: number;
  /** f32 [rows][hiddenStride]: normalised. */
  readonly x: Buffer;
  /** u32: a row's number, at its place; what tells a kernel how many rows there are. */
  readonly #numbers: Buffer;

  constructor(
    readonly stage: StageContext,
    private readonly own: StageRows,
  ) {
    const { role, allRows: rows, scratch } = own;
    this.rows = rows;
    this.x = scratch.createBuffer(`${role} gathered x`, rows * stage.hiddenStride * 4);
    const numbers = Uint32Array.from({ length: rows + 1 }, (_, row) => row);
    this.#numbers = scratch.createBuffer(`${role} row numbers`, numbers.byteLength);
    stage.device.write(this.#numbers, 0, numbers);
  }

  /** Of all rows, whose slots come with them. */
  get adapters(): RowAdapters | undefined {
    const { adapters, scratch, role } = this.own;
    if (!adapters?.loaded()) return undefined;
    return { ...adapters, rowInfo: scratch.createBuffer(`${role} gathered row_info`, this.rows * 8) };
  }

  /** Rows that dispatches work on that take all places' rows. */
  readonly rowsOf = allRows;

  /** Brings the normalised rows of all places to `x`, and with them their experts' numbers. */
  recordGather(
    recorder: RankRecorder,
    normed: Buffer,
    experts?: { readonly mine: Buffer; readonly all: Buffer; readonly stride: number },
  ): void {
    const { world, topology, hiddenStride } = this.stage;
    const slots = this.adapters?.rowInfo as Buffer | undefined;
    const pairs = [
      { mine: normed, all: this.x, stride: hiddenStride },
      ...(experts ? [experts] : []),
      ...(slots ? [{ mine: this.own.rowInfo, all: slots, stride: 2 }] : []),
    ];
    const routes = gatherRoutes(world.all, topology.index, experts !== undefined);
    world.exchangeRoutes(recorder, 'rows', routes, ({ cargo }, side, step) =>
      pairs.map(({ mine, all, stride }) =>
        side === 'send'
          ? rowsOf(mine, stride, nth(step.rows, cargo.group))
          : this.region(all, stride, cargo.group, step),
      ),
    );
  }

  recordCount(recorder: RankRecorder, count: Buffer): void {
    recorder.exchange({
      label: 'row count',
      copy: (encoder, { rows }) => encoder.copyBufferToBuffer(this.#numbers.gpu, allRows(rows) * 4, count.gpu, 0, 4),
    });
  }

  /** A row group's rows among all. */
  region(all: Buffer, stride: number, group: number, { rows }: RankStep): Region {
    return rowsOf(all, stride, nth(rows, group), firstOf(group, rows));
  }

  /** The MLP's `sums` of all rows, each to the ranks whose row it is: from `all`, this rank's, to `mine`, all of its own rows. */
  segmentsHome(all: Parts, mine: Parts, sums: readonly SegmentSum[]): RegionsOf {
    return ({ cargo }, side, { rows }) => {
      if (cargo.kind !== 'segments') return [];
      const [first, count] = [sumNumber(sums, nth(cargo.sums, 0)), cargo.sums.length];
      return side === 'send'
        ? partRegions(all, first, count, nth(rows, cargo.group), firstOf(cargo.group, rows))
        : partRegions(mine, first, count, nth(rows, cargo.group));
    };
  }
}

const firstOf = (group: number, rows: readonly number[]): number => allRows(rows.slice(0, group));
