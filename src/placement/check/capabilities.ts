import { unsupportedError, usageError } from '../../base/errors.js';
import { sameList } from '../../base/lists.js';
import { MERGE_LANES } from '../owner.js';
import { cutsColumns, isKvOnly, type ModelShape, type Plan, planName, type RankShare } from '../plan.js';
import { sequencePlaces } from '../sequences/sequence_ranges.js';

/**
 * What goes together, as data: the only place that refuses a combination of plan, model and options. Makers, checkers,
 * the planner, `load` and `serve` ask it; docs/capabilities.md is printed from it (`npm run capabilities`).
 */

/** What a run is made of, in the words of messages and of the page. What nothing excludes is listed too. */
export const FEATURES = {
  // Of a plan.
  token: 'KV-only ranks (plan token)',
  adp: "ranks that run their own sequences' rows (plan adp)",
  arranged: 'heads arranged freely (plan arranged)',
  copies: 'copied heads (arranged)',
  copiedSequences: 'copied heads that share sequences (arranged)',
  copiedLanes: 'copied heads that share the chunks of each sequence (arranged)',
  cutHeads: 'heads cut over ranks (tp)',
  splitChunks: 'chunks of a sequence split over ranks (sp, ep)',
  splitPlaces: 'places of several ranks that split sequences (token x sp, adp x sp)',
  cutColumns: 'columns cut further than kv heads (tp)',
  spreadExperts: 'experts spread over ranks with the same heads (ep)',
  stages: 'layers in several stages (pp)',
  onePlace: 'a plan that keeps all requests on the same ranks',
  // Of a model.
  gqa: 'a cache of keys and values by kv head (GQA, MHA)',
  latent: 'a latent cache (MLA)',
  windowed: 'a model whose layers have windows',
  recurrent: 'a model with recurrent layers (convolutions, linear attention)',
  mixedHeads: 'a model whose layers differ in their kv heads',
  bothWays: 'an encoder',
  experts: 'a model with routed experts',
  dense: 'a model without experts',
  // Options.
  compression: 'a compressed cache (kvBudget)',
  prefixCaching: 'shared prefixes (prefixCaching)',
  prefillWorker: 'a prefill worker (prefill)',
  keptKv: 'a kept cache (kvDir, prefixes)',
  attentionDp: 'balance between ranks (attentionDpConfig)',
  moves: 'moves of running sequences between slots',
  rankMoves: 'moves of running sequences between ranks',
  workers: 'a worker for each rank (workers)',
  virtualRanks: 'ranks that share a device (virtualRanks)',
  microBatches: 'micro-batches (microBatches)',
  requests: 'several requests of load (requests)',
  mixedAdapters: 'ranks on adapters of different kinds',
} as const satisfies Readonly<Record<string, string>>;
export type Feature = keyof typeof FEATURES;

/** Those that something is given for. */
export const featuresOf = (given: { readonly [Name in Feature]?: unknown }): Feature[] =>
  (Object.keys(given) as Feature[]).filter((name) => given[name]);

const MODEL: readonly Feature[] = [
  'gqa',
  'latent',
  'windowed',
  'recurrent',
  'mixedHeads',
  'bothWays',
  'experts',
  'dense',
];

export interface Exclusion {
  readonly of: readonly [Feature, Feature];
  /** But with this one they do. */
  readonly unless?: Feature;
  readonly because: string;
  readonly instead: string;
}

