import { usageError } from '../src/base/errors.js';
import type { Bindings, ParamTypes } from '../src/gpu/kernel.js';
import type { KernelSuite } from '../src/gpu/testing/kernel_case.js';

export type AnyKernelSuite = KernelSuite<Bindings, ParamTypes, unknown>;

/** The kernels with cases, by their folders in shaders/; each is loaded when asked for. */
const FOLDERS: Readonly<Record<string, () => Promise<{ readonly suite: unknown }>>> = {
  'attention/attention_append': () => import('../shaders/attention/attention_append/cases.js'),
  'attention/attention_merge': () => import('../shaders/attention/attention_merge/cases.js'),
  'attention/attention_prefill': () => import('../shaders/attention/attention_prefill/cases.js'),
  'attention/attention_split': () => import('../shaders/attention/attention_split/cases.js'),
  'attention/mla_prefill': () => import('../shaders/attention/mla_prefill/cases.js'),
  'attention/mla_split': () => import('../shaders/attention/mla_split/cases.js'),
  'attention/output_gate': () => import('../shaders/attention/output_gate/cases.js'),
  'compress/ada_budgets': () => import('../shaders/compress/ada_budgets/cases.js'),
  'compress/kv_compact': () => import('../shaders/compress/kv_compact/cases.js'),
  'compress/snap_pool': () => import('../shaders/compress/snap_pool/cases.js'),
  'compress/snap_scores': () => import('../shaders/compress/snap_scores/cases.js'),
  'compress/snap_select': () => import('../shaders/compress/snap_select/cases.js'),
  'embedding/embedding': () => import('../shaders/embedding/embedding/cases.js'),
  'linear/clip': () => import('../shaders/linear/clip/cases.js'),
  'linear/linear': () => import('../shaders/linear/linear/cases.js'),
  'linear/linear_add_norm': () => import('../shaders/linear/linear_add_norm/cases.js'),
  'linear/linear_conv': () => import('../shaders/linear/linear_conv/cases.js'),
  'linear/linear_grouped': () => import('../shaders/linear/linear_grouped/cases.js'),
  'linear/linear_grouped_merge': () => import('../shaders/linear/linear_grouped_merge/cases.js'),
  'linear/linear_merge': () => import('../shaders/linear/linear_merge/cases.js'),
  'linear/linear_tiled': () => import('../shaders/linear/linear_tiled/cases.js'),
  'linear/low_rank': () => import('../shaders/linear/low_rank/cases.js'),
  'linear/reduce_segments': () => import('../shaders/linear/reduce_segments/cases.js'),
  'moe/expert_linear': () => import('../shaders/moe/expert_linear/cases.js'),
  'moe/expert_linear_combine': () => import('../shaders/moe/expert_linear_combine/cases.js'),
  'moe/expert_linear_route': () => import('../shaders/moe/expert_linear_route/cases.js'),
  'moe/expert_linear_tiled': () => import('../shaders/moe/expert_linear_tiled/cases.js'),
  'moe/moe_combine': () => import('../shaders/moe/moe_combine/cases.js'),
  'moe/moe_route': () => import('../shaders/moe/moe_route/cases.js'),
  'moe/moe_sort': () => import('../shaders/moe/moe_sort/cases.js'),
  'norm/layer_norm': () => import('../shaders/norm/layer_norm/cases.js'),
  'norm/rms_norm': () => import('../shaders/norm/rms_norm/cases.js'),
  'norm/scale_heads': () => import('../shaders/norm/scale_heads/cases.js'),
  'norm/segment_squares': () => import('../shaders/norm/segment_squares/cases.js'),
  'probe/copy_rate': () => import('../shaders/probe/copy_rate/cases.js'),
  'probe/fma_rate': () => import('../shaders/probe/fma_rate/cases.js'),
  'recurrent/causal_conv': () => import('../shaders/recurrent/causal_conv/cases.js'),
  'recurrent/delta_heads': () => import('../shaders/recurrent/delta_heads/cases.js'),
  'recurrent/delta_rule': () => import('../shaders/recurrent/delta_rule/cases.js'),
  'recurrent/delta_step': () => import('../shaders/recurrent/delta_step/cases.js'),
  'recurrent/gated_norm': () => import('../shaders/recurrent/gated_norm/cases.js'),
  'recurrent/gated_squares': () => import('../shaders/recurrent/gated_squares/cases.js'),
  'rope/mla_absorb_append': () => import('../shaders/rope/mla_absorb_append/cases.js'),
  'rope/mla_up_append': () => import('../shaders/rope/mla_up_append/cases.js'),
  'rope/mla_rope_append': () => import('../shaders/rope/mla_rope_append/cases.js'),
  'rope/rope_append': () => import('../shaders/rope/rope_append/cases.js'),
  'sampling/adjust_logits': () => import('../shaders/sampling/adjust_logits/cases.js'),
  'sampling/argmax_partial': () => import('../shaders/sampling/argmax_partial/cases.js'),
  'sampling/bin_weights': () => import('../shaders/sampling/bin_weights/cases.js'),
  'sampling/candidates': () => import('../shaders/sampling/candidates/cases.js'),
  'sampling/list_bins': () => import('../shaders/sampling/list_bins/cases.js'),
  'sampling/mark_seen': () => import('../shaders/sampling/mark_seen/cases.js'),
  'sampling/merge_candidates': () => import('../shaders/sampling/merge_candidates/cases.js'),
  'sampling/min_p': () => import('../shaders/sampling/min_p/cases.js'),
  'sampling/sample': () => import('../shaders/sampling/sample/cases.js'),
  'sound/light_conv': () => import('../shaders/sound/light_conv/cases.js'),
  'sound/relative_attention': () => import('../shaders/sound/relative_attention/cases.js'),
  'sound/subsample': () => import('../shaders/sound/subsample/cases.js'),
};

export const KERNEL_FOLDERS = Object.keys(FOLDERS);

/**
 * @param part of a folder's name; default: all of them
 * @throws SplitkvError `usage` where none contains it
 */
export function kernelFolders(part = ''): string[] {
  const folders = KERNEL_FOLDERS.filter((folder) => folder.includes(part));
  if (folders.length > 0) return folders;
  throw usageError(`--kernel ${part}: no kernel's folder contains it; there are ${KERNEL_FOLDERS.join(', ')}`);
}

/** The cases and the reference of the kernel in one of KERNEL_FOLDERS. */
export async function loadKernelSuite(folder: string): Promise<AnyKernelSuite> {
  const { suite } = await FOLDERS[folder]!();
  return suite as AnyKernelSuite; // each suite passes its own problems to its own kernel
}
