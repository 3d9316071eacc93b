import { codeOf, type ErrorCode, messageOf, SplitkvError } from '../../base/errors.js';
import { grouped } from '../../base/math.js';
import type { LoadOptions } from '../../index.js';
import { SAY, type Say } from './strings.js';

/** The model was loaded, and what it computes is wrong. */
export class SelfTestFailure extends SplitkvError {
  constructor(problem: string) {
    super('internal', problem);
  }
}

/** What can be done about an error, by pressing a button. */
export interface Remedy {
  readonly label: string;
  /**
   * 'retry': load the model again, with these options instead; 'download': delete what is kept of it first; 'recover': bring lost ranks
   * back; 'clear': begin a new conversation; 'forget': ask again, without the oldest turns; 'ignore': go on all the same; 'models': choose
   * another model.
   */
  readonly action: 'retry' | 'download' | 'recover' | 'clear' | 'forget' | 'ignore' | 'models';
  readonly load?: LoadOptions;
}

/** An error for people: what happened, what to do, what the library said. */
export interface Explanation {
  readonly title: string;
  readonly advice: string;
  readonly detail: string;
  readonly address?: string | undefined;
  /** What was reported is what whoever made the page needs: it is in sight. */
  readonly isOpen?: boolean;
  /** Nothing went wrong. */
  readonly neutral?: boolean;
  readonly remedies: readonly Remedy[];
}

export interface ErrorContext {
  readonly load?: LoadOptions;
  /** The model comes over the network, so that this browser may keep a copy of it. */
  readonly downloaded?: boolean;
  /** Options with which it was checked to fit; of a context that is full, with a longer one. */
  readonly smaller?: readonly LoadOptions[];
  /** The conversation has turns that could be left out. */
  readonly canForget?: boolean;
}

export function explain(
  error: unknown,
  { load = {}, downloaded = false, smaller = [], canForget = false }: ErrorContext = {},
  say: Say = SAY,
): Explanation {
  const [code, detail] = [codeOf(error), messageOf(error)];
  const again: Remedy = { label: say('try_again'), action: 'retry' };
  const anew: Remedy = { label: say('download_again'), action: 'download' };
  const told = (what: Told, ...remedies: readonly Remedy[]): Explanation => ({
    title: say(`title_${what}`),
    advice: say(`advice_${what}`),
    detail,
    remedies,
  });
  if (error instanceof SelfTestFailure) {
    return told('wrong_gpu', again, { label: say('use_anyway'), action: 'ignore' });
  }
  if (isMissingPart(error)) return told('missing_part', again);
  if (code === 'no_webgpu' && globalThis.isSecureContext === false) return told('insecure');
  const cluster = load.cluster && CLUSTER.find(([of, message]) => of === code && message.test(detail))?.[2];
  if (cluster && cluster !== 'lost') return told(`cluster_${cluster}`, again);
  if (code === 'io' && /\bis damaged\b/.test(detail)) return told('damaged', downloaded ? anew : again);
  const full = code === 'context_full' && tooLong(error);
  const remedies = code === 'format' && downloaded ? [anew] : remediesOf(code, say, { load, smaller, canForget });
  return {
    ...told(code, ...remedies),
    ...(full && { advice: `${say('tokens_over', full)} ${say('advice_context_full')}` }),
    ...(cluster && { advice: say('advice_cluster_lost') }),
    neutral: code === 'aborted',
    isOpen: code === 'usage',
    ...(code === 'io' && downloaded && explainIo(detail, say)),
  };
}

/** What there is a title and an advice for. */
type Told =
  | ErrorCode
  | 'wrong_gpu'
  | 'missing_part'
  | 'insecure'
  | 'damaged'
  | `cluster_${'away' | 'account' | 'ranks'}`;
type Reason = 'gated' | 'token' | 'often' | 'name' | 'page' | 'gone' | 'refused' | 'ranges' | 'broke' | 'cors';

