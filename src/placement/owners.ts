import { CopyOwners, type CopyMove, type SharedSequence } from './sequences/copies.js';
import { nth, range, sum } from '../base/lists.js';
import { CHUNK_TOKENS, chunkOwner, localTokens } from './owner.js';
import type { Plan } from './plan.js';
import { type RowRange, sequenceRanges } from './sequences/sequence_ranges.js';
import { shardsSequences, type PlanTopology, planTopology, type StageTopology } from './topology.js';

/** One 256-token chunk of a sequence's cache, of one kv head, in the layers of a stage. */
export interface CachePiece {
  readonly stage: number;
  readonly kvHead: number;
  readonly slot: number;
  readonly chunk: number;
}

/**
 * The one relation of a plan: who holds which piece of the cache, and who runs which rows. A stage's cache is a list of boxes
 * {rank, kv heads, lanes, slots}: tensor parallelism cuts heads, sequence parallelism lanes, token and attention data parallelism
 * slots, copies of a head its lanes or its slots.
 *
 * Slots are numbered through all batches: batch b has slots [b * slots, (b + 1) * slots). The offset that rotates a sequence's
 * chunks, and the copy that keeps a sequence, depend on the running sequences: `admit` and `release` tell of these, and ranks that are
 * told the same decide alike.
 */
export class Owners {
  readonly topology: PlanTopology;
  /** Slots of all batches. */
  readonly total: number;
  readonly #copies: CopyOwners | undefined;
  readonly #offsets = new Map<number, number>();
  /** By batch. */
  readonly #ranges: (readonly RowRange[])[] = [];
  /** Where places run their own rows: the ranks of each, the one that samples first. */
  readonly rowRanks: readonly (readonly number[])[] | undefined;

  /** `slots`: of a batch. `roomy`: as `CopyOwners` has it. */
  constructor(
    readonly plan: Plan,
    readonly slots: number,
    readonly batches = 1,
    roomy = false,
  ) {
    this.topology = planTopology(plan);
    this.total = slots * batches;
    this.#copies = plan.sharing && new CopyOwners(plan, this.total, roomy);
    const { ownRows, ranks, places } = this.topology;
    const rowRanks = places?.map((_, place) => {
      const own = ranks.filter(({ ownPlace }) => ownPlace === place);
      return [...new Set([...own.map(({ root }) => root), ...own.map(({ rank }) => rank)])];
    });
    this.rowRanks = ownRows ? rowRanks : undefined;
  }

  /**
   * Slots [first, end) of a batch by place: of all ranks together, or of each place that sequences are sharded over. Where places run
   * their own rows, batches take turns at who is first, so that those of one slot spread over the places.
   */
  ranges(batch: number): readonly RowRange[] {
    return (this.#ranges[batch] ??= this.#rangesOf(batch));
  }

  #rangesOf(batch: number): readonly RowRange[] {
    const { places: weights, ownRows } = this.topology;
    if (!weights) return [[0, this.slots]];
    const turn = ownRows ? batch % weights.length : 0;
    const ranges = sequenceRanges([...weights.slice(turn), ...weights.slice(0, turn)], this.slots);
    return [...ranges.slice(weights.length - turn), ...ranges.slice(0, weights.length - turn)];
  }

  placeOf(slot: number): number {
    const row = slot % this.slots;
    return this.ranges(Math.floor(slot / this.slots)).findIndex(([first, end]) => row >= first && row < end);
  }

  keeps(rank: number, slot: number): boolean {
    const place = this.#placeOfRank(rank);
    return place === undefined || place === this.placeOf(slot);
  }

