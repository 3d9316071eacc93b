import type { Device } from '../../gpu/index.js';
import { type Owners, scoreRoutes, type StageTopology } from '../../placement/index.js';
import type { CacheOptions } from '../forward/forward.js';
import { attentionOf, type ModelConfig } from '../config/model_config.js';
import type { Scratch } from '../layers/scratch.js';
import type { RankRecorder, RankStep, World } from '../layers/world.js';
import { type LayerTensors, PromptCompression } from './prompt_compression.js';
import { scoreRegions } from './share_scores.js';

/** The compression of a stage's layers on a rank, and the exchange of scores where ranks split the heads. */
export class StageCompression {
  /** Of the model. */
  readonly layers: readonly number[];
  readonly kvHeads: readonly number[];
  readonly #compression: PromptCompression;
  readonly #owners: Owners | undefined;

  /** `heads`: query heads of this rank's weights, or of its root's. Stages of a rank work in the same `scratch`. */
  constructor(
    device: Device,
    readonly world: World,
    config: ModelConfig,
    cache: CacheOptions,
    readonly topology: StageTopology,
    heads: number,
    scratch: Scratch,
  ) {
    const { stage, share, holder } = topology;
    const [first, end] = stage.layers;
    const { kvHeads, headDim } = attentionOf(config, 'gqa');
    this.#owners = cache.perHead!.owners;
    const modelHeads = holder.heads;
    this.layers = Array.from({ length: end - first }, (_, at) => first + at);
    this.kvHeads = share.kvHeads;
    this.#compression = new PromptCompression(device, cache.perHead!.compression!, {
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

  /** Adds the compression of the `at`-th layer, after its attention. */
  record(recorder: RankRecorder, at: number, tensors: LayerTensors): void {
    this.#compression.record(recorder, at, tensors, (to, scores) =>
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
