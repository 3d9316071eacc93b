import { formatError } from '../base/errors.js';
import {
  absorbedView,
  entryOf,
  type GgufFile,
  type GgufTensor,
  orderedView,
  rowsView,
  type TensorEntry,
  type TensorIndex,
} from '../loader/index.js';
import { isDeepseek, type ModelConfig } from './config.js';

/** Hugging Face's names of what llama.cpp calls a tensor, without layer, `.weight` and `.bias`. */
const topNames: Readonly<Record<string, string>> = {
  token_embd: 'model.embed_tokens',
  output_norm: 'model.norm',
  output: 'lm_head',
};
const layerNames: Readonly<Record<string, string>> = {
  attn_norm: 'input_layernorm',
  ffn_norm: 'post_attention_layernorm',
  attn_q: 'self_attn.q_proj',
  attn_k: 'self_attn.k_proj',
  attn_v: 'self_attn.v_proj',
  attn_output: 'self_attn.o_proj',
  attn_q_norm: 'self_attn.q_norm',
  attn_k_norm: 'self_attn.k_norm',
  attn_q_a: 'self_attn.q_a_proj',
  attn_q_a_norm: 'self_attn.q_a_layernorm',
  attn_q_b: 'self_attn.q_b_proj',
  attn_kv_a_mqa: 'self_attn.kv_a_proj_with_mqa',
  attn_kv_a_norm: 'self_attn.kv_a_layernorm',
  attn_kv_b: 'self_attn.kv_b_proj',
  ffn_gate: 'mlp.gate_proj',
  ffn_up: 'mlp.up_proj',
  ffn_down: 'mlp.down_proj',
  ffn_gate_inp: 'mlp.gate',
  ffn_gate_shexp: 'mlp.shared_experts.gate_proj',
  ffn_up_shexp: 'mlp.shared_experts.up_proj',
  ffn_down_shexp: 'mlp.shared_experts.down_proj',
};
const stackNames: Readonly<Record<string, string>> = {
  ffn_gate_exps: 'gate_proj',
  ffn_up_exps: 'up_proj',
  ffn_down_exps: 'down_proj',
};

/**
 * The tensors of a GGUF file under the names and with the shapes and row orders of the Hugging Face checkpoint it was made from, so
 * that nothing else needs to know. What the model has no use for (rope factors, layers beyond its own) is left out.
 *
 * @param arch `general.architecture`
 * @throws SplitkvError `unsupported` for a tensor type that isn't read, `format` for shapes that don't fit the metadata
 */
export function ggufTensorIndex(gguf: GgufFile, arch: string, config: ModelConfig): TensorIndex {
  const tensors = new Map<string, TensorEntry>();
  const add = (entry: TensorEntry): Map<string, TensorEntry> => tensors.set(entry.name, entry);
  for (const tensor of gguf.tensors.values()) {
    const [, layer, part, suffix] = /^(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)$/.exec(tensor.name) ?? [];
    if (part === undefined) continue;
    if (layer === undefined) {
      if (part in topNames) add({ ...entryOf(tensor), name: `${topNames[part]}.${suffix}` });
      continue;
    }
    if (Number(layer) >= config.numLayers) continue;
    const prefix = `model.layers.${layer}.`;
    if (part in layerNames) add(layerTensor(arch, config, tensor, part, `${prefix}${layerNames[part]}.${suffix}`));
    else if (part in stackNames) unstack(gguf, config, tensor, `${prefix}mlp.experts.`, stackNames[part]!).forEach(add);
    else if (part === 'exp_probs_b') add({ ...entryOf(tensor), name: `${prefix}mlp.gate.e_score_correction_bias` });
  }
  if (isDeepseek(config)) joinKeysAndValues(gguf, config, tensors);
  const totalBytes = [...tensors.values()].reduce((sum, { start, end }) => sum + end - start, 0);
  return { tensors, totalBytes, files: gguf.files };
}

/** llama.cpp's 'llama' rotates neighbours (2i, 2i + 1) of a head, the checkpoint halves (i, i + headDim / 2): rows go back there. */
function layerTensor(arch: string, config: ModelConfig, tensor: GgufTensor, part: string, name: string): TensorEntry {
  const entry: TensorEntry = { ...entryOf(tensor), name };
  if (arch !== 'llama' || isDeepseek(config) || (part !== 'attn_q' && part !== 'attn_k')) return entry;
  const half = config.headDim / 2;
  const heads = part === 'attn_q' ? config.numHeads : config.numKvHeads;
  if (entry.shape[0] !== heads * config.headDim) return entry; // refused by its shape where it is loaded
  return orderedView(
    entry,
    Array.from({ length: 2 * half }, (_, row) => (row < half ? 2 * row : 2 * (row - half) + 1)),
  );
}

function unstack(gguf: GgufFile, config: ModelConfig, tensor: GgufTensor, prefix: string, name: string): TensorEntry[] {
  const entry = entryOf(tensor);
  const experts = isDeepseek(config) ? (config.moe?.numExperts ?? 0) : 0;
  const { shape } = entry;
  if (shape.length !== 3 || shape[0] !== experts) {
    throw formatError(
      `${gguf.what}: tensor '${tensor.name}' has shape [${shape.join(', ')}]; expected [experts, rows, columns] for ${experts} experts`,
    );
  }
  const rows = shape[1]!;
  return Array.from({ length: experts }, (_, expert) =>
    rowsView(entry, `${prefix}${expert}.${name}.weight`, expert * rows, rows),
  );
}

/** kv_b_proj of attn_k_b and attn_v_b, where the file has it in halves only. */
function joinKeysAndValues(
  gguf: GgufFile,
  config: Extract<ModelConfig, { kvLoraRank: number }>,
  tensors: Map<string, TensorEntry>,
): void {
  const { numLayers, numHeads, kvLoraRank, qkNopeHeadDim, vHeadDim } = config;
  for (let layer = 0; layer < numLayers; layer++) {
    const name = `model.layers.${layer}.self_attn.kv_b_proj.weight`;
    const keys = gguf.tensors.get(`blk.${layer}.attn_k_b.weight`);
    const values = gguf.tensors.get(`blk.${layer}.attn_v_b.weight`);
    if (tensors.has(name) || !keys || !values) continue;
    expectShape(gguf, keys, [numHeads, kvLoraRank, qkNopeHeadDim]);
    expectShape(gguf, values, [numHeads, vHeadDim, kvLoraRank]);
    tensors.set(name, absorbedView(name, entryOf(keys), entryOf(values)));
  }
}

function expectShape(gguf: GgufFile, { name, shape }: GgufTensor, expected: readonly number[]): void {
  if (shape.length === expected.length && shape.every((size, axis) => size === expected[axis])) return;
  throw formatError(
    `${gguf.what}: tensor '${name}' has shape [${shape.join(', ')}]; expected [${expected.join(', ')}] from its metadata`,
  );
}
