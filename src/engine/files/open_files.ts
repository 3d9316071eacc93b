import { type ErrorCode, ioError, SplitkvError } from '../../base/errors.js';
import {
  type CachedModel,
  cachedSource,
  deleteCached,
  type OpenOptions,
  openSource,
  type Source,
} from '../../loader/index.js';
import type { LoadOptions } from '../contracts/api.js';
import { openModelFiles } from './model_files.js';

/** `onProgress` is told of files that are read to be checked, and of what Node downloads from the Hub. */
export interface OpenFilesOptions extends Pick<OpenOptions, 'onWarning' | 'onProgress' | 'onBytes' | 'onWait'> {
  /** How the Hub and servers are asked. */
  readonly network?: OpenOptions;
  readonly cache?: boolean | undefined;
  readonly integrity?: LoadOptions['integrity'];
  /** Weights won't be read: nothing is stored, and weight files aren't checked against `integrity`. */
  readonly lookOnly?: boolean;
  /** What the cache lists it as. */
  readonly kind?: CachedModel['kind'];
  readonly signal?: AbortSignal | undefined;
}

/** A model's files, through the browser's cache or (Node) that of the Hub's tools, each checked against `integrity` before it is used. @throws as `openSource` */
export async function openFiles(
  where: string | URL | readonly File[] | Source,
  { network, cache = true, integrity, lookOnly = false, kind, signal, ...told }: OpenFilesOptions,
): Promise<Source> {
  const { onWarning, onProgress } = told;
  const verified = async (source: Source, weights: boolean): Promise<Source> => {
    if (integrity === undefined) return source;
    const { verifiedSource } = await import('../../loader/sources/verified_source.js');
    return verifiedSource(source, integrity, { weights, onProgress, signal });
  };
  const look = async (source: Source): Promise<unknown> =>
    looksAt(network?.images, signal)(await verified(source, false));
  const also = Object.keys(integrity ?? {});
  return openSource(where, signal, { ...network, ...told, look, also, whole: cache && !lookOnly }, async (found) => {
    const source = cache ? await cachedSource(found, { signal, onWarning, store: !lookOnly, kind }) : found;
    return verified(source, !lookOnly);
  });
}

/** Throws for a model that isn't run here, by its config and the headers of its weights. @param encoder as of `openModelFiles` */
export const looksAt =
  (encoder?: boolean | string, signal?: AbortSignal) =>
  async (source: Source): Promise<unknown> =>
    (await openModelFiles(source, signal, undefined, encoder)).reader();

/** What files are refused for that came damaged: bytes may say anything. */
const SENSELESS: readonly ErrorCode[] = ['format', 'config', 'unsupported'];

/**
 * What the work gives. Where it finds a file that makes no sense, the files are looked at once more: a download that came damaged
 * is `io`, and says so, with what was found as its cause.
 * @param work tells the source that it reads
 */
export async function orDamage<T>(
  signal: AbortSignal | undefined,
  work: (opened: (source: Source) => Source) => Promise<T>,
): Promise<T> {
  let read: Source | undefined;
  try {
    return await work((source) => (read = source));
  } catch (error) {
    if (!(error instanceof SplitkvError && SENSELESS.includes(error.code))) throw error;
    const damage = await read?.damage?.(signal);
    throw damage === undefined ? error : ioError(damage, error);
  }
}

/**
 * Removes what the browser keeps of a model, so that the next load downloads all of it.
 * @throws SplitkvError `io` where its server can't be reached or hasn't got it: then what there is stays
 */
export async function forgetFiles(
  where: string | URL | readonly File[] | Source,
  network: OpenOptions,
  signal?: AbortSignal,
): Promise<void> {
  const source = await openSource(where, signal, network);
  await source.size(source.gguf ?? 'config.json', signal);
  if (source.url !== undefined) await deleteCached(source.url);
}
