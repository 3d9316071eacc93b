import { type ExpertNames, type GatedMlpNames, numbered } from '../config/tensor_names.js';
import type {
  ConvConfig,
  DeltaConfig,
  ExpertsConfig,
  GqaConfig,
  InputsConfig,
  LayerConfig,
  MambaConfig,
  MlaConfig,
  ModelConfig,
} from '../config/model_config.js';

/** One tensor of normally distributed values. */
export interface TensorRecipe {
  name: string;
  shape: number[];
  mean: number;
  deviation: number;
  /** Where it isn't the model's. */
  dtype?: 'F32';
}

/** An empty list of tensors, and how to add to it. */
function startList({ norm: { offset = 0, bias: normBias = false } }: Pick<ModelConfig, 'norm'>) {
  const list: TensorRecipe[] = [];
  const norm = (name: string, size: number, gain = 1) => {
    list.push({ name: `${name}.weight`, shape: [size], mean: gain - offset, deviation: 0.2 * gain });
    if (normBias) list.push({ name: `${name}.bias`, shape: [size], mean: 0, deviation: 0.2 });
  };
  /** A matrix of deviation gain / sqrt(in_features) gives outputs of deviation gain for inputs of 1. */
  const linear = (name: string, rows: number, columns: number, gain: number, bias = false) => {
    list.push({ name: `${name}.weight`, shape: [rows, columns], mean: 0, deviation: gain / Math.sqrt(columns) });
    if (bias) list.push({ name: `${name}.bias`, shape: [rows], mean: 0, deviation: 0.3 });
  };
  return { list, norm, linear };
}

type Lists = ReturnType<typeof startList>;

/** What an encoder's sizes are. `places`: rows of its table of places. */
interface SiglipSizes {
  readonly hidden: number;
  readonly layers: number;
  readonly width: number;
  readonly patch: number;
  readonly places: number;
}

/** Of a SigLIP encoder, under the names that transformers gives them. @param kernel the patches' shape */
export function siglipTensors(
  prefix: string,
  { hidden, layers, width, patch, places }: SiglipSizes,
  kernel = [hidden, 3, patch, patch],
): TensorRecipe[] {
  const { list, norm, linear } = startList({ norm: { kind: 'layer', eps: 0, bias: true } });
  const embeddings = `${prefix}.embeddings`;
  list.push(
    {
      name: `${embeddings}.patch_embedding.weight`,
      shape: kernel,
      mean: 0,
      deviation: 1 / Math.sqrt(3 * patch * patch),
    },
    { name: `${embeddings}.patch_embedding.bias`, shape: [hidden], mean: 0, deviation: 0.3 },
    { name: `${embeddings}.position_embedding.weight`, shape: [places, hidden], mean: 0, deviation: 1 },
  );
  for (let layer = 0; layer < layers; layer++) {
    const at = `${prefix}.encoder.layers.${layer}`;
    norm(`${at}.layer_norm1`, hidden);
    for (const part of ['q', 'k']) linear(`${at}.self_attn.${part}_proj`, hidden, hidden, 1.5, true);
    for (const part of ['v', 'out']) linear(`${at}.self_attn.${part}_proj`, hidden, hidden, 1, true);
    norm(`${at}.layer_norm2`, hidden);
    linear(`${at}.mlp.fc1`, width, hidden, 1.5, true);
    linear(`${at}.mlp.fc2`, hidden, width, 1, true);
  }
  norm(`${prefix}.post_layernorm`, hidden);
  return list;
}

/** Joins patches of an Idefics 3 to a row of its decoder, `scale` by `scale`. */
export const idefics3Connector = (textWidth: number, hidden: number, scale: number): TensorRecipe => ({
  name: 'model.connector.modality_projection.proj.weight',
  shape: [textWidth, hidden * scale * scale],
  mean: 0,
  deviation: 1 / (Math.sqrt(hidden) * scale),
});

