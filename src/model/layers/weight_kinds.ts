import type { AttentionConfig, MlpConfig } from '../config/model_config.js';
import type { Loaded } from '../weights/weight_map.js';
import { gqaBytes, type GqaSpecs, gqaSpecs } from './attention/gqa_weights.js';
import { mlaBytes, type MlaSpecs, mlaSpecs } from './attention/mla_weights.js';
import type { Bytes, CutBytes, LayerContext } from './layer_weights.js';
import {
  denseMlpBytes,
  type DenseMlpSpecs,
  denseMlpSpecs,
  expertBytes,
  type ExpertSpecs,
  expertSpecs,
} from './mlp/mlp_weights.js';
import { recurrentBytes, type RecurrentSpecs, recurrentSpecs } from './recurrent/recurrent_weights.js';

export type AttentionSpecs = GqaSpecs | MlaSpecs | RecurrentSpecs;
export type AttentionWeights = Loaded<AttentionSpecs>;
export type MlpSpecs = DenseMlpSpecs | ExpertSpecs;
export type MlpWeights = Loaded<MlpSpecs>;

/** What is known of the weights of a kind of layer. Each function is given the kind's own config, names and specs. */
interface WeightKind<Config, Specs> {
  /** Which tensors make a rank's slice of them. */
  specs(context: LayerContext, config: Config, names: object): Specs;
  bytes(specs: Specs, bytes: Bytes): CutBytes;
}

const recurrent = { specs: recurrentSpecs, bytes: recurrentBytes };

export const attentionKinds: Readonly<Record<AttentionSpecs['kind'], WeightKind<AttentionConfig, AttentionSpecs>>> = {
  gqa: { specs: gqaSpecs, bytes: gqaBytes },
  mla: { specs: mlaSpecs, bytes: mlaBytes },
  conv: recurrent,
  delta: recurrent,
  mamba: recurrent,
};

const dense = { specs: denseMlpSpecs, bytes: denseMlpBytes };

export const mlpKinds: Readonly<Record<MlpSpecs['kind'], WeightKind<MlpConfig, MlpSpecs>>> = {
  gated: dense,
  plain: dense,
  experts: { specs: expertSpecs, bytes: expertBytes },
};
