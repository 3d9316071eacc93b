import type { SuiteRequest } from '../../../bench/run_suite.js';
import { usageError } from '../../../src/base/errors.js';
import type { WeightType } from '../../../src/index.js';

/** Fields of text; empty means what the suite takes usually. */
export const FIELDS = ['model', 'weight', 'plans', 'ranks', 'batch', 'clients', 'prompts', 'tokens', 'runs'] as const;
export type Field = (typeof FIELDS)[number];

interface PageSuite {
  /** In a few words. */
  readonly title: string;
  /** What it tells, in a sentence or two. */
  readonly about: string;
  /** The fields that it reads, with what they are where they stay empty. */
  readonly usual: Readonly<Partial<Record<Field, string>>>;
}

/** The suites that a page can run. */
export const SUITES = {
  decode: {
    title: 'tokens per second',
    about: 'Generated tokens per second and the time to the first one, by prompt length and weights.',
    usual: { model: '', prompts: 'as fits', tokens: '32', runs: '5' },
  },
  prefill: {
    title: 'reading prompts',
    about: 'Prompt tokens per second, by prompt length and weights.',
    usual: { model: '', prompts: 'as fits', runs: '5' },
  },
  kernels: {
    title: 'share of what the adapter can do',
    about: "Every kernel's cases against the adapter's copy bandwidth and multiply-adds.",
    usual: { runs: '5' },
  },
  ranks: {
    title: 'several GPUs against one',
    about:
      'Plans on several devices against one device: the same prompts and answers, in turns. Devices of one GPU share it, so that ' +
      'they show what the exchanges cost.',
    usual: {
      model: '',
      weight: 'as stored',
      plans: 'tp, sp, pp',
      ranks: '2',
      batch: '8',
      prompts: '1024',
      tokens: '32',
      runs: '5',
    },
  },
  throughput: {
    title: 'batches on several GPUs',
    about: 'Generated tokens per second of plans on several devices, by batch and by tokens in the cache.',
    usual: {
      model: '',
      weight: 'as stored',
      plans: 'tp, token',
      ranks: '2',
      batch: '1, 8, 32',
      prompts: '128, 512, 1024',
      tokens: '16',
      runs: '5',
    },
  },
  profile: {
    title: "attention's part of a step",
    about: 'How much of a decode step attention is on one GPU, by sequences and context: what several could share.',
    usual: { model: '', weight: 'as stored', batch: '1, 8', prompts: '512, 1024, 2048', tokens: '8', runs: '5' },
  },
  arranged: {
    title: 'heads by load on several GPUs',
    about: 'Heads with unequal caches on several devices: in order, by their load, and copied.',
    usual: {
      model: '',
      weight: 'as stored',
      ranks: '2, 4, 8',
      batch: '1, 8, 32',
      prompts: '2048',
      tokens: '8',
      runs: '5',
    },
  },
  serve: {
    title: 'many clients at once',
    about: 'Throughput and latency of the engine that answers many requests side by side.',
    usual: { model: '', weight: 'as stored', ranks: '1', clients: '1, 4, 16', prompts: '128', tokens: '32', runs: '3' },
  },
  peers: {
    title: 'beside onnxruntime-web',
    about:
      'The same weights on the same adapter in another runtime: decode, attention and matrices. One whose results differ is not timed. ' +
      'It downloads 27 MB from this site.',
    usual: { model: '', weight: 'f32', prompts: 'as fits', tokens: '32', runs: '5' },
  },
  gpu: {
    title: 'all that is asked of a GPU',
    about: 'Everything at once, in ten minutes at most: overheads, rates, matrices, attention, plans of kernels, bits.',
    usual: { model: '' },
  },
} as const satisfies Partial<Record<SuiteRequest['suite'], PageSuite>> as Readonly<Record<SuiteName, PageSuite>>;

export type SuiteName = Exclude<SuiteRequest['suite'], 'check' | 'speculate' | 'vision'>;

/** The form as it was filled in. */
export interface BenchForm {
  text(field: Field | 'kernel'): string;
  /** Of suites that compare several. */
  readonly weights: readonly string[];
}

const WEIGHTS = ['f32', 'f16', 'q8', 'q4'];
/** Of all the suite takes. */
const GPU_SECONDS = 600;

