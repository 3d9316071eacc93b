import { didYouMean } from '../../base/errors.js';
import catalog from '../../../models/catalog.json?raw';
import type { HubName } from './hub_name.js';

/** A model that runs here, by a name of its own: `load(name)`. */
export interface CatalogModel<Sampling = Readonly<Record<string, number>>> {
  /** 'smollm2-360m-instruct'. */
  readonly name: string;
  /** Its repository on the Hugging Face Hub. */
  readonly id: string;
  /** The branch, tag or commit that is meant. */
  readonly revision: string;
  /** Its GGUF file there: of 4 bits a number, or 8 where others are not published. */
  readonly file: string;
  /** What it is for, where that isn't to answer: vectors of texts, or scores of documents. */
  readonly use?: 'embed' | 'rerank';
  /** As the Hub calls it: 'apache-2.0'. */
  readonly license: string;
  readonly parameters: number;
  readonly downloadBytes: number;
  /** GPU memory that the weights take, by `weights`; `stored`: as the file has them, which is what 'auto' takes. */
  readonly weightBytes: { readonly f16: number; readonly q8: number; readonly q4: number; readonly stored: number };
  /** GPU memory of a token in the KV cache in f32; half of it in f16. */
  readonly kvBytesPerToken: number;
  /** Tokens that the model was made for; `load` takes at most 4096 unless `contextLength` says more. */
  readonly contextLength: number;
  /** What its makers recommend; empty: they say nothing. */
  readonly sampling: Sampling;
  /** SHA-256 of files, where it is known: `LoadOptions.integrity`. */
  readonly integrity?: Readonly<Record<string, string>>;
  /** What of this was written down from memory or computed, and not compared with the repository. */
  readonly unverified: readonly string[];
}

/** Small models that run here, the smallest first. */
export const MODELS = /* @__PURE__ */ JSON.parse(catalog) as readonly CatalogModel[];

/** The catalog's model of that name, or of the name its repository has without its owner; any case. */
export function catalogModel(word: string): CatalogModel | undefined {
  const wanted = word.toLowerCase();
  return MODELS.find(({ name, id }) => name === wanted || id.toLowerCase().endsWith(`/${wanted}`));
}

/** What the makers of the model in a GGUF file recommend: most files don't say it. */
export const catalogSampling = (file: string): CatalogModel['sampling'] =>
  MODELS.find((model) => model.file === file.split('/').at(-1))?.sampling ?? {};

export const catalogHubName = ({ id, revision, file }: CatalogModel): HubName => ({ repo: id, revision, file });

/** ` Did you mean 'x'?`, or nothing. */
export const catalogHint = (word: string): string =>
  didYouMean(
    word,
    MODELS.map(({ name }) => name),
  );
