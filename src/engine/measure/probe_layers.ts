import { nth, range, sum } from '../../base/lists.js';
import { cachesLatent, expertsOf, type ModelConfig } from '../../model/config/model_config.js';
import { modelShape } from '../../model/shape.js';
import type { ModelSizes, Plan } from '../../placement/index.js';
import { expertsRead } from '../../placement/cost/step_time.js';

export type LayerKind = 'dense' | 'expert';

/** Layers of a model that are measured, and how much of each: the whole, or about half, as a tensor-parallel rank holds it. */
export interface ProbeLayers {
  readonly kind: LayerKind;
  /** [first, end) in the model. */
  readonly layers: readonly [first: number, end: number];
  readonly heads: number;
  readonly mlp: number;
  readonly experts: number;
}

export function layerKinds(config: ModelConfig): LayerKind[] {
  const kinds = config.layers.map((_, layer) => kindOf(config, layer));
  return (['dense', 'expert'] as const).filter((kind) => kinds.includes(kind));
}

const kindOf = (config: ModelConfig, layer: number): LayerKind =>
  nth(config.layers, layer).mlp.kind === 'experts' ? 'expert' : 'dense';

const halved = (n: number): number => Math.max(1, Math.floor(n / 2));

/**
 * Neighbouring layers of a kind, as many as hold `wantedBytes` of weights together; never more than `mostBytes` of them, if need be
 * with fewer experts.
 */
export function chooseLayers(
  config: ModelConfig,
  sizes: ModelSizes,
  kind: LayerKind,
  part: 'whole' | 'half',
  wantedBytes: number,
  mostBytes: number,
): ProbeLayers {
  const shape = modelShape(config);
  const numLayers = config.layers.length;
  const first = config.layers.findIndex((_, layer) => kindOf(config, layer) === kind);
  let run = 1;
  while (first + run < numLayers && kindOf(config, first + run) === kind) run++;
  const share = part === 'whole' ? (n: number) => n : halved;
  const held = {
    kind,
    heads: share(shape.segmentHeads.length),
    mlp: share(shape.mlpSegments.length),
    experts: kind === 'expert' ? shape.numExperts : 0,
  };
  const without = layerRead({ ...held, experts: 0 }, config, sizes, first, 1).read;
  const { expert } = nth(sizes.layers, first);
  const experts = held.experts === 0 ? 0 : Math.min(share(held.experts), Math.max(1, Math.floor(mostBytes / expert)));
  const bytes = without + experts * expert;
  // Attention and mixers of every kind that are among them, from the first on.
  const mixers = config.layers.slice(first, first + run).map(({ attention }) => attention.kind);
  const all = Math.max(...new Set(mixers.map((mixer) => mixers.indexOf(mixer) + 1)));
  const count = Math.min(run, Math.max(all, Math.min(Math.ceil(wantedBytes / bytes), Math.floor(mostBytes / bytes))));
  return { ...held, experts, layers: [first, first + count] };
}

/** Bytes of weights that `rows` rows read in one layer, and those bytes times the rows that they are multiplied with. */
export function layerRead(
  held: Pick<ProbeLayers, 'heads' | 'mlp' | 'experts'>,
  config: ModelConfig,
  sizes: ModelSizes,
  layer: number,
  rows: number,
): { readonly read: number; readonly multiplied: number } {
  const { attentionShared, attentionSegments, mlpShared, mlpSegments, expert } = nth(sizes.layers, layer);
  const first = (list: readonly number[], n: number): number => sum(list.slice(0, n));
  const dense = attentionShared + first(attentionSegments, held.heads) + mlpShared + first(mlpSegments, held.mlp);
  const { expertsPerToken = 0, numExperts = 1 } = expertsOf(config) ?? {};
  const pairs = (rows * expertsPerToken * held.experts) / numExperts;
  return {
    read: dense + expert * expertsRead(rows, pairs, held.experts),
    multiplied: rows * dense + expert * pairs,
  };
}

/** A plan of one rank that holds just these layers and parts, and a whole (small) vocabulary. */
export function probePlan({ layers, heads, mlp, experts }: ProbeLayers, config: ModelConfig): Plan {
  const list = (n: number): number[] => range(0, n);
  const rows = [0, config.vocabSize] as const;
  return {
    version: 1,
    policy: 'probe',
    worldSize: 1,
    stages: [
      {
        layers,
        kind: 'tensor',
        shares: [
          {
            rank: 0,
            heads: list(heads),
            mlp: list(mlp),
            experts: list(experts),
            kvHeads: cachesLatent(config) ? [0] : list(heads),
            lanes: list(8),
          },
        ],
      },
    ],
    embedding: [{ rank: 0, rows }],
    head: [{ rank: 0, rows }],
  };
}