/** Every tensor of a checkpoint under the names that transformers gives them, whatever the family. */
export function modelTensors(config: ModelConfig): TensorRecipe[] {
  if (config.inputs) return encoderTensors(config, config.inputs);
  const { hiddenSize, vocabSize, tieWordEmbeddings, embeddingScale, logitScale } = config;
  const lists = startList(config);
  const { list, norm, linear } = lists;
  const headGain = 3 / logitScale;
  // A tied matrix also makes the logits.
  linear(
    'model.embed_tokens',
    vocabSize,
    hiddenSize,
    tieWordEmbeddings ? headGain : Math.sqrt(hiddenSize) / embeddingScale,
  );
  const addLayer = (
    { attention, mlp, norms = 'before', scaled, perLayer }: LayerConfig,
    layer: number,
    at = `model.layers.${layer}`,
  ): void => {
    // Norms that stand where most models have them go by their usual names, those of others by the model's own.
    const usual = { inputNorm: `${at}.input_layernorm`, postNorm: `${at}.post_attention_layernorm` };
    const names = norms === 'before' ? usual : numbered(config.tensors, layer);
    const [before, behind] = [norms !== 'behind', norms === 'behind' || norms === 'both'];
    if (before) norm(names.inputNorm!, hiddenSize);
    if (attention.kind === 'gqa')
      gqaTensors(lists, `${at}.self_attn`, hiddenSize, attention, config.tensors.gqa?.qkv !== undefined);
    else if (attention.kind === 'mla') mlaTensors(lists, `${at}.self_attn`, hiddenSize, attention);
    else if (attention.kind === 'conv') convTensors(lists, `${at}.conv`, hiddenSize, attention);
    else if (attention.kind === 'mamba') mambaTensors(lists, `${at}.mamba`, hiddenSize, attention);
    else deltaTensors(lists, `${at}.linear_attn`, hiddenSize, attention, config.tensors.delta?.qkvz !== undefined);
    const { attentionOutNorm, mlpOutNorm, layerScale } = numbered(config.tensors, layer);
    if (perLayer) {
      const own = numbered(config.tensors.perLayer!, layer);
      linear(own.gate, perLayer.width, hiddenSize, 1.5);
      linear(own.project, hiddenSize, perLayer.width, 1);
      norm(own.outNorm, hiddenSize);
    }
    if (scaled) list.push({ name: layerScale!, shape: [1], mean: 0.8, deviation: 0.1 });
    if (behind) norm(attentionOutNorm!, hiddenSize);
    if (before && norms !== 'shared') norm(names.postNorm!, hiddenSize);
    if (behind) norm(mlpOutNorm!, hiddenSize);
    if (mlp.kind === 'experts' && mlp.beside) {
      const { beside, router, gate } = numbered(config.tensors.experts!, layer);
      const { mlpOutNorm: denseOut, norm: before, outNorm, routerScale, expertScale } = beside!;
      mlpTensors(lists, `${at}.mlp`, hiddenSize, mlp.beside.width);
      for (const name of [denseOut, before, outNorm]) norm(name, hiddenSize);
      linear(router, mlp.numExperts, hiddenSize, 1);
      // So that scores aren't crowded: what the router reads is divided by sqrt(hiddenSize).
      list.push({ name: routerScale, shape: [hiddenSize], mean: 1.5 * Math.sqrt(hiddenSize), deviation: 1 });
      list.push({ name: expertScale, shape: [mlp.numExperts], mean: 1, deviation: 0.3 });
      for (let expert = 0; expert < mlp.numExperts; expert++)
        mlpTensors(lists, gate.replace('{expert}', `${expert}`).replace('.gate_proj', ''), hiddenSize, mlp.width);
    } else if (mlp.kind === 'experts' && config.tensors.experts?.stacks)
      stackTensors(lists, numbered(config.tensors.experts, layer), hiddenSize, mlp);
    else if (mlp.kind === 'experts')
      expertTensors(lists, `${at}.mlp`, hiddenSize, mlp, mlp.sharedGate ? 'shared_expert' : 'shared_experts');
    else if (mlp.kind === 'gated')
      mlpTensors(lists, `${at}.mlp`, hiddenSize, mlp.width, mlp.bias, fusedNames(config.tensors.gated!, layer));
    else {
      linear(`${at}.mlp.c_fc`, mlp.width, hiddenSize, 1.5, mlp.bias);
      linear(`${at}.mlp.c_proj`, hiddenSize, mlp.width, 1, mlp.bias);
    }
  };
  config.layers.forEach((layer, index) => addLayer(layer, index));
  const { perLayer } = config.layers[0]!;
  if (perLayer) {
    const { table, projection, norm: inputNorm } = config.tensors.perLayer!;
    const all = config.layers.length * perLayer.width;
    // Of the same size as what is projected.
    list.push({ name: `${table}.weight`, shape: [vocabSize, all], mean: 0, deviation: perLayer.width ** -0.5 });
    linear(projection, all, hiddenSize, 1);
    norm(inputNorm, perLayer.width);
  }
  norm('model.norm', hiddenSize);
  if (!tieWordEmbeddings) linear('lm_head', vocabSize, hiddenSize, headGain);
  if (config.mtp) {
    const { layer, tensors } = config.mtp;
    const { embeddingNorm, hiddenNorm, project } = tensors.inputs!;
    addLayer(layer, config.layers.length, tensors.inputNorm!.replace('.input_layernorm', ''));
    for (const name of [tensors.norm, embeddingNorm, hiddenNorm]) norm(name!, hiddenSize);
    linear(project!, hiddenSize, 2 * hiddenSize, 1.5);
  }
  const names = ownNames[config.architecture];
  if (!names) return list;
  return list.map((recipe) => ({
    ...recipe,
    name: names.reduce((name, [usual, own]) => name.replace(usual, own), recipe.name),
  }));
}

