import { cutsWhole, degree, type Engine, type ExportRequest, layerPartition, perGroup, tensorGroup } from './engine.js';

type Yaml = { readonly [key: string]: number | string | boolean | readonly number[] | Yaml | undefined };

/** Tokens of a block, where the cache is split along the sequence: TensorRT-LLM's default. */
const BLOCK_TOKENS = 32;

/**
 * `trtllm-serve` with a file of the LLM API's options. Attention data parallelism gives every GPU of a stage sequences of its own. Helix
 * splits a latent along the sequence, over GPUs that share the MLP by columns.
 */
export const trtllm: Engine = (request) => {
  const { model, contextLength, degrees, latent, waits } = request;
  const { pipeline, sequence, data, spreadsExperts } = degrees;
  const group = tensorGroup(request);
  const helix = latent && sequence > 1 && data === 1 && group % sequence === 0;
  const context = helix ? sequence : 1;
  const size = group * data;
  const partition = layerPartition(request);
  const differences = [
    ...(data > 1 || helix ? [] : cutsWhole(request)),
    ...splitsOtherwise(request, helix),
    ...(data > 1 && group > 1
      ? [
          `${data} groups of ${group} GPUs that share heads have no equivalent: with enable_attention_dp every GPU holds all heads of ` +
            'whole sequences.',
        ]
      : []),
  ];
  const config: Yaml = {
    tensor_parallel_size: degree(size / context),
    pipeline_parallel_size: degree(pipeline),
    pp_partition: partition,
    context_parallel_size: degree(context),
    cp_config: helix ? { cp_type: 'HELIX', tokens_per_block: BLOCK_TOKENS } : undefined,
    kv_cache_config: helix ? { tokens_per_block: BLOCK_TOKENS } : undefined,
    moe_expert_parallel_size: spreadsExperts ? degree(size) : undefined,
    enable_attention_dp: data > 1 || undefined,
    attention_dp_config: data > 1 ? { ...waits } : undefined,
    max_seq_len: contextLength,
    max_batch_size:
      data > 1 && request.sequences !== undefined ? Math.ceil(request.sequences / size) : perGroup(request),
  };
  const text = yaml(config);
  const file = 'trtllm.yaml';
  return {
    devices: size * pipeline,
    command: ['trtllm-serve', model, ...(text === '' ? [] : ['--config', file])],
    environment: {},
    ...(text !== '' && { config: { file, text } }),
    differences,
  };
};

/** How a cache that the plan splits along the sequence is split here. */
function splitsOtherwise({ degrees: { sequence, data }, latent }: ExportRequest, helix: boolean): string[] {
  if (helix) {
    return [
      'Helix, which splits the latent along the sequence, runs on generation servers of a disaggregated deployment, on Blackwell GPUs; ' +
        `tokens go to GPUs in turns of ${BLOCK_TOKENS}, in the plan of 256.`,
    ];
  }
  if (sequence === 1 || data > 1) return [];
  const where = latent ? 'over GPUs that it divides' : 'with a latent (MLA)';
  return [
    `The plan splits a sequence's cache over ${sequence} ranks; TensorRT-LLM does so ${where} only. Here it is cut by heads.`,
  ];
}

/** Of words and numbers alone, which need no quotes. */
function yaml(values: Yaml, indent = ''): string {
  return Object.entries(values)
    .map(([key, value]) => {
      if (value === undefined) return '';
      if (isList(value)) return `${indent}${key}: [${value.join(', ')}]\n`;
      if (typeof value === 'object') return `${indent}${key}:\n${yaml(value, `${indent}  `)}`;
      return `${indent}${key}: ${value}\n`;
    })
    .join('');
}

const isList = (value: Yaml[string]): value is readonly number[] => Array.isArray(value);