/** What the form asks of a suite. @throws SplitkvError `usage` for what can't be read, with the field's name */
export function requestOf(suite: SuiteName, form: BenchForm): SuiteRequest {
  const { usual } = SUITES[suite];
  const text = (field: Field): string => form.text(field) || (usual[field] ?? '');
  const numbers = (field: Field, least = 1): number[] =>
    text(field)
      .split(',')
      .map((part) => wholeNumber(part.trim(), `${LABELS[field]} "${text(field)}"`, least));
  const one = (field: Field, least = 1): number => {
    const [value, ...others] = numbers(field, least);
    if (others.length > 0) throw usageError(`${LABELS[field]} "${text(field)}": this suite takes one number`);
    return value!;
  };
  const adapter = { powerPreference: 'high-performance' } as const;
  if (suite === 'kernels') {
    const kernel = form.text('kernel');
    return { suite, runs: one('runs'), adapter, ...(kernel !== '' && { kernel }) };
  }
  const model = new URL(text('model'), document.baseURI).href;
  if (suite === 'gpu') return { suite, adapter, models: [model], load: {}, seconds: GPU_SECONDS };
  const weight = text('weight') === 'as stored' ? undefined : (text('weight') as WeightType);
  if (weight !== undefined && 'weight' in usual && !WEIGHTS.includes(weight)) {
    throw usageError(`weights "${weight}": expected one of ${WEIGHTS.join(', ')}`);
  }
  const own = { model, ...(weight !== undefined && { weights: weight }) };
  const prompts = text('prompts') === 'as fits' ? {} : { promptTokens: numbers('prompts') };
  const runs = one('runs');
  switch (suite) {
    case 'decode':
    case 'prefill': {
      if (form.weights.length === 0) throw usageError('weights: tick at least one kind');
      const loads = form.weights.map((type) => ({ weights: type as WeightType }));
      const answers = { model, loads, runs, ...prompts };
      return suite === 'prefill' ? { suite, ...answers } : { suite, ...answers, maxTokens: one('tokens') };
    }
    case 'peers': {
      const packages = { onnxruntimeWeb: new URL('peers/onnxruntime-web/', document.baseURI).href };
      return {
        suite,
        model,
        weights: weight ?? 'f32',
        adapter,
        ...prompts,
        maxTokens: one('tokens', 3),
        runs,
        packages,
      };
    }
    case 'ranks':
      return {
        suite,
        ...own,
        adapter,
        plans: plansOf(text('plans')),
        ranks: numbers('ranks', 2),
        promptTokens: one('prompts'),
        batch: one('batch'),
        maxTokens: one('tokens', 2),
        runs,
      };
    case 'throughput':
      return {
        suite,
        ...own,
        adapter,
        plans: plansOf(text('plans')),
        ranks: one('ranks', 2),
        microBatches: [1, 2],
        batches: numbers('batch'),
        contexts: numbers('prompts'),
        maxTokens: one('tokens', 2),
        runs,
      };
    case 'profile':
      return {
        suite,
        ...own,
        adapter,
        batches: numbers('batch'),
        contexts: numbers('prompts'),
        maxTokens: one('tokens', 2),
        runs,
      };
    case 'arranged':
      return {
        suite,
        ...own,
        wide: false,
        adapter,
        ranks: numbers('ranks', 2),
        batches: numbers('batch'),
        budget: 0.2,
        promptTokens: one('prompts'),
        maxTokens: one('tokens', 2),
        runs,
      };
    case 'serve': {
      const ranks = one('ranks');
      return {
        suite,
        model,
        options: { ...(weight !== undefined && { weights: weight }), ...(ranks > 1 && { ranks }) },
        microBatches: ['auto'],
        clients: numbers('clients'),
        requestsEach: 2,
        promptTokens: one('prompts'),
        maxTokens: one('tokens', 2),
        runs,
      };
    }
  }
}

/** As the page calls the fields. */
const LABELS: Readonly<Record<Field, string>> = {
  model: 'model',
  weight: 'weights',
  plans: 'plans',
  ranks: 'ranks',
  batch: 'batch',
  clients: 'clients',
  prompts: 'prompt lengths',
  tokens: 'tokens an answer',
  runs: 'runs',
};

const plansOf = (text: string): string[] => text.split(',').map((plan) => plan.trim());

function wholeNumber(text: string, given: string, least: number): number {
  const value = /^\d{1,7}$/.test(text) ? Number(text) : 0;
  if (value >= least) return value;
  throw usageError(`${given}: expected whole numbers from ${least} on, with commas between, such as 32, 128`);
}
