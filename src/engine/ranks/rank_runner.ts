import { PREFILL_TILE_ROWS } from '../../../shaders/attention/attention_prefill/index.js';
import { known, limitError } from '../../base/errors.js';
import { CHUNK_TOKENS, GIVEN_ID, INACTIVE, KV_BLOCK } from '../../base/kv_units.js';
import { nth, range } from '../../base/lists.js';
import { alignUp, formatBytes } from '../../base/math.js';
import type { Region } from '../../distributed/communicator.js';
import { type Buffer, type Device, type Program, Recorder, Submits } from '../../gpu/index.js';
import { isCompressed } from '../../model/compression/budgets.js';
import type { PromptCompression } from '../../model/compression/prompt_compression.js';
import { attendsBothWays, type ModelConfig } from '../../model/config/model_config.js';
import type { Grid } from '../../model/config/vision_config.js';
import type { PictureSpan } from '../../model/layers/attention/rope_table.js';
import type { DeviceModel } from '../../model/device_model.js';
import type { Decoder, DecoderRows, HeadRows } from '../../model/forward/decoder.js';
import { chunksOf } from '../../model/layers/roles.js';
import { ownBlock, runsRows } from '../../model/layers/rows.js';
import type { LowRankPair } from '../../model/adapters/targets.js';
import type { TokenRows } from '../../model/weights/token_rows.js';
import type { VocabTables } from '../../model/weights/weight_loader.js';
import { recordGatherLogits } from '../../model/layers/linear/vocab.js';
import { type RankRecorder, type RankStep, type World } from '../../model/layers/world.js';
import { type BlockRun, headRoutes, type RowRole, type SharedSequence } from '../../placement/index.js';
import type { AttentionTimes } from './attention_times.js';
import { Batch } from './batch.js';
import type { RankAdapters } from './rank_adapters.js';
import { CallQueue } from './call_queue.js';
import type { KeptPromptBlocks } from '../cache/head_pages.js';
import { SlotCaches } from '../cache/slot_caches.js';
import { type CompressionParts, hasHeadTables, SlotTables } from '../cache/slot_tables.js';
import type { KvPiece } from '../contracts/prefill_worker.js';
import {
  type AllowedTokens,
  type CacheUse,
  type CopiedBlock,
  type KeptPlaces,
  LOGITS_ROWS,
  type LogitsRun,
  type Rank,
  type RankCounts,
  type RankFacts,
  RECOMPUTED_ROWS,
  type RunnerOptions,
  type SlotBlocks,
  type SlotTokens,
  type StartOptions,
  type VerifiedRun,
  VERIFIED_ROWS,
} from '../contracts/rank.js';
import { RowBlocks } from '../cache/row_blocks.js';
import { StepCounts } from './step_counts.js';

/** Where rows of one slot's positions lie after a step. */
interface RanRows {
  readonly role: RowRole;
  readonly rows: RowBlocks;
  readonly x: Buffer;
}

/**
 * A rank in this process: its GPU state (cache, activations) and its programs, captured once. A step replays a program; on one
 * rank that is one encoder, one compute pass, one submit, nothing created.
 */
export class RankRunner implements Rank {
  facts: RankFacts;
  readonly #tables: SlotTables;
  readonly #caches: SlotCaches;
  /** By slot: tokens run so far. */
  readonly #lengths: number[];
  readonly #forward: Decoder;
  readonly #tokenRows: TokenRows | undefined;
  readonly #encoders: readonly [images: DeviceModel['encoder'], sound: DeviceModel['soundEncoder']];
  /** Texts are read both ways. */
  readonly #isWhole: boolean;
  readonly #batches: readonly Batch[];
  readonly #prompt: DecoderRows;
  #prefill: Program<RankStep>;
  /** The step that ends a prompt which is compressed. */
  #compressing: Program<RankStep> | undefined;
  /** Rows whose logits are wanted, on ranks that hold rows of the head. */
  readonly #logitsHead: HeadRows | undefined;
  readonly #logitsRows: Buffer | undefined;
  #logitsProgram: Program<RankStep>;
  /** Rows of one slot that were run last, whose logits may be asked for. */
  #ran: RanRows | undefined;
  /** Where whole prompts are kept beside compressed ones. */
  readonly #keptPrompts: KeptPromptBlocks | undefined;
  /** Generated tokens of one slot that are computed again, and their program; made when first needed. */
  #again: { readonly rows: DecoderRows; program: Program<RankStep> } | undefined;
  /** What verifies drafts; made when first needed. */
  #verifier: Batch | undefined;
  /** By slot: its first row there, in the last step. */
  readonly #verified = new Map<number, number>();
  #preparing: Promise<void> | undefined;
  /** Once there was one. */
  #adapters: RankAdapters | undefined;
  #room: number | undefined;
  readonly #queue = new CallQueue();
  readonly #submits: Submits;
  readonly #counts: StepCounts;
  /** Once somebody asked for it. */
  #attention: AttentionTimes | undefined;
  /** Slots that have pictures with positions of their own. */
  readonly #pictured = new Set<number>();
  /** Slots whose results nobody wants, until they are released. */
  readonly #dropped = new Set<number>();

