import { expertsOf, type GqaConfig, type MambaConfig, type ModelConfig } from '../../config/model_config.js';
import type { ReferenceTensor, WeightMap } from '../reference/reference.js';
import { f32, type GgufTensor, type GgufValue, u32 } from './file.js';
import type { GgufParts } from './model.js';

export const graniteKeys = (config: ModelConfig, attention: GqaConfig): Record<string, GgufValue> => ({
  'attention.scale': f32(attention.scale),
  embedding_scale: f32(config.embeddingScale),
  residual_scale: f32(config.residualScale),
  logit_scale: f32(1 / config.logitScale),
  'rope.scaling.finetuned': { type: 'bool' as const, value: attention.rope !== null },
});

/** What Granite's models with experts, and hybrids, have in place of attention and MLPs. */
const names: readonly (readonly [from: RegExp, to: string])[] = [
  [/mamba\.(in|out)_proj/, 'ssm_$1'],
  [/mamba\.conv1d/, 'ssm_conv1d'],
  [/mamba\.A_log/, 'ssm_a'],
  [/mamba\.D$/, 'ssm_d'],
  [/mamba\.dt_bias/, 'ssm_dt.bias'],
  [/mamba\.norm/, 'ssm_norm'],
  [/block_sparse_moe\.router\.layer/, 'ffn_gate_inp'],
];

/**
 * Granite with experts; and Granite 4's hybrids: a kv head count for each layer, 0 where it has Mamba; A is negative, norms lie by group; stacks of experts have gate
 * and up apart, and shared MLPs beside them another name.
 */
export function hybridParts(config: ModelConfig, attention: GqaConfig, weights: WeightMap): GgufParts {
  const { kvHeads, headDim } = attention;
  const mamba = config.layers.map((layer) => layer.attention).find(({ kind }) => kind === 'mamba') as
    | MambaConfig
    | undefined;
  const values = mamba ? mamba.valueHeads * mamba.valueDim : 0;
  const experts = expertsOf(config);
  const { mlp } = config.layers[0]!;
  const put = ([name, { shape, data }]: readonly [string, ReferenceTensor]): GgufTensor => {
    if (name.endsWith('A_log')) return { name, shape: [...shape, 1], data: data.map((log) => -Math.exp(log)) };
    if (name.endsWith('mamba.D')) return { name, shape: [...shape, 1], data };
    if (name.endsWith('mamba.norm.weight')) return { name, shape: [mamba!.keyHeads, values / mamba!.keyHeads], data };
    if (name.endsWith('conv1d.weight')) return { name, shape: [shape[0]!, shape[2]!], data };
    return { name, shape, data: pairedRows(name, data, attention) };
  };
  return {
    arch: mamba ? 'granitehybrid' : 'granitemoe',
    metadata: {
      ...graniteKeys(config, attention),
      'attention.head_count_kv': u32(kvHeads),
      'rope.dimension_count': u32(headDim),
      ...(mamba && {
        'attention.head_count_kv': {
          type: 'i32[]',
          value: config.layers.map((layer) => (layer.attention.kind === 'mamba' ? 0 : kvHeads)),
        },
        'ssm.conv_kernel': u32(mamba.taps),
        'ssm.state_size': u32(mamba.keyDim),
        'ssm.group_count': u32(mamba.keyHeads),
        'ssm.time_step_rank': u32(mamba.valueHeads),
        'ssm.inner_size': u32(values),
      }),
      feed_forward_length: u32(mlp.width),
      ...(experts && {
        expert_count: u32(experts.numExperts),
        expert_used_count: u32(experts.expertsPerToken),
        ...(experts.sharedWidth > 0 && { expert_shared_feed_forward_length: u32(experts.sharedWidth) }),
      }),
    },
    tensors: [...sharedMlpApart(weights)].flatMap((entry) => expertsApart(entry)).map(put),
    rename: (name) =>
      names
        .reduce((text, [from, to]) => text.replace(from, to), name)
        .replace(/mlp\.(gate|up|down)_proj/, experts ? 'ffn_$1_shexp' : 'ffn_$1'),
  };
}

/** A stack's halves. */
function expertsApart([name, tensor]: readonly [string, ReferenceTensor]): (readonly [string, ReferenceTensor])[] {
  const { shape, data } = tensor;
  const block = name.replace('block_sparse_moe.', '');
  if (name.endsWith('block_sparse_moe.output_linear.weight'))
    return [[block.replace('output_linear', 'ffn_down_exps'), tensor]];
  if (!name.endsWith('block_sparse_moe.input_linear.weight')) return [[name, tensor]];
  const [count, rows, columns] = shape as [number, number, number];
  const size = (rows / 2) * columns;
  return ['gate', 'up'].map((part, half) => {
    const own = new Float32Array(count * size);
    for (let expert = 0; expert < count; expert++)
      own.set(data.subarray((2 * expert + half) * size, (2 * expert + half + 1) * size), expert * size);
    return [block.replace('input_linear', `ffn_${part}_exps`), { shape: [count, rows / 2, columns], data: own }];
  });
}

/** Granite 4's MLP under Llama's names, gate and up apart. */
export function sharedMlpApart(weights: WeightMap): WeightMap {
  return new Map(
    [...weights].flatMap(([name, { shape, data }]): [string, ReferenceTensor][] => {
      if (!name.includes('shared_mlp.')) return [[name, { shape, data }]];
      const at = name.replace('shared_mlp.', 'mlp.').replace('output_linear', 'down_proj');
      if (!at.includes('input_linear')) return [[at, { shape, data }]];
      const [rows, columns] = [shape[0]! / 2, shape[1]!];
      return ['gate_proj', 'up_proj'].map((part, half) => [
        at.replace('input_linear', part),
        { shape: [rows, columns], data: data.slice(half * rows * columns, (half + 1) * rows * columns) },
      ]);
    }),
  );
}

/** Data of a tensor, where it is q's or k's with their rows in pairs. */
export function pairedRows(name: string, data: Float32Array, { heads, kvHeads, headDim }: GqaConfig): Float32Array {
  const count = name.includes('.q_proj.') ? heads : name.includes('.k_proj.') ? kvHeads : 0;
  return count > 0 ? interleavePairs(data, count, headDim) : data;
}

/** Rows of each head from halves (i, i + headDim / 2) to neighbours (2i, 2i + 1). */
function interleavePairs(data: Float32Array, heads: number, headDim: number): Float32Array {
  const columns = data.length / (heads * headDim);
  const out = new Float32Array(data.length);
  for (let row = 0; row < heads * headDim; row++) {
    const inHead = row % headDim;
    const to = row - inHead + (inHead % (headDim / 2)) * 2 + Math.floor(inHead / (headDim / 2));
    out.set(data.subarray(row * columns, (row + 1) * columns), to * columns);
  }
  return out;
}
