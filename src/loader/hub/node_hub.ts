import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SplitkvError } from '../../base/errors.js';
import { ggufSource, partNames } from '../gguf/file.js';
import { directorySource } from '../sources/node_files.js';
import type { OpenOptions } from '../open_source.js';
import type { Source } from '../source.js';
import { chooseGguf } from './gguf_choice.js';
import { type HubAccess, type HubListing, HubUnreachable, listRepository } from './hub_api.js';
import { type HubName, hubText } from './hub_name.js';
import { hubSource, modelFile } from './hub_source.js';
import { hasWeights, RepositoryCache, shardsOf } from './node_hub_cache.js';
import { type Download, download } from './node_hub_download.js';
import { allCaches, cacheOf, isOffline, nodeAccess } from './node_hub_settings.js';

/** Of a folder of safetensors: what is read beside the weights. */
const SMALL_FILES = [
  'config.json',
  'generation_config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
  'self_test.json',
];

/** Where a model of the Hub lies on this disk. */
export interface PulledModel {
  readonly folder: string;
  /** The .gguf file in it that is the model. */
  readonly gguf: string | undefined;
  readonly repo: string;
  readonly commit: string;
  /** All files of it, and what had to be downloaded. */
  readonly files: readonly string[];
  readonly bytes: number;
  readonly downloadedBytes: number;
}

/** A model of the Hub, whole from the local cache (`options.whole`), otherwise read by ranges where it isn't there yet. */
export async function openNodeHub(
  name: HubName,
  options: OpenOptions,
  signal: AbortSignal | undefined,
): Promise<Source> {
  if (options.whole) return onDisk(await pullModel(name, options, signal));
  const access = await nodeAccess(options);
  const repository = new RepositoryCache(cacheOf(access.endpoint), name.repo);
  const listing = isOffline() ? undefined : await reachable(access, name, options, signal);
  if (listing === undefined || listing === 'unreachable') {
    const kept = await keptModel(repository, name);
    if (kept) return onDisk(kept);
    if (listing === undefined && !isOffline()) return hubSource(access, name, undefined);
    throw await notKept(name, repository, access);
  }
  const { commit } = listing;
  const kept = commit === undefined ? undefined : await keptModel(repository, { ...name, revision: commit });
  return kept ? onDisk(kept) : hubSource(access, name, listing);
}

async function onDisk({ folder, gguf }: PulledModel): Promise<Source> {
  const source = await directorySource(folder);
  const at = { where: gguf === undefined ? folder : join(folder, gguf) };
  return Object.assign(gguf === undefined ? source : ggufSource(source, gguf), { at });
}

/** The listing; 'unreachable' where there is a copy to use instead. @throws as listRepository where there is none */
async function reachable(
  access: HubAccess,
  name: HubName,
  { onWarning }: OpenOptions,
  signal: AbortSignal | undefined,
): Promise<HubListing | 'unreachable' | undefined> {
  try {
    return await listRepository(access, name, signal);
  } catch (error) {
    if (!(error instanceof HubUnreachable)) throw error;
    if (!(await keptModel(new RepositoryCache(cacheOf(access.endpoint), name.repo), name))) throw error;
    onWarning?.(`${hubText(name)}: the copy on this disk is used, because ${error.message}`);
    return 'unreachable';
  }
}

/**
 * Downloads what the cache lacks of a model of the Hub, whole files, and tells where it lies. Without the Hub a complete copy does.
 * @throws SplitkvError `io` where it can't be had, `usage` where it isn't clear which file is meant, `aborted`
 */
