/**
 * Room: a model's forward program on one rank: recorded once, replayed each step. device_model.ts loads it and says where the kinds of
 * layers come from (../layers/).
 */

import { internalError, known } from '../../base/errors.js';
import { nth, range, sum } from '../../base/lists.js';
import type { Buffer, Device } from '../../gpu/index.js';
import type { PromptCompression } from '../compression/prompt_compression.js';
import {
  cacheLayer,
  type LayerConfig,
  likeness,
  type ModelConfig,
  perLayerWidth,
  takesRows,
} from '../config/model_config.js';
import type { CacheOptions, LayerCache, LayerState } from '../layers/attention/cache.js';
import { RopeTables } from '../layers/attention/rope_table.js';
import type {
  AlikeLayers,
  AttentionLayers,
  AttentionProgram,
  Half,
  Kinds,
  LayerKinds,
  MlpLayers,
  MlpProgram,
  StageContext,
} from '../layers/layer.js';
import { VocabParallelEmbedding } from '../layers/linear/vocab.js';
import { fusesAdded, fusesLoneNorm } from '../layers/fusion.js';
import { fitRows, recordLinear } from '../layers/linear/linear.js';
import { GivenRows } from '../layers/given_rows.js';
import { Inputs } from '../layers/inputs.js';
import { PerLayerInputs } from '../layers/per_layer.js';
import { Residual } from '../layers/residual.js';
import { activationStride, type Role } from '../layers/roles.js';
import {
  attendedRowInfo,
  normedOf,
  ownRowInfo,
  recordAttendedRows,
  recordStageRows,
  type RowBuffers,
  Scratch,
  type StageRows,
} from '../layers/rows.js';
import { type Norm, recordNorm } from '../layers/norm.js';
import type { RankRecorder, World } from '../layers/world.js';
import type { AttentionWeights, MlpWeights } from '../layers/weight_kinds.js';
import type { Adapters } from '../adapters/loaded_adapters.js';
import type { LayerWeights, ModelWeights } from '../weights/weight_loader.js';

interface DecoderLayer {
  /** In the model. */
  readonly index: number;
  /** Which of the stage's `attentions`. */
  readonly attention: number;
  /** Its own, or the one that it shares. */
  readonly cache: LayerCache;
  /** Which of its `mlps`, with the layer's weights; undefined on a rank that keeps cache only. */
  readonly held: { readonly mlp: number; readonly weights: LayerWeights } | undefined;
}

interface DecoderStage {
  readonly context: StageContext;
  readonly layers: readonly DecoderLayer[];
  readonly attentions: readonly AttentionLayers[];
  readonly mlps: readonly MlpLayers[];
}

/** What a stage's layers work in, of some rows. */
interface StagePrograms {
  readonly rows: StageRows;
  /** Of each of its `attentions`, and of its `mlps`. */
  readonly attention: readonly AttentionProgram[];
  readonly mlp: readonly MlpProgram[];
}

/** Rows of the head. */
export type HeadRows = Pick<RowBuffers, 'rows' | 'x' | 'normed'>;

interface RowOptions {
  /** The most that all ranks together may have in a step, where every rank runs rows of its own; otherwise as `rows`. */
  readonly allRows?: number;
  /** No two rows of a step are of the same slot. Default: of one row. */
  readonly distinct?: boolean;
  /** More rows, whose tokens and residual stream these are the first ones of. */
  readonly like?: DecoderRows;
}

/** Of `Decoder.allocateRows`. */
export interface DecoderRows extends RowBuffers {
  readonly embedding: VocabParallelEmbedding;
  readonly inputs: Inputs;
  readonly perLayer: PerLayerInputs | undefined;
  /** Of prompt rows of a model that takes pictures or sound. */
  readonly given: GivenRows | undefined;
  /** By stage of the plan. */
  readonly stages: ReadonlyMap<number, StagePrograms>;
}

export interface RecordOptions {
  /** Of prompt rows that end a prompt: each layer is compressed after its attention. */
  readonly compresses?: boolean;
  /** What gives x at first, where rows aren't tokens. */
  readonly embed?: () => void;
  /** Behind a layer, with x at home. */
  readonly behind?: (layer: number) => void;
}

