import type { AttentionConfig, DenseMlpConfig, MlpConfig } from '../config/model_config.js';
import type { GatedMlpNames, PlainMlpNames } from '../config/tensor_names.js';
import type { WeightLoader } from '../weights/weight_loader.js';
import type { Spec } from '../weights/weight_map.js';
import { gqaBytes, type GqaSpecs, gqaSpecs, type GqaWeights, listGqa, loadGqa } from './attention/gqa_weights.js';
import { listMla, loadMla, mlaBytes, type MlaSpecs, mlaSpecs, type MlaWeights } from './attention/mla_weights.js';
import type { Bytes, CutBytes, LayerContext } from './layer_weights.js';
import {
  expertBytes,
  type ExpertSpecs,
  expertSpecs,
  type ExpertWeights,
  listExperts,
  loadExperts,
} from './mlp/expert_weights.js';
import {
  convBytes,
  type ConvSpecs,
  convSpecs,
  type ConvWeights,
  listConv,
  loadConv,
} from './recurrent/conv_weights.js';
import {
  deltaBytes,
  type DeltaSpecs,
  deltaSpecs,
  type DeltaWeights,
  listDelta,
  loadDelta,
} from './recurrent/delta_weights.js';
import {
  denseMlpBytes,
  type DenseMlpSpecs,
  denseMlpSpecs,
  type DenseMlpWeights,
  listDenseMlp,
  loadDenseMlp,
} from './mlp/dense_weights.js';

export type AttentionSpecs = GqaSpecs | MlaSpecs | ConvSpecs | DeltaSpecs;
export type AttentionWeights = GqaWeights | MlaWeights | ConvWeights | DeltaWeights;
export type MlpSpecs = DenseMlpSpecs | ExpertSpecs;
export type MlpWeights = DenseMlpWeights | ExpertWeights;

/** What is known of the weights of a kind of layer. Each function is given the kind's own config, names and specs. */
interface WeightKind<Config, Specs, Weights> {
  /** Which tensors make a rank's slice of them. */
  specs(context: LayerContext, config: Config, names: object): Specs;
  list(specs: Specs): (Spec | undefined)[];
  bytes(specs: Specs, bytes: Bytes): CutBytes;
  load(loader: WeightLoader, specs: Specs): Promise<Weights>;
}

export const attentionKinds: Readonly<
  Record<AttentionSpecs['kind'], WeightKind<AttentionConfig, AttentionSpecs, AttentionWeights>>
> = {
  gqa: { specs: gqaSpecs, list: listGqa, bytes: gqaBytes, load: loadGqa },
  mla: { specs: mlaSpecs, list: listMla, bytes: mlaBytes, load: loadMla },
  conv: { specs: convSpecs, list: listConv, bytes: convBytes, load: loadConv },
  delta: { specs: deltaSpecs, list: listDelta, bytes: deltaBytes, load: loadDelta },
};

const dense = {
  specs: (context: LayerContext, config: DenseMlpConfig, names: GatedMlpNames | PlainMlpNames) =>
    denseMlpSpecs(context, config, names),
  list: listDenseMlp,
  bytes: denseMlpBytes,
  load: loadDenseMlp,
};

export const mlpKinds: Readonly<Record<MlpSpecs['kind'], WeightKind<MlpConfig, MlpSpecs, MlpWeights>>> = {
  gated: dense,
  plain: dense,
  experts: { specs: expertSpecs, list: listExperts, bytes: expertBytes, load: loadExperts },
};
