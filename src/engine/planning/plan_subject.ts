import { KV_BLOCK } from '../../base/kv_units.js';
import { defined } from '../../base/options.js';
import { ceilDiv } from '../../base/math.js';
import {
  defaultPromptChunk,
  type Feature,
  featuresOf,
  type MachineMeasure,
  type ModelSizes,
  type Plan,
} from '../../placement/index.js';
import { hasState } from '../../model/config/model_config.js';
import { keptStates } from '../../model/layers/recurrent/states.js';
import type { AdapterRequest } from '../../gpu/index.js';
import type { Profile } from '../../arrangement/index.js';
import type { CompressionOptions } from '../../model/compression/options.js';
import type { ProbeSubject } from '../measure/probe.js';
import type { MemorySubject } from '../ranks/rank_memory.js';
import { draftStates, type RunnerOptions } from '../contracts/rank.js';

export interface PlanSubject extends MemorySubject, Pick<RunnerOptions, 'kvType' | 'contextLength' | 'compression'> {
  /** Default: the plan's. */
  readonly prefillChunk?: number | undefined;
  /** Sequences that a server's steps have side by side: plans are picked for them. Default: for the requests of `load`, each its own. */
  readonly together?: number | undefined;
  /** False: nothing is kept for sequences that begin like others. */
  readonly prefixCaching?: boolean | undefined;
  /** Drafts are verified: states are kept that wrong ones are taken back to. */
  readonly speculates?: RunnerOptions['speculates'] | undefined;
  /** What a draft model, or the model's own head, takes on the first rank. */
  readonly draftBytes?: number | undefined;
  /** Measures ranks of other machines, which their adapters name; default: this machine's. */
  readonly measure?:
    | ((probe: ProbeSubject, adapters: readonly AdapterRequest[]) => Promise<MachineMeasure>)
    | undefined;
  /** What the plan must go with, besides the compression. */
  readonly features?: readonly Feature[];
  /** How many sequences the ranks of a plan are to be set up for. @throws SplitkvError `limit` where there is room for none */
  readonly seatsOf: (plan: Plan) => Pick<RunnerOptions, 'slots' | 'batches' | 'kvBlocks' | 'windows'>;
}

/** The ranks of a plan, in their order. */
export interface PlanRanks {
  readonly adapters: readonly AdapterRequest[];
  /** Bytes that each may take; undefined: no limit. */
  readonly budgets: readonly (number | undefined)[];
  readonly virtual: boolean;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Measures what each kv head keeps of sample prompts, on ranks that there may be. Undefined where the context is too short to evict
 * anything of.
 */
export type ProfileOf = (
  compression: CompressionOptions,
  subject: PlanSubject,
  ranks: PlanRanks,
) => Promise<Profile | undefined>;

export const subjectFeatures = ({
  compression,
  features = [],
}: Pick<PlanSubject, 'compression' | 'features'>): Feature[] => [...features, ...featuresOf({ compression })];

/** Blocks of whole prompts that ranks keep beside compressed ones, where that is asked for: those of one context. */
export const keptBlocksOf = ({
  compression,
  prefixCaching,
  contextLength,
  features = [],
}: Pick<PlanSubject, 'compression' | 'prefixCaching' | 'contextLength' | 'features'>): number =>
  // A prefill worker keeps them itself.
  compression && prefixCaching && !features.includes('prefillWorker') ? ceilDiv(contextLength, KV_BLOCK) : 0;

/** What ranks with so many slots keep for sequences that begin like others, and of those with drafts, beside the cache itself. */
export const keptOf = (
  subject: Pick<
    PlanSubject,
    'config' | 'compression' | 'prefixCaching' | 'speculates' | 'contextLength' | 'features' | 'draftBytes'
  >,
  seats: Pick<RunnerOptions, 'slots' | 'batches'>,
): Pick<ModelSizes, 'keptStates' | 'keptBlocks' | 'draftBytes'> => ({
  keptStates:
    (subject.prefixCaching === false ? 0 : keptStates(subject.config)) + (subject.speculates ? draftStates(seats) : 0),
  keptBlocks: keptBlocksOf(subject),
  ...defined({ draftBytes: subject.draftBytes }),
});

/** How the ranks of a plan are to be set up. @throws as `seatsOf` */
export const runnerOf = (subject: PlanSubject, plan: Plan): Omit<RunnerOptions, 'memory'> => {
  const { config, kvType, contextLength, prefillChunk, compression, seatsOf } = subject;
  const seats = seatsOf(plan);
  const kept = keptOf(subject, seats);
  return {
    ...seats,
    contextLength,
    prefillChunk: prefillChunk ?? defaultPromptChunk(plan),
    kvType,
    ...defined({ speculates: subject.speculates }),
    ...(hasState(config) && { keptStates: kept.keptStates }),
    ...(config.vision && { images: config.vision.file ?? true }),
    ...(config.sound && { sound: config.sound.file ?? true }),
    ...(compression && { compression, keptBlocks: kept.keptBlocks }),
  };
};