/** Block b begins at b * blockBytes. */
export interface CacheBuffer {
  /** Of the model. */
  readonly layer: number;
  readonly buffer: Buffer;
  readonly blockBytes: number;
  /** Blocks are those of layers with windows, which have numbers of their own. */
  readonly isWindowed: boolean;
}

/**
 * The forward program of every model on one rank: embedding; of each layer x += attention(norm(x)), x += mlp(norm(x)); head. What a
 * layer is, its config says (`LayerKinds`); what ranks do for each other, the layers know. Layers that are alike share buffers.
 */
export class Decoder {
  readonly hiddenStride: number;
  readonly logitsStride: number;
  readonly ropes: RopeTables;
  /** Of the paged cache, and of all states. */
  readonly cacheBytes: number;
  /** Of the states alone, kept ones included. */
  readonly stateBytes: number;
  readonly states: readonly LayerState[];
  readonly cacheBytesPerToken: number;
  /** Every cache buffer, in the order of layers. */
  readonly cacheBuffers: readonly CacheBuffer[];
  /** Of a per-head cache: what compresses the prompts of each of the rank's stages. */
  readonly compressions: readonly PromptCompression[];
  /** Rows of the output head that this rank holds. */
  readonly headRows: number;
  /** Weights of the norm before the head; undefined where no rows of it are. */
  readonly finalNorm: Norm | undefined;
  /** What programs that are recorded add to matrices. */
  adapters: Adapters | undefined;
  readonly #stages: readonly DecoderStage[];

