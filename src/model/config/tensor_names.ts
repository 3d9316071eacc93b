import { known } from '../../base/errors.js';

type LayerKind = 'gqa' | 'mla' | 'conv' | 'delta' | 'mamba' | 'gated' | 'plain' | 'experts';

/**
 * What a checkpoint calls its tensors: `.weight` and `.bias` follow. `{layer}` stands for the layer's number, `{expert}` for the
 * expert's.
 */
export interface TensorNames {
  readonly embedding: string;
  /** Of what is embedded (`InputsConfig`). */
  readonly inputs?: { readonly positions?: string; readonly types?: string; readonly norm?: string } & {
    readonly [K in 'embeddingNorm' | 'hiddenNorm' | 'project' | 'before']?: string;
  };
  /** Before the output head, where there is one. */
  readonly norm?: string;
  readonly head: string;
  /** Norms before attention (where it is shared, before both) and before the MLP, and of what they give: those that layers have. */
  readonly inputNorm?: string;
  readonly postNorm?: string;
  readonly attentionOutNorm?: string;
  readonly mlpOutNorm?: string;
  readonly perLayer?: PerLayerNames;
  /** What a layer's output is multiplied by. Whole: nothing follows. */
  readonly layerScale?: string;
  /** By kind of layer, those that the model has. */
  readonly gqa?: GqaNames;
  readonly mla?: MlaNames;
  readonly conv?: ConvNames;
  readonly delta?: DeltaNames;
  readonly mamba?: MambaNames;
  readonly gated?: GatedMlpNames;
  readonly plain?: PlainMlpNames;
  readonly experts?: ExpertNames;
}

/** Of inputs for each layer: of all of them, then of a layer. */
export type PerLayerNames = Readonly<Record<'table' | 'projection' | 'norm' | 'gate' | 'project' | 'outNorm', string>>;

export interface GqaNames {
  readonly q: string;
  readonly k: string;
  readonly v: string;
  /** Instead of the three: one matrix of their rows, in this order. */
  readonly qkv?: string;
  readonly o: string;
  readonly qNorm?: string;
  readonly kNorm?: string;
  /** Whole: nothing follows. */
  readonly sinks?: string;
}

export interface MlaNames {
  /** Without a bottleneck of q. */
  readonly q: string;
  readonly qDown: string;
  readonly qNorm: string;
  readonly qUp: string;
  /** The latent and the rotary key. */
  readonly kvDown: string;
  readonly kvNorm: string;
  readonly kvUp: string;
  readonly o: string;
}

export interface ConvNames {
  /** Rows of B, then of C, then of x. */
  readonly input: string;
  readonly taps: string;
  readonly output: string;
}

export interface DeltaNames {
  /** Rows of all heads' q, then of k, then of v; the convolution's channels likewise. */
  readonly qkv: string;
  readonly z: string;
  /** Instead of the two: one matrix; of each key head its rows of q, of k, of its value heads' v and of their z. */
  readonly qkvz?: string;
  readonly b: string;
  readonly a: string;
  /** Instead of the two: one matrix; of each key head its value heads' b, then their a. */
  readonly ba?: string;
  readonly taps: string;
  /** Whole: nothing follows. */
  readonly rates: string;
  readonly dtBias: string;
  readonly norm: string;
  readonly output: string;
}

export interface MambaNames {
  /** Rows of z, of x, of B, of C and of dt; the convolution's channels are those of x, B and C. */
  readonly input: string;
  readonly taps: string;
  /** Whole, as the next two: nothing follows. */
  readonly rates: string;
  readonly dtBias: string;
  readonly skip: string;
  readonly norm: string;
  readonly output: string;
}

export type PlainMlpNames = Readonly<Record<'up' | 'down', string>>;

export interface GatedMlpNames extends PlainMlpNames {
  readonly gate: string;
  /** Instead of gate and up: one matrix of their rows, gate first. */
  readonly gateUp?: string;
}

