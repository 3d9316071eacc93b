/**
 * Room: models of the Hugging Face Hub by their name: what a name means, which file it is, and how it is downloaded in
 * Node (the cache of the Hub's own tools) and in pages. Read hub_name.ts next.
 */

import { ioError, type SplitkvError, tried, usageError } from '../../base/errors.js';
import { formatBytes } from '../../base/math.js';
import { ggufModels, ggufSource, quantOf } from '../gguf/file.js';
import { httpSource } from '../sources/http_source.js';
import type { OpenOptions } from '../open_source.js';
import { missingFile, type Source } from '../source.js';
import { type HubAccess, hubHttp, type HubListing } from './hub_api.js';
import { type HubName, hubText, resolveUrl } from './hub_name.js';

/**
 * A repository of the Hub read by range requests. With a listing its files are those of one commit, whatever happens to the
 * revision meanwhile, nothing is asked for that isn't there, and a file's version is what it contains: a cache that is filed
 * under the revision fetches again what the revision's next commit changed, and only that.
 */
export function hubSource(
  access: HubAccess,
  name: HubName,
  listing: HubListing | undefined,
  files?: OpenOptions['files'],
): Source {
  if (!listing && name.quant !== undefined)
    throw ioError(
      `${access.endpoint} doesn't tell what ${name.repo} holds: name the file instead, as in ${name.repo}/FILE.gguf`,
    );
  const gguf = listing ? modelFile(name, listing, files) : name.file;
  const folder = new HubSource(access, name, listing);
  const source = gguf === undefined ? folder : ggufSource(folder, gguf);
  const commit = listing?.commit;
  return Object.assign(source, { at: { where: placeName(name, gguf), ...(commit !== undefined && { commit }) } });
}

/** The name of what was found. @param gguf the file that is the model, if it is one */
export const placeName = (name: HubName, gguf: string | undefined): string =>
  `hf:${hubText({ ...name, quant: undefined, file: gguf })}`;

/**
 * The .gguf file that is the model; undefined for a repository of safetensors, which win unless a file or quantisation is named.
 * @param wanted the files of something else than a model
 * @throws SplitkvError `io` where there is neither; as chooseGguf
 */
export function modelFile(name: HubName, listing: HubListing, wanted?: OpenOptions['files']): string | undefined {
  const { files } = listing;
  const named = name.file !== undefined || name.quant !== undefined;
  const weights = files.has('model.safetensors') || files.has('model.safetensors.index.json');
  if (!named && (wanted ? files.has(wanted[0]) : weights && files.has('config.json'))) return undefined;
  const gguf = chooseGguf(name, listing);
  if (gguf !== undefined) return gguf;
  const other = [...files.keys()].find((file) => /\.(bin|pth|pt|onnx|safetensors|msgpack|npz)$/i.test(file));
  const expected = wanted
    ? wanted.join(' with ')
    : 'config.json with model.safetensors (or its shards and their index)';
  throw ioError(
    `${hubText(name)} holds no ${wanted ? 'such files' : 'model that runs here'}: expected ${expected}, or a .gguf file` +
      (other === undefined ? '' : `; it has ${other}`) +
      (/\.(bin|pth?)$/i.test(other ?? '') && !wanted
        ? `, which transformers converts: AutoModelForCausalLM.from_pretrained('${name.repo}').save_pretrained(FOLDER)`
        : ''),
  );
}

/** Which of a repository's files is taken unasked: the first of these that there is. All of them are types that this runtime reads. */
const PREFERRED_QUANTS = (
  'Q4_K_M Q4_K_XL Q4_0 Q4_K_S Q5_K_M Q8_0 Q5_K_S Q6_K Q5_0 Q4_1 ' +
  'Q5_1 IQ4_XS IQ4_NL MXFP4 MXFP4_MOE F16 BF16 F32 Q3_K_L Q3_K_M Q3_K_S'
).split(' ');

/**
 * The .gguf file of a repository that is the model, by its first part: the one that is named, the one of the named quantisation,
 * the only one, or the first of PREFERRED_QUANTS; undefined where it has none, and none was asked for.
 * @throws SplitkvError `io` for a file or quantisation that isn't there, `usage` where it isn't clear which is meant, with the choices
 */
function chooseGguf(name: HubName, { files }: HubListing): string | undefined {
  const { repo, file, quant } = name;
  const models = ggufModels(files.keys());
  const shown = (model: string): string => {
    const size = files.get(model)?.size;
    return size === undefined ? model : `${model} (${formatBytes(size)})`;
  };
  const modelsOf = (wanted: string): string[] => {
    const plain = models.filter((model) => quantOf(model) === wanted);
    return plain.length > 0 ? plain : models.filter((model) => quantOf(model) === `UD-${wanted}`);
  };
  const choices = (): string => models.map(shown).join(', ') || 'no .gguf file at all';
  if (file !== undefined) {
    if (files.has(file)) return file;
    throw ioError(`${repo} has no ${file}; it has ${choices()}`);
  }
  if (quant !== undefined) {
    const wanted = modelsOf(quant.toUpperCase());
    if (wanted.length === 1) return wanted[0];
    if (wanted.length === 0) throw ioError(`${repo} has no ${quant}; it has ${choices()}`);
    throw several(name, wanted);
  }
  if (models.length <= 1) return models[0];
  for (const preferred of PREFERRED_QUANTS) {
    const found = modelsOf(preferred);
    if (found.length === 1) return found[0];
    if (found.length > 1) throw several(name, found);
  }
  throw usageError(
    `${repo} holds ${models.length} GGUF models, none in a quantisation that is taken unasked (${PREFERRED_QUANTS.join(', ')}): ` +
      `name the file, as in ${hubText({ ...name, file: models[0] })}; there are ${choices()}`,
  );
}

/** The same among files that are kept; undefined, too, where it isn't there or isn't clear. */
export function keptGguf(name: HubName, kept: Iterable<string>): string | undefined {
  const files = new Map([...kept].map((file) => [file, { size: undefined, id: undefined }]));
  return tried(() => chooseGguf(name, { commit: undefined, files }));
}

const several = (name: HubName, models: readonly string[]): SplitkvError =>
  usageError(
    `${name.repo} holds ${models.length} GGUF models of that quantisation: name the file, as in ` +
      `${hubText({ ...name, quant: undefined, file: models[0] })}; there are ${models.join(', ')}`,
  );

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
    if (this.#listing && !listed) throw missingFile(this, file);
    return listed?.id ?? this.#remote.version(file, signal);
  }

  async sha256(file: string, signal?: AbortSignal): Promise<string | undefined> {
    const id = this.#listing?.files.get(file)?.id;
    return id?.length === 64 ? id : this.#remote.sha256?.(file, signal);
  }

  async read(file: string, start: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    if (this.#listing && !this.#listing.files.has(file)) throw missingFile(this, file);
    return this.#remote.read(file, start, end, signal);
  }

  async list(): Promise<readonly string[]> {
    return this.#listing ? [...this.#listing.files.keys()] : [];
  }
}
