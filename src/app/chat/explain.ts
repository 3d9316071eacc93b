import { type ErrorCode, SplitkvError } from '../../base/errors.js';
import type { LoadOptions } from '../../index.js';

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
   * 'retry': load the model again, with these options instead; 'download': delete what is kept of it first; 'recover': bring lost ranks back; 'clear': begin a new conversation;
   * 'ignore': go on all the same.
   */
  readonly action: 'retry' | 'download' | 'recover' | 'clear' | 'ignore';
  readonly load?: LoadOptions;
}

/** An error for people: what happened, what to do, what the library said. */
export interface Explanation {
  readonly title: string;
  readonly advice: string;
  readonly detail: string;
  /** The address that it is about. */
  readonly address?: string | undefined;
  /** Nothing went wrong. */
  readonly neutral?: boolean;
  readonly remedies: readonly Remedy[];
}

const TITLES: Readonly<Record<ErrorCode, string>> = {
  usage: 'The chat is set up wrongly',
  no_webgpu: 'No GPU can be reached',
  limit: "The model doesn't fit this GPU",
  format: "The model's files can't be read",
  config: "The model's configuration is wrong",
  unsupported: "This kind of model can't be run",
  device_lost: 'The GPU went away',
  peer_lost: 'A part of the model went away',
  context_full: 'The conversation is too long',
  io: "The model can't be downloaded",
  aborted: 'Stopped',
  internal: 'Something is broken',
};

const ADVICE: Readonly<Record<ErrorCode, string>> = {
  usage: 'Whoever wrote this page can put it right.',
  no_webgpu:
    'Use Chrome, Edge or another browser with WebGPU, switch on hardware acceleration in its settings, and update the GPU driver.',
  limit:
    'Close other tabs that use the GPU, or run the model smaller: in fewer bits a weight, or with a shorter context.',
  format: 'The files are damaged, or were changed meanwhile. Load them again.',
  config: 'Whoever provides the model can put it right.',
  unsupported: 'Take another model.',
  device_lost:
    'That happens when the driver restarts, when the computer slept, or when memory ran out. The weights are still on this computer; ' +
    'bringing them back takes a moment.',
  peer_lost: 'The weights are still on this computer; bringing them back takes a moment.',
  context_full: 'The model can keep no more of it. Begin a new conversation.',
  io:
    'Check the connection, and whether the model is where this page looks for it; then try again: what has been downloaded is kept, ' +
    'and only the rest will be fetched.',
  aborted: 'What has been downloaded is kept.',
  internal: 'Load the page again. Where that changes nothing, update the browser and the GPU driver.',
};

const DOWNLOAD_AGAIN: Remedy = { label: 'Download again', action: 'download' };

/**
 * @param load what the model was to be loaded with
 * @param downloaded the model comes over the network, so that this browser may keep a copy of it
 */
export function explain(error: unknown, load: LoadOptions, downloaded = false): Explanation {
  const code = error instanceof SplitkvError ? error.code : 'internal';
  if (error instanceof SelfTestFailure) {
    return {
      title: 'This GPU computes wrongly',
      advice: 'The model was tried with a few tokens before the first question, and they came out wrong.',
      detail: error.message,
      remedies: [
        { label: 'Try again', action: 'retry' },
        { label: 'Use it all the same', action: 'ignore' },
      ],
    };
  }
  if (isMissingPart(error)) {
    return {
      title: "A part of this page can't be downloaded",
      advice: 'Check the connection and try again; where that changes nothing, load the page again.',
      detail: error.message,
      remedies: [{ label: 'Try again', action: 'retry' }],
    };
  }
  const detail = error instanceof Error ? error.message : String(error);
  if (code === 'no_webgpu' && globalThis.isSecureContext === false) {
    return {
      title: 'This page must be served over https or from localhost',
      advice:
        "Browsers let only such pages use the GPU. Whoever serves this page can put it right; the GPU isn't at fault.",
      detail,
      remedies: [],
    };
  }
  if (code === 'io' && /\bis damaged\b/.test(detail)) {
    return {
      title: 'The download is damaged',
      advice: "What this browser keeps of the model isn't what it should be. Downloading it again puts that right.",
      detail,
      remedies: downloaded ? [DOWNLOAD_AGAIN] : [{ label: 'Try again', action: 'retry' }],
    };
  }
  return {
    title: TITLES[code],
    advice: ADVICE[code],
    detail,
    neutral: code === 'aborted',
    remedies: code === 'format' && downloaded ? [DOWNLOAD_AGAIN] : remedies(code, load),
    ...(code === 'io' && downloaded && explainIo(detail)),
  };
}

