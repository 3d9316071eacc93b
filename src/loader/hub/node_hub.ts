import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ioError, type SplitkvError } from '../../base/errors.js';
import { sum } from '../../base/lists.js';
import { chooseMmproj, ggufSource, partNames } from '../gguf/file.js';
import { directorySource } from '../sources/node_files.js';
import type { OpenOptions } from '../open_source.js';
import type { Source } from '../source.js';
import { ADAPTER_FILES, modelTexts, SHARD_INDEX, SINGLE_FILE } from '../tensor_index.js';
import { type HubAccess, type HubListing, HubUnreachable, listRepository } from './hub_api.js';
import { type HubName, hubText } from './hub_name.js';
import { HubSource, hubSource, keptGguf, modelFile, placeName } from './hub_source.js';
import { allCaches, cacheOf, hasWeights, isOffline, nodeAccess, RepositoryCache, shardsOf } from './node_hub_cache.js';
import { type Download, download } from './node_hub_download.js';

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
  if (options.whole) return onDisk(name, await pullModel(name, options, signal));
  const asked = await ask(name, options, signal);
  if ('folder' in asked) return onDisk(name, asked);
  const { access, repository, listing } = asked;
  const revision = listing ? listing.commit : name.revision;
  const kept = revision === undefined ? undefined : await keptModel(repository, { ...name, revision }, options.files);
  const remote = hubSource(access, name, listing, options.files);
  if (!kept) return remote;
  const beside = kept.gguf === undefined ? [] : encoderFiles(options, listing?.files.keys() ?? [], kept.gguf);
  const texts = listing && !kept.gguf && !options.files ? await textsOf(remote, listing, signal) : [];
  const there = await repository.files(kept.commit);
  return [...beside, ...texts].every((file) => there.has(file)) ? onDisk(name, kept) : remote;
}

/** The encoder of images that is wanted beside a GGUF model, where there is one. */
function encoderFiles({ images }: OpenOptions, files: Iterable<string>, gguf: string): readonly string[] {
  const file = typeof images === 'string' ? images : images && chooseMmproj(files, gguf);
  return file ? [file] : [];
}

async function onDisk(name: HubName, { folder, gguf, commit }: PulledModel): Promise<Source> {
  const source = await directorySource(folder);
  const where = gguf === undefined ? folder : join(folder, gguf);
  const at = { where, commit, name: placeName(name, gguf) };
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
    const kept = error instanceof HubUnreachable ? await keptModel(repository, name, options.files) : undefined;
    if (!kept) throw error;
    options.onWarning?.(`${hubText(name)}: the copy on this disk is used, because ${(error as Error).message}`);
    return kept;
  }
  const kept = await keptModel(repository, name, options.files);
  if (!kept) throw await notKept(name, repository, access, options.files);
  return kept;
}

/**
 * Downloads what the cache lacks of a model of the Hub, whole files, and tells where it lies. Without the Hub a complete copy does.
 * @param adapters an adapter of PEFT's will do, too
 * @throws SplitkvError `io` where it can't be had, `usage` where it isn't clear which file is meant, `aborted`
 */
