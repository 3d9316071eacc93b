import type { Exchange, Transfer } from '../distributed/communicator.js';
import type { Buffer, Device, StepShape } from '../gpu/index.js';
import { type Parts, partRegions, rowsOf } from './record_ranks.js';
import type { Role } from './roles.js';
import type { OwnRows } from './topology.js';

type Transfers = Omit<Exchange, 'label'>;

/**
 * Where every rank runs rows of its own: the rows of all ranks side by side, in the order of the ranks and without gaps, for what ranks
 * do for each other. A step's rows of each rank are `StepShape.blocks`; some may be 0.
 */
export class GatheredRows {
  /** u32: a row's number, at its place; what tells a kernel how many rows there are. */
  readonly #numbers: Buffer;

  /** `rows`: the most that all ranks may have together. */
  constructor(
    device: Device,
    readonly own: OwnRows,
    role: Role,
    readonly rows: number,
  ) {
    const numbers = Uint32Array.from({ length: rows + 1 }, (_, row) => row);
    this.#numbers = device.createBuffer(`${role} row numbers`, numbers.byteLength);
    device.write(this.#numbers, 0, numbers);
  }

  /** The step as dispatches see it that work on all ranks' rows. */
  readonly stepOf = (step: StepShape): StepShape => ({ ...step, rows: this.#first(this.own.ranks.length, step) });

  /** Rows of the ranks before the `index`-th. */
  #first(index: number, { blocks }: StepShape): number {
    return blocks!.slice(0, index).reduce((sum, rows) => sum + rows, 0);
  }

  /**
   * Every rank's rows to every rank: `mine` to its place in `all`, of each pair.
   * @param count receives the number of rows, where a kernel reads it
   */
  gather(
    pairs: readonly { readonly mine: Buffer; readonly all: Buffer; readonly stride: number }[],
    step: StepShape,
    count?: Buffer,
  ): Transfers {
    const { ranks, index } = this.own;
    const number = (rank: number, buffer: Buffer, at: number) =>
      count && rank === ranks[index]!.rank ? [{ buffer, offset: at * 4, size: 4 }] : [];
    const total = this.#first(ranks.length, step);
    return {
      sends: ranks.map(({ rank }): Transfer => ({
        peer: rank,
        regions: [
          ...pairs.map(({ mine, stride }) => rowsOf(mine, stride, step.blocks![index]!)),
          ...number(rank, this.#numbers, total),
        ],
      })),
      receives: ranks.map(({ rank }, from): Transfer => ({
        peer: rank,
        regions: [
          ...pairs.map(({ all, stride }) => rowsOf(all, stride, step.blocks![from]!, this.#first(from, step))),
          ...(count ? number(rank, count, 0) : []),
        ],
      })),
    };
  }

  /** MLP segments of all rows, each to the rank whose row it is: from `all`, this rank's segments, to `mine`, all of its own rows. */
  segmentsHome(all: Parts, mine: Parts, step: StepShape): Transfers {
    const { ranks, index } = this.own;
    const held = ranks[index]!.mlp;
    return {
      sends: ranks.map(({ rank }, to): Transfer => ({
        peer: rank,
        regions: partRegions(all, held[0]!, held.length, step.blocks![to]!, this.#first(to, step)),
      })),
      receives: ranks.map(({ rank, mlp }): Transfer => ({
        peer: rank,
        regions: partRegions(mine, mlp[0]!, mlp.length, step.blocks![index]!),
      })),
    };
  }

  /** Rows of outputs that some ranks have computed for all, home: the k-th of those ranks' to rows [k * rows, ...) of `mine`. */
  outputsHome(
    all: Buffer,
    mine: Buffer,
    {
      stride,
      rows,
      computing,
    }: { readonly stride: number; readonly rows: number; readonly computing: readonly number[] },
    step: StepShape,
  ): Transfers {
    const { ranks, index } = this.own;
    return {
      sends: computing.includes(ranks[index]!.rank)
        ? ranks.map(({ rank }, to): Transfer => ({
            peer: rank,
            regions: [rowsOf(all, stride, step.blocks![to]!, this.#first(to, step))],
          }))
        : [],
      receives: computing.map((peer, from): Transfer => ({
        peer,
        regions: [rowsOf(mine, stride, step.blocks![index]!, from * rows)],
      })),
    };
  }
}
