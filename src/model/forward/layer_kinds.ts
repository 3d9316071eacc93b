import { SplitkvError } from '../../base/errors.js';
import type { LayerConfig, ModelConfig } from '../config/model_config.js';
import { GqaLayers } from '../layers/attention/gqa.js';
import type { AlikeLayers, AttentionLayers, LayerKinds, MlpLayers } from '../layers/layer.js';
import { DenseLayers } from '../layers/mlp/dense.js';
import type { AttentionWeights, MlpWeights } from '../layers/weight_kinds.js';

/** The kinds that a model has. Those that few models have are parts of their own, which the others needn't download. */
export async function layerKinds({ layers }: Pick<ModelConfig, 'layers'>): Promise<LayerKinds> {
  const has = (kind: string): boolean =>
    layers.some(({ attention, mlp }) => attention.kind === kind || mlp.kind === kind);
  const mla = has('mla') ? await import('../layers/attention/mla.js') : undefined;
  const conv = has('conv') ? await import('../layers/recurrent/conv.js') : undefined;
  const delta = has('delta') ? await import('../layers/recurrent/delta.js') : undefined;
  const experts = has('experts') ? await import('../layers/mlp/experts.js') : undefined;
  return {
    attention: {
      gqa: (alike) => new GqaLayers(alike),
      ...(mla && { mla: (alike) => new mla.MlaLayers(alike) }),
      ...(conv && { conv: (alike) => new conv.ConvLayers(alike) }),
      ...(delta && { delta: (alike) => new delta.DeltaLayers(alike) }),
    },
    mlp: {
      gated: (alike) => new DenseLayers(alike),
      plain: (alike) => new DenseLayers(alike),
      ...(experts && { experts: (alike) => new experts.ExpertLayers(alike) }),
    },
  };
}

/** Layers of the kind that their config says. */
export const makeAttention = (
  kinds: LayerKinds,
  layers: AlikeLayers<LayerConfig['attention'], AttentionWeights>,
): AttentionLayers => make<AttentionLayers>(kinds.attention, layers);

export const makeMlp = (kinds: LayerKinds, layers: AlikeLayers<LayerConfig['mlp'], MlpWeights>): MlpLayers =>
  make<MlpLayers>(kinds.mlp, layers);

function make<Made>(
  makers: LayerKinds['attention'] | LayerKinds['mlp'],
  layers: AlikeLayers<LayerConfig['attention' | 'mlp'], AttentionWeights | MlpWeights>,
): Made {
  const { kind } = layers.config;
  const maker = (makers as Readonly<Record<string, ((of: typeof layers) => Made) | undefined>>)[kind];
  if (!maker) throw new SplitkvError('internal', `no program for ${kind} layers`);
  return maker(layers);
}
