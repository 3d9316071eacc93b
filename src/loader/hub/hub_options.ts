import { usageError } from '../../base/errors.js';
import { defined } from '../../base/options.js';
import type { HttpOptions } from '../sources/http_request.js';

/** Before a name of the Hub: `hf:`, or as other programs have it. */
export const SAYS_HUB = /^(hf:(\/\/)?|(hf\.co|huggingface\.co)\/)/i;

/**
 * What a model's name looks like: 'hub' is the Hub's for certain (`hf:...`, `hf.co/...`); 'pinned' is by its form (`ORG/NAME@REVISION`,
 * `ORG/NAME:Q4_K_M`); 'either' may also be a folder or file (`ORG/NAME`, `ORG/NAME/FILE.gguf`); a 'word' may be one of the
 * catalog. Undefined: a path or URL. A final slash, a leading '.', '/' or '~' and a scheme always mean a path or URL.
 */
export function hubForm(where: string): 'hub' | 'pinned' | 'either' | 'word' | undefined {
  if (SAYS_HUB.test(where)) return 'hub';
  if (/^\w[\w.-]*$/.test(where)) return /\.gguf$/i.test(where) ? undefined : 'word';
  const match = /^\w[\w.-]*\/(\w[\w.-]*)([@:][^\s?#\\]+)?((?:\/[^\s/?#\\]+)+\.gguf)?$/i.exec(where);
  if (!match || where.endsWith('/')) return undefined;
  const [, name = '', pin, file] = match;
  if (pin !== undefined) return 'pinned';
  return file === undefined && /\.gguf$/i.test(name) ? undefined : 'either';
}

/** The Hub, unless another endpoint is named; and its short address. */
export const HUB = 'https://huggingface.co';
export const HUB_SHORT = 'https://hf.co';

/** How a model that comes over the network is asked for. */
export interface NetworkOptions {
  /** The Hub that names such as ORG/NAME mean; default https://huggingface.co, in Node what HF_ENDPOINT says. */
  readonly hub?: string | URL | undefined;
  /**
   * An access token of the Hub, for gated and private models: sent to the Hub alone. In Node by default that of HF_TOKEN or of the
   * file where `hf auth login` keeps it. In a page whoever opens it can read the token.
   */
  readonly token?: string | undefined;
  /** Headers of every request for the model's files, wherever they are. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** What makes the requests; default: the global fetch. Not with `workers`. */
  readonly fetch?: typeof fetch | undefined;
}

/** What goes with every request, the Hub's or not. */
export const httpOptionsOf = (options: NetworkOptions & Pick<HttpOptions, 'onBytes' | 'onWait'>): HttpOptions => {
  const { headers, fetch: given, onBytes, onWait } = options;
  return defined({ headers, fetch: given, onBytes, onWait });
};

/** @throws SplitkvError `usage` */
export function checkNetwork({ hub, token, headers, fetch: given }: NetworkOptions): void {
  if (hub !== undefined) endpointOf(hub, 'hub');
  if (token !== undefined) checkToken(token, 'token');
  if (given !== undefined && typeof given !== 'function')
    throw usageError('fetch: expected a function like the global fetch');
  try {
    if (headers !== undefined) new Headers(headers);
  } catch (error) {
    throw usageError(`headers: ${(error as Error).message}; expected an object of names and texts`);
  }
}

/** Without a final slash. @throws SplitkvError `usage` */
export function endpointOf(hub: string | URL, from: string): string {
  const url = URL.canParse(String(hub)) ? new URL(hub) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || url.search !== '' || url.hash !== '' || url.username !== '') {
    throw usageError(`${from} '${String(hub)}': expected the http(s) address of a Hub, such as https://huggingface.co`);
  }
  return url.href.replace(/\/+$/, '');
}

/** @throws SplitkvError `usage`, without the token: it is a secret */
export function checkToken(token: string, from: string): string {
  if (typeof token === 'string' && /^[\x21-\x7e]+$/.test(token)) return token;
  throw usageError(`${from}: expected an access token of the Hub (hf_...), without blanks`);
}
