/**
 * Room: models of the Hugging Face Hub by their name: what a name means, which file it is, and how it is downloaded in
 * Node (the cache of the Hub's own tools) and in pages. Read hub_name.ts next.
 */

import { SplitkvError } from '../../base/errors.js';
import { ggufSource } from '../gguf/file.js';
import { httpSource } from '../sources/http_source.js';
import type { Source } from '../source.js';
import { missingFile } from '../source.js';
import { chooseGguf } from './gguf_choice.js';
import { type HubAccess, hubHttp, type HubListing } from './hub_api.js';
import { type HubName, hubText, resolveUrl } from './hub_name.js';

/**
 * A repository of the Hub read by range requests. With a listing its files are those of one commit, whatever happens to the
 * revision meanwhile, nothing is asked for that isn't there, and a file's version is what it contains: a cache that is filed
 * under the revision fetches again what the revision's next commit changed, and only that.
 */
export function hubSource(access: HubAccess, name: HubName, listing: HubListing | undefined): Source {
  const gguf = listing ? modelFile(name, listing) : name.file;
  const folder = new HubSource(access, name, listing);
  const source = gguf === undefined ? folder : ggufSource(folder, gguf);
  const commit = listing?.commit;
  return Object.assign(source, {
    at: { where: `hf:${hubText({ ...name, quant: undefined, file: gguf })}`, ...(commit !== undefined && { commit }) },
  });
}

/**
 * The .gguf file that is the model; undefined for a repository of safetensors, which win unless a file or quantisation is named.
 * @throws SplitkvError `io` where there is neither; as chooseGguf
 */
export function modelFile(name: HubName, listing: HubListing): string | undefined {
  const { files } = listing;
  const named = name.file !== undefined || name.quant !== undefined;
  const weights = files.has('model.safetensors') || files.has('model.safetensors.index.json');
  if (!named && weights && files.has('config.json')) return undefined;
  const gguf = chooseGguf(name, listing);
  if (gguf !== undefined) return gguf;
  const other = [...files.keys()].find((file) => /\.(bin|pth|pt|onnx|safetensors|msgpack|npz)$/i.test(file));
  throw new SplitkvError(
    'io',
    `${hubText(name)} holds no model that runs here: expected config.json with model.safetensors (or its shards and their index), or a .gguf file` +
      (other === undefined ? '' : `; it has ${other}`),
  );
}

/** All files of a repository. */
export class HubSource implements Source {
  readonly name: string;
  readonly url: string;
  readonly #remote: Source;
  readonly #listing: HubListing | undefined;

  constructor(access: HubAccess, name: HubName, listing: HubListing | undefined) {
    const { endpoint } = access;
    this.name = hubText({ ...name, file: undefined, quant: undefined });
    this.url = resolveUrl(endpoint, name.repo, name.revision);
    this.#listing = listing;
    this.#remote = httpSource(resolveUrl(endpoint, name.repo, listing?.commit ?? name.revision), hubHttp(access, name));
  }

  async size(file: string, signal?: AbortSignal): Promise<number | undefined> {
    if (!this.#listing) return this.#remote.size(file, signal);
    const listed = this.#listing.files.get(file);
    return listed && (listed.size ?? this.#remote.size(file, signal));
  }

  async version(file: string, signal?: AbortSignal): Promise<string | undefined> {
    const listed = this.#listing?.files.get(file);
    if (this.#listing && !listed) throw missingFile(this.name, file);
    return listed?.id ?? this.#remote.version(file, signal);
  }

  async sha256(file: string, signal?: AbortSignal): Promise<string | undefined> {
    const id = this.#listing?.files.get(file)?.id;
    return id?.length === 64 ? id : this.#remote.sha256?.(file, signal);
  }

  async read(file: string, start: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    if (this.#listing && !this.#listing.files.has(file)) throw missingFile(this.name, file);
    return this.#remote.read(file, start, end, signal);
  }

  async list(): Promise<readonly string[]> {
    return this.#listing ? [...this.#listing.files.keys()] : [];
  }
}
