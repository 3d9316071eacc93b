import { SplitkvError } from '../../base/errors.js';
import { listCached } from '../cache_list.js';
import type { OpenOptions } from '../open_source.js';
import type { Source } from '../source.js';
import { catalogHint, catalogHubName, catalogModel } from './catalog.js';
import { type HubAccess, HubUnreachable, listRepository } from './hub_api.js';
import { chooseGguf } from './gguf_choice.js';
import { HUB } from './hub_form.js';
import { type HubName, hubNameOfUrl, parseHubName, resolveUrl } from './hub_name.js';
import { checkToken, endpointOf, httpOptionsOf } from './hub_options.js';
import { hubSource } from './hub_source.js';

const inPage = (): boolean =>
  globalThis.document !== undefined ||
  globalThis.location !== undefined ||
  globalThis.process?.versions?.node === undefined;

/**
 * A model of the Hub by its name. In Node its files are whole ones of the local cache that all of the Hub's tools share, and
 * downloaded there first (`options.whole`), else and in pages they are read by ranges.
 * @param elsewhere what else the name could have meant and wasn't, for messages: "a folder of that name"
 */
export async function openHub(
  given: string | HubName,
  options: OpenOptions,
  signal?: AbortSignal,
  elsewhere?: string,
): Promise<Source> {
  const name = typeof given === 'string' ? parseHubName(given) : given;
  try {
    if (inPage()) return await openByRanges(pageAccess(options), name, options, signal);
    return await (await import('./node_hub.js')).openNodeHub(name, options, signal);
  } catch (error) {
    if (elsewhere === undefined || !(error instanceof SplitkvError) || error.code !== 'io') throw error;
    throw new SplitkvError('io', `${error.message} (nor is there ${elsewhere})`, { cause: error });
  }
}

const pageAccess = (options: OpenOptions): HubAccess => ({
  endpoint: endpointOf(options.hub ?? HUB, 'hub'),
  token: options.token === undefined ? undefined : checkToken(options.token, 'token'),
  http: httpOptionsOf(options),
});

/** Read by ranges, of one commit. What this browser keeps stands in for a Hub that can't be reached. */
export async function openByRanges(
  access: HubAccess,
  name: HubName,
  { commit, onWarning }: OpenOptions,
  signal: AbortSignal | undefined,
): Promise<Source> {
  try {
    const listing = await listRepository(access, commit === undefined ? name : { ...name, revision: commit }, signal);
    return hubSource(access, name, listing);
  } catch (error) {
    if (!(error instanceof HubUnreachable)) throw error;
    const kept = await keptModel(access, name);
    if (!kept) throw error;
    onWarning?.(`${name.repo}: what this browser keeps of it is used, because ${error.message}`);
    // Once more is enough for a server that has just been tried again and again.
    return hubSource({ ...access, http: { ...access.http, attempts: 1 } }, kept, undefined);
  }
}

/** The model in this browser's cache that the name means; undefined where there is none. */
async function keptModel({ endpoint }: HubAccess, name: HubName): Promise<HubName | undefined> {
  const base = resolveUrl(endpoint, name.repo, name.revision);
  const models = await listCached().catch(() => []);
  const urls = models.map(({ url }) => url).filter((url) => url.startsWith(base));
  if (name.file === undefined && name.quant === undefined && urls.includes(base)) return name;
  const files = new Map(
    urls.map((url) => [decodeURIComponent(url.slice(base.length)), { size: undefined, id: undefined }]),
  );
  files.delete('');
  try {
    const file = chooseGguf(name, { commit: undefined, files });
    return file === undefined ? undefined : { ...name, quant: undefined, file };
  } catch {
    return undefined;
  }
}

/**
 * A word: a model of the catalog, or undefined where the catalog has none of that name.
 * @param elsewhere as `openHub`
 */
export async function openCatalogModel(
  word: string,
  options: OpenOptions,
  signal?: AbortSignal,
  elsewhere?: string,
): Promise<Source | undefined> {
  const model = catalogModel(word);
  return model && openHub(catalogHubName(model), options, signal, elsewhere);
}

/** @throws SplitkvError `usage` or `io`, with what names there are */
export const unknownWord = (word: string, found: string): SplitkvError =>
  new SplitkvError(
    'io',
    `${found}, and the catalog has no model '${word}'.${catalogHint(word)} Expected a folder, ORG/NAME of the Hugging Face Hub, ` +
      'or a name that `splitkv models` lists',
  );

/** The Hub's model that a URL of its pages means; undefined for any other URL. */
export const hubNameOf = (url: URL, options: OpenOptions): HubName | undefined =>
  hubNameOfUrl(url, endpointOf(options.hub ?? HUB, 'hub'));