/** Of an encoder, under its own names: they have nothing in common with Llama's. */
function encoderTensors(config: ModelConfig, inputs: InputsConfig): TensorRecipe[] {
  const { hiddenSize, vocabSize, tensors } = config;
  const { list, norm, linear } = startList(config);
  const table = (name: string | undefined, rows: number): void => {
    if (name !== undefined) list.push({ name: `${name}.weight`, shape: [rows, hiddenSize], mean: 0, deviation: 1 });
  };
  table(tensors.embedding, vocabSize);
  if (inputs.positions) table(tensors.inputs?.positions, inputs.positions.rows);
  if (inputs.types) table(tensors.inputs?.types, inputs.types);
  if (inputs.norm) norm(tensors.inputs!.norm!, hiddenSize);
  config.layers.forEach(({ attention, mlp, norms, bare }, index) => {
    if (attention.kind !== 'gqa' || mlp.kind === 'experts') return;
    const names = numbered(tensors, index);
    const { qkv, q, k, v, o } = names.gqa!;
    const { bias } = attention;
    if (norms !== 'after' && !bare) norm(names.inputNorm!, hiddenSize);
    if (qkv !== undefined) linear(qkv, 3 * hiddenSize, hiddenSize, 1.5, bias.q);
    else
      for (const [name, gain] of [
        [q, 1.5],
        [k, 1.5],
        [v, 1],
      ] as const)
        linear(name, hiddenSize, hiddenSize, gain, bias.q);
    linear(o, hiddenSize, hiddenSize, 1, bias.o);
    if (norms === 'after') norm(names.attentionOutNorm!, hiddenSize);
    else norm(names.postNorm!, hiddenSize);
    const { gateUp, up, down } = { gateUp: undefined, ...(names.plain ?? names.gated)! };
    if (gateUp !== undefined) linear(gateUp, 2 * mlp.width, hiddenSize, 1.5, mlp.bias);
    else linear(up, mlp.width, hiddenSize, 1.5, mlp.bias);
    linear(down, hiddenSize, mlp.width, 1, mlp.bias);
    if (norms === 'after') norm(names.mlpOutNorm!, hiddenSize);
  });
  if (config.layers.at(-1)?.norms !== 'after') norm(tensors.norm!, hiddenSize);
  return list;
}

function gqaTensors(
  { list, norm, linear }: Lists,
  at: string,
  hiddenSize: number,
  config: GqaConfig,
  fused: boolean,
): void {
  const { heads, kvHeads, headDim, bias } = config;
  // Scores q.k / sqrt(headDim) then have a deviation of about 1.5^2.
  if (fused) {
    linear(`${at}.qkv_proj`, (heads + 2 * kvHeads) * headDim, hiddenSize, 1.5);
  } else {
    linear(`${at}.q_proj`, heads * headDim * (config.gated ? 2 : 1), hiddenSize, 1.5, bias.q);
    if (config.sharesKv === undefined) linear(`${at}.k_proj`, kvHeads * headDim, hiddenSize, 1.5, bias.k);
    if (config.sharesKv === undefined && !config.keysAreValues)
      linear(`${at}.v_proj`, kvHeads * headDim, hiddenSize, 1, bias.v);
  }
  if (config.qkNorm) {
    const whole = config.qkNorm === 'whole';
    // Where nothing else scales scores.
    const gain = config.scale === 1 ? 1.2 * headDim ** -0.25 : 1;
    norm(`${at}.q_norm`, whole ? heads * headDim : headDim, gain);
    if (config.sharesKv === undefined) norm(`${at}.k_norm`, whole ? kvHeads * headDim : headDim, gain);
  }
  if (config.sinks) list.push({ name: `${at}.sinks`, shape: [heads], mean: 1, deviation: 2 });
  linear(`${at}.o_proj`, hiddenSize, heads * headDim, 1, bias.o);
}

