import { ioError, SplitkvError } from '../../base/errors.js';
import { cachedFiles, cachedNames, findCached } from '../cache/cache_list.js';
import type { HttpOptions } from '../sources/http_request.js';
import type { OpenOptions } from '../open_source.js';
import type { Source } from '../source.js';
import { catalogHint, catalogHubName, catalogModel } from './catalog.js';
import { type HubAccess, HubUnreachable, listRepository } from './hub_api.js';
import { type HubName, hubNameOfUrl, parseHubName, resolveUrl } from './hub_name.js';
import { checkToken, endpointOf, HUB, type hubForm, httpOptionsOf } from './hub_options.js';
import { hubSource, keptGguf } from './hub_source.js';

const inPage = (): boolean =>
  globalThis.document !== undefined ||
  globalThis.location !== undefined ||
  globalThis.process?.versions?.node === undefined;

/**
 * A model of the Hub by its name. In Node its files are whole ones of the local cache that all of the Hub's tools share, and
 * downloaded there first (`options.whole`), otherwise and in pages they are read by ranges.
 * @param elsewhere what else the name could have meant and wasn't, for messages: "a folder of that name"
 */
async function openHub(
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
    throw ioError(`${error.message} (nor is there ${elsewhere})`, error);
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
  { commit, files, onWarning }: OpenOptions,
  signal: AbortSignal | undefined,
): Promise<Source> {
  try {
    const listing = await listRepository(access, commit === undefined ? name : { ...name, revision: commit }, signal);
    return hubSource(access, name, listing, files);
  } catch (error) {
    if (!(error instanceof HubUnreachable)) throw error;
    const kept = await keptModel(access, name);
    if (!kept) throw error;
    onWarning?.(`${name.repo}: what this browser keeps of it is used, because ${error.message}`);
    // Once more is enough for a server that has just been tried again and again.
    const source = hubSource({ ...access, http: { ...access.http, attempts: 1 } }, kept, undefined);
    return Object.assign(source, { list: () => cachedNames(source.url!) });
  }
}

/** The model in this browser's cache that the name means; undefined where there is none. */
async function keptModel({ endpoint }: HubAccess, name: HubName): Promise<HubName | undefined> {
  const base = resolveUrl(endpoint, name.repo, name.revision);
  const models = await cachedFiles().catch(() => []);
  const urls = models.map(({ url }) => url).filter((url) => url.startsWith(base));
  if (name.file === undefined && name.quant === undefined && urls.includes(base)) return name;
  const files = urls.filter((url) => url !== base).map((url) => decodeURIComponent(url.slice(base.length)));
  const file = keptGguf(name, files);
  return file === undefined ? undefined : { ...name, quant: undefined, file };
}

/**
 * A model of the Hub or the catalog, where the text is the name of one; undefined for a path or URL. What may be either is the
 * folder or file where there is one: in Node on disk, in a page at the URL that it is relative to the page.
 * @param form what the text looks like; undefined for a URL, which may be that of a page of the Hub
 * @param here what it is relative to the page
 */
export async function openNamed(
  text: string,
  form: ReturnType<typeof hubForm>,
  options: OpenOptions,
  signal: AbortSignal | undefined,
  here: ((patience: HttpOptions) => Promise<Source>) | undefined,
): Promise<Source | undefined> {
  if (form === 'hub') return openHub(text, options, signal);
  if (form === undefined) {
    const { endpoint } = inPage()
      ? pageAccess(options)
      : await (await import('./node_hub_cache.js')).nodeAccess(options);
    const name = hubNameOfUrl(new URL(text), endpoint);
    return name && openHub(name, options, signal);
  }
  if (!inPage()) {
    if (await (await import('../sources/node_files.js')).isOnDisk(text)) return undefined;
    const elsewhere = 'a folder or file of that name on this disk';
    if (form !== 'word') return openHub(text, options, signal, elsewhere);
    const model = catalogModel(text);
    if (model) return openHub(catalogHubName(model), options, signal, elsewhere);
    throw ioError(
      `${text} does not exist on this disk, and the catalog has no model '${text}'.${catalogHint(text)} Expected a folder, ` +
        'ORG/NAME of the Hugging Face Hub, or a name that `splitkv models` lists',
    );
  }
  if (form === 'word') {
    const model = catalogModel(text);
    return model && openHub(catalogHubName(model), options, signal);
  }
  if (form === 'pinned') return openHub(text, options, signal);
  const source = await here!({ attempts: 2 });
  if (await isHere(source, options, signal)) return undefined;
  const place = (source.gguf && source.url) ?? source.name;
  return openHub(text, options, signal, `a model at ${place}`);
}

/** Whether a page's own server, or this browser's cache of it, has what may also be a name of the Hub. */
async function isHere(here: Source, { files = ['config.json'] }: OpenOptions, signal?: AbortSignal): Promise<boolean> {
  try {
    if ((await here.size(here.gguf ?? files[0], signal)) !== undefined) return true;
  } catch (error) {
    if (!(error instanceof SplitkvError) || error.code !== 'io') throw error;
  }
  const kept = here.url === undefined ? undefined : await findCached(here.url).catch(() => undefined);
  return kept !== undefined && kept.bytes > 0;
}
