import { count, range } from '../../base/lists.js';
import type { PlanDegrees } from './export_plan.js';

/** How prompts wait for company under attention data parallelism; TensorRT-LLM's names. */
export interface AttentionDpWaits {
  /** Prompts wait for those of other ranks. */
  readonly enable_balance: boolean;
  /** Iterations that they wait for every rank to have one ... */
  readonly timeout_iters: number;
  /** ... and then for more. */
  readonly batching_wait_iters: number;
}

/** How an engine is launched. */
export interface Launch {
  /** GPUs that it takes. */
  readonly devices: number;
  /** The program and its arguments. */
  readonly command: readonly string[];
  /** Environment variables that it needs. */
  readonly environment: Readonly<Record<string, string>>;
  /** A file that the command names, in the folder where it is run. */
  readonly config?: { readonly file: string; readonly text: string };
  /** What the engine does differently, and what of the plan has no equivalent; a sentence each. Empty: nothing. */
  readonly differences: readonly string[];
}

/** What an engine is told. */
export interface ExportRequest {
  readonly model: string;
  readonly contextLength: number | undefined;
  readonly sequences: number | undefined;
  readonly waits: AttentionDpWaits;
  readonly degrees: PlanDegrees;
  /** Query heads. */
  readonly heads: number;
  readonly kvHeads: number;
  /** The cache is one latent for all heads (MLA). */
  readonly latent: boolean;
}

export type Engine = (request: ExportRequest) => Launch;

/** `--name value`, without those that are undefined. */
const flags = (values: Readonly<Record<string, number | true | undefined>>): string[] =>
  Object.entries(values).flatMap(([name, value]) => {
    if (value === undefined) return [];
    return value === true ? [`--${name}`] : [`--${name}`, `${value}`];
  });

/** A degree as a flag: 1 is every engine's default. */
const degree = (value: number): number | undefined => (value > 1 ? value : undefined);

/** The sentences that are so. */
const said = (...sentences: readonly (readonly [isSo: boolean, sentence: string])[]): string[] =>
  sentences.flatMap(([isSo, sentence]) => (isSo ? [sentence] : []));

/** Sequences of one data-parallel group. */
const perGroup = ({ sequences, degrees }: ExportRequest): number | undefined =>
  sequences === undefined ? undefined : Math.ceil(sequences / degrees.data);

/** The most of so many GPUs that divide a number. */
const divisorUpTo = (most: number, number: number): number =>
  Math.max(1, ...range(1, most + 1).filter((size) => number % size === 0));

/** GPUs of a tensor-parallel group: all that the plan has, as far as query heads can be dealt over them evenly. */
const tensorGroup = ({ degrees: { ranks, data }, heads }: ExportRequest): number =>
  divisorUpTo(Math.floor(ranks / data), heads);

/** Layers of each stage, where the engine would cut them otherwise: it gives each as many, and some one more. */
function layerPartition({ degrees: { layers } }: ExportRequest): readonly number[] | undefined {
  return new Set(layers).size > 1 ? layers : undefined;
}

/** The same in an environment variable. */
function partitionIn(variable: string, request: ExportRequest): Launch['environment'] {
  const partition = layerPartition(request);
  return partition ? { [variable]: partition.join() } : {};
}

/** What none of the engines has. */
export function generalDifferences(request: ExportRequest): string[] {
  const { ranks, data, kvOnly, arranged, copiedHeads, mixed } = request.degrees;
  const group = ranks / data;
  const size = tensorGroup(request);
  const copies = copiedHeads === 0 ? '' : `, ${count(copiedHeads, 'copied head')} among them`;
  return said(
    [mixed, 'The stages of the plan share their layers in different ways; here all do as the one with most ranks.'],
    [
      kvOnly > 0,
      `${count(kvOnly, 'rank')} of ${ranks} ${kvOnly === 1 ? 'keeps' : 'keep'} caches and no weights: that has no ` +
        'equivalent. Here weights are cut over all GPUs, which frees room for caches too.',
    ],
    [
      arranged,
      `kv heads lie where the plan puts them${copies}: that has no equivalent. Here each GPU has an even run of neighbours.`,
    ],
    [
      size < group,
      `${count(request.heads, 'query head')} can't be cut evenly over ${count(group, 'GPU')}: ${size} ` +
        `${size === 1 ? 'is' : 'are'} used${data > 1 ? ' in each group' : ''}.`,
    ],
  );
}

/** What is said where an engine cuts weights that the plan has whole on several ranks, which share sequences. */
function cutsWhole({ degrees }: ExportRequest): string[] {
  const { tensor, ranks, data, kvOnly, arranged } = degrees;
  const whole = tensor === 1 && ranks > data && kvOnly === 0 && !arranged;
  return said([whole, 'Every rank of the plan holds all attention weights; here they are cut over the GPUs.']);
}

