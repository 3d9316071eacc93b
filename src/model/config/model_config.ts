/**
 * Room: a model as plain data: a list of layers, each an attention and an MLP, and what its tensors are called.
 * config_reader.ts reads the keys of a config.json; supported.ts refuses what doesn't run.
 */

import { internalError } from '../../base/errors.js';
import type { RopeConfig } from './rope_config.js';
import type { TensorNames } from './tensor_names.js';
import type { SoundConfig } from './sound_config.js';
import type { VisionConfig } from './vision_config.js';
import { nth } from '../../base/lists.js';
import { gcd } from '../../base/math.js';

export type { RopeConfig, RopeScaling } from './rope_config.js';

/**
 * A decoder as a list of layers: plain data, which workers are sent as it is. Families make it (families/registry.ts); nothing
 * that reads it asks which family. Sizes are in elements.
 *
 * x = embeddingScale * E[token], and what `inputs` says; of each layer x += residualScale * attention(norm(x)), x += residualScale * mlp(norm(x)), with norms
 * where `LayerConfig.norms` says; logits = logitScale * head(norm(x)), capped where they are. The types say more than the runtime runs:
 * `checkSupported` refuses the rest.
 */
export interface ModelConfig {
  /** As the model's files call it, for people. */
  readonly architecture: string;
  readonly hiddenSize: number;
  readonly vocabSize: number;
  readonly maxPositions: number;
  /** Of the residual stream: before and behind halves of layers, and before the head. */
  readonly norm: NormConfig;
  /** True: the output head is the embedding matrix, and has no tensor of its own. */
  readonly tieWordEmbeddings: boolean;
  readonly inputs?: InputsConfig | undefined;
  readonly embeddingScale: number;
  readonly residualScale: number;
  readonly logitScale: number;
  /** Logits z become logitCap * tanh(z / logitCap). */
  readonly logitCap?: number | undefined;
  /** Tokens that end generation; may be empty. */
  readonly eosTokenIds: readonly number[];
  readonly bosTokenId: number | null;
  readonly layers: readonly LayerConfig[];
  readonly tensors: TensorNames;
  /** Its own layer for predicting further tokens, of several the first one (`headModel`). */
  readonly mtp?: { readonly layer: LayerConfig; readonly tensors: TensorNames } | undefined;
  /** The encoder beside it; undefined where prompts have no pictures. */
  readonly vision?: VisionConfig | undefined;
  /** That of sound. */
  readonly sound?: SoundConfig | undefined;
  /** Why there is none though its files have one. */
  readonly visionMisfit?: string;
  readonly soundMisfit?: string;
}

/**
 * 'rms': x / sqrt(mean(x^2) + eps) * w. 'layer': (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * w, plus a bias where it has one.
 * Norms of heads and of latents are RMS norms, of the same eps and offset where they have none of their own.
 */
export interface NormConfig {
  readonly kind: 'rms' | 'layer';
  readonly eps: number;
  /** 1: the factors are 1 + the weights in the files. Added to the weights when they are loaded; default 0. */
  readonly offset?: number;
  /** True: of 'layer', with a bias. */
  readonly bias?: boolean;
}

/** What becomes of embedded tokens before the first layer: x += positions[p + first] + types[segment]; then, with `norm`, x = norm(x). */
export interface InputsConfig {
  /** Rows of a table of positions, `first` of which stand before that of position 0. */
  readonly positions?: { readonly rows: number; readonly first: number };
  /** Segments that a text's tokens may be of. A token's stands above the `SEGMENT_SHIFT` bits of its id. */
  readonly types?: number;
  readonly norm: boolean;
  /**
   * True: x = project [norm(x); norm(h)], of the row h that the token was predicted from, as it is before the head. Rows of prompts are
   * given those of the model; the others take what this one's own step before left.
   */
  readonly joins?: true;
}

export interface LayerConfig {
  readonly attention: AttentionConfig;
  readonly mlp: MlpConfig;
  /**
   * Where norms stand about each half f, attention and then the MLP. 'before' (the default): x += f(norm(x)). 'behind': x += norm(f(x)).
   * 'both': x += norm(f(norm(x))). 'after': x = norm(x + f(x)), and there is no norm before the head. 'shared': the halves stand side by side, x += attention(norm(x)) + mlp(norm(x)), with one norm.
   */
  readonly norms?: 'before' | 'behind' | 'both' | 'after' | 'shared';
  /** True: attention reads x as it is, where `norms` say that a norm is before. */
  readonly bare?: true;
  /**
   * A third part: x += norm(project(gelu_tanh(gate x) * p / sqrt(2))). p are the layer's of the token's inputs for all layers,
   * norm(projection(x0) / sqrt(hiddenSize)) + sqrt(width) * T[token], with x0 what the first layer reads. All layers have them, or none.
   */
  readonly perLayer?: { readonly width: number };
  /** True: what the layer leaves of x is multiplied by a number in the files. */
  readonly scaled?: true;
}

