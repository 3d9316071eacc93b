import { type Owners, scoreRoutes, type StageTopology } from '../../placement/index.js';
import type { GqaConfig } from '../config/model_config.js';
import type { StageContext } from '../layers/layer.js';
import type { RankRecorder, RankStep, World } from '../layers/world.js';
import { type LayerTensors, PromptCompression } from './prompt_compression.js';
import { scoreRegions } from './share_scores.js';

/** The compression of a stage's layers on a rank, and the exchange of scores where ranks split the heads. */
export class StageCompression {
  readonly world: World;
  readonly topology: StageTopology;
  /** Of the model. */
  readonly layers: readonly number[];
  readonly kvHeads: readonly number[];
  readonly #compression: PromptCompression;
  readonly #owners: Owners | undefined;

  /** `heads`: query heads of this rank's weights, or of its root's. */
  constructor(
    { device, world, config, cache, topology, scratch }: StageContext,
    { kvHeads, headDim }: GqaConfig,
    layers: readonly number[],
    heads: number,
  ) {
    const { share, holder } = topology;
    this.world = world;
    this.topology = topology;
    this.#owners = cache.copyOwners;
    const modelHeads = holder.heads;
    this.layers = layers;
    this.kvHeads = share.kvHeads;
    this.#compression = new PromptCompression(device, cache.compression!.options, {
      numLayers: config.layers.length,
      numKvHeads: kvHeads,
      layers: this.layers,
      heads,
      modelHeads,
      cacheKvHeads: share.kvHeads.length,
      firstKvHead: share.kvHeads.indexOf(modelHeads[0]!),
      headDim,
      kvType: cache.type,
      block: cache.block,
      tableStride: cache.tableStride,
      contextLength: cache.contextLength,
      scratch,
    });
  }

  /** Adds the compression of a layer of the model, after its attention. */
  record(recorder: RankRecorder, layer: number, tensors: LayerTensors): void {
    this.#compression.record(recorder, this.layers.indexOf(layer), tensors, (to, scores) =>
      this.world.exchangeRoutes(
        to,
        'scores',
        scoreRoutes(this.world.all, this.topology.index),
        scoreRegions(scores, (head, from, step) => this.#scores(head, from, step)),
      ),
    );
  }

  /** Whether a rank scores a head of the step's prompt: of a copied one, the rank that keeps the sequence. */
  #scores(head: number, rank: number, { slots }: RankStep): boolean {
    return this.#owners === undefined || this.#owners.home(this.topology.index, head, slots?.first ?? 0) === rank;
  }

  /** Before the step that ends a prompt: see `PromptCompression.prepare`. */
  prepare(prompt: { readonly slot: number; readonly length: number; readonly firstRow: number }): void {
    this.#compression.prepare(prompt);
  }

  /** Entries that the heads kept of the last prompt: [layer][kv head of this rank]. */
  keptLengths(): Promise<number[][]> {
    return this.#compression.keptLengths();
  }
}