/** `vllm serve`. Decode context parallelism reuses the GPUs of a tensor-parallel group, where they would hold copies of kv heads. */
export const vllm: Engine = (request) => {
  const { model, contextLength, degrees, kvHeads, latent, waits } = request;
  const { pipeline, sequence, data, cutsMlp, spreadsExperts } = degrees;
  const tensor = tensorGroup(request);
  const copies = Math.floor(tensor / (latent ? 1 : kvHeads));
  const context = divisorUpTo(Math.min(sequence, copies), tensor);
  return {
    devices: tensor * data * pipeline,
    command: [
      'vllm',
      'serve',
      model,
      ...flags({
        'tensor-parallel-size': degree(tensor),
        'pipeline-parallel-size': degree(pipeline),
        'data-parallel-size': degree(data),
        'decode-context-parallel-size': degree(context),
        'enable-expert-parallel': spreadsExperts || undefined,
        'max-model-len': contextLength,
        'max-num-seqs': perGroup(request),
      }),
    ],
    environment: partitionIn('VLLM_PP_LAYER_PARTITION', request),
    differences: [
      ...cutsWhole(request),
      ...said(
        [
          context < sequence,
          `The plan splits a sequence's cache over ${sequence} ranks; vLLM splits it over ${context}, as it does so only where GPUs ` +
            'would hold copies of a kv head (tensor-parallel size over kv heads). The rest is cut by heads.',
        ],
        [
          context > 1,
          'Tokens go to GPUs one at a time in turns (--cp-kv-cache-interleave-size), in the plan 256 at a time.',
        ],
        [
          data > 1 && cutsMlp,
          'MLP columns are cut over all ranks of the plan; vLLM keeps dense MLPs whole in each data-parallel group.',
        ],
        [
          data > 1 && waits.enable_balance,
          'Prompts that wait for those of other ranks (attention_dp_config) have no equivalent.',
        ],
      ),
    ],
  };
};

/** `python -m sglang.launch_server`. Its tensor-parallel size counts all GPUs of a stage, those of all data-parallel groups of attention. */
export const sglang: Engine = (request) => {
  const { model, contextLength, sequences, degrees, latent, waits } = request;
  const { pipeline, sequence, data, spreadsExperts } = degrees;
  const group = tensorGroup(request);
  const context = latent ? divisorUpTo(Math.min(sequence, group), group) : 1;
  const delays = data > 1 && waits.enable_balance;
  return {
    devices: group * data * pipeline,
    command: [
      'python',
      '-m',
      'sglang.launch_server',
      '--model-path',
      model,
      ...flags({
        'tp-size': degree(group * data),
        'pp-size': degree(pipeline),
        'dp-size': degree(data),
        'enable-dp-attention': data > 1 || undefined,
        'enable-dp-lm-head': data > 1 || undefined,
        'dcp-size': degree(context),
        'ep-size': spreadsExperts ? degree(group * data) : undefined,
        'enable-prefill-delayer': delays || undefined,
        'prefill-delayer-max-delay-passes': delays ? waits.timeout_iters : undefined,
        'context-length': contextLength,
        'max-running-requests': sequences,
      }),
    ],
    environment: partitionIn('SGLANG_PP_LAYER_PARTITION', request),
    differences: [
      ...cutsWhole(request),
      ...said(
        [
          context < sequence,
          `The plan splits a sequence's cache over ${sequence} ranks; SGLang ` +
            (latent ? `over ${context}.` : 'does so with a latent (MLA) only. Here it is cut by heads.'),
        ],
        [context > 1, 'Tokens go to GPUs one at a time in turns, in the plan 256 at a time.'],
        [
          delays,
          "Prompts that wait for those of other ranks: SGLang's own rule (--enable-prefill-delayer); batching_wait_iters has no equivalent.",
        ],
      ),
    ],
  };
};

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
  const config: Yaml = {
    tensor_parallel_size: degree(size / context),
    pipeline_parallel_size: degree(pipeline),
    pp_partition: layerPartition(request),
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
    differences: [
      ...(data > 1 || helix ? [] : cutsWhole(request)),
      ...said(
        [
          helix,
          'Helix, which splits the latent along the sequence, runs on generation servers of a disaggregated deployment, on Blackwell ' +
            `GPUs; tokens go to GPUs in turns of ${BLOCK_TOKENS}, in the plan of 256.`,
        ],
        [
          !helix && sequence > 1 && data === 1,
          `The plan splits a sequence's cache over ${sequence} ranks; TensorRT-LLM does so ` +
            `${latent ? 'over GPUs that it divides' : 'with a latent (MLA)'} only. Here it is cut by heads.`,
        ],
        [
          data > 1 && group > 1,
          `${data} groups of ${group} GPUs that share heads have no equivalent: with enable_attention_dp every GPU holds all heads ` +
            'of whole sequences.',
        ],
      ),
    ],
  };
};

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