/** What the server did, as far as the message tells. */
const REASONS: readonly (readonly [message: RegExp, reason: Reason])[] = [
  [/\bis gated\b/, 'gated'],
  [/the Hub refuses the token/, 'token'],
  [/HTTP 429/, 'often'],
  [/or it is private|may not see it|has no revision '/, 'name'],
  [/answered with a web page/, 'page'],
  [/range requests/, 'ranges'],
  [/answered HTTP (404|410)|has no config\.json|is not in |holds no weights/, 'gone'],
  [/answered HTTP 40[13]/, 'refused'],
  [/broke off|nothing came for/, 'broke'],
  [/allow this origin by CORS/, 'cors'],
];

/** What was the matter with a cluster, by the code and the message. */
const CLUSTER: readonly (readonly [code: ErrorCode, message: RegExp, reason: 'away' | 'account' | 'ranks' | 'lost'])[] =
  [
    ['io', /^cluster |^the cluster's server is away/, 'away'],
    ['usage', /the server refuses this account/, 'account'],
    ['usage', /^ranks? .*: the cluster has /, 'ranks'],
    ['peer_lost', /./, 'lost'],
  ];

function explainIo(detail: string, say: Say): Pick<Explanation, 'title' | 'advice' | 'address'> {
  const offline = globalThis.navigator?.onLine === false;
  const reason = offline ? 'offline' : REASONS.find(([message]) => message.test(detail))?.[1];
  const address = /\bhttps?:\/\/[^\s'")]+/.exec(detail)?.[0].replace(/[.,;:]+$/, '');
  if (!reason) return { title: say('title_io'), advice: say('advice_io'), address };
  return {
    title: say('title_io_why', { why: say(`why_${reason}`) }),
    advice: say(`advice_${reason}`),
    address,
  };
}

/** Code that a page loads on demand, and that didn't come: Chrome, Firefox and Safari each say it their way. */
const isMissingPart = (error: unknown): error is TypeError =>
  error instanceof TypeError && /dynamically imported module|importing a module script failed/i.test(error.message);

function remediesOf(
  code: ErrorCode,
  say: Say,
  { load, smaller, canForget }: Required<Omit<ErrorContext, 'downloaded'>>,
): readonly Remedy[] {
  const again: Remedy = { label: say('try_again'), action: 'retry' };
  switch (code) {
    case 'limit':
      return [...smaller.map((options) => smallerRemedy(options, load, say)), again];
    case 'device_lost':
    case 'peer_lost':
      return [{ label: say('bring_back'), action: 'recover' }];
    case 'context_full':
      return [
        ...(canForget ? [{ label: say('forget_oldest'), action: 'forget' } as const] : []),
        ...smaller.map((options) => smallerRemedy(options, load, say)),
        { label: say('new_conversation'), action: 'clear' },
      ];
    case 'usage':
    case 'config':
    case 'unsupported':
      return [];
    case 'aborted':
      return [{ label: say('go_on'), action: 'retry' }];
    default:
      return [again];
  }
}

/** By how much a prompt is too long, as far as its message tells; the same as texts are filled in. */
export function tooLong(error: unknown): Record<'tokens' | 'most' | 'over', number> | undefined {
  const { details } = error instanceof SplitkvError ? error : {};
  return details && { ...details, over: details.tokens - details.most };
}

const SHORTEST_CONTEXT = 512;
const DEFAULT_CONTEXT = 4096;

/** Options that take less memory, the ones that change least first. */
export function smallerOptions(load: LoadOptions, weights: string): LoadOptions[] {
  const context = Math.floor((load.contextLength ?? DEFAULT_CONTEXT) / 4);
  const shorter = context < SHORTEST_CONTEXT ? {} : { contextLength: context };
  const narrower = weights === 'q4' ? {} : ({ weights: 'q4' } as const);
  return [shorter, narrower, { ...shorter, ...narrower }]
    .filter((change, index) => Object.keys(change).length === (index === 2 ? 2 : 1))
    .map((change) => ({ ...load, ...change }));
}

/** Loads with options that `smallerOptions` gave. */
export function smallerRemedy(options: LoadOptions, load: LoadOptions, say: Say): Remedy {
  const narrower = options.weights !== load.weights;
  const shorter = options.contextLength !== load.contextLength;
  const name = !shorter ? 'in_four_bits' : narrower ? 'in_four_bits_with_context' : 'with_context';
  const what = say(name, { tokens: grouped(options.contextLength ?? DEFAULT_CONTEXT) });
  return { label: say('smaller', { what }), action: 'retry', load: options };
}
