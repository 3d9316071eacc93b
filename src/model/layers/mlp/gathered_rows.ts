import type { Region } from '../../../distributed/communicator.js';
import { allRows, type Buffer, type Device } from '../../../gpu/index.js';
import { type Parts, partRegions, rowsOf } from '../linear/parts.js';
import type { Role } from '../roles.js';
import type { RankRecorder, RankStep, RegionsOf } from '../world.js';

/**
 * Where every rank runs rows of its own: the rows of all ranks side by side, in the order of the ranks and without gaps, for what ranks
 * do for each other. A rank's rows are a row group; some may have none.
 */
export class GatheredRows {
  /** u32: a row's number, at its place; what tells a kernel how many rows there are. */
  readonly #numbers: Buffer;

  /** `rows`: the most that all ranks may have together. */
  constructor(
    device: Device,
    role: Role,
    readonly rows: number,
  ) {
    const numbers = Uint32Array.from({ length: rows + 1 }, (_, row) => row);
    this.#numbers = device.createBuffer(`${role} row numbers`, numbers.byteLength);
    device.write(this.#numbers, 0, numbers);
  }

  /** Rows that dispatches work on that take all ranks' rows. */
  readonly rowsOf = allRows;

  /** Tells a kernel how many rows there are. */
  recordCount(recorder: RankRecorder, count: Buffer): void {
    recorder.hop({
      label: 'row count',
      copy: (encoder, { rows }) => encoder.copyBufferToBuffer(this.#numbers.gpu, allRows(rows) * 4, count.gpu, 0, 4),
    });
  }

  /** A row group's rows among all. */
  region(all: Buffer, stride: number, group: number, { rows }: RankStep): Region {
    return rowsOf(all, stride, rows[group]!, firstOf(group, rows));
  }

  /** Every rank's rows to every rank: `mine` to its place in `all`, of each pair. */
  gather(pairs: readonly { readonly mine: Buffer; readonly all: Buffer; readonly stride: number }[]): RegionsOf {
    return ({ cargo }, side, step) =>
      pairs.map(({ mine, all, stride }) =>
        side === 'send' ? rowsOf(mine, stride, step.rows[cargo.group]!) : this.region(all, stride, cargo.group, step),
      );
  }

  /** MLP segments of all rows, each to the rank whose row it is: from `all`, this rank's segments, to `mine`, all of its own rows. */
  segmentsHome(all: Parts, mine: Parts): RegionsOf {
    return ({ cargo }, side, { rows }) => {
      if (cargo.kind !== 'segments') return [];
      const [first, count] = [cargo.segments[0]!, cargo.segments.length];
      return side === 'send'
        ? partRegions(all, first, count, rows[cargo.group]!, firstOf(cargo.group, rows))
        : partRegions(mine, first, count, rows[cargo.group]!);
    };
  }
}

const firstOf = (group: number, rows: readonly number[]): number => allRows(rows.slice(0, group));
