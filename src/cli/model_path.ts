import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { ioError, SplitkvError } from '../base/errors.js';
import { formatBytes } from '../base/math.js';
import { isStored } from '../engine/contracts/cluster_options.js';
import type { NetworkOptions } from '../index.js';
import type { Telling } from './hosts/node_host.js';
import { findGguf, isGgufName, type OpenOptions } from '../loader/index.js';
import { catalogHint, catalogHubName, catalogModel } from '../loader/hub/catalog.js';
import { hubForm } from '../loader/hub/hub_options.js';
import { type HubName, hubNameOfUrl, hubText, parseHubName } from '../loader/hub/hub_name.js';
import { type PulledModel, pullModel } from '../loader/hub/node_hub.js';
import { nodeAccess } from '../loader/hub/node_hub_cache.js';

export interface PathRequest extends Telling {
  readonly network: NetworkOptions & Pick<OpenOptions, 'images' | 'look'>;
  /** Models of the Hub are downloaded; otherwise they stay names, `hf:...`. */
  readonly pull: boolean;
}

/**
 * What a model is called on the command line, as a folder, a .gguf file, a URL or `hf:...`: a folder or file of that name wins,
 * then the Hub and the catalog have their say.
 * @throws SplitkvError `io`, `usage`, `aborted`
 */
export async function modelPath(given: string, request: PathRequest): Promise<string> {
  if (isStored(given) || given === 'auto') return given;
  const found = await stat(given).catch(() => undefined);
  if (found) return localPath(given, found.isDirectory());
  const name = await hubNameOf(given, request.network);
  if (name === undefined) {
    if (/^https?:\/\//.test(given)) return given;
    const hint = hubForm(given) === 'word' ? `, and the catalog has no model of that name.${catalogHint(given)}` : '';
    throw ioError(`--model ${given}: no such folder${hint}`);
  }
  if (!request.pull) return `hf:${hubText(name)}`;
  const named = /^(hf:|https?:)/i.test(given) ? '' : `--model ${given}: no such folder or file on this disk, and `;
  const { looksAt } = await import('../engine/files/open_files.js');
  const look = looksAt(request.network.images, request.signal);
  const network = { ...request.network, look };
  const { folder, gguf } = await pull(name, { ...request, network, adapters: false }).catch((error: unknown) => {
    if (!(error instanceof SplitkvError) || error.code !== 'io' || named === '') throw error;
    throw ioError(`${named}${error.message}`, error);
  });
  return gguf === undefined ? folder : join(folder, gguf);
}

async function localPath(path: string, isFolder: boolean): Promise<string> {
  if (!isFolder) {
    if (isGgufName(path)) return path;
    throw ioError(`--model ${path}: expected a folder with config.json and weights, or a .gguf file`);
  }
  // Named here, because a page that is served the folder can't look for it.
  const files = await readdir(path);
  const gguf = findGguf(files, path);
  return gguf === undefined ? path : join(path, gguf);
}

/** The Hub's model that a text names: by itself, by the catalog, or by the address of its page; undefined for others. */
export async function hubNameOf(text: string, network: NetworkOptions): Promise<HubName | undefined> {
  if (/^https?:\/\//i.test(text) && URL.canParse(text)) {
    return hubNameOfUrl(new URL(text), (await nodeAccess(network)).endpoint);
  }
  const form = hubForm(text);
  if (form !== 'word') return form && parseHubName(text);
  const model = catalogModel(text);
  return model && catalogHubName(model);
}

/** Downloads what the local cache lacks of a model or adapter, telling how far it is. */
export function pull(
  name: HubName,
  {
    network,
    signal,
    onProgress,
    onWarning,
    onFiles,
    adapters = true,
  }: Omit<PathRequest, 'pull'> & {
    readonly onFiles?: Parameters<typeof pullModel>[1]['onProgress'];
    /** False: only a model will do. */
    readonly adapters?: boolean;
  },
): Promise<PulledModel> {
  let last = '';
  return pullModel(
    name,
    {
      ...network,
      onWarning,
      onProgress: ({ file, loadedBytes, totalBytes }) => {
        onFiles?.({ file, loadedBytes, totalBytes });
        const line = `downloading ${name.repo}: ${formatBytes(loadedBytes)} of ${formatBytes(totalBytes)} (${file})`;
        const what = `downloading ${name.repo}`;
        if (line !== last) onProgress(line, { what, done: loadedBytes, total: totalBytes, bytes: true });
        last = line;
      },
    },
    signal,
    adapters,
  );
}
