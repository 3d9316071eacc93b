import { SplitkvError } from '../../base/errors.js';
import { type Answer, type HttpOptions, request, retryAfter } from '../sources/http_request.js';
import { parseJson } from '../source.js';
import type { HubName } from './hub_name.js';

export interface HubAccess {
  /** Without a final slash. */
  readonly endpoint: string;
  readonly token?: string | undefined;
  readonly http: HttpOptions;
}

interface HubFile {
  readonly size: number | undefined;
  /** SHA-256 of a large file (64 digits), git's SHA-1 of a small one (40); the ETag that the Hub sends. */
  readonly id: string | undefined;
}

export interface HubListing {
  /** Undefined where the Hub doesn't tell. */
  readonly commit: string | undefined;
  readonly files: ReadonlyMap<string, HubFile>;
}

/** The longest listing that is read: some repositories hold thousands of files. */
const MAX_LISTING_BYTES = 32 * 1024 * 1024;

/** For requests of one repository: the token, which fetch doesn't send on to where the Hub redirects, and what its refusals mean. */
export const hubHttp = (access: HubAccess, name: HubName): HttpOptions => ({
  ...access.http,
  headers: { ...access.http.headers, ...(access.token !== undefined && { authorization: `Bearer ${access.token}` }) },
  refusal: (url, status, headers) => refusalOf(access, name, url, status, headers),
});

/**
 * What the repository holds at its revision. Undefined where the server answers, but has no such listing (a plain mirror).
 * @throws HubUnreachable where the Hub doesn't answer, is out of order or wants to be asked less; `io` where it refuses
 */
export async function listRepository(
  access: HubAccess,
  name: HubName,
  signal?: AbortSignal,
): Promise<HubListing | undefined> {
  const url = `${access.endpoint}/api/models/${name.repo}/revision/${encodeURIComponent(name.revision)}`;
  const use = async (answer: Answer): Promise<HubListing | undefined> => {
    if (answer.status !== 200) return undefined;
    const body = await answer.bodyUpTo(MAX_LISTING_BYTES);
    return body && listingOf(new TextDecoder().decode(body), url);
  };
  try {
    return await request(url, '?blobs=true', () => ({}), hubHttp(access, name), signal, use);
  } catch (error) {
    if (!(error instanceof SplitkvError) || error.code !== 'io' || error instanceof HubRefusal) throw error;
    const why = `the Hub ${access.endpoint} can't be reached: ${error.message}`;
    const hint = 'Check the connection, or name a mirror (option hub, --hub, HF_ENDPOINT)';
    throw new HubUnreachable(`${why}. ${hint}`, { cause: error });
  }
}

function listingOf(text: string, url: string): HubListing | undefined {
  if (text.trimStart().startsWith('<')) return undefined; // a page: this server knows no API
  const document = parseJson(text, url) as {
    readonly sha?: unknown;
    readonly siblings?: unknown;
  } | null;
  if (!Array.isArray(document?.siblings)) return undefined;
  const files = new Map<string, HubFile>();
  for (const entry of document.siblings as readonly (Record<string, unknown> | null)[]) {
    if (typeof entry?.['rfilename'] !== 'string') continue;
    const lfs = entry['lfs'] as { readonly sha256?: unknown; readonly oid?: unknown } | null | undefined;
    const id = lfs ? (lfs.sha256 ?? lfs.oid) : entry['blobId'];
    files.set(entry['rfilename'], {
      size: Number.isSafeInteger(entry['size']) ? (entry['size'] as number) : undefined,
      id: typeof id === 'string' && /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(id) ? id : undefined,
    });
  }
  const commit = document.sha;
  return { commit: typeof commit === 'string' && /^[0-9a-f]{40}$/.test(commit) ? commit : undefined, files };
}

/** What the Hub said why it gives nothing. */
class HubRefusal extends SplitkvError {
  constructor(message: string, options?: ErrorOptions) {
    super('io', message, options);
  }
}
/** The Hub doesn't answer, or not now: what is stored of it may stand in. */
export class HubUnreachable extends HubRefusal {}

/** What the Hub means by an answer of status 400 or more; undefined for a file that isn't there, and for what isn't the Hub's. */
function refusalOf(
  { endpoint, token }: HubAccess,
  { repo, revision }: HubName,
  url: string,
  status: number,
  headers: Headers,
): SplitkvError | undefined {
  const code = headers.get('x-error-code');
  const said = headers.get('x-error-message');
  const io = (message: string): SplitkvError => new HubRefusal(message);
  const giveToken = 'give a token (option token, --token, HF_TOKEN, or `hf auth login`)';
  const page = `${endpoint}/${repo}`;
  if (code === 'GatedRepo') {
    return io(
      token === undefined
        ? `${repo} is gated: accept its licence at ${page}, then ${giveToken}`
        : `${repo} is gated, and the token's account has no access (yet): accept its licence at ${page} with that account`,
    );
  }
  if (code === 'RevisionNotFound') {
    return io(`${repo} has no revision '${revision}': give one of its branches, tags or commits, as in ${repo}@main`);
  }
  if (code === 'EntryNotFound') return undefined;
  if (
    status === 401 &&
    token !== undefined &&
    (code === null || /invalid (credentials|user|token)/i.test(said ?? ''))
  ) {
    return io(
      `the Hub refuses the token (HTTP 401): make one that may read at ${endpoint}/settings/tokens, or give none`,
    );
  }
  if (code === 'RepoNotFound' || (status === 401 && code === null)) {
    return io(
      token === undefined
        ? `${repo} is not at ${endpoint}, or it is private: check the name; for a private one ${giveToken}`
        : `${repo} is not at ${endpoint}, or the token may not see it: check the name and the token's account`,
    );
  }
  if (status === 403) {
    const why = said ?? code ?? 'no reason given';
    return io(`the Hub forbids ${url} (${why}): does the token have the right to read ${repo}?`);
  }
  if (status === 429) {
    const waitMs = retryAfter(headers);
    const when = waitMs === undefined ? 'later' : `in ${Math.ceil(waitMs / 1000)} s`;
    const more = token === undefined ? '; with a token it may be asked more often' : '';
    return new HubUnreachable(`the Hub wants to be asked less often (HTTP 429): try again ${when}${more}`);
  }
  if (status >= 500 && status !== 501) {
    return new HubUnreachable(`the Hub is out of order (GET ${url}: HTTP ${status}): try again later`);
  }
  return undefined;
}