export async function pullModel(
  name: HubName,
  given: OpenOptions,
  signal: AbortSignal | undefined,
  adapters = false,
): Promise<PulledModel> {
  let options = given;
  const asked = await ask(name, options, signal);
  if ('folder' in asked) return asked;
  const { access, repository, listing } = asked;
  if (listing?.commit === undefined) {
    throw ioError(`${access.endpoint} doesn't tell what ${name.repo} holds: is it the address of a Hub?`);
  }
  if (adapters && listing.files.has(ADAPTER_FILES[0]) && !listing.files.has('config.json'))
    options = { ...given, files: ADAPTER_FILES };
  const { commit } = listing;
  const pinned = { ...listing, commit };
  const gguf = modelFile(name, pinned, options.files);
  const source = new HubSource(access, name, pinned);
  const work: Download = { source, name, listing: pinned, repository, options };
  const allOf = (file: string, parts: readonly string[]): readonly string[] => {
    const missing = parts.filter((part) => !listing.files.has(part));
    if (missing.length > 0) throw ioError(`${name.repo} has ${file}, but not ${missing.join(', ')}`);
    return parts;
  };
  let files: readonly string[];
  let downloadedBytes = 0;
  if (gguf !== undefined)
    files = allOf(gguf, [...partNames(gguf), ...encoderFiles(options, listing.files.keys(), gguf)]);
  else if (options.files) files = allOf(options.files[0], options.files);
  else {
    const texts = await textsOf(source, listing, signal);
    if (listing.files.has(SINGLE_FILE)) files = [...texts, SINGLE_FILE];
    else {
      downloadedBytes += await download(work, [SHARD_INDEX], signal);
      const shards = shardsOf(await readFile(join(repository.snapshot(commit), SHARD_INDEX), 'utf8'));
      if (!shards) throw ioError(`${name.repo} has ${SHARD_INDEX}, which names no files`);
      files = [...texts, ...allOf(SHARD_INDEX, shards)];
    }
  }
  const also = (options.also ?? []).filter((file) => listing.files.has(file));
  files = [...new Set([...files, ...also])];
  const there = await repository.files(commit);
  if (!options.files && files.some((file) => !there.has(file))) await options.look?.(hubSource(access, name, pinned));
  downloadedBytes += await download(work, files, signal);
  await repository.note(name.revision, commit);
  return pulled(repository, commit, gguf, await repository.files(commit), files, downloadedBytes);
}

/** What a load of safetensors reads beside them: who has tokenizer.json reads no tokenizer.model. */
async function textsOf(source: Source, { files }: HubListing, signal: AbortSignal | undefined): Promise<string[]> {
  const unread = [files.has('tokenizer.json') && 'tokenizer.model', files.has(SINGLE_FILE) && SHARD_INDEX];
  return (await modelTexts(source, signal)).filter((file) => !unread.includes(file));
}

/** Files of a commit. @param there all of it that the cache has, with their sizes */
function pulled(
  repository: RepositoryCache,
  commit: string,
  gguf: string | undefined,
  there: ReadonlyMap<string, number>,
  files: readonly string[],
  downloadedBytes = 0,
): PulledModel {
  const bytes = sum(files.map((file) => there.get(file) ?? 0));
  return { folder: repository.snapshot(commit), gguf, repo: repository.repo, commit, files, bytes, downloadedBytes };
}

/** What the cache holds of it, where that is all there need be. */
async function keptModel(
  repository: RepositoryCache,
  name: HubName,
  files: OpenOptions['files'],
): Promise<PulledModel | undefined> {
  const commit = await repository.commitOf(name.revision);
  if (commit === undefined) return undefined;
  const there = await repository.files(commit);
  const named = name.file !== undefined || name.quant !== undefined;
  const isWhole = files?.every((file) => there.has(file)) ?? (await hasWeights(repository.snapshot(commit), there));
  if (!named && isWhole) return pulled(repository, commit, undefined, there, [...there.keys()]);
  const gguf = keptGguf(name, there.keys());
  if (gguf === undefined || partNames(gguf).some((part) => !there.has(part))) return undefined;
  return pulled(repository, commit, gguf, there, partNames(gguf));
}

async function notKept(
  name: HubName,
  { cache }: RepositoryCache,
  { endpoint }: HubAccess,
  files: OpenOptions['files'],
): Promise<SplitkvError> {
  const others: string[] = [];
  for (const other of await allCaches()) {
    if (other !== cache && (await keptModel(new RepositoryCache(other, name.repo), name, files))) others.push(other);
  }
  const elsewhere = others.length === 0 ? '' : ` (there is one of another Hub in ${others.join(', ')})`;
  return ioError(
    `${hubText(name)} of ${endpoint} is not complete in ${cache}${elsewhere}, and HF_HUB_OFFLINE forbids asking the Hub: ` +
      'unset it, or run `splitkv pull` elsewhere',
  );
}