/** What the server did, as far as the message tells. */
const REASONS: readonly (readonly [message: RegExp, reason: string, advice: string])[] = [
  [
    /\bis gated\b/,
    'its licence has to be accepted first',
    'Accept it at the address below. Then this page needs an access token of yours.',
  ],
  [/the Hub refuses the token/, 'the access token is refused', 'Make another one that may read.'],
  [/HTTP 429/, 'its server wants to be asked less often', 'Try again later.'],
  [/or it is private|may not see it|has no revision '/, 'it is not there', "Check the model's name."],
  [
    /answered with a web page/,
    'a web page came instead',
    'Perhaps this network wants you to sign in first, or the model is not at this address.',
  ],
  [
    /answered HTTP (404|410)|has no config\.json|is not in |holds no weights/,
    'it is not there',
    'Check the address that this page looks for it at.',
  ],
  [/answered HTTP 40[13]/, 'its server refuses it', 'It may need a login, or an access token.'],
  [
    /broke off|nothing came for/,
    'the connection broke off',
    'Try again: what has been downloaded is kept, and only the rest will be fetched.',
  ],
  [
    /allow this origin by CORS/,
    "its server can't be reached",
    'Check the connection, and whether the server allows this page to read from it (CORS); then try again: ' +
      'what has been downloaded is kept.',
  ],
];

function explainIo(detail: string): Pick<Explanation, 'title' | 'advice' | 'address'> | undefined {
  const offline = globalThis.navigator?.onLine === false;
  const found = offline
    ? ['', 'you are offline', 'This browser keeps no whole copy of it. Connect, and try again.']
    : REASONS.find(([message]) => message.test(detail));
  const address = /\bhttps?:\/\/[^\s'")]+/.exec(detail)?.[0].replace(/[.,;:]+$/, '');
  if (!found) return { title: TITLES.io, advice: ADVICE.io, address };
  return { title: `${TITLES.io}: ${found[1]}`, advice: found[2]!, address };
}

/** Code that a page loads on demand, and that didn't come: Chrome, Firefox and Safari each say it their way. */
const isMissingPart = (error: unknown): error is TypeError =>
  error instanceof TypeError && /dynamically imported module|importing a module script failed/i.test(error.message);

const SHORTEST_CONTEXT = 512;
const DEFAULT_CONTEXT = 4096;

function remedies(code: ErrorCode, load: LoadOptions): Remedy[] {
  switch (code) {
    case 'limit': {
      const context = Math.floor((load.contextLength ?? DEFAULT_CONTEXT) / 4);
      return [
        ...(load.weights === 'q4'
          ? []
          : [{ label: 'Try it in 4 bits', action: 'retry', load: { ...load, weights: 'q4' } } as const]),
        ...(context < SHORTEST_CONTEXT
          ? []
          : [
              {
                label: `Try a context of ${context} tokens`,
                action: 'retry',
                load: { ...load, contextLength: context },
              } as const,
            ]),
        { label: 'Try again', action: 'retry' },
      ];
    }
    case 'device_lost':
    case 'peer_lost':
      return [{ label: 'Bring it back', action: 'recover' }];
    case 'context_full':
      return [{ label: 'New conversation', action: 'clear' }];
    case 'usage':
    case 'config':
    case 'unsupported':
      return [];
    case 'aborted':
      return [{ label: 'Go on', action: 'retry' }];
    default:
      return [{ label: 'Try again', action: 'retry' }];
  }
}