export type AttentionConfig = GqaConfig | MlaConfig | RecurrentConfig;
/** Attention with a cache that grows by the token, in blocks. */
export type PagedAttention = GqaConfig | MlaConfig;
export type MlpConfig = DenseMlpConfig | ExpertsConfig;

/** Grouped-query attention: query head h reads kv head floor(h / (heads / kvHeads)). Multi-head and multi-query are cases of it. */
export interface GqaConfig {
  readonly kind: 'gqa';
  /** Query heads; a multiple of kvHeads. */
  readonly heads: number;
  readonly kvHeads: number;
  /**
   * Attention segments, by which plans cut heads: each has kvHeads / segments neighbouring kv heads; default kvHeads. Set where layers
   * differ in their kv heads (`alikeSegments`): all have as many segments.
   */
  readonly segments?: number;
  /** Not always hiddenSize / heads. */
  readonly headDim: number;
  readonly bias: { readonly q: boolean; readonly k: boolean; readonly v: boolean; readonly o: boolean };
  /** RMSNorm of q and of k before the rotary embedding: over each head, or over all heads at once. */
  readonly qkNorm: false | 'head' | 'whole';
  /** null: positions aren't encoded. */
  readonly rope: RopeConfig | null;
  /** True: v is normalised as k is, without weights. With `qkNorm` of heads. */
  readonly valueNorm?: true;
  /** True: v is what k is before its norm; there is no projection of it. */
  readonly keysAreValues?: true;
  /** The layer before it whose keys and values it attends to; it has none of its own. */
  readonly sharesKv?: number;
  /** Scores are q.k times this. */
  readonly scale: number;
  /** A query at position p sees the keys at p - window + 1 to p; default: all before it. */
  readonly window?: number | undefined;
  /**
   * True: a query sees the keys behind it, too, all or (`window`) as many as before it. All layers of a model, whose texts are computed
   * whole, and which makes no text. 'bounded': those between bounds that a text's positions have.
   */
  readonly bothWays?: true | 'bounded';
  /** Scores s become softcap * tanh(s / softcap). */
  readonly softcap?: number | undefined;
  /** True: each query head has a further logit in its softmax, with no value. */
  readonly sinks?: boolean;
  /** True: the output is multiplied by the sigmoid of a gate, whose rows lie behind each head's rows of q. */
  readonly gated?: boolean;
}

/** Multi-head latent attention: a latent and a rotary key for each token, shared by all heads. */
export interface MlaConfig {
  readonly kind: 'mla';
  readonly heads: number;
  /** Width of q's bottleneck; null: one projection. */
  readonly qLoraRank: number | null;
  readonly kvLoraRank: number;
  /** Of a head of q and k: the part that isn't rotated. The rotated one has rope.dims. */
  readonly qkNopeHeadDim: number;
  readonly qkRopeHeadDim: number;
  readonly vHeadDim: number;
  /** On the first projections of q (only with a bottleneck) and of the latent, and on the output's. */
  readonly bias: boolean;
  readonly rope: RopeConfig;
  /** Scores are q.k times this. */
  readonly scale: number;
  /** Of the norms of q's bottleneck and of the latent. */
  readonly loraNormEps: number;
}

/**
 * A mixer whose memory of the past has a fixed size: a short convolution, linear attention. The state lies in f32 beside the paged cache
 * of the other layers, one for each slot; ranks cut it by segments, as they cut attention.
 */
export type RecurrentConfig = ConvConfig | DeltaConfig | MambaConfig;

/** What ranks cut a recurrent mixer by. */
interface RecurrentSegments {
  /** Equal parts: as many as attention has kv heads. */
  readonly segments: number;
}

/** A gated short convolution: out(C * conv(B * x)) where B, C and x are projections, `width` channels each. */
export interface ConvConfig extends RecurrentSegments {
  readonly kind: 'conv';
  readonly width: number;
  /** Tokens that a channel is summed over, its own included; the state is the inputs of all but that. */
  readonly taps: number;
}