  private constructor(
    readonly device: Device,
    readonly world: World,
    readonly config: Pick<ModelConfig, 'vocabSize' | 'hiddenSize' | 'layers'>,
    model: DeviceModel,
    readonly options: RunnerOptions,
    parts: CompressionParts | undefined,
  ) {
    this.#submits = new Submits(device);
    this.#counts = new StepCounts(world);
    const { slots, batches = 1, contextLength } = options;
    const { topology } = world;
    const { together, rowPieces } = world.all;
    const { compression } = options;
    this.#tables = new SlotTables(device, world, config, options, parts);
    const { owners } = this.#tables;
    this.#lengths = Array.from({ length: slots * batches }, () => 0);
    this.#forward = model.createForward(this.#tables.cacheOptions);
    this.#caches = new SlotCaches(device, world, this.#tables, this.#forward);
    this.#tokenRows = model.tokenRows;
    this.#encoders = [model.encoder, model.soundEncoder];
    this.#isWhole = attendsBothWays(config);
    for (const encoder of this.#encoders) encoder?.prepare();
    const forward = this.#forward;
    const { pages } = this.#tables;
    this.#keptPrompts =
      compression && options.keptBlocks
        ? new parts!.KeptPromptBlocks(device, pages!, forward, options.keptBlocks)
        : undefined;
    const wanted = Math.min(options.prefillChunk, contextLength);
    // Blocks of split rows are whole chunks where a prompt is long enough.
    const blocks = rowPieces.prompt;
    const chunk = blocks === 1 ? wanted : Math.min(Math.max(wanted, CHUNK_TOKENS), contextLength);
    const promptRows = forward.promptRows(chunk);
    const rows = alignUp(promptRows, blocks === 1 ? PREFILL_TILE_ROWS : 64);
    this.#prompt = forward.allocateRows('prompt', rows, { allRows: rows * together });
    const heads = forward.headRows > 0;
    const isRoot = world.rank === topology.root;
    const logitsBuffer = (name: string, stride: number): Buffer =>
      device.createBuffer(`logits ${name}`, LOGITS_ROWS * stride * 4);
    const { hiddenStride, logitsStride } = forward;
    if (heads) {
      const normed = logitsBuffer('normed', hiddenStride);
      this.#logitsHead = { rows: LOGITS_ROWS, x: logitsBuffer('x', hiddenStride), normed };
    }
    this.#logitsRows = heads || isRoot ? logitsBuffer('rows', logitsStride) : undefined;
    this.#prefill = this.#recordPrefill(false);
    this.#compressing = compression && this.#recordPrefill(true);
    this.#logitsProgram = this.#recordLogits();
    this.#batches = Array.from({ length: batches }, (_, index) => {
      const [first, end] = owners.rowSlots(world.rank, index);
      // A rank without slots of its own has a row that is never active.
      const own = { rows: Math.max(1, end - first), allRows: slots, firstSlot: index * slots + first };
      return new Batch(device, world, forward, config.vocabSize, own);
    });
    if (options.speculates === 'now') this.#verifier = this.#newVerifier();
    const batch = nth(this.#batches, 0);
    this.facts = {
      rank: world.rank,
      adapter: device.name,
      promptRows,
      weightBytes: model.bytes,
      kvBytes: forward.cacheBytes + (this.#keptPrompts?.bytes ?? 0),
      stateBytes: forward.stateBytes,
      kvBytesPerToken: forward.cacheBytesPerToken,
      dispatchesPerStep: batch.dispatches,
      exchangesPerStep: batch.exchanges,
      caches: forward.cacheBuffers.map(({ layer, blockBytes, isWindowed }) => ({ layer, blockBytes, isWindowed })),
      variants: device.planned,
      readsRows: model.tokenRows !== undefined,
    };
  }

  /** @throws SplitkvError `limit` when cache or activations don't fit the adapter, or the rank's memory budget. */
  static async create(
    device: Device,
    world: World,
    config: Pick<ModelConfig, 'vocabSize' | 'hiddenSize' | 'layers'>,
    model: DeviceModel,
    options: RunnerOptions,
  ): Promise<RankRunner> {
    const parts = hasHeadTables(world.plan, options) ? await import('../cache/head_pages.js') : undefined;
    const before = device.usage.bytes;
    const runner = await device.recorded(
      `preparing rank ${world.rank}`,
      () => new RankRunner(device, world, config, model, options, parts),
    );
    const budget = options.memory?.[world.rank];
    const activations = device.usage.bytes - before - runner.facts.kvBytes;
    const total = model.bytes + runner.facts.kvBytes + activations;
    if (budget !== undefined && total > budget) {
      throw limitError(
        `rank ${world.rank} takes ${formatBytes(total)} (weights ${formatBytes(model.bytes)}, cache ` +
          `${formatBytes(runner.facts.kvBytes)}, activations ${formatBytes(activations)}), but may take ` +
          `${formatBytes(budget)}: use a smaller prefillChunk (--prefill-chunk) or context, or more memory`,
      );
    }
    runner.#room = budget === undefined ? undefined : budget - total;
    return runner;
  }

  /** Its rows of the vocabulary. */
  get tables(): VocabTables {
    const { embedding, head } = this.#forward.weights;
    return { embedding, head };
  }

  #recordPrefill(compresses: boolean): Program<RankStep> {
    const label = compresses ? 'prefill, compressed' : 'prefill';
    return this.#record(label, 'prompt', (recorder) =>
      this.#forward.recordLayers(recorder, this.#prompt, { compresses }),
    );
  }

  #recordLogits(): Program<RankStep> {
    const [head, logits, forward] = [this.#logitsHead, this.#logitsRows, this.#forward];
    return this.#record('logits', undefined, (recorder) => {
      if (head && logits) forward.recordHead(recorder, head, logits, undefined);
      if (logits) recordGatherLogits(recorder, this.world, logits, forward);
    });
  }

  #recordRecompute(rows: DecoderRows): Program<RankStep> {
    return this.#record('recompute', 'generated', (recorder) => this.#forward.recordLayers(recorder, rows));
  }

  #recordAgain(): Promise<void> {
    return this.device.recorded('preparing adapters', () => {
      const before = [this.#prefill, this.#compressing, this.#again?.program, this.#logitsProgram];
      this.#prefill = this.#recordPrefill(false);
      if (this.#compressing) this.#compressing = this.#recordPrefill(true);
      if (this.#again) this.#again.program = this.#recordRecompute(this.#again.rows);
      this.#logitsProgram = this.#recordLogits();
      for (const program of before) program?.dispose();
      for (const batch of this.#batches) batch.recordAgain();
      this.#verifier?.recordAgain();
    });
  }

  /** `role`: of the rows; undefined where all that a step has are this rank's. */
  #record(label: string, role: RowRole | undefined, body: (recorder: RankRecorder) => void): Program<RankStep> {
    const recorder = new Recorder<RankStep>(this.device, label, role && this.world.rowsOf(role));
    body(recorder);
    return recorder.finish();
  }

  /** Calls run in order; only the steps of two batches, and what they alone read, run side by side: they share nothing but weights and cache. */
  #inOrder<T>(body: () => Promise<T>, batch?: number): Promise<T> {
    const run = async (): Promise<T> => {
      try {
        return await body();
      } catch (error) {
        this.abort(error);
        throw error;
      }
    };
    return batch === undefined ? this.#queue.alone(run) : this.#queue.inLane(batch, run);
  }

  /** Where a slot's row is; undefined where another rank alone runs it. */
  #batchOf(slot: number): { readonly batch: Batch; readonly row: number } | undefined {
    if (!this.#tables.owners.runs(this.world.rank, slot)) return undefined;
    const batch = nth(this.#batches, this.#laneOf(slot));
    return { batch, row: slot - batch.own.firstSlot };
  }

  #laneOf(slot: number): number {
    return Math.floor(slot / this.options.slots);
  }

  /** A call to the slot's row, where this rank runs it; with `lane` in order of its batch's calls alone. */
  #onRow(slot: number, body: (batch: Batch, row: number) => void | Promise<void>, lane?: number): Promise<void> {
    const home = this.#batchOf(slot);
    return this.#inOrder(async () => home && body(home.batch, home.row), lane);
  }

  /** The step of rows of one slot's, by row group, up to position `end`. */
  #stepOf(slot: number, rows: readonly number[], end: number): RankStep {
    const offsets = this.#tables.offsetsOf(rows.map(() => [slot]));
    return { rows, chunks: chunksOf(end), slots: [slot], offsets };
  }

  reserve(slot: number, tokens: number, chunkOffset = 0): Promise<void> {
    return this.#inOrder(async () => this.#tables.reserve(slot, tokens, chunkOffset));
  }

  setBlocks(slot: number, blocks: readonly number[], chunkOffset: number, windows?: BlockRun): Promise<void> {
    // Heads have blocks of their own: only how many there are counts.
    if (this.#tables.pages) return this.reserve(slot, blocks.length * KV_BLOCK, chunkOffset);
    // Only its own batch reads a slot's table.
    return this.#inOrder(async () => this.#tables.setBlocks(slot, blocks, chunkOffset, windows), this.#laneOf(slot));
  }

  copyBlocks(slot: number, copies: readonly CopiedBlock[]): Promise<void> {
    return this.#inOrder(async () => this.#caches.copyBlocks(slot, copies));
  }

  /** Alone: another batch's slots may have the same place before or after. */
  copyState(slot: number, place: number, back: boolean): Promise<void> {
    return this.#inOrder(async () => this.#caches.copyState(slot, place, back));
  }

  copyPrompt(slot: number, first: number, kept: readonly number[], back: boolean): Promise<void> {
    return this.#inOrder(async () => {
      if (this.#tables.keeps(slot)) this.#keptPrompts!.copy(slot, first, kept, back);
    });
  }

  moveBlocks(from: SlotBlocks, to: SlotBlocks): Promise<void> {
    return this.#inOrder(() => this.#caches.moveBlocks(from, to));
  }

  balanceCopies(sequences: readonly SharedSequence[]): Promise<number> {
    return this.#inOrder(() => this.#caches.balanceCopies(sequences));
  }

  prefill(
    { slot, tokens, start, last, given, runEnd }: SlotTokens,
    rowsByPlace?: readonly number[],
    slots: readonly number[] = [slot],
  ): Promise<number | undefined> {
    return this.#inOrder(async () => {
      const { device, world } = this;
      const end = start + tokens.length;
      const ran = new RowBlocks(world.all.rowPieces.prompt, this.#tables.chunkOffset(slot), start, end);
      this.#ran = { role: 'prompt', rows: ran, x: this.#prompt.x };
      await this.#writePrompt(ran, tokens, slot, given);
      // Which rows see what is behind them: of a text that is read both ways all.
      const runEnds = this.#isWhole ? end : runEnd;
      if (runEnds !== undefined) this.#tables.writeRunEnd(slot, runEnds);
      const tiled = (counts: readonly number[]): number[] => counts.map((count) => alignUp(count, PREFILL_TILE_ROWS));
      const rows = tiled(rowsByPlace ?? this.#byPlace(slot, tokens.length) ?? ran.counts);
      const step = this.#stepOf(slot, rows, end);
      let encoder = device.gpu.createCommandEncoder();
      const compressions = last ? this.#compressionsOf(end) : [];
      for (const each of compressions) {
        each.prepare({ slot, length: end, firstRow: tokens.length - this.options.compression!.window });
      }
      // What compression keeps is read back below: it must be there.
      encoder = await (compressions.length > 0
        ? this.#compressing!.run(encoder, step, { submits: this.#submits })
        : this.#prefill.run(encoder, step, { submits: this.#submits, isOver: () => this.#areDropped(slots) }));
      const home = last && this.#batchOf(slot);
      if (home) {
        encoder = await this.#publish(encoder, { start: end - 1, count: 1 }, home.batch.headX, home.row);
      }
      if (tokens.length > 0) this.#lengths[slot] = end;
      // The next step is encoded while this one runs.
      await this.#submits.submit(encoder);
      const { pages } = this.#tables;
      const compressed = compressions.length > 0 && this.#tables.keeps(slot) ? pages : undefined;
      if (compressed) {
        const lengths = await Promise.all(compressions.map((each) => each.keptLengths(end)));
        const kept = compressions.flatMap(({ shape: { layers } }, at) =>
          layers.map((layer, of) => [layer, nth(nth(lengths, at), of)] as const),
        );
        compressed.compressed(slot, end, new Map(kept));
      }
      if (last) pages?.settle(slot, end);
      return compressed?.evicted(slot);
    });
  }

  /** What compresses a prompt of so many tokens: nothing where it is within the budget. */
  #compressionsOf(length: number): readonly PromptCompression[] {
    const { compression } = this.options;
    return compression && isCompressed(compression, length) ? this.#forward.compressions : [];
  }

  async cacheUse(slot: number): Promise<CacheUse> {
    await this.#queue.idle();
    return this.#caches.use(slot);
  }

  async kvTokens(lengths: readonly number[]): Promise<number[]> {
    await this.#queue.idle();
    return this.#caches.tokens(this.config, lengths);
  }

  /** Rows of one slot's tokens by row group, where sequences are dealt out to places. */
  #byPlace(slot: number, rows: number): number[] | undefined {
    const { places } = this.world.all;
    const own = this.#tables.owners.placeOf(slot);
    return places?.map((_, place) => (place === own ? rows : 0));
  }

  /** What the layers' own inputs are made of, for tokens that this rank runs. */
  async #inputsOf(tokens: Uint32Array): Promise<Float32Array | undefined> {
    return tokens.length > 0 ? this.#tokenRows?.read(tokens) : undefined;
  }

  async #writePrompt(
    ran: RowBlocks,
    tokens: Uint32Array,
    slot: number,
    given: Float32Array | undefined,
  ): Promise<void> {
    const { rows, perLayer } = this.#prompt;
    const own = ownBlock(this.world, 'prompt');
    const { vocabSize } = this.config;
    const ownGiven: number[] = [];
    let givenSoFar = 0;
    const ids = new Uint32Array(rows * ran.blocks);
    const rowInfo = new Uint32Array(rows * ran.blocks * 2).fill(INACTIVE);
    const next = Array.from({ length: ran.blocks }, (_, block) => block * rows);
    for (const [index, id] of tokens.entries()) {
      const position = ran.start + index;
      const row = next[ran.blockOf(position)]!++;
      // Behind the vocabulary: none of its rows.
      ids[row] = id < GIVEN_ID ? id : vocabSize + ownGiven.length;
      if (id >= GIVEN_ID && ran.blockOf(position) === own) ownGiven.push(givenSoFar);
      if (id >= GIVEN_ID) givenSoFar++;
      rowInfo[row * 2] = position;
      rowInfo[row * 2 + 1] = slot;
    }
    this.device.write(this.#prompt.tokens, 0, ids);
    this.device.write(this.#prompt.rowInfo, 0, rowInfo);
    if (given && ownGiven.length > 0) this.#prompt.given?.write(given, ownGiven);
    if (given && givenSoFar === 0) this.#prompt.inputs.write(given);
    if (!perLayer) return;
    // Given rows have those of the padding's token.
    const inputs = await this.#inputsOf(
      tokens.filter((_, index) => ran.blockOf(ran.start + index) === own).map((id) => (id < GIVEN_ID ? id : 0)),
    );
    if (inputs) perLayer.write(0, inputs);
  }

  /** Brings rows that were run last to every rank that holds rows of the head, into `to` from row `at` on. */
  async #publish(
    encoder: GPUCommandEncoder,
    { start, count }: LogitsRun,
    to: Buffer | undefined,
    at: number,
  ): Promise<GPUCommandEncoder> {
    const { world } = this;
    const { rank } = world;
    const { role, rows: ran, x } = this.#ran!;
    const bytes = this.#forward.hiddenStride * 4;
    const source: Region = { buffer: x, offset: ran.rowOf(start) * bytes, size: count * bytes };
    const group = groupOf(world, role, ran, start);
    const routes = headRoutes(world.all, world.plan, role, group);
    if (to && ranHere(world, role, group)) {
      encoder.copyBufferToBuffer(source.buffer.gpu, source.offset, to.gpu, at * bytes, source.size);
    }
    const sends = routes.filter((route) => route.from === rank);
    const receives = routes.filter((route) => route.to === rank);
    if (sends.length + receives.length === 0) return encoder;
    await world.exchange(encoder, {
      label: 'last row',
      sends: sends.map((route) => ({ peer: route.to, regions: [source] })),
      receives: receives.map(({ from }) => ({
        peer: from,
        regions: [{ buffer: to!, offset: at * bytes, size: source.size }],
      })),
    });
    this.#submits.forget();
    return this.device.gpu.createCommandEncoder();
  }

  readKv(slot: number): Promise<Uint8Array> {
    return this.#inOrder(() => this.#caches.read(slot, nth(this.#lengths, slot)));
  }

  readPlaces(slot: number, places: KeptPlaces): Promise<Uint8Array> {
    return this.#inOrder(() => this.#caches.readPlaces(slot, places));
  }

  readLastRow(slot: number): Promise<Float32Array> {
    return this.#inOrder(async () => {
      const { batch, row } = this.#batchOf(slot)!;
      const bytes = this.#forward.hiddenStride * 4;
      return new Float32Array(await this.device.read(batch.headX!, row * bytes, bytes));
    });
  }

  takeOver(slot: number, piece: KvPiece): Promise<number | undefined> {
    return this.#inOrder(async () => {
      const { tokens, entries, lastRow } = piece;
      const { pages } = this.#tables;
      const { compression } = this.options;
      const compressed = entries && compression && isCompressed(compression, tokens) ? pages : undefined;
      if (entries) compressed?.compressed(slot, tokens, entries);
      this.#caches.write(slot, piece);
      const home = this.#batchOf(slot);
      const headX = home?.batch.headX;
      if (lastRow && headX) this.device.write(headX, home.row * this.#forward.hiddenStride * 4, lastRow);
      this.#lengths[slot] = tokens;
      pages?.settle(slot, tokens);
      return compressed?.evicted(slot);
    });
  }

  encode(values: Float32Array, grid: Grid | undefined): Promise<Float32Array> {
    const [images, sound] = this.#encoders;
    return this.#inOrder(() =>
      grid
        ? known(images, 'encoder of pictures on this rank').encode(values, grid)
        : known(sound, 'encoder of sound on this rank').encode(values),
    );
  }

  logits(run: LogitsRun): Promise<Float32Array | undefined> {
    return this.#inOrder(async () => {
      const { device, world } = this;
      const { vocabSize } = this.config;
      const { logitsStride } = this.#forward;
      let encoder = device.gpu.createCommandEncoder();
      const { slot = 0 } = run;
      this.#adapters?.useHead(Array<number>(LOGITS_ROWS).fill(slot));
      encoder = await this.#publish(encoder, run, this.#logitsHead?.x, 0);
      const isOver = (): boolean => this.#areDropped([slot]);
      encoder = await this.#logitsProgram.run(encoder, { rows: [run.count], chunks: 1 }, { isOver });
      device.gpu.queue.submit([encoder.finish()]);
      if (world.rank !== world.topology.root) return undefined;
      const stored = new Float32Array(await device.read(this.#logitsRows!, 0, run.count * logitsStride * 4));
      const rows = new Float32Array(run.count * vocabSize);
      for (let row = 0; row < run.count; row++) {
        rows.set(stored.subarray(row * logitsStride, row * logitsStride + vocabSize), row * vocabSize);
      }
      return rows;
    });
  }

  states({ start, count }: LogitsRun): Promise<Float32Array | undefined> {
    return this.#readRows(() => {
      const { role, rows: ran, x } = this.#ran!;
      return ranHere(this.world, role, groupOf(this.world, role, ran, start))
        ? { x, first: ran.rowOf(start), count }
        : undefined;
    });
  }

  slotStates(slot: number, rows?: number): Promise<Float32Array | undefined> {
    const home = this.#batchOf(slot);
    const isHere = home !== undefined && runsRows(this.world.topology.stages.at(-1));
    const of = (): { x: Buffer; first: number; count: number } =>
      rows === undefined
        ? { x: home!.batch.x, first: home!.row, count: 1 }
        : { x: this.#verifier!.x, first: this.#verified.get(slot) ?? 0, count: rows };
    return this.#readRows(() => (isHere ? of() : undefined), rows === undefined ? this.#laneOf(slot) : undefined);
  }

  /** Later calls aren't kept waiting. */
  async #readRows(
    of: () => { readonly x: Buffer; readonly first: number; readonly count: number } | undefined,
    lane?: number,
  ): Promise<Float32Array | undefined> {
    const { read } = await this.#inOrder(async () => {
      const found = of();
      const bytes = this.#forward.hiddenStride * 4;
      const read = found && this.device.read(found.x, found.first * bytes, found.count * bytes);
      read?.catch(() => {}); // awaited below
      return { read };
    }, lane);
    return read && new Float32Array(await read);
  }

  async finalNorm(): Promise<Float32Array | undefined> {
    const { finalNorm } = this.#forward;
    const { hiddenSize } = this.config;
    const read = async (of: Buffer | undefined): Promise<number[]> =>
      of ? [...new Float32Array(await this.device.read(of, 0, hiddenSize * 4))] : [];
    return finalNorm && Float32Array.from([...(await read(finalNorm.weight)), ...(await read(finalNorm.bias))]);
  }

  recompute(
    { slot, tokens, start }: SlotTokens,
    rowsByPlace?: readonly number[],
    slots: readonly number[] = [slot],
  ): Promise<void> {
    return this.#inOrder(async () => {
      const { device } = this;
      this.#again ??= await device.recorded('preparing recomputation', () => {
        const { together } = this.world.all;
        const rows = this.#forward.allocateRows('generated', RECOMPUTED_ROWS, {
          allRows: RECOMPUTED_ROWS * together,
        });
        return { rows, program: this.#recordRecompute(rows) };
      });
      const { rows, program } = this.#again;
      this.#ran = { role: 'generated', rows: new RowBlocks(1, 0, start, start + tokens.length), x: rows.x };
      const longest = Math.max(tokens.length, ...(rowsByPlace ?? []));
      for (let at = 0; at < longest; at += RECOMPUTED_ROWS) {
        const piece = tokens.subarray(at, at + RECOMPUTED_ROWS);
        const rowInfo = new Uint32Array(RECOMPUTED_ROWS * 2).fill(INACTIVE);
        for (let row = 0; row < piece.length; row++) rowInfo.set([start + at + row, slot], row * 2);
        device.write(rows.tokens, 0, piece);
        device.write(rows.rowInfo, 0, rowInfo);
        const inputs = await this.#inputsOf(piece);
        if (inputs) rows.perLayer?.write(0, inputs);
        const end = start + at + piece.length;
        const byPlace = rowsByPlace?.map((rows) => (rows > at ? RECOMPUTED_ROWS : 0));
        const groups = byPlace ?? this.#byPlace(slot, RECOMPUTED_ROWS) ?? [RECOMPUTED_ROWS];
        const step = this.#stepOf(slot, groups, end);
        const isOver = (): boolean => this.#areDropped(slots);
        const encoder = await program.run(device.gpu.createCommandEncoder(), step, { isOver });
        await this.#submits.submit(encoder);
        if (piece.length > 0) this.#lengths[slot] = end;
      }
    });
  }

  /** All rows of its steps may be one place's. */
  #newVerifier(): Batch {
    const own = { rows: VERIFIED_ROWS, allRows: VERIFIED_ROWS, firstSlot: 0, sizes: [2, 4, 8] };
    return new Batch(this.device, this.world, this.#forward, this.config.vocabSize, own);
  }

  prepareVerifying(): Promise<void> {
    if (this.#verifier) return Promise.resolve();
    this.#preparing ??= this.device
      .recorded('preparing verification', () => this.#newVerifier())
      .then((verifier) => void (this.#verifier = verifier));
    return this.#preparing;
  }

  async verify(runs: readonly VerifiedRun[]): Promise<Uint32Array | undefined> {
    const { owners } = this.#tables;
    const read = await this.#inOrder(async () => {
      await this.prepareVerifying();
      const verifier = this.#verifier!;
      const isOwn = ({ slot }: VerifiedRun): boolean => owners.runs(this.world.rank, slot);
      const ownRuns = runs.filter(isOwn);
      this.#verified.clear();
      const tokens: number[] = [];
      for (const run of ownRuns) {
        this.#verified.set(run.slot, tokens.length);
        tokens.push(...run.tokens);
      }
      const inputs = await Promise.all(tokens.map((token) => this.#inputsOf(Uint32Array.of(token))));
      const slotsOf = (of: readonly VerifiedRun[]): number[] =>
        of.flatMap((run) => Array<number>(run.tokens.length).fill(run.slot));
      this.#adapters?.useHead(slotsOf(ownRuns));
      const slots = (this.world.all.places ?? [0]).map((_, place) =>
        slotsOf(runs.filter(({ slot }) => owners.placeOf(slot) === place)),
      );
      const step = {
        rows: slots.map(({ length }) => length),
        chunks: chunksOf(Math.max(...runs.map((run) => run.start + run.tokens.length))),
        slots: slots.flat(),
        offsets: this.#tables.offsetsOf(slots),
      };
      return this.#counts.counted(0, () => verifier.verify(runs, isOwn, inputs, step));
    });
    return read?.();
  }

  resume(slot: number, sampling: StartOptions, seen: Uint32Array, token: number, position: number): Promise<void> {
    return this.#onRow(slot, async (batch, row) =>
      batch.resume(row, sampling, seen, token, position, await this.#inputsOf(Uint32Array.of(token))),
    );
  }

  start(slot: number, sampling: StartOptions, seen: Uint32Array): Promise<void> {
    return this.#onRow(slot, (batch, row) => batch.start(row, sampling, seen, nth(this.#lengths, slot) - 1));
  }

  async step(
    index: number,
    decodes: boolean,
    longest: number,
    rows: number | readonly number[] = this.options.slots,
  ): Promise<Uint32Array | undefined> {
    const batch = nth(this.#batches, index);
    const groups = typeof rows === 'number' ? this.#tables.owners.decodeRows(index, rows) : rows;
    // The ids are read while later calls run.
    const read = await this.#inOrder(async () => {
      this.device.assertAlive();
      // Compressed sequences have fewer entries than positions.
      const { slots } = this.options;
      const evicted = this.#tables.pages?.leastEvicted(index * slots, (index + 1) * slots) ?? 0;
      const ranges = this.#tables.owners.ranges(index);
      const ownSlots = ranges.map(([first], group) =>
        range(0, nth(groups, group)).map((row) => index * slots + first + row),
      );
      const step = {
        rows: groups,
        chunks: chunksOf(Math.max(1, longest - evicted)),
        channel: index,
        slots: ownSlots.flat(),
        offsets: this.#tables.offsetsOf(ownSlots),
      };
      return this.#counts.counted(index, () => batch.step(decodes, step, this.#attention), decodes);
    }, index);
    return read?.();
  }

  pause(slot: number): Promise<void> {
    return this.#onRow(slot, (batch, row) => batch.pause(row), this.#laneOf(slot));
  }

  goOn(slot: number, token: number, position: number, allowed: AllowedTokens | undefined): Promise<void> {
    const body = async (batch: Batch, row: number): Promise<void> =>
      batch.goOn(row, token, position, allowed, await this.#inputsOf(Uint32Array.of(token)));
    return this.#onRow(slot, body, this.#laneOf(slot));
  }

  setAdapter(place: number, pairs?: readonly LowRankPair[]): Promise<number> {
    // Alone: no program is under way. What fails fails here alone.
    return this.#queue.alone(async () => {
      const { slots, batches = 1 } = this.options;
      const { RankAdapters } = await import('./rank_adapters.js');
      // What is made meanwhile would lack the adapter.
      await this.#preparing?.catch(() => {});
      this.#adapters ??= new RankAdapters(this.#forward, slots * batches, this.#room, () => this.#recordAgain());
      return this.#adapters.set(place, pairs);
    });
  }

  useAdapter(slot: number, place: number): Promise<void> {
    // Only its own batch reads a slot's.
    return this.#inOrder(async () => this.#adapters?.use(slot, place), this.#laneOf(slot));
  }

  placePictures(slot: number, pictures: readonly PictureSpan[]): Promise<void> {
    // Only its own batch reads a slot's.
    return this.#inOrder(async () => {
      this.#pictured.add(slot);
      this.#forward.ropes.place(slot, pictures);
    }, this.#laneOf(slot));
  }

  release(slot: number): Promise<void> {
    return this.#inOrder(async () => this.#release(slot));
  }

  drop(slot: number): Promise<void> {
    this.#dropped.add(slot);
    return Promise.resolve();
  }

  #areDropped(slots: readonly number[]): boolean {
    return slots.every((slot) => this.#dropped.has(slot));
  }

  #release(slot: number): void {
    this.#dropped.delete(slot);
    this.#tables.release(slot);
    this.#lengths[slot] = 0;
    this.#adapters?.use(slot, undefined);
    if (this.device.isLost) return;
    if (this.#pictured.delete(slot)) this.#forward.ropes.place(slot, []);
    const home = this.#batchOf(slot);
    home?.batch.stop(home.row);
  }

  async slotLogits(slot: number, row?: number): Promise<Float32Array | undefined> {
    const home = this.#batchOf(slot);
    await this.#queue.idle();
    if (row !== undefined) return this.#verifier?.logitsOf(row);
    return home?.batch.logitsOf(home.row);
  }

  async counts(): Promise<RankCounts> {
    const none = { exchanges: 0, messages: 0, bytesSent: 0, bytesReceived: 0, moveMs: 0, waitMs: 0 };
    const { steps, ms } = (await this.#attention?.total()) ?? { steps: 0, ms: 0 };
    return {
      ...(this.world.communicator?.stats ?? none),
      ...this.#counts.total,
      timedSteps: steps,
      attentionMs: ms,
    };
  }

  async timeAttention(steps: number): Promise<boolean> {
    if (!this.device.gpu.features.has('timestamp-query')) return false;
    const { AttentionTimes } = await import('./attention_times.js');
    this.#attention ??= new AttentionTimes(this.device);
    this.#attention.ask(steps);
    return true;
  }

  abort(reason: unknown): void {
    this.world.communicator?.abort(reason);
  }

  async reset(): Promise<void> {
    await this.#queue.idle();
    for (const slot of this.#lengths.keys()) this.#release(slot);
    this.#attention?.reset();
    if (this.device.isLost) return;
    for (const batch of this.#batches) batch.reset();
    this.#verifier?.reset();
  }

  dispose(): void {
    this.world.communicator?.dispose();
    this.device.dispose();
  }
}

/** The row group of a position that was run. */
const groupOf = ({ all, topology }: World, role: RowRole, ran: RowBlocks, position: number): number =>
  all.places ? (topology.runs[role][0] ?? 0) : ran.blockOf(position);

/** Whether this rank ran the rows of a group in the last stage, and so has their final rows. */
const ranHere = ({ topology }: World, role: RowRole, group: number): boolean =>
  runsRows(topology.stages.at(-1)) && topology.runs[role].includes(group);