  /** Allocates the caches and rope tables. @throws SplitkvError `limit` when a layer's cache exceeds one binding. */
  constructor(
    readonly device: Device,
    readonly config: ModelConfig,
    readonly weights: ModelWeights,
    readonly options: CacheOptions,
    readonly world: World,
    readonly kinds: LayerKinds,
  ) {
    this.hiddenStride = activationStride(config.hiddenSize);
    this.logitsStride = activationStride(config.vocabSize);
    this.headRows = weights.head?.matrix.outFeatures ?? 0;
    this.finalNorm = weights.norm;
    const scratch = new Scratch(device);
    this.ropes = new RopeTables(device, options.contextLength, options.runEnds);
    const { hiddenStride, ropes } = this;
    const common = { device, world, config, cache: options, hiddenStride, ropes, scratch };
    this.#stages = world.topology.stages.flatMap((topology) =>
      topology ? [this.#stage({ ...common, topology })] : [],
    );
    const caches = this.#caches;
    this.states = caches.flatMap(({ states = [] }) => states);
    this.stateBytes = sum(this.states.map(({ buffer, kept }) => buffer.size + (kept?.size ?? 0)));
    this.cacheBytes = this.stateBytes + sum(caches.map(({ buffers, bytes }) => buffers.length * bytes));
    this.cacheBytesPerToken = sum(caches.map(({ bytesPerToken }) => bytesPerToken));
    this.cacheBuffers = caches.flatMap(({ layer, buffers, bytes, isWindowed = false }) => {
      const { numBlocks } = (isWindowed && options.windowed) || options;
      return buffers.map((buffer) => ({ layer, buffer, blockBytes: bytes / numBlocks, isWindowed }));
    });
    this.compressions = this.#stages.flatMap(({ attentions }) =>
      attentions.flatMap(({ compression }) => compression ?? []),
    );
  }

  #stage(context: StageContext): DecoderStage {
    const indices = range(...context.topology.stage.layers);
    const weights = new Map(this.weights.layers.map((layer) => [layer.index, layer]));
    const held = indices.filter((index) => weights.has(index));
    const attentions = this.#alike(context, indices, 'attention', (of) => make(this.kinds.attention, of));
    const mlps = this.#alike(context, held, 'mlp', (of) => make(this.kinds.mlp, of));
    const caches = new Map(attentions.flatMap(({ made }) => made.caches.map((cache) => [cache.layer, cache])));
    const layers = attentions.flatMap(({ layers: alike }, attention) =>
      alike.map((index): DecoderLayer => {
        const own = weights.get(index);
        const mlp = mlps.findIndex((of) => of.layers.includes(index));
        const cache = known(caches.get(cacheLayer(this.config, index)), `cache for layer ${index}`);
        return { index, attention, cache, held: own && { mlp, weights: own } };
      }),
    );
    return {
      context,
      layers: layers.toSorted((a, b) => a.index - b.index),
      attentions: attentions.map(({ made }) => made),
      mlps: mlps.map(({ made }) => made),
    };
  }

  /** What serves a stage's layers, made once for those that are alike. */
  #alike<Part extends 'attention' | 'mlp', Made>(
    stage: StageContext,
    indices: readonly number[],
    part: Part,
    make: (of: AlikeLayers<LayerConfig[Part], LayerWeights[Part]['weights']>) => Made,
  ): { readonly made: Made; readonly layers: readonly number[] }[] {
    const keys = this.config.layers.map((layer) => likeness(layer[part], this.options.contextLength));
    return [...new Set(keys)].flatMap((key, kind) => {
      const layers = indices.filter((index) => keys[index] === key);
      const [first] = layers;
      if (first === undefined) return [];
      const weights = this.weights.layers
        .filter(({ index }) => layers.includes(index))
        .map((layer) => layer[part].weights);
      const config = nth(this.config.layers, first)[part];
      return [{ made: make({ stage, config, layers, weights, suffix: kind === 0 ? '' : ` ${kind}` }), layers }];
    });
  }

  get #caches(): readonly LayerCache[] {
    return this.#stages.flatMap(({ layers }) =>
      layers.flatMap(({ index, cache }) => (cache.layer === index ? cache : [])),
    );
  }

  /** The cache of a layer of the model that has one and that this rank holds some of. */
  layerCache(layer: number): LayerCache {
    return known(
      this.#caches.find((cache) => cache.layer === layer),
      `cache of layer ${layer} on this rank`,
    );
  }

  /** At most `wanted` prompt rows a step: as many as the activations' bindings hold. */
  promptRows(wanted: number): number {
    const parts = this.#stages.flatMap(({ attentions, mlps }) => [...attentions, ...mlps]);
    const inputs = this.config.layers.length * (perLayerWidth(this.config) ?? 0);
    const widest = Math.max(this.hiddenStride, inputs, ...parts.map(({ widestRow }) => widestRow));
    return fitRows(this.device, wanted, widest * 4);
  }

  /** Buffers of `rows` rows of a step. */
  allocateRows(
    role: Role,
    rows: number,
    { allRows = rows, distinct = rows === 1, like }: RowOptions = {},
  ): DecoderRows {
    const { config, device, world, hiddenStride } = this;
    const floats = (name: string, count: number): Buffer => device.createBuffer(`${role} ${name}`, count * 4);
    const blocks = world.all.rowPieces[role];
    const fuses =
      fusesLoneNorm(device, config.norm, role, rows, config.hiddenSize) &&
      !config.layers.some(({ norms }) => norms === 'shared') &&
      !this.#stages.some(({ mlps }) => mlps.some(({ sharesNormed }) => sharesNormed));
    const x = like?.x ?? floats('x', rows * hiddenStride);
    const folds = fusesAdded(device, config, role, rows);
    const shape = { rows, width: config.hiddenSize, stride: hiddenStride };
    const rowInfo = like?.rowInfo ?? floats('row_info', blocks * rows * 2);
    const scratch = new Scratch(device);
    const buffers: RowBuffers = {
      role,
      rows,
      distinct,
      tokens: like?.tokens ?? floats('tokens', blocks * rows),
      rowInfo,
      adapters: { loaded: () => this.adapters, rowInfo: ownRowInfo(world, { role, rowInfo, rows }), scratch },
      x,
      residual: new Residual(x, folds ? floats('x, other', rows * hiddenStride) : undefined, shape),
      normed: fuses ? undefined : floats('normed', rows * hiddenStride),
    };
    const heads = ({ attentions }: DecoderStage): number => Math.max(...attentions.map((attention) => attention.heads));
    const stages = this.#stages
      .toSorted((a, b) => heads(b) - heads(a))
      .map(({ context: { topology }, attentions, mlps }): [number, StagePrograms] => {
        const attendedInfo = attendedRowInfo(topology, buffers, scratch);
        const stageRows = { ...buffers, allRows, attendedInfo, scratch };
        return [
          topology.index,
          {
            rows: stageRows,
            attention: attentions.map((of) => of.program(stageRows)),
            mlp: mlps.map((of) => of.program(stageRows)),
          },
        ];
      });
    const { perLayer, embedding } = this.weights;
    const inputs = new Inputs(device, world, config, this.weights.inputs, buffers, hiddenStride);
    const embedded = { ...buffers, x: inputs.x };
    return {
      ...buffers,
      perLayer: perLayer && new PerLayerInputs(device, config, perLayer, buffers, hiddenStride, like?.perLayer),
      inputs,
      given:
        takesRows(config) && role === 'prompt'
          ? new GivenRows(device, world, config, buffers, hiddenStride)
          : undefined,
      embedding: new VocabParallelEmbedding(device, world, config, embedding, embedded, hiddenStride),
      stages: new Map(stages),
    };
  }

  /**
   * This rank's part of embedding and layers, with the exchanges between, for rows that `allocateRows` of this program made.
   */
  recordLayers(
    recorder: RankRecorder,
    buffers: DecoderRows,
    {
      compresses = false,
      embed = () => buffers.embedding.record(recorder, this.config.embeddingScale),
      behind = (layer) => buffers.given?.recordBehind(recorder, layer),
    }: RecordOptions = {},
  ): void {
    const { given, inputs, perLayer } = buffers;
    embed();
    given?.record(recorder);
    inputs.record(recorder);
    perLayer?.record(recorder);
    for (const index of this.world.plan.stages.keys()) {
      recordStageRows(recorder, this.world, index, buffers, this.hiddenStride);
      const stage = this.#stages.find(({ context }) => context.topology.index === index);
      const programs = buffers.stages.get(index);
      if (!stage || !programs) continue;
      const { rows, attention, mlp } = programs;
      recordAttendedRows(recorder, stage.context.topology, rows);
      for (const { index: layer, cache, attention: attends, held } of stage.layers) {
        const halves = held && this.#halves(recorder, layer, held.weights, rows);
        nth(attention, attends).record(recorder, cache, halves?.attention, compresses);
        if (halves) nth(mlp, held.mlp).record(recorder, halves.mlp);
        if (held?.weights.perLayer) perLayer?.recordHalf(recorder, layer, held.weights.perLayer, rows);
        if (held) behind(layer);
      }
      rows.residual.settle(recorder);
    }
  }

  /** A layer's halves: one after the other, each of x; or side by side, of what their norm makes of it now. */
  #halves(
    recorder: RankRecorder,
    index: number,
    { attention, mlp }: LayerWeights,
    buffers: StageRows,
  ): { readonly attention: Half<AttentionWeights>; readonly mlp: Half<MlpWeights> } {
    const { rows, x } = buffers;
    const shared = nth(this.config.layers, index).norms === 'shared' ? attention.before : undefined;
    if (!shared) return { attention, mlp };
    const width = this.config.hiddenSize;
    const input = normedOf(buffers);
    recordNorm(recorder, shared, { rows, width, stride: this.hiddenStride }, x, input);
    return { attention: { ...attention, before: undefined, input }, mlp: { ...mlp, input } };
  }

  /**
   * Final norm and this rank's rows of the output head for `rows` rows of `x`; logits are f32 [rows][logitsStride], each at its
   * token's place. Rows whose logits are wanted run the generated rows' kernels, whatever their role was before. Nothing where
   * the rank holds no rows of the head. `firstSlot`: of the first row, the others' are the next ones; undefined: their slots
   * are told before the program runs (`RankAdapters.useHead`).
   */
  recordHead(
    recorder: RankRecorder,
    { x, normed, rows }: HeadRows,
    logits: Buffer,
    firstSlot: number | undefined,
  ): void {
    const { head, norm } = this.weights;
    if (!head) return;
    const adapters = this.adapters?.ofHead?.(rows, firstSlot);
    recordLinear(recorder, { role: 'generated', rows, normed, adapters }, head.matrix, {
      x,
      xStride: this.hiddenStride,
      norm,
      out: logits,
      outStride: this.logitsStride,
      outOffset: head.firstRow,
      outScale: this.config.logitScale,
      outCap: this.config.logitCap,
    });
  }
}

/** Layers of the kind that their config says. */
function make<Kind extends string, Made>(
  kinds: Kinds<Kind, Made>,
  layers: AlikeLayers<{ readonly kind: Kind }, unknown>,
): Made {
  const { kind } = layers.config;
  const Layers = kinds[kind];
  if (!Layers) throw internalError(`no program for ${kind} layers`);
  return new Layers(layers as AlikeLayers<never, never>);
}
