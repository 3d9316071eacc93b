import { mergeCopies } from '../../shaders/attention/merge_copies/index.js';
import { MERGE_LANES } from '../../shaders/cache/kv_cache.js';
import type { Exchange, Region, Transfer } from '../distributed/communicator.js';
import type { Buffer, Device, Recorder, StepShape } from '../gpu/index.js';
import { holdersOf, homeOf } from '../placement/index.js';
import type { AttentionBlock, AttentionShape, MergeTables, StageAttention } from './attention_ranks.js';
import { together } from './record_ranks.js';
import { chunksOf, type Role } from './roles.js';
import type { StageTopology } from './topology.js';
import type { World } from './world.js';

/** A copied head on this rank: by its place among the rank's heads, and where its lanes meet. */
interface Copy {
  readonly place: number;
  readonly home: number;
  /** Where this rank is home: the other ranks with copies, whose lanes come in this order behind the own heads. */
  readonly guests: readonly number[];
  readonly firstGuest: number;
}

/**
 * Attention of a rank that holds copies of heads whose merge lanes the copies share. Every copy projects the head's queries and keys for
 * itself, attends over its own lanes, and sends them to the head's home, which merges all lanes in order:
 *
 *   attention over own chunks; [chunks to lanes;] lanes of copied heads home; merge
 *
 * Elsewhere than at its home a copied head's output lacks lanes, and isn't used.
 */
export class CopiedAttention implements StageAttention {
  readonly blocks: readonly AttentionBlock[];
  readonly partials: number;
  readonly share = { ranks: 1, index: 0 };
  readonly layout = 'head';
  readonly #lanes: number;
  readonly #kvHeads: number;
  readonly #group: number;
  readonly #copies: readonly Copy[];
  readonly #laneO: Buffer;
  readonly #laneMl: Buffer;
  readonly #chunkPartials: { readonly o: Buffer; readonly ml: Buffer } | undefined;
  readonly #guests: Buffer;

