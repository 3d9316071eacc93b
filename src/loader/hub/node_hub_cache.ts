import { isErrno } from '../sources/node_files.js';
import { parsed } from '../../base/json.js';
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, realpath, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join, relative, sep } from 'node:path';
import { ggufModels, partNames } from '../gguf/file.js';
import { ADAPTER_FILES } from '../tensor_index.js';
import type { HubAccess } from './hub_api.js';
import { DEFAULT_REVISION, isCommit } from './hub_name.js';
import { checkToken, endpointOf, HUB, httpOptionsOf, type NetworkOptions } from './hub_options.js';

/**
 * A cache in the layout of the one that all of the Hub's tools share (https://huggingface.co/docs/hub/local-cache): for a repository a
 * folder `models--ORG--NAME` with `refs/REVISION` (a commit), `blobs/ETAG` (what files contain) and `snapshots/COMMIT/FILE`
 * (links to them).
 */
export class RepositoryCache {
  readonly folder: string;

  constructor(
    readonly cache: string,
    readonly repo: string,
  ) {
    this.folder = join(cache, ['models', ...repo.split('/')].join('--'));
  }

  blob(id: string): string {
    return join(this.folder, 'blobs', id);
  }

  snapshot(commit: string): string {
    return join(this.folder, 'snapshots', commit);
  }

  /** Where the one who downloads a blob says so. */
  lock(id: string): string {
    return join(this.cache, '.locks', ['models', ...this.repo.split('/')].join('--'), `${id}.splitkv`);
  }

  /** The commit that a branch or tag was at when it was last asked for. */
  async commitOf(revision: string): Promise<string | undefined> {
    if (isCommit(revision)) return revision;
    const text = await readFile(join(this.folder, 'refs', ...revision.split('/')), 'utf8').catch(() => '');
    return isCommit(text.trim()) ? text.trim() : undefined;
  }

  /** Of a cache that can't be written the files are used all the same. */
  async note(revision: string, commit: string): Promise<void> {
    if ((await this.commitOf(revision)) === commit) return;
    const path = join(this.folder, 'refs', ...revision.split('/'));
    await mkdir(dirname(path), { recursive: true })
      .then(() => writeFile(path, commit))
      .catch(() => {});
  }

  /** The files of a snapshot, by their names, with their sizes; links to what isn't there any more are left out. */
  async files(commit: string): Promise<Map<string, number>> {
    const folder = this.snapshot(commit);
    const entries = await readdir(folder, { recursive: true }).catch(() => []);
    const files = new Map<string, number>();
    for (const entry of entries) {
      const info = await stat(join(folder, entry)).catch(() => undefined);
      if (info?.isFile()) files.set(entry.split(sep).join('/'), info.size);
    }
    return files;
  }

  /** Makes a blob a file of a snapshot: by a link, or where links aren't allowed (Windows) by moving it there. */
  async link(commit: string, file: string, id: string): Promise<void> {
    const path = join(this.snapshot(commit), ...file.split('/'));
    await mkdir(dirname(path), { recursive: true });
    await rm(path, { force: true });
    try {
      await symlink(relative(dirname(path), this.blob(id)), path);
    } catch (error) {
      if (isErrno(error, 'EEXIST')) return;
      await rename(this.blob(id), path);
    }
  }
}

export interface LocalModel {
  readonly repo: string;
  readonly kind: 'model' | 'adapter';
  /** The folder of the repository, and that of its newest snapshot. */
  readonly folder: string;
  readonly snapshot: string;
  readonly revision: string;
  /** On disk, of all its snapshots; parts of broken downloads count. */
  readonly bytes: number;
  /** Of the snapshot: there is all that a model needs. GGUF files in it. */
  readonly complete: boolean;
  readonly gguf: readonly string[];
}

/** The models and adapters in the cache, by name. Other repositories are left out. */
export async function listLocalModels(cache: string): Promise<LocalModel[]> {
  const names = await readdir(cache).catch(() => []);
  const models: LocalModel[] = [];
  for (const name of names.sort((a, b) => (a < b ? -1 : 1))) {
    const [kind, ...parts] = name.split('--');
    if (kind !== 'models' || parts.length === 0 || parts.length > 2) continue;
    const repository = new RepositoryCache(cache, parts.join('/'));
    const found = await newestSnapshot(repository);
    if (!found) continue;
    const files = await repository.files(found.commit);
    const gguf = ggufModels(files.keys());
    const isAdapter = ADAPTER_FILES.every((file) => files.has(file));
    const isWhole = gguf.some((file) => partNames(file).every((part) => files.has(part)));
    const complete = isWhole || isAdapter || (await hasWeights(repository.snapshot(found.commit), files));
    if (!complete && gguf.length === 0 && !files.has('config.json')) continue;
    models.push({
      repo: repository.repo,
      kind: isAdapter ? 'adapter' : 'model',
      folder: repository.folder,
      snapshot: repository.snapshot(found.commit),
      revision: found.revision,
      bytes: await bytesOf(repository.folder),
      complete,
      gguf,
    });
  }
  return models;
}