/** A value head h has a memory S [keyDim][valueDim], and the queries and keys of key head floor(h / (valueHeads / keyHeads)). */
interface LinearHeads extends RecurrentSegments {
  readonly keyHeads: number;
  /** A multiple of keyHeads. */
  readonly valueHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly taps: number;
  /** How the files have the rates: as their logarithms, or negative. */
  readonly rates: 'log' | 'negative';
}

/**
 * Linear attention by the gated delta rule (Gated DeltaNet). q, k and v go through a causal convolution and SiLU; a value head's
 * memory S [keyDim][valueDim] fades by exp(-rate * softplus(a + bias)) and is corrected by sigmoid(b); what is read is normalised and
 * gated by silu(z).
 */
export interface DeltaConfig extends LinearHeads {
  readonly kind: 'delta';
}

/**
 * Mamba-2's state space: C, B and x (q, k and v) go through a causal convolution and SiLU; with dt = softplus(a + bias) a value head's
 * memory becomes exp(-rate dt) S + B (dt x)^T. What is read, C S + D x, is multiplied by silu(z), and then normalised over all heads.
 * Key heads are what its papers call groups.
 */
export interface MambaConfig extends LinearHeads {
  readonly kind: 'mamba';
  /** Of the convolution. */
  readonly convBias: boolean;
}

/** 'gelu': 0.5 g (1 + erf(g / sqrt(2))). 'gelu_tanh': 0.5 g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))). */
export type Activation = 'silu' | 'gelu_tanh' | 'gelu';

/** 'gated': down(activation(gate x) * up x). 'plain': down(activation(up x)). */
export interface DenseMlpConfig {
  readonly kind: 'gated' | 'plain';
  /** The intermediate size. */
  readonly width: number;
  readonly activation: Activation;
  /** On all its projections. */
  readonly bias: boolean;
}

/**
 * A mixture of experts. A layer's output is the sum over the chosen experts, in ascending order, of weight * SwiGLU, plus the
 * shared experts, which see every token and are stored as one SwiGLU of `sharedWidth`; with `sharedGate` their output is times
 * sigmoid(gate x), one number per token.
 *
 * Routing of a token, in f32: scores = softmax or sigmoid of the router's logits. What is compared when choosing is the score, plus a
 * correction bias where there is one. First the topkGroups best groups (of numExperts / numGroups neighbours each), by the largest
 * score in the group (`group_limited_greedy`) or the sum of its two largest (`noaux_tc`), then the expertsPerToken best experts in
 * them; experts of other groups are never chosen. Weights are the scores, without bias, of the chosen, divided by their sum + 1e-20 if
 * normTopkProb, times routedScalingFactor.
 */
export interface ExpertsConfig {
  readonly kind: 'experts';
  readonly numExperts: number;
  readonly expertsPerToken: number;
  /** The intermediate size of one expert. */
  readonly width: number;
  /** Of the shared experts together; 0: none. */
  readonly sharedWidth: number;
  readonly sharedGate?: true;
  /**
   * A dense MLP beside them, which reads x by a norm of its own: norm(mlp(norm(x))) + norm(experts(norm(x))). The router reads x
   * normalised and times a vector, and an expert's weight is times a number in the files.
   */
  readonly beside?: DenseMlpConfig;
  readonly activation: Activation;
  /** Instead of SwiGLU: (u + 1) g sigmoid(alpha g), where g = min(gate x, limit) and u is up x between -limit and limit. */
  readonly clamped?: { readonly alpha: number; readonly limit: number };
  /** On the router and on all three projections of every expert; an expert's output has it before its weight. */
  readonly bias?: boolean;
  /** The files have the experts' matrices as MXFP4 (E2M1 numbers in blocks of 32 with a scale each), and so they are kept. */
  readonly packed?: 'mxfp4';
  /** 1 with `greedy`. */
  readonly numGroups: number;
  readonly topkGroups: number;
  readonly scoring: 'softmax' | 'sigmoid';
  readonly method: 'greedy' | 'group_limited_greedy' | 'noaux_tc';
  readonly normTopkProb: boolean;
  readonly routedScalingFactor: number;
  readonly correctionBias: boolean;
}

export const isRecurrent = (attention: AttentionConfig): attention is RecurrentConfig =>
  attention.kind !== 'gqa' && attention.kind !== 'mla';

export const attendsBothWays = ({ layers }: Pick<ModelConfig, 'layers'>): boolean =>
  layers.some(({ attention }) => attention.kind === 'gqa' && attention.bothWays);