  #keepsHere(stage: StageTopology, slot: number): boolean {
    return !shardsSequences(stage) || stage.place === this.placeOf(slot);
  }

  /** Slots [first, end) of a batch whose sequences a rank keeps, or a part of each. */
  slotsOf(rank: number, batch: number): RowRange {
    const place = this.#placeOfRank(rank);
    return place === undefined ? [0, this.slots] : nth(this.ranges(batch), place);
  }

  /** Whether a rank runs a slot's rows: all ranks with weights do, unless places run their own. */
  runs(rank: number, slot: number): boolean {
    const { ownPlace } = nth(this.topology.ranks, rank);
    return ownPlace === undefined || ownPlace === this.placeOf(slot);
  }

  /** Slots [first, end) of a batch whose rows a rank runs. */
  rowSlots(rank: number, batch: number): RowRange {
    const { ownPlace } = nth(this.topology.ranks, rank);
    return ownPlace === undefined ? [0, this.slots] : nth(this.ranges(batch), ownPlace);
  }

  /** Those of all batches, one by one. */
  rowSlotsOf(rank: number): number[] {
    return range(0, this.total).filter((slot) => this.runs(rank, slot));
  }

  rowPlaces(rank: number): number[] {
    const { ownPlace } = nth(this.topology.ranks, rank);
    return ownPlace === undefined ? range(0, this.ranges(0).length) : [ownPlace];
  }

  keptSlots(rank: number): number {
    return sum(range(0, this.batches).map((batch) => lengthOf(this.slotsOf(rank, batch))));
  }

  /** Places whose sequences a rank keeps, or a part of each. */
  keptPlaces(rank: number): number[] {
    const place = this.#placeOfRank(rank);
    return place === undefined ? range(0, this.ranges(0).length) : [place];
  }

  placeSlots(place: number): number {
    return sum(range(0, this.batches).map((batch) => lengthOf(nth(this.ranges(batch), place))));
  }

  /** Whether a rank holds in any of its stages what index `index` of `split` does, where a sequence is split most. */
  holdsIndex(rank: number, index: number, split: number): boolean {
    return nth(this.topology.ranks, rank).stages.some(
      (stage) => stage && split % stage.sequence.ranks === 0 && index % stage.sequence.ranks === stage.sequence.index,
    );
  }

  /** The only place whose sequences a rank keeps; undefined where it keeps all, in some stage at least. */
  #placeOfRank(rank: number): number | undefined {
    const stages = nth(this.topology.ranks, rank).stages.filter((stage) => stage !== undefined);
    return stages.every(shardsSequences) ? stages[0]?.place : undefined;
  }

  /** Generated rows by row group, of a step of a batch's first `rows` slots. */
  decodeRows(batch: number, rows: number): number[] {
    return this.ranges(batch).map(([first, end]) => Math.max(0, Math.min(end, rows) - first));
  }

  holds(rank: number, { stage, kvHead, slot, chunk }: CachePiece): boolean {
    const own = nth(this.topology.ranks, rank).stages[stage];
    if (!own?.share.kvHeads.includes(kvHead) || !this.#keepsHere(own, slot)) return false;
    if (this.#copies && own.kind === 'arranged') return this.#copies.holds(rank, stage, kvHead, slot, chunk);
    return chunkOwner(chunk, own.sequence.ranks, this.offset(slot)) === own.sequence.index;
  }

  /** As `holds`, of blocks in a lane of a pool, where heads aren't copied. */
  holdsLane(rank: number, stage: number, slot: number, lane: number): boolean {
    const own = nth(this.topology.ranks, rank).stages[stage];
    return own !== undefined && this.#keepsHere(own, slot) && lane % own.sequence.ranks === own.sequence.index;
  }

  /** Tokens of a kv head that a rank holds of a sequence of `length` tokens. */
  tokens(rank: number, stage: number, kvHead: number, slot: number, length: number): number {
    const own = nth(this.topology.ranks, rank).stages[stage];
    if (!own?.share.kvHeads.includes(kvHead) || !this.#keepsHere(own, slot)) return 0;
    if (own.kind !== 'arranged') return localTokens(length, own.sequence.ranks, own.sequence.index, this.offset(slot));
    return sum(
      range(0, Math.ceil(length / CHUNK_TOKENS)).map((chunk) =>
        this.holds(rank, { stage, kvHead, slot, chunk }) ? Math.min(length - chunk * CHUNK_TOKENS, CHUNK_TOKENS) : 0,
      ),
    );
  }

  /** The rank whose output of a head counts, for a slot's rows: one of those that project it. */
  home(stage: number, head: number, slot: number): number {
    const holders = nth(this.plan.stages, stage).shares.filter(({ heads }) => heads.includes(head));
    return holders.length === 1 || !this.#copies ? nth(holders, 0).rank : this.#copies.home(stage, head, slot);
  }

  /** A sequence starts: the tokens that it may have, if known, and the offset that rotates its chunks. */
  admit(slot: number, tokens: number, offset: number): void {
    this.#offsets.set(slot, offset);
    this.#copies?.admit(slot, tokens, offset);
  }

  release(slot: number): void {
    this.#offsets.delete(slot);
    this.#copies?.release(slot);
  }

  offset(slot: number): number {
    return this.#offsets.get(slot) ?? 0;
  }

  /** Where copies share lanes: the ranks that the plan gives those of a slot's head, by lane; undefined of a head that isn't copied. */
  lanes(stage: number, head: number, slot: number): readonly number[] | undefined {
    return this.#copies?.lanes(stage, head, slot);
  }

  /** Shares the running sequences out over copies of heads again (copies.ts). Returns the moves, which count as done. */
  balance(sequences: readonly SharedSequence[]): CopyMove[] {
    return this.#copies?.balance(sequences) ?? [];
  }

  /** Ranks that a sequence's chunks are split over, in the stage with most. */
  get split(): number {
    return Math.max(...this.topology.stages.map(({ split }) => split));
  }
}

const lengthOf = ([first, end]: RowRange): number => end - first;