export const EXCLUSIONS: readonly Exclusion[] = [
  {
    of: ['adp', 'token'],
    because: 'a rank that runs rows needs weights, and a KV-only rank has none',
    instead: 'use adp alone, or token',
  },
  {
    of: ['token', 'spreadExperts'],
    because: 'KV-only ranks hold no experts, and no rank has the heads of a root',
    instead: 'use tp x token, which spreads experts over the roots, or adp',
  },
  {
    of: ['arranged', 'latent'],
    because: 'a latent has no kv heads to arrange',
    instead: 'use tp or sp',
  },
  {
    of: ['arranged', 'adp'],
    because: 'every rank holds all heads, for its own sequences, so uneven heads cost all ranks alike',
    instead: 'use one of them alone',
  },
  {
    of: ['arranged', 'token'],
    because: 'a KV-only rank attends for all heads of its root, so no head can be elsewhere',
    instead: 'use arranged with copies that share sequences',
  },
  {
    of: ['spreadExperts', 'dense'],
    because: 'this model has no experts to spread',
    instead: 'use tp, sp, tp+sp or pp',
  },
  {
    of: ['compression', 'latent'],
    because: 'all heads read one latent, so no head has entries of its own to evict',
    instead: 'leave kvBudget out',
  },
  {
    of: ['compression', 'windowed'],
    because: 'a window counts neighbouring tokens, and a compressed head keeps scattered ones',
    instead: 'leave kvBudget out: a layer with a window reads its last tokens only',
  },
  {
    of: ['arranged', 'mixedHeads'],
    because: 'an arrangement places the same heads in every layer, and here layers have different ones',
    instead: 'use tp or sp',
  },
  {
    of: ['compression', 'mixedHeads'],
    because: 'a budget is shared out among equally many heads in each layer',
    instead: 'leave kvBudget out',
  },
  {
    of: ['recurrent', 'splitChunks'],
    // Then each of these ranks runs every row, and has the states of its heads.
    unless: 'cutColumns',
    because: 'a state depends on all earlier tokens, so ranks would wait for each other chunk by chunk',
    instead: 'use tp, pp, token or adp',
  },
  {
    of: ['recurrent', 'arranged'],
    because: 'heads of recurrent layers cost the same whatever the prompt, and have no cache to arrange',
    instead: 'use tp or pp',
  },
  {
    of: ['compression', 'recurrent'],
    because: 'recurrent layers have a state in place of entries to evict, and the others are few',
    instead: 'leave kvBudget out',
  },
  {
    of: ['recurrent', 'prefillWorker'],
    because: 'the worker hands over keys and values, without the states of recurrent layers',
    instead: 'leave prefill out',
  },
  {
    of: ['recurrent', 'moves'],
    because: 'a state stays with its slot',
    instead: 'sequences stay where they began',
  },
  ...(['splitChunks', 'token', 'adp', 'arranged'] as const).map((other) => ({
    of: ['bothWays', other] as const,
    because: 'each rank needs all of a text',
    instead: 'use tp or pp',
  })),
  ...(['compression', 'prefixCaching', 'prefillWorker', 'keptKv'] as const).map((other) => ({
    of: ['bothWays', other] as const,
    because: 'nothing of a text is kept',
    instead: 'leave the option out',
  })),
  {
    of: ['compression', 'keptKv'],
    because: 'what each head keeps depends on the whole prompt',
    instead: 'leave one of them out',
  },
  {
    of: ['prefillWorker', 'keptKv'],
    because: 'the worker hands over whole prompts',
    instead: 'leave one of them out',
  },
  {
    of: ['copies', 'keptKv'],
    because: 'copies of a head share it in tables of their own',
    instead: 'arrange with --copies 0, or keep nothing',
  },
  {
    of: ['compression', 'splitPlaces'],
    because: 'KV-only ranks have no weights to compute whole prompts with',
    instead: 'use sp, tp+sp or ep, whose ranks have weights, or token alone',
  },
  {
    of: ['compression', 'moves'],
    because: 'each head of a sequence has blocks of its own, which stay with its slot',
    instead: 'sequences stay where they began',
  },
  {
    of: ['copiedSequences', 'prefixCaching'],
    because: 'only the copies that had the first sequence keep its prefix',
    instead: 'arrange with --copies 0, or turn prefixCaching off',
  },
  {
    of: ['copiedLanes', 'prefixCaching'],
    unless: 'compression',
    because: 'each copy keeps only its own chunks, in tables of its own',
    instead: 'arrange with --copies 0, or turn prefixCaching off',
  },
  {
    of: ['copies', 'moves'],
    because: 'each head of a sequence has blocks of its own, which stay with its slot',
    instead: 'copies share sequences out anew by themselves',
  },
  {
    of: ['splitChunks', 'moves'],
    because: 'its chunks would have to go from several ranks to several others',
    instead: 'sequences stay where they began',
  },
  {
    of: ['attentionDp', 'onePlace'],
    because: 'there is no rank to choose for a request',
    instead: 'use plan adp or token, or leave attentionDpConfig out',
  },
  {
    of: ['rankMoves', 'onePlace'],
    because: 'no other rank keeps sequences',
    instead: 'sequences stay where they began',
  },
  {
    of: ['workers', 'virtualRanks'],
    because: 'a rank in a worker has a device of its own',
    instead: 'leave one of them out',
  },
];

