import { count } from '../../base/lists.js';
import type { PlanDegrees } from './degrees.js';

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
export const flags = (values: Readonly<Record<string, number | true | undefined>>): string[] =>
  Object.entries(values).flatMap(([name, value]) => {
    if (value === undefined) return [];
    return value === true ? [`--${name}`] : [`--${name}`, `${value}`];
  });

/** A degree as a flag: 1 is every engine's default. */
export const degree = (value: number): number | undefined => (value > 1 ? value : undefined);

/** Sequences of one data-parallel group. */
export const perGroup = ({ sequences, degrees }: ExportRequest): number | undefined =>
  sequences === undefined ? undefined : Math.ceil(sequences / degrees.data);

/** GPUs of a tensor-parallel group: all that the plan has, as far as query heads can be dealt over them evenly. */
export function tensorGroup({ degrees: { ranks, data }, heads }: ExportRequest): number {
  let size = Math.floor(ranks / data);
  while (heads % size > 0) size--;
  return size;
}

/** Layers of each stage, where the engine would cut them otherwise: it gives each as many, and some one more. */
export function layerPartition({ degrees: { layers } }: ExportRequest): readonly number[] | undefined {
  return new Set(layers).size > 1 ? layers : undefined;
}

/** What none of the engines has. */
export function generalDifferences(request: ExportRequest): string[] {
  const { degrees, heads } = request;
  const { ranks, data, kvOnly, arranged, copiedHeads, mixed } = degrees;
  const group = ranks / data;
  const size = tensorGroup(request);
  const list: string[] = [];
  if (mixed) {
    list.push('The stages of the plan share their layers in different ways; here all do as the one with most ranks.');
  }
  if (kvOnly > 0) {
    list.push(
      `${count(kvOnly, 'rank')} of ${ranks} ${kvOnly === 1 ? 'keeps' : 'keep'} caches and no weights: that has no ` +
        'equivalent. Here weights are cut over all GPUs, which frees room for caches too.',
    );
  }
  if (arranged) {
    const copies = copiedHeads === 0 ? '' : `, ${count(copiedHeads, 'copied head')} among them`;
    list.push(
      `kv heads lie where the plan puts them${copies}: that has no equivalent. Here each GPU has an even run of neighbours.`,
    );
  }
  if (size < group) {
    list.push(
      `${count(heads, 'query head')} can't be cut evenly over ${count(group, 'GPU')}: ${size} ${size === 1 ? 'is' : 'are'} used` +
        `${data > 1 ? ' in each group' : ''}.`,
    );
  }
  return list;
}

/** What is said where an engine cuts weights that the plan has whole on several ranks, which share sequences. */
export function cutsWhole({ degrees }: ExportRequest): string[] {
  const { tensor, ranks, data, kvOnly, arranged } = degrees;
  const whole = tensor === 1 && ranks > data && kvOnly === 0 && !arranged;
  return whole ? ['Every rank of the plan holds all attention weights; here they are cut over the GPUs.'] : [];
}
