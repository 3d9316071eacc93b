import { adaBudgets } from '../../../shaders/compress/ada_budgets/index.js';
import { CHUNK_TOKENS } from '../../../shaders/cache/kv_cache.js';
import { COMPRESS_INFO_WORDS, compressInfo } from '../../../shaders/compress/compress_info.js';
import { kvCompact } from '../../../shaders/compress/kv_compact/index.js';
import { snapPool } from '../../../shaders/compress/snap_pool/index.js';
import { snapScores } from '../../../shaders/compress/snap_scores/index.js';
import { snapSelect } from '../../../shaders/compress/snap_select/index.js';
import { internalError, known } from '../../base/errors.js';
import { nth } from '../../base/lists.js';
import { alignUp } from '../../base/math.js';
import type { Buffer, Device, RowsOf, Tensor } from '../../gpu/index.js';
import { scoreRoutes } from '../../placement/index.js';
import type { GqaConfig } from '../config/model_config.js';
import type { KvType } from '../layers/attention/cache.js';
import type { StageContext } from '../layers/layer.js';
import type { Scratch } from '../layers/rows.js';
import type { RankRecorder, RankStep, RegionsOf } from '../layers/world.js';
import { runsOf } from '../shape.js';
import { baseEntries, givenBudgets } from './budgets.js';
import type { CompressedModel, CompressionOptions } from './options.js';

/** Of a rank's cache and heads. */
export interface CompressionShape extends CompressedModel {
  /** Of the model, those that this rank holds, in order. */
  readonly layers: readonly number[];
  /** Query heads of this rank's weights. */
  readonly heads: number;
  /** kv heads of this rank's weights by the model's numbers, ascending. */
  readonly modelHeads: readonly number[];
  /** kv heads of this rank's cache, and where those of its weights begin among them, side by side. */
  readonly cacheKvHeads: number;
  readonly firstKvHead: number;
  readonly headDim: number;
  readonly kvType: KvType;
  readonly block: number;
  /** Words of a head's block table. */
  readonly tableStride: number;
  /** Tokens that a sequence may have. */
  readonly contextLength: number;
  /** Where compressions that never run at the same time may work together; otherwise each has buffers of its own. */
  readonly scratch?: Scratch;
}

/** What a layer's compression reads after attention of the rows that end a prompt. */
export interface LayerTensors {
  /** f32 [rows][qStride], rotated. */
  readonly q: Tensor;
  readonly qStride: number;
  /** (m, l) [rows][heads][lanes] that attention_prefill left of the same rows. */
  readonly partialMl: Tensor;
  readonly lanes: number;
  readonly k: Tensor | undefined;
  readonly v: Tensor | undefined;
  /** u32 [slots][cacheKvHeads][tableStride], of the layer. */
  readonly blockTable: Tensor;
  /** Rows of a step; one without rows compresses nothing. */
  readonly rowsOf?: RowsOf | undefined;
}

/** Scores that the ranks of a layer share, f32 [model's kv heads][stride]: each has written its own heads' rows. */
export interface SharedScores {
  readonly buffer: Buffer;
  readonly stride: number;
  /** By the model's numbers. */
  readonly heads: readonly number[];
}

/** Heads of this rank that are neighbours in the model, too: `count` from the rank's `first` and the model's `head`. */
interface HeadRun {
  readonly first: number;
  readonly head: number;
  readonly count: number;
}

/** Rows of a small table, each a binding of its own. */
const rowBytes = (words: number): number => alignUp(words * 4, 256);

/**
 * The compression of a rank's prompts, one at a time: layer by layer, right after attention of the step that ends a prompt, so that
 * layers share their scratch. A layer's entries are scored, chosen and moved to the front of each head's blocks; `keptLengths`
 * then says how many are left, and blocks behind them are free.
 *
 *   scores (mean attention of the window) -> pool -> ['ada': budgets of the layer's heads] -> choice -> compaction
 *
 * The step that ends a prompt must hold the whole window.
 */
export class PromptCompression {
  readonly #info: Buffer;
  readonly #scores: Buffer;
  readonly #pooled: Buffer;
  readonly #kept: Buffer;
  /** A row per layer: entries beside the window, by the model's heads. */
  readonly #caps: Buffer;
  /** A row per run of heads: entries that they keep of the layer that was compressed last. */
  readonly #lengths: Buffer;
  readonly #stride: number;
  readonly #runs: readonly HeadRun[];

