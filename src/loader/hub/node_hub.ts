import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ioError, type SplitkvError } from '../../base/errors.js';
import { ggufSource, partNames } from '../gguf/file.js';
import { directorySource } from '../sources/node_files.js';
import type { OpenOptions } from '../open_source.js';
import type { Source } from '../source.js';
import { type HubAccess, type HubListing, HubUnreachable, listRepository } from './hub_api.js';
import { type HubName, hubText } from './hub_name.js';
import { chooseGguf, hubSource, modelFile } from './hub_source.js';
import { allCaches, cacheOf, hasWeights, isOffline, nodeAccess, RepositoryCache, shardsOf } from './node_hub_cache.js';
import { type Download, download } from './node_hub_download.js';

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
  const asked = await ask(name, options, signal);
  if ('folder' in asked) return onDisk(asked);
  const { access, repository, listing } = asked;
  const revision = listing ? listing.commit : name.revision;
  const kept = revision === undefined ? undefined : await keptModel(repository, { ...name, revision });
  return kept ? onDisk(kept) : hubSource(access, name, listing);
}

async function onDisk({ folder, gguf }: PulledModel): Promise<Source> {
  const source = await directorySource(folder);
  const at = { where: gguf === undefined ? folder : join(folder, gguf) };
  return Object.assign(gguf === undefined ? source : ggufSource(source, gguf), { at });
}

interface Asked {
  readonly access: HubAccess;
  readonly repository: RepositoryCache;
  /** Undefined where the server has none. */
  readonly listing: HubListing | undefined;
}

/** What the Hub says; where it isn't asked, or doesn't answer, the copy on this disk. @throws as listRepository where there is none */
async function ask(name: HubName, options: OpenOptions, signal: AbortSignal | undefined): Promise<Asked | PulledModel> {
  const access = await nodeAccess(options);
  const repository = new RepositoryCache(cacheOf(access.endpoint), name.repo);
  try {
    if (!isOffline()) return { access, repository, listing: await listRepository(access, name, signal) };
  } catch (error) {
    const kept = error instanceof HubUnreachable ? await keptModel(repository, name) : undefined;
    if (!kept) throw error;
    options.onWarning?.(`${hubText(name)}: the copy on this disk is used, because ${(error as Error).message}`);
    return kept;
  }
  const kept = await keptModel(repository, name);
  if (!kept) throw await notKept(name, repository, access);
  return kept;
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
  const asked = await ask(name, options, signal);
  if ('folder' in asked) return asked;
  const { access, repository, listing } = asked;
  if (listing?.commit === undefined) {
    throw ioError(`${access.endpoint} doesn't tell what ${name.repo} holds: is it the address of a Hub?`);
  }
  const { commit } = listing;
  const pinned = { ...listing, commit };
  const gguf = modelFile(name, pinned);
  const work: Download = { access, name, listing: pinned, repository, options };
  let files: string[];
  let downloadedBytes = 0;
  if (gguf !== undefined) {
    const parts = partNames(gguf);
    const missing = parts.filter((part) => !listing.files.has(part));
    if (missing.length > 0) throw ioError(`${name.repo} has ${gguf}, but not ${missing.join(', ')}`);
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
        throw ioError(`${name.repo} has model.safetensors.index.json, ${what}`);
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
  const bytes = files.reduce((sum, file) => sum + (there.get(file) ?? 0), 0);
  return { folder, gguf, repo: name.repo, commit, files, bytes, downloadedBytes: 0 };
}

async function notKept(name: HubName, { cache }: RepositoryCache, { endpoint }: HubAccess): Promise<SplitkvError> {
  const others: string[] = [];
  for (const other of await allCaches()) {
    if (other !== cache && (await keptModel(new RepositoryCache(other, name.repo), name))) others.push(other);
  }
  const elsewhere = others.length === 0 ? '' : ` (there is one of another Hub in ${others.join(', ')})`;
  return ioError(
    `${hubText(name)} of ${endpoint} is not complete in ${cache}${elsewhere}, and HF_HUB_OFFLINE forbids asking the Hub: ` +
      'unset it, or run `splitkv pull` elsewhere',
  );
}