export const hasState = ({ layers }: Pick<ModelConfig, 'layers'>): boolean =>
  layers.some(({ attention }) => isRecurrent(attention));

/**
 * The attention of a model with a paged cache, which all layers share that have one (`checkSupported`).
 * @param kind what the caller runs
 */
export function attentionOf<K extends PagedAttention['kind'] = PagedAttention['kind']>(
  { architecture, layers }: Pick<ModelConfig, 'architecture' | 'layers'>,
  kind?: K,
): Extract<PagedAttention, { kind: K }> {
  const attention = layers.map((layer) => layer.attention).find((one) => !isRecurrent(one));
  if (!attention || (kind !== undefined && attention.kind !== kind)) {
    throw internalError(
      `${architecture} has ${attention?.kind ?? 'recurrent'} layers where ${kind ?? 'paged'} ones run`,
    );
  }
  return attention as Extract<PagedAttention, { kind: K }>;
}

/** True where layers cache one latent for all heads: there is no axis of kv heads. */
export const cachesLatent = (config: Pick<ModelConfig, 'architecture' | 'layers'>): boolean =>
  attentionOf(config).kind === 'mla';

/** Neighbouring kv heads of an attention segment. */
export const segmentKvHeads = (attention: AttentionConfig): number =>
  attention.kind === 'gqa' ? attention.kvHeads / (attention.segments ?? attention.kvHeads) : 1;

/** The layer of the model whose keys and values a layer attends to: its own, but where it shares those of another. */
export const cacheLayer = ({ layers }: Pick<ModelConfig, 'layers'>, layer: number): number => {
  const { attention } = nth(layers, layer);
  return (attention.kind === 'gqa' ? attention.sharesKv : undefined) ?? layer;
};

/** True where layers differ in their kv heads, or have none of their own. */
export const mixesHeads = ({ layers }: Pick<ModelConfig, 'layers'>): boolean =>
  layers.some(
    ({ attention }) =>
      attention.kind === 'gqa' && (attention.segments !== undefined || attention.sharesKv !== undefined),
  );

/** A model's layer for further tokens as a model of its own, with the same table and head; undefined where it has none. */
export const headModel = ({ mtp, ...model }: ModelConfig): ModelConfig | undefined =>
  mtp && {
    ...withoutEncoders(model),
    layers: [mtp.layer],
    tensors: mtp.tensors,
    inputs: { norm: false, joins: true },
  };

/** For text alone. */
export const withoutEncoders = ({
  vision: _v,
  sound: _s,
  visionMisfit: _vm,
  soundMisfit: _sm,
  ...model
}: ModelConfig): ModelConfig => model;

/** Whether prompts may have rows that are given instead of embedded. */
export const takesRows = ({ vision, sound }: Pick<ModelConfig, 'vision' | 'sound'>): boolean =>
  vision !== undefined || sound !== undefined;

/** The same layers: where they differ in their kv heads, with as many attention segments each as divide them all. */
export function alikeSegments(layers: readonly LayerConfig[]): readonly LayerConfig[] {
  const counts = layers.flatMap(({ attention }) => (attention.kind === 'gqa' ? [attention.kvHeads] : []));
  if (new Set(counts).size < 2) return layers;
  const segments = counts.reduce(gcd);
  return layers.map((layer) =>
    layer.attention.kind === 'mla' ? layer : { ...layer, attention: { ...layer.attention, segments } },
  );
}

/** Elements of a layer's input of its own; undefined: the model has none. */
export const perLayerWidth = ({ layers }: Pick<ModelConfig, 'layers'>): number | undefined =>
  layers[0]?.perLayer?.width;

/** By layer: keys that a row sees, its own included; undefined: all before it. */
export const layerWindows = ({ layers }: Pick<ModelConfig, 'layers'>): (number | undefined)[] =>
  layers.map(({ attention }) => (attention.kind === 'gqa' ? attention.window : undefined));

/** The experts of the layers that have them; undefined where none has. */
export const expertsOf = ({ layers }: Pick<ModelConfig, 'layers'>): ExpertsConfig | undefined =>
  layers.map(({ mlp }) => mlp).find((mlp) => mlp.kind === 'experts');

/** Layers, or halves of layers, that are alike have the same. A window as wide as the sequence (`length` tokens) cuts nothing. */
export const likeness = (part: LayerConfig | AttentionConfig | MlpConfig, length: number): string =>
  JSON.stringify(part, (key, value: unknown) => (key === 'window' && (value as number) >= length ? undefined : value));