/** What LFM2 calls what others call otherwise. */
const lfm2Names: readonly (readonly [RegExp, string])[] = [
  [/input_layernorm/, 'operator_norm'],
  [/post_attention_layernorm/, 'ffn_norm'],
  [/self_attn\.o_proj/, 'self_attn.out_proj'],
  [/self_attn\.([qk])_norm/, 'self_attn.$1_layernorm'],
  [/mlp\.gate\.e_score_correction_bias/, 'mlp.expert_bias'],
  [/\.mlp\./, '.feed_forward.'],
  [/gate_proj/, 'w1'],
  [/up_proj/, 'w3'],
  [/down_proj/, 'w2'],
  [/^model\.norm/, 'model.embedding_norm'],
];

/** By architecture. */
const ownNames: Readonly<Record<string, readonly (readonly [RegExp, string])[]>> = {
  lfm2: lfm2Names,
  lfm2_moe: lfm2Names,
  mixtral: [
    [/\.mlp\./, '.block_sparse_moe.'],
    [/gate_proj/, 'w1'],
    [/up_proj/, 'w3'],
    [/down_proj/, 'w2'],
  ],
};

function convTensors({ list, linear }: Lists, at: string, hiddenSize: number, { width, taps }: ConvConfig): void {
  linear(`${at}.in_proj`, 3 * width, hiddenSize, 1);
  list.push({ name: `${at}.conv.weight`, shape: [width, 1, taps], mean: 0, deviation: 0.7 });
  linear(`${at}.out_proj`, hiddenSize, width, 1);
}

/** Decays from nearly none to fast ones. */
function deltaTensors(
  { list, linear }: Lists,
  at: string,
  hiddenSize: number,
  config: DeltaConfig,
  fused: boolean,
): void {
  const { keyHeads, valueHeads, keyDim, valueDim, taps } = config;
  const [keys, values] = [keyHeads * keyDim, valueHeads * valueDim];
  if (fused) {
    linear(`${at}.in_proj_qkvz`, 2 * (keys + values), hiddenSize, 1.5);
    linear(`${at}.in_proj_ba`, 2 * valueHeads, hiddenSize, 1);
  } else {
    linear(`${at}.in_proj_qkv`, 2 * keys + values, hiddenSize, 1.5);
    linear(`${at}.in_proj_z`, values, hiddenSize, 1.5);
    linear(`${at}.in_proj_b`, valueHeads, hiddenSize, 1);
    linear(`${at}.in_proj_a`, valueHeads, hiddenSize, 1);
  }
  list.push({ name: `${at}.conv1d.weight`, shape: [2 * keys + values, 1, taps], mean: 0, deviation: 0.7 });
  list.push({ name: `${at}.A_log`, shape: [valueHeads], mean: 0, deviation: 1.2 });
  list.push({ name: `${at}.dt_bias`, shape: [valueHeads], mean: -3, deviation: 2 });
  list.push({ name: `${at}.norm.weight`, shape: [valueDim], mean: 1, deviation: 0.2 });
  linear(`${at}.out_proj`, hiddenSize, values, 1);
}

/** Decays likewise. */
function mambaTensors({ list, linear }: Lists, at: string, hiddenSize: number, config: MambaConfig): void {
  const { keyHeads, valueHeads, keyDim, valueDim, taps } = config;
  const values = valueHeads * valueDim;
  const channels = 2 * keyHeads * keyDim + values;
  const vector = (name: string, length: number, mean: number, deviation: number): void => {
    list.push({ name: `${at}.${name}`, shape: [length], mean, deviation });
  };
  linear(`${at}.in_proj`, values + channels + valueHeads, hiddenSize, 1.5);
  list.push({ name: `${at}.conv1d.weight`, shape: [channels, 1, taps], mean: 0, deviation: 0.7 });
  if (config.convBias) vector('conv1d.bias', channels, 0, 0.5);
  vector('A_log', valueHeads, 0, 1.2);
  vector('dt_bias', valueHeads, -2, 2);
  vector('D', valueHeads, 1, 0.5);
  vector('norm.weight', values, 1, 0.2);
  linear(`${at}.out_proj`, hiddenSize, values, 1);
}