  /** `scratch`: for what stages may share. */
  constructor(
    device: Device,
    scratch: Pick<Device, 'createBuffer'>,
    readonly world: World,
    readonly stage: StageTopology,
    readonly shape: AttentionShape,
    readonly rows: { readonly role: Role; readonly rows: number; readonly rowInfo: Buffer; readonly queries: Buffer },
  ) {
    const { share } = stage;
    const { role } = rows;
    const chunks = chunksOf(shape.contextLength);
    const heads = shape.headsOf(share);
    this.#kvHeads = share.heads.length;
    this.#group = heads / this.#kvHeads;
    this.#lanes = Math.min(MERGE_LANES, chunks);
    this.partials = role === 'prompt' ? this.#lanes : chunks;
    this.#copies = copiesOf(stage);
    const guests = new Uint32Array(this.#kvHeads * 2);
    for (const { place, guests: list, firstGuest } of this.#copies) guests.set([firstGuest, list.length], place * 2);
    this.#guests = device.createBuffer(`${role} guests`, guests.byteLength);
    device.write(this.#guests, 0, guests);
    const floats = (name: string, count: number): Buffer => scratch.createBuffer(`${role} ${name}`, count * 4);
    const lanes = rows.rows * this.#group * this.#lanes * (this.#kvHeads + guestCount(this.#copies));
    this.#laneO = floats('lane o', lanes * shape.dim);
    this.#laneMl = floats('lane ml', lanes * 2);
    if (role === 'generated') {
      const states = rows.rows * heads * chunks;
      this.#chunkPartials = { o: floats('chunk o', states * shape.dim), ml: floats('chunk ml', states * 2) };
    }
    this.blocks = [
      {
        share,
        own: true,
        heads,
        queries: rows.queries,
        queryStride: shape.queryStrideOf(share),
        rowInfo: rows.rowInfo,
        stepOf: undefined,
        partialO: this.#laneO,
        partialMl: this.#laneMl,
        homes: [share.rank],
      },
    ];
  }

  recordRows(): void {
    // Rows are every rank's.
  }

  recordQueries(): void {
    // Every copy projects its queries.
  }

  target(): { readonly partial_o: Buffer; readonly partial_ml: Buffer } {
    const { o, ml } = this.#chunkPartials ?? { o: this.#laneO, ml: this.#laneMl };
    return { partial_o: o, partial_ml: ml };
  }

  recordLanes(recorder: Recorder, block: AttentionBlock, tables?: MergeTables): void {
    recorder.dispatch(mergeCopies, this.#problem('lanes', tables!, 0), {
      ...this.target(),
      row_info: block.rowInfo,
      block_table: tables!.blockTable,
      out: this.#laneO,
      out_ml: this.#laneMl,
    });
  }

  recordMerge(recorder: Recorder, out: Buffer | undefined, outStride: number, tables?: MergeTables): void {
    this.world.hop(recorder, 'copies', (step) => this.#transfers(step));
    recorder.dispatch(mergeCopies, this.#problem('home', tables!, outStride), {
      partial_o: this.#laneO,
      partial_ml: this.#laneMl,
      row_info: this.rows.rowInfo,
      block_table: tables!.blockTable,
      guests: this.#guests,
      out,
    });
  }

  #problem(mode: 'lanes' | 'home', { block, perHead }: MergeTables, outStride: number) {
    return {
      mode,
      rows: this.rows.rows,
      heads: this.#kvHeads * this.#group,
      kvHeads: this.#kvHeads,
      headDim: this.shape.dim,
      partials: this.partials,
      lanes: this.#lanes,
      block,
      tableStride: perHead.tableStride,
      outStride,
    };
  }

  #transfers(step: StepShape): Omit<Exchange, 'label'> {
    const own = this.stage.share.rank;
    const transfer = (peer: number, place: number): Transfer => ({ peer, regions: this.#regions(place, step) });
    return together(
      ...this.#copies.map(({ place, home, guests, firstGuest }) => ({
        sends: home === own ? [] : [transfer(home, place)],
        receives: guests.map((peer, i) => transfer(peer, firstGuest + i)),
      })),
    );
  }

  /** The lanes of a kv head, or of a guest, that the step's sequences have reached. */
  #regions(place: number, { rows, chunks }: StepShape): Region[] {
    const lanes = this.shape.uneven ? this.#lanes : Math.min(this.#lanes, chunks);
    const { rows: room } = this.rows;
    const of = (buffer: Buffer, width: number): Region[] => {
      const lane = room * width * 4;
      const region = (first: number, count: number, size: number): Region[] =>
        Array.from({ length: count }, (_, i) => ({ buffer, offset: (first + i) * lane, size }));
      const first = place * this.#group * this.#lanes;
      if (rows < room) {
        const heads = Array.from({ length: this.#group }, (_, head) => first + head * this.#lanes);
        return heads.flatMap((head) => region(head, lanes, rows * width * 4));
      }
      if (lanes < this.#lanes) {
        return Array.from({ length: this.#group }, (_, head) =>
          region(first + head * this.#lanes, 1, lanes * lane),
        ).flat();
      }
      return region(first, 1, this.#group * lanes * lane);
    };
    return [...of(this.#laneO, this.shape.dim), ...of(this.#laneMl, 2)];
  }
}

const guestCount = (copies: readonly Copy[]): number => copies.reduce((sum, { guests }) => sum + guests.length, 0);

/** The copies on this rank, in the order of heads, which is the order of messages on every rank. */
function copiesOf({ stage, share }: StageTopology): Copy[] {
  const copies: Copy[] = [];
  for (const { head } of share.copies ?? []) {
    const holders = holdersOf(stage, head);
    const home = homeOf(holders);
    copies.push({
      place: share.heads.indexOf(head),
      home,
      guests: home === share.rank ? holders.map(({ rank }) => rank).filter((rank) => rank !== home) : [],
      firstGuest: share.heads.length + guestCount(copies),
    });
  }
  return copies;
}

/** Lanes that come from other ranks, as heads that a rank's buffers have room for besides its own. */
export const guestsOf = (stage: StageTopology): number => guestCount(copiesOf(stage));