export async function pullModel(
  name: HubName,
  options: OpenOptions,
  signal: AbortSignal | undefined,
): Promise<PulledModel> {
  const access = await nodeAccess(options);
  const repository = new RepositoryCache(cacheOf(access.endpoint), name.repo);
  const listing = isOffline() ? 'unreachable' : await reachable(access, name, options, signal);
  if (listing === 'unreachable') {
    const kept = await keptModel(repository, name);
    if (kept) return kept;
    throw await notKept(name, repository, access);
  }
  if (listing?.commit === undefined) {
    throw new SplitkvError(
      'io',
      `${access.endpoint} doesn't tell what ${name.repo} holds: is it the address of a Hub?`,
    );
  }
  const { commit } = listing;
  const pinned = { ...listing, commit };
  const gguf = modelFile(name, pinned);
  const work: Download = {
    access,
    name,
    listing: pinned,
    repository,
    onProgress: options.onProgress,
    onWarning: options.onWarning,
  };
  let files: string[];
  let downloadedBytes = 0;
  if (gguf !== undefined) {
    const parts = partNames(gguf);
    const missing = parts.filter((part) => !listing.files.has(part));
    if (missing.length > 0) throw new SplitkvError('io', `${name.repo} has ${gguf}, but not ${missing.join(', ')}`);
    files = [...parts];
  } else {
    files = [...SMALL_FILES, 'model.safetensors.index.json'].filter((file) => listing.files.has(file));
    if (listing.files.has('model.safetensors')) {
      files = files.filter((file) => file !== 'model.safetensors.index.json');
      files.push('model.safetensors');
    } else {
      downloadedBytes += await download(work, ['model.safetensors.index.json'], signal);
      const index = join(repository.snapshot(commit), 'model.safetensors.index.json');
      const shards = shardsOf(await readFile(index, 'utf8')) ?? [];
      const missing = shards.filter((shard) => !listing.files.has(shard));
      if (shards.length === 0 || missing.length > 0) {
        const what = missing.length > 0 ? `but not ${missing.join(', ')}` : 'which names no files';
        throw new SplitkvError('io', `${name.repo} has model.safetensors.index.json, ${what}`);
      }
      files.push(...shards);
    }
  }
  downloadedBytes += await download(work, files, signal);
  await repository.note(name.revision, commit);
  const there = await repository.files(commit);
  return {
    folder: repository.snapshot(commit),
    gguf,
    repo: name.repo,
    commit,
    files,
    bytes: files.reduce((sum, file) => sum + (there.get(file) ?? 0), 0),
    downloadedBytes,
  };
}

/** What the cache holds of it, where that is all there need be. */
async function keptModel(repository: RepositoryCache, name: HubName): Promise<PulledModel | undefined> {
  const commit = await repository.commitOf(name.revision);
  if (commit === undefined) return undefined;
  const folder = repository.snapshot(commit);
  const there = await repository.files(commit);
  const named = name.file !== undefined || name.quant !== undefined;
  const whole = !named && (await hasWeights(folder, there));
  let gguf: string | undefined;
  if (!whole) {
    const files = new Map([...there].map(([file, size]) => [file, { size, id: undefined }]));
    try {
      gguf = chooseGguf(name, { commit, files });
    } catch {
      return undefined;
    }
    if (gguf === undefined || partNames(gguf).some((part) => !there.has(part))) return undefined;
  }
  const files = gguf === undefined ? [...there.keys()] : [...partNames(gguf)];
  const bytes = files.reduce((sum, file) => sum + there.get(file)!, 0);
  return { folder, gguf, repo: name.repo, commit, files, bytes, downloadedBytes: 0 };
}

async function notKept(name: HubName, { cache }: RepositoryCache, { endpoint }: HubAccess): Promise<SplitkvError> {
  const others: string[] = [];
  for (const other of await allCaches()) {
    if (other !== cache && (await keptModel(new RepositoryCache(other, name.repo), name))) others.push(other);
  }
  const elsewhere = others.length === 0 ? '' : ` (there is one of another Hub in ${others.join(', ')})`;
  return new SplitkvError(
    'io',
    `${hubText(name)} of ${endpoint} is not complete in ${cache}${elsewhere}, and HF_HUB_OFFLINE forbids asking the Hub: ` +
      'unset it, or run `splitkv pull` elsewhere',
  );
}