/** The first exclusion that these features meet, with each other or with a stage of the plan. */
export function exclusionOf(
  features: Iterable<Feature>,
  plan?: Pick<Plan, 'stages' | 'sharing'>,
): Exclusion | undefined {
  const given = [...features];
  const sets = (plan ? stagesFeatures(plan) : [[]]).map((own) => new Set([...given, ...own]));
  const meets = (set: ReadonlySet<Feature>, { of, unless }: Exclusion): boolean =>
    of.every((feature) => set.has(feature)) && !(unless && set.has(unless));
  return EXCLUSIONS.find((exclusion) => sets.some((set) => meets(set, exclusion)));
}

/** Why these features don't go together, and what to use instead; undefined where they do. */
export function misfit(features: Iterable<Feature>, plan?: Pick<Plan, 'stages' | 'sharing'>): string | undefined {
  const exclusion = exclusionOf(features, plan);
  return exclusion && explain(exclusion);
}

function explain({ of: [first, other], because, instead }: Exclusion): string {
  return `${FEATURES[first]} can't be had with ${FEATURES[other]}: ${because}; ${instead}`;
}

/** @throws SplitkvError with the first exclusion: `unsupported` where the model is a part of it, otherwise `usage` */
export function checkTogether(features: Iterable<Feature>, plan?: Plan): void {
  const exclusion = exclusionOf(features, plan);
  if (!exclusion) return;
  const error = exclusion.of.some((feature) => MODEL.includes(feature)) ? unsupportedError : usageError;
  throw error(`${plan ? `${planName(plan)}: ` : ''}${explain(exclusion)}`);
}

export const modelFeatures = ({ numExperts, ...shape }: ModelShape): Feature[] => {
  const { latent, windowed, recurrent, mixedHeads, bothWays } = shape;
  const experts = numExperts > 0;
  return featuresOf({ gqa: !latent, latent, windowed, recurrent, mixedHeads, bothWays, experts, dense: !experts });
};

/** What a word of a policy's name brings along, on enough ranks. */
const WORD_FEATURES: Readonly<Record<string, Feature>> = {
  pp: 'stages',
  tp: 'cutHeads',
  sp: 'splitChunks',
  ep: 'spreadExperts',
  token: 'token',
  adp: 'adp',
  arranged: 'arranged',
};

export const wordFeatures = (words: readonly string[]): Feature[] => words.flatMap((word) => WORD_FEATURES[word] ?? []);

/** Of each stage: stages of different kinds may follow each other. */
function stagesFeatures({ stages, sharing }: Pick<Plan, 'stages' | 'sharing'>): Feature[][] {
  const onePlace = !stages.some(choosesPlace);
  return stages.map(({ kind, shares }) => {
    const holders = shares.filter((share) => !isKvOnly(share));
    const [first] = holders as [RankShare];
    const splits = shares.some(({ lanes }) => lanes.length < MERGE_LANES);
    const sharesHeads = holders.some((share) => share !== first && sameList(share.heads, first.heads));
    return featuresOf({
      token: kind === 'token',
      adp: kind === 'adp',
      arranged: kind === 'arranged',
      copies: sharing !== undefined,
      copiedSequences: sharing === 'sequences',
      copiedLanes: sharing === 'lanes',
      cutHeads: holders.some(({ heads }) => !sameList(heads, first.heads)),
      splitChunks: splits,
      cutColumns: kind === 'tensor' && cutsColumns(holders),
      splitPlaces: splits && kind !== 'tensor',
      spreadExperts: sharesHeads && holders.some(({ experts }) => !sameList(experts, first.experts)),
      stages: stages.length > 1,
      onePlace,
    });
  });
}

const choosesPlace = ({ kind, shares }: Plan['stages'][number]): boolean =>
  kind === 'adp' ||
  (kind === 'token' && shares.some((share) => !isKvOnly(share) && sequencePlaces(share, shares).length > 1));