export interface ExpertNames extends GatedMlpNames {
  readonly router: string;
  /** Whole: nothing follows. */
  readonly correctionBias: string;
  readonly shared: GatedMlpNames;
  /** Stacks of all experts, whole: gate and up in one, and down. Default: `experts.gate_up_proj`, `experts.down_proj`. */
  readonly stacks?: Readonly<Record<'gateUp' | 'down', string>>;
  /** One row, where they have a gate. */
  readonly sharedGate?: string;
  /** A dense MLP beside them, with the norms of both. `routerScale`, `expertScale`: whole, nothing follows. */
  readonly beside?: { readonly mlp: GatedMlpNames } & Readonly<
    Record<'mlpOutNorm' | 'norm' | 'outNorm' | 'routerScale' | 'expertScale', string>
  >;
  /** True: in stacks of all experts, gate and up alternate, and plain numbers lie input by input (weights/stored_names.ts). */
  readonly alternating?: true;
}

/** A kind of layer's. @throws SplitkvError `internal` where the model's family has none, which is a mistake of it */
export const namesOf = <Kind extends LayerKind>(names: TensorNames, kind: Kind): NonNullable<TensorNames[Kind]> =>
  known(names[kind] as NonNullable<TensorNames[Kind]> | undefined, `name of the tensors of ${kind} layers`);

const mapped = <T>(names: T, to: (name: string) => string): T =>
  (typeof names === 'string'
    ? to(names)
    : Object.fromEntries(Object.entries(names as object).map(([key, name]) => [key, mapped(name, to)]))) as T;

/** The same with the layer's number in its place, and the expert's. */
export const numbered = <T>(names: T, layer: number, expert?: number): T =>
  mapped(names, (name) => name.replace('{layer}', `${layer}`).replace('{expert}', `${expert ?? '{expert}'}`));

/** Of a layer for further tokens, `at` a place of its own. */
export const headNames = (
  model: TensorNames,
  at: string,
  { norm, ...inputs }: Readonly<Record<'norm' | 'embeddingNorm' | 'hiddenNorm' | 'project', string>>,
): TensorNames => ({
  ...mapped(model, (name) => name.replace('model.layers.{layer}', at)),
  norm,
  inputs: { ...inputs, ...(model.norm !== undefined && { before: model.norm }) },
});

/** Most checkpoints' names, which transformers' Llama began. */
export const llamaNames = {
  embedding: 'model.embed_tokens',
  norm: 'model.norm',
  head: 'lm_head',
  inputNorm: 'model.layers.{layer}.input_layernorm',
  postNorm: 'model.layers.{layer}.post_attention_layernorm',
  gqa: {
    q: 'model.layers.{layer}.self_attn.q_proj',
    k: 'model.layers.{layer}.self_attn.k_proj',
    v: 'model.layers.{layer}.self_attn.v_proj',
    o: 'model.layers.{layer}.self_attn.o_proj',
    qNorm: 'model.layers.{layer}.self_attn.q_norm',
    kNorm: 'model.layers.{layer}.self_attn.k_norm',
  },
  gated: gatedNames('model.layers.{layer}.mlp'),
} as const satisfies TensorNames;

/**
 * Most checkpoints' names of experts, their router and the shared ones, beneath the MLP.
 * @param router the last part of its name
 */
export function expertNames(router = 'gate', shared = 'shared_experts'): ExpertNames {
  const mlp = 'model.layers.{layer}.mlp.';
  return {
    ...gatedNames(`${mlp}experts.{expert}`),
    router: `${mlp}${router}`,
    correctionBias: `${mlp}${router}.e_score_correction_bias`,
    shared: gatedNames(`${mlp}${shared}`),
  };
}

/** gate_proj, up_proj and down_proj under a prefix. */
export function gatedNames(prefix: string): GatedMlpNames {
  return { gate: `${prefix}.gate_proj`, up: `${prefix}.up_proj`, down: `${prefix}.down_proj` };
}