  /**
   * @param shareScores lets every rank of the layer have all heads' scores: 'ada' needs it where ranks split the heads
   */
  constructor(
    readonly device: Device,
    readonly options: CompressionOptions,
    readonly shape: CompressionShape,
    readonly shareScores?: (recorder: RankRecorder, scores: SharedScores) => void,
  ) {
    const { numKvHeads, modelHeads, layers, contextLength, scratch = device } = shape;
    // Whole cache lines, and each head's row may be bound by itself.
    this.#stride = alignUp(contextLength, 64);
    this.#runs = runsOf(modelHeads).map(([head, end]) => ({
      first: modelHeads.indexOf(head),
      head,
      count: end - head,
    }));
    const words = (maker: Pick<Device, 'createBuffer'>, name: string, count: number): Buffer =>
      maker.createBuffer(`kv compression ${name}`, count * 4);
    this.#info = words(device, 'info', COMPRESS_INFO_WORDS);
    this.#scores = words(scratch, 'scores', numKvHeads * this.#stride);
    this.#pooled = words(scratch, 'pooled scores', numKvHeads * this.#stride);
    this.#kept = words(scratch, 'kept entries', numKvHeads * this.#stride);
    this.#caps = words(device, 'budgets', (layers.length * rowBytes(numKvHeads)) / 4);
    this.#lengths = words(scratch, 'kept lengths', (this.#runs.length * rowBytes(numKvHeads)) / 4);
  }

  /**
   * Of a stage's layers on a rank, with the exchange of scores where ranks split the heads.
   * @param heads query heads of this rank's weights, or of its root's
   */
  static ofStage(
    { device, world, config, cache, topology: { index, share, holder }, scratch }: StageContext,
    { kvHeads, headDim }: GqaConfig,
    layers: readonly number[],
    heads: number,
  ): PromptCompression {
    const { type: kvType, block, tableStride, contextLength, copyOwners } = cache;
    const { options } = known(cache.compression, 'compression');
    const shape = {
      numLayers: config.layers.length,
      numKvHeads: kvHeads,
      layers,
      heads,
      modelHeads: holder.heads,
      cacheKvHeads: share.kvHeads.length,
      firstKvHead: share.kvHeads.indexOf(nth(holder.heads, 0)),
      headDim,
      kvType,
      block,
      tableStride,
      contextLength,
      scratch,
    };
    /** Of a copied head the rank scores that keeps the sequence. */
    const isScorer = (head: number, rank: number, { slots }: RankStep): boolean =>
      !copyOwners || copyOwners.home(index, head, slots?.[0] ?? 0) === rank;
    return new PromptCompression(device, options, shape, (recorder, scores) =>
      world.exchangeRoutes(recorder, 'scores', scoreRoutes(world.all, index), scoreRegions(scores, isScorer)),
    );
  }

  /** Adds the compression of a layer of the model, after its attention. */
  record(recorder: RankRecorder, layer: number, tensors: LayerTensors): void {
    const { options, shape, shareScores } = this;
    const { numKvHeads, modelHeads } = shape;
    const at = shape.layers.indexOf(layer);
    const { rowsOf } = tensors;
    const kvHeads = modelHeads.length;
    const selection = { scoreStride: this.#stride, window: options.window };
    const cache = { ...shape, ...selection, kvHeads, perHead: true };
    const info = this.#info;
    recorder.dispatch(
      snapScores,
      { ...cache, qStride: tensors.qStride, lanes: tensors.lanes, scale: shape.headDim ** -0.5 },
      {
        q: tensors.q,
        k_cache: tensors.k,
        partial_ml: tensors.partialMl,
        compress_info: info,
        block_table: tensors.blockTable,
        scores: this.#scores,
      },
      rowsOf,
    );
    for (const { first, head, count } of this.#runs) {
      recorder.dispatch(
        snapPool,
        { ...selection, heads: count, width: options.poolWidth },
        {
          scores: this.#headRows(this.#scores, first, count),
          compress_info: info,
          pooled: this.#headRows(this.#pooled, head, count),
        },
        rowsOf,
      );
    }
    const caps = { buffer: this.#caps, offset: at * rowBytes(numKvHeads), size: rowBytes(numKvHeads) };
    if (options.policy === 'ada') {
      if (numKvHeads > kvHeads && !shareScores) {
        throw internalError(`'ada' on ${kvHeads} of ${numKvHeads} kv heads needs the other ranks' scores`);
      }
      shareScores?.(recorder, { buffer: this.#pooled, stride: this.#stride, heads: modelHeads });
      const problem = { ...selection, heads: numKvHeads, floor: options.floor };
      recorder.dispatch(adaBudgets, problem, { pooled: this.#pooled, compress_info: info, caps }, rowsOf);
    }
    for (const [run, { first, head, count }] of this.#runs.entries()) {
      const kept = { kept: this.#headRows(this.#kept, first, count), kept_lengths: this.#lengthsOf(run) };
      recorder.dispatch(
        snapSelect,
        { ...selection, kvHeads: count, firstScoreHead: head },
        { ...kept, compress_info: info, pooled: this.#pooled, caps },
        rowsOf,
      );
      recorder.dispatch(
        kvCompact,
        { ...cache, kvHeads: count, firstKvHead: shape.firstKvHead + first },
        { ...kept, compress_info: info, block_table: tensors.blockTable, k_cache: tensors.k, v_cache: tensors.v },
        rowsOf,
      );
    }
  }

  #headRows(buffer: Buffer, first: number, count: number): Tensor {
    const row = this.#stride * 4;
    return { buffer, offset: first * row, size: count * row };
  }

  #lengthsOf(run: number): Tensor {
    const size = rowBytes(this.shape.numKvHeads);
    return { buffer: this.#lengths, offset: run * size, size };
  }

  /**
   * Before the step that ends a prompt: whose it is, and where its window lies in the step's rows.
   * @throws SplitkvError `internal` when there is nothing to evict, or the prompt is no longer than the window.
   */
  prepare(prompt: { readonly slot: number; readonly length: number; readonly firstRow: number }): void {
    const { device, options, shape } = this;
    const { numKvHeads, layers } = shape;
    const { length } = prompt;
    if (length <= options.window) {
      throw internalError(`a prompt of ${length} tokens has a window of ${options.window}`);
    }
    device.write(this.#info, 0, compressInfo({ ...prompt, base: baseEntries(options, length) }));
    if (options.policy === 'ada') return;
    const budgets = givenBudgets(options, shape, length);
    const row = rowBytes(numKvHeads) / 4;
    const caps = new Uint32Array(layers.length * row);
    for (const [at, layer] of layers.entries()) caps.set(nth(budgets, layer), at * row);
    device.write(this.#caps, 0, caps);
  }

  /** Entries that each of the model's heads kept of the prompt that was compressed last, of `length` tokens: [layer][kv head]. */
  async keptLengths(length: number): Promise<number[][]> {
    const { numKvHeads, layers } = this.shape;
    const { window } = this.options;
    const words = new Uint32Array(await this.device.read(this.#caps));
    const row = rowBytes(numKvHeads) / 4;
    return layers.map((_, at) =>
      Array.from(words.subarray(at * row, at * row + numKvHeads), (cap) => Math.min(cap + window, length)),
    );
  }

  dispose(): void {
    for (const buffer of [this.#info, this.#scores, this.#pooled, this.#kept, this.#caps, this.#lengths]) {
      buffer.dispose();
    }
  }
}

/**
 * Where scores of heads lie that are exchanged (`scoreRoutes`): as far as the step's sequence goes.
 * @param scores whether a rank scores a head of the step's prompt
 */
export const scoreRegions =
  (
    { buffer, stride }: Pick<SharedScores, 'buffer' | 'stride'>,
    scores: (head: number, rank: number, step: RankStep) => boolean,
  ): RegionsOf =>
  ({ from, cargo }, _side, step) => {
    if (cargo.kind !== 'scores') return [];
    const size = Math.min(stride, step.chunks * CHUNK_TOKENS) * 4;
    return cargo.heads
      .filter((head) => scores(head, from, step))
      .map((head) => ({ buffer, offset: head * stride * 4, size }));
  };
