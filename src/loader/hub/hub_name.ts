import { tried, usageError } from '../../base/errors.js';
import { quantOf } from '../gguf/file.js';
import { HUB, HUB_SHORT, SAYS_HUB } from './hub_options.js';

/** A model of the Hugging Face Hub, as people name it. */
export interface HubName {
  /** 'ORG/NAME', or 'NAME' of the few repositories that have no owner. */
  readonly repo: string;
  /** A branch, tag or commit. */
  readonly revision: string;
  /** The .gguf file that is meant, with its folder. */
  readonly file?: string | undefined;
  /** The quantisation that is meant, where no file is named: 'Q4_K_M'. */
  readonly quant?: string | undefined;
}

export const DEFAULT_REVISION = 'main';

const FORM = 'ORG/NAME[@REVISION][/FILE.gguf], or ORG/NAME:QUANTISATION';
const MAX_NAME = 96;

/**
 * Reads `[hf:]ORG/NAME[@REVISION][/FILE.gguf]` or `[hf:]ORG/NAME:Q4_K_M`. A revision may hold slashes; before a file only those of
 * `refs/pr/1` and `refs/convert/x`, others as %2F.
 * @throws SplitkvError `usage` saying which part is wrong
 */
export function parseHubName(text: string): HubName {
  const given = text.replace(SAYS_HUB, '').replace(/\/$/, '');
  const wrong = (why: string): Error => usageError(`'${text}' is no model of the Hub: ${why}; expected ${FORM}`);
  const at = given.indexOf('@');
  const named = at === -1 ? given : given.slice(0, at);
  let revision = at === -1 ? undefined : given.slice(at + 1);
  let file: string | undefined;
  let repo = named;
  if (revision === undefined) {
    const [org = '', name, ...path] = named.split('/');
    if (path.length > 0) file = path.join('/');
    repo = name === undefined ? org : `${org}/${name}`;
  } else if (isGguf(revision)) {
    const match = /^(refs\/(?:pr\/\d+|convert\/[\w.-]+)|[^/]+)\/(.+)$/.exec(revision);
    if (!match) throw wrong(`'${revision}' names a file, and no revision before it`);
    [, revision, file] = match;
  }
  let quant: string | undefined;
  const colon = repo.indexOf(':');
  if (colon !== -1) {
    quant = repo.slice(colon + 1);
    repo = repo.slice(0, colon);
    if (!/^[\w.-]+$/.test(quant)) throw wrong(`'${quant}' is no name of a quantisation, such as Q4_K_M`);
    if (file !== undefined) throw wrong(`give the quantisation '${quant}' or the file, not both`);
    if (quant.toLowerCase() === 'latest') quant = undefined; // what other programs call the default
  }
  const problem = problemOf(repo);
  if (problem !== undefined) throw wrong(problem);
  if (file !== undefined && !isGguf(file)) throw wrong(`'${file}' is no .gguf file`);
  if (file?.split('/').some((part) => part === '' || part === '.' || part === '..'))
    throw wrong(`'${file}' is no path`);
  return { repo, revision: checkedRevision(revision, wrong), file, quant };
}

function problemOf(repo: string): string | undefined {
  const parts = repo.split('/');
  if (parts.length > 2 || parts.includes('')) return `'${repo}' is no owner and name`;
  for (const part of parts) {
    if (!/^[\w.-]+$/.test(part)) return `'${part}' may hold letters, digits, '-', '_' and '.'`;
    if (/^[-.]|[-.]$/.test(part)) return `'${part}' begins or ends with '-' or '.'`;
    if (/--|\.\./.test(part)) return `'${part}' holds '--' or '..'`;
    if (part.length > MAX_NAME) return `'${part.slice(0, 20)}...' is longer than ${MAX_NAME} characters`;
  }
  return repo.endsWith('.git') ? `'${repo}' ends in .git` : undefined;
}

function checkedRevision(text: string | undefined, wrong: (why: string) => Error): string {
  if (text === undefined) return DEFAULT_REVISION;
  const revision = tried(() => decodeURIComponent(text));
  if (revision === undefined) throw wrong(`the revision '${text}' has a % that encodes nothing`);
  // What git refuses in names of branches and tags, as far as it could do harm in a path.
  if (!/^[^\s\p{Cc}\\?#~^:*[]+$/u.test(revision) || /(^|\/)\.|\.\.|\/$|^\/|\/\/|@\{/.test(revision)) {
    throw wrong(`'${revision}' is no branch, tag or commit`);
  }
  return revision;
}

const isGguf = (path: string): boolean => /\.gguf$/i.test(path);

export const hubText = ({ repo, revision, file, quant }: HubName): string =>
  repo +
  (quant === undefined ? '' : `:${quant}`) +
  (revision === DEFAULT_REVISION ? '' : `@${file === undefined ? revision : encodeURIComponent(revision)}`) +
  (file === undefined ? '' : `/${file}`);

export const isCommit = (revision: string): boolean => /^[0-9a-f]{40}$/.test(revision);

/** Where the files of a revision are: with a final slash. */
export const resolveUrl = (endpoint: string, repo: string, revision: string): string =>
  `${endpoint}/${repo}/resolve/${encodeURIComponent(revision)}/`;

/**
 * The model that an address of this Hub means, or one of the Hub's own: that of a repository's page, of a tree or file in it, or of
 * what is downloaded. Undefined for other addresses.
 */
export function hubNameOfUrl(url: URL, endpoint: string): HubName | undefined {
  const base = [endpoint, HUB, HUB_SHORT]
    .map((each) => new URL(`${each}/`))
    .find((each) => url.href.startsWith(each.href));
  if (!base) return undefined;
  const parts = url.pathname.slice(base.pathname.length).split('/').filter(Boolean);
  const [org, name, kind, revision, ...path] = parts.map((part) => tried(() => decodeURIComponent(part)) ?? part);
  if (org === undefined || name === undefined || ['datasets', 'spaces', 'api', 'models'].includes(org))
    return undefined;
  if (problemOf(`${org}/${name}`) !== undefined) return undefined;
  const repo = `${org}/${name}`;
  // The page of a GGUF file's metadata.
  const shown = url.searchParams.get('show_file_info') ?? undefined;
  const named = {
    repo,
    revision: revision ?? DEFAULT_REVISION,
    ...(shown !== undefined && isGguf(shown) && { file: shown }),
  };
  if (kind === undefined) return named;
  if (!['tree', 'blob', 'resolve'].includes(kind) || revision === undefined) return undefined;
  if (kind === 'resolve' && !['', '?download=true'].includes(url.search)) return undefined;
  if (path.length === 0) return named;
  const file = path.join('/');
  if (isGguf(file)) return { repo, revision, file };
  if (/^[^/]+\.(safetensors|json)$/.test(file)) return { repo, revision };
  // A quantisation's folder.
  const quant = kind === 'tree' ? quantOf(`${file}.gguf`) : undefined;
  return quant === undefined ? undefined : { repo, revision, quant };
}