async function newestSnapshot(
  repository: RepositoryCache,
): Promise<{ readonly commit: string; readonly revision: string } | undefined> {
  const main = await repository.commitOf(DEFAULT_REVISION);
  if (main !== undefined && (await repository.files(main)).size > 0)
    return { commit: main, revision: DEFAULT_REVISION };
  const folder = join(repository.folder, 'snapshots');
  const dated = await Promise.all(
    (await readdir(folder).catch(() => []))
      .filter(isCommit)
      .map(async (commit) => ({ commit, at: (await stat(join(folder, commit))).mtimeMs })),
  );
  const newest = dated.sort((a, b) => b.at - a.at)[0];
  return newest && { commit: newest.commit, revision: newest.commit };
}

export async function hasWeights(folder: string, files: ReadonlyMap<string, number>): Promise<boolean> {
  if (!files.has('config.json')) return false;
  if (files.has('model.safetensors')) return true;
  const shards = shardsOf(await readFile(join(folder, 'model.safetensors.index.json'), 'utf8').catch(() => ''));
  return shards !== undefined && shards.every((shard) => files.has(shard));
}

/** The files that an index names; undefined for what is none. */
export function shardsOf(index: string): string[] | undefined {
  const { weight_map: map } = (parsed(index) ?? {}) as { weight_map?: Record<string, unknown> };
  const names = [...new Set(Object.values(map ?? {}))];
  return names.length > 0 && names.every((name) => typeof name === 'string') ? (names as string[]) : undefined;
}

/** What a folder takes on disk; what links point to counts once. */
async function bytesOf(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  let bytes = 0;
  for (const entry of entries) {
    if (entry.isFile()) bytes += (await stat(join(entry.parentPath, entry.name)).catch(() => undefined))?.size ?? 0;
  }
  return bytes;
}

/** Removes a repository from the cache; how many bytes that frees, undefined where it isn't there. */
export async function deleteLocalModel(cache: string, repo: string): Promise<number | undefined> {
  const { folder } = new RepositoryCache(cache, repo);
  const real = await realpath(folder).catch(() => undefined);
  if (real === undefined) return undefined;
  const bytes = await bytesOf(folder);
  await rm(folder, { recursive: true, force: true });
  return bytes;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Where the Hub's tools keep models: HF_HUB_CACHE, otherwise HF_HOME/hub, otherwise ~/.cache/huggingface/hub. */
export const hubCacheFolder = (env: Environment = process.env): string =>
  env['HF_HUB_CACHE'] || env['HUGGINGFACE_HUB_CACHE'] || join(hubHome(env), 'hub');

/** In the folder of the Hub's tools: a folder for each other Hub. */
const OTHERS = '.splitkv';

/**
 * Where models of this Hub are kept. That of the Hub's tools knows names and no endpoints, so only the Hub itself may write into it:
 * another one could give its files anybody's name.
 */
export function cacheOf(endpoint: string, env: Environment = process.env): string {
  const folder = hubCacheFolder(env);
  return endpoint === HUB ? folder : join(folder, OTHERS, folderName(endpoint));
}

/** All that there are: the Hub's first. */
export async function allCaches(env: Environment = process.env): Promise<string[]> {
  const folder = hubCacheFolder(env);
  const others = await readdir(join(folder, OTHERS)).catch(() => []);
  return [folder, ...others.sort((a, b) => (a < b ? -1 : 1)).map((name) => join(folder, OTHERS, name))];
}

/** One for each endpoint on every file system, whatever it does with case, dots and signs; long ones keep their beginning. */
function folderName(endpoint: string): string {
  const name = endpoint.replace(/[^a-z0-9.-]|\.$/g, (sign) => `_${sign.charCodeAt(0).toString(16)}`);
  return name.length <= 120
    ? name
    : `${name.slice(0, 80)}__${createHash('sha256').update(endpoint).digest('hex').slice(0, 32)}`;
}

const hubHome = (env: Environment): string =>
  env['HF_HOME'] || join(env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'huggingface');

/** HF_HUB_OFFLINE: nothing is asked of the Hub. */
export const isOffline = (env: Environment = process.env): boolean => isSwitchedOn(env['HF_HUB_OFFLINE']);

const isSwitchedOn = (value: string | undefined): boolean => /^(1|on|yes|true)$/i.test(value ?? '');

/**
 * The Hub that is asked, and with which token: what the options say, otherwise the environment, as the Hub's own tools read it. The
 * environment's token isn't sent to a Hub that only the options name.
 * @throws SplitkvError `usage` for an address or token that is none
 */
export async function nodeAccess(options: NetworkOptions, env: Environment = process.env): Promise<HubAccess> {
  const usual = endpointOf(env['HF_ENDPOINT'] || HUB, 'HF_ENDPOINT');
  const endpoint = options.hub === undefined ? usual : endpointOf(options.hub, 'hub');
  const token =
    options.token !== undefined
      ? checkToken(options.token, 'token')
      : endpoint === usual && !isSwitchedOn(env['HF_HUB_DISABLE_IMPLICIT_TOKEN'])
        ? await storedToken(env)
        : undefined;
  return { endpoint, token, http: httpOptionsOf(options) };
}

/** HF_TOKEN, otherwise what `hf auth login` has written. */
async function storedToken(env: Environment): Promise<string | undefined> {
  const given = (env['HF_TOKEN'] || env['HUGGING_FACE_HUB_TOKEN'])?.trim();
  if (given) return checkToken(given, 'HF_TOKEN');
  const path = env['HF_TOKEN_PATH'] || join(hubHome(env), 'token');
  const kept = (await readFile(path, 'utf8').catch(() => '')).trim();
  return kept === '' ? undefined : checkToken(kept, path);
}