function mlaTensors({ norm, linear }: Lists, at: string, hiddenSize: number, config: MlaConfig): void {
  const { heads, qLoraRank, kvLoraRank, qkNopeHeadDim: nope, qkRopeHeadDim: rope, vHeadDim, bias } = config;
  if (qLoraRank === null) {
    linear(`${at}.q_proj`, heads * (nope + rope), hiddenSize, 1.5);
  } else {
    linear(`${at}.q_a_proj`, qLoraRank, hiddenSize, 1, bias);
    norm(`${at}.q_a_layernorm`, qLoraRank);
    linear(`${at}.q_b_proj`, heads * (nope + rope), qLoraRank, 1.5);
  }
  linear(`${at}.kv_a_proj_with_mqa`, kvLoraRank + rope, hiddenSize, 1.5, bias);
  norm(`${at}.kv_a_layernorm`, kvLoraRank);
  linear(`${at}.kv_b_proj`, heads * (nope + vHeadDim), kvLoraRank, 1.3);
  linear(`${at}.o_proj`, hiddenSize, heads * vHeadDim, 1, bias);
}

/** Families differ in the names of the matrix of gate and up in one, and of the one behind it; otherwise names are Llama's. */
const fusedNames = ({ gateUp, down }: GatedMlpNames, layer: number) =>
  gateUp === undefined
    ? undefined
    : (numbered({ gateUp, down }, layer) as { readonly gateUp: string; readonly down: string });

function mlpTensors(
  { linear }: Lists,
  at: string,
  hiddenSize: number,
  width: number,
  bias = false,
  fused?: ReturnType<typeof fusedNames>,
  gain = 1,
): void {
  if (fused) linear(fused.gateUp, 2 * width, hiddenSize, 1.3);
  else {
    linear(`${at}.gate_proj`, width, hiddenSize, 1.5 * gain, bias);
    linear(`${at}.up_proj`, width, hiddenSize, gain, bias);
  }
  linear(fused?.down ?? `${at}.down_proj`, hiddenSize, width, 1 / gain ** 2, bias);
}

/** Experts in stacks, with gate and up in one; and the shared ones. */
function stackTensors(lists: Lists, names: ExpertNames, hiddenSize: number, config: ExpertsConfig): void {
  const { numExperts: count, width, sharedWidth } = config;
  const { stacks, router, shared } = names;
  lists.linear(router, count, hiddenSize, 1);
  lists.list.push(
    { name: stacks!.gateUp, shape: [count, 2 * width, hiddenSize], mean: 0, deviation: 1.3 / Math.sqrt(hiddenSize) },
    { name: stacks!.down, shape: [count, hiddenSize, width], mean: 0, deviation: 1 / Math.sqrt(width) },
  );
  if (sharedWidth === 0) return;
  lists.linear(shared.gateUp!, 2 * sharedWidth, hiddenSize, 1.3);
  lists.linear(shared.down, hiddenSize, sharedWidth, 1);
}

function expertTensors(lists: Lists, at: string, hiddenSize: number, config: ExpertsConfig, shared: string): void {
  const { numExperts, width, sharedWidth, sharedGate, correctionBias, scoring, bias } = config;
  // Spreads scores out without crowding them at 0 or 1, so that the experts differ clearly.
  // Of gates and ups, many are beyond where they are clamped.
  const gain = config.clamped ? config.clamped.limit * 0.6 : 1;
  const router = bias ? 'router' : 'gate';
  lists.linear(`${at}.${router}`, numExperts, hiddenSize, scoring === 'sigmoid' ? 2 : 1, bias);
  if (correctionBias) {
    const name = `${at}.gate.e_score_correction_bias`;
    lists.list.push({ name, shape: [numExperts], mean: 0, deviation: 0.15, dtype: 'F32' }); // As in DeepSeek's checkpoints.
  }
  for (let expert = 0; expert < numExperts; expert++)
    mlpTensors(lists, `${at}.experts.${expert}`, hiddenSize, width, bias, undefined, gain);
  if (sharedWidth > 0) mlpTensors(lists, `${at}.${shared}`, hiddenSize, sharedWidth);
  if (sharedGate) lists.linear(`${at}.shared_expert_gate`, 1, hiddenSize, 1.5);
}
