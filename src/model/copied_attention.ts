import { attentionMerge } from '../../shaders/attention/attention_merge/index.js';
import { type LaneContributor, laneSources } from '../../shaders/attention/attention_merge/lane_sources.js';
import { mostLanes, type PartialLayout } from '../../shaders/attention/share.js';
import { MERGE_LANES } from '../../shaders/cache/kv_cache.js';
import type { Exchange, Region, Transfer } from '../distributed/communicator.js';
import type { Buffer, Device, Recorder, StepShape } from '../gpu/index.js';
import { holdersOf, homeOf, laneHolders } from '../placement/index.js';
import {
  type AttentionBlock,
  type AttentionShape,
  filledBuffer,
  type MergeTables,
  type StageAttention,
} from './attention_ranks.js';
import { together } from './record_ranks.js';
import { chunksOf, type Role } from './roles.js';
import type { StageTopology } from './topology.js';
import type { World } from './world.js';

/** A copied head on this rank: by its place among the rank's heads, and where its lanes meet. */
interface Copy {
  readonly place: number;
  readonly home: number;
  /** Lane slots that lie here, a bit each. */
  readonly mask: number;
  /** Where this rank is home: the other ranks with copies, and their lane slots. Their lanes come in this order behind the own heads. */
  readonly guests: readonly { readonly rank: number; readonly mask: number }[];
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
  readonly #lanes: number;
  readonly #kvHeads: number;
  readonly #group: number;
  readonly #copies: readonly Copy[];
  readonly #laneO: Buffer;
  readonly #laneMl: Buffer;
  readonly #chunkPartials: { readonly o: Buffer; readonly ml: Buffer } | undefined;
  readonly #sources: Buffer;

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
    const floats = (name: string, count: number): Buffer => scratch.createBuffer(`${role} ${name}`, count * 4);
    const lanes = rows.rows * this.#group * this.#lanes * (this.#kvHeads + guestCount(this.#copies));
    const sources = laneSources(this.#contributors(), { rows: rows.rows, bundleHeads: this.#group });
    this.#sources = filledBuffer(device, `${role} lane sources`, sources);
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

  layoutOf(): PartialLayout {
    return { bundleHeads: this.#group };
  }

  recordLanes(recorder: Recorder, block: AttentionBlock, tables?: MergeTables): void {
    recorder.dispatch(
      attentionMerge,
      { ...this.#problem('lanes', tables!), partials: this.partials, lanes: this.#lanes },
      {
        ...this.target(),
        row_info: block.rowInfo,
        block_table: tables!.blockTable,
        out: this.#laneO,
        out_ml: this.#laneMl,
      },
    );
  }

  recordMerge(recorder: Recorder, out: Buffer | undefined, outStride: number, tables?: MergeTables): void {
    this.world.hop(recorder, 'copies', (step) => this.#transfers(step));
    recorder.dispatch(
      attentionMerge,
      { ...this.#problem('home', tables!), outStride },
      {
        partial_o: this.#laneO,
        partial_ml: this.#laneMl,
        row_info: this.rows.rowInfo,
        chunk_offsets: this.shape.chunkOffsets,
        block_table: tables!.blockTable,
        sources: this.#sources,
        out,
      },
    );
  }

  #problem(mode: 'lanes' | 'home', { perHead }: MergeTables) {
    return {
      mode,
      rows: this.rows.rows,
      heads: this.#kvHeads * this.#group,
      headDim: this.shape.dim,
      bundleHeads: this.#group,
      perHead,
    };
  }

  /** Who holds which lanes of each kv head, as they lie here. Elsewhere than at its home, others' lanes of a head don't come. */
  #contributors(): LaneContributor[][] {
    const states = this.#lanes * this.rows.rows * this.#group;
    return Array.from({ length: this.#kvHeads }, (_, place) => {
      const copy = this.#copies.find((candidate) => candidate.place === place);
      const of = (mask: number, at: number): LaneContributor => ({ mask, base: at * states, lanes: this.#lanes });
      if (!copy || copy.home !== this.stage.share.rank) return [of(ALL_LANES, place)];
      return [of(copy.mask, place), ...copy.guests.map(({ mask }, i) => of(mask, copy.firstGuest + i))];
    });
  }

  #transfers(step: StepShape): Omit<Exchange, 'label'> {
    const own = this.stage.share.rank;
    const transfer = (peer: number, mask: number, place: number): Transfer => ({
      peer,
      regions: this.#regions(mask, place, step),
    });
    return together(
      ...this.#copies.map(({ place, home, mask, guests, firstGuest }) => ({
        sends: home === own ? [] : [transfer(home, mask, place)],
        receives: guests.map(({ rank, mask }, i) => transfer(rank, mask, firstGuest + i)),
      })),
    );
  }

  /** Of a kv head, or of a guest: the lanes that the step's sequences may have reached. */
  #regions(mask: number, place: number, { rows, chunks }: StepShape): Region[] {
    const lanes = mostLanes(mask, this.shape.uneven ? this.#lanes : Math.min(this.#lanes, chunks));
    const { rows: room } = this.rows;
    const of = (buffer: Buffer, width: number): Region[] => {
      const row = this.#group * width * 4;
      const lane = room * row;
      const first = place * this.#lanes * lane;
      if (rows === room) return [{ buffer, offset: first, size: lanes * lane }];
      return Array.from({ length: lanes }, (_, i) => ({ buffer, offset: first + i * lane, size: rows * row }));
    };
    return [...of(this.#laneO, this.shape.dim), ...of(this.#laneMl, 2)];
  }
}

const ALL_LANES = 2 ** MERGE_LANES - 1;

const guestCount = (copies: readonly Copy[]): number => copies.reduce((sum, { guests }) => sum + guests.length, 0);

/** The copies on this rank, in the order of heads, which is the order of messages on every rank. */
function copiesOf({ stage, share }: StageTopology): Copy[] {
  const copies: Copy[] = [];
  for (const { head } of share.copies ?? []) {
    const holders = holdersOf(stage, head);
    const home = homeOf(holders);
    const lanes = laneHolders(holders);
    const maskOf = (rank: number): number =>
      lanes.reduce((mask, holder, slot) => (holder === rank ? mask | (1 << slot) : mask), 0);
    const others = holders.filter(({ rank }) => rank !== home);
    copies.push({
      place: share.heads.indexOf(head),
      home,
      mask: maskOf(share.rank),
      guests: home === share.rank ? others.map(({ rank }) => ({ rank, mask: maskOf(rank) })) : [],
      firstGuest: share.heads.length + guestCount(copies),
    });
  }
  return copies;
}

/** Lanes that come from other ranks, as heads that a rank's buffers have room for besides its own. */
export const guestsOf = (stage: StageTopology): number => guestCount(copiesOf(stage));
