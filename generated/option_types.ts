// Made of src/engine/contracts/options by `npm run options`: change the rows there.

import type { Profile } from '../src/arrangement/index.js';
import type { PlanFile } from '../src/placement/index.js';
import type { AdapterGiven, AttentionDpOptions, LoadProgress, PrefillOptions } from '../src/engine/contracts/api.js';
import type { KvFolder } from '../src/engine/contracts/kv_folder.js';
import type { ClusterRanksOptions } from '../src/engine/contracts/cluster_options.js';

/** What `load` takes. */
export interface LoadOptions {
  /**
   * How matrices are kept on the GPU. auto keeps f32 checkpoints in f32, f16 and bf16 ones in f16, and a GGUF file's
   * block types as they are, or in q8 where no kernel reads them. Default: auto, as they are stored.
   */
  readonly weights?: 'auto' | 'f32' | 'f16' | 'q8' | 'q4' | undefined;
  /**
   * Tokens that the KV cache holds for a sequence, prompt and answer. An integer from 1 to 1048576. Default: the
   * model's maximum, at most 32768; above 4096 no more than 1 GiB of cache holds.
   */
  readonly contextLength?: number | undefined;
  /**
   * Low-rank adapters by name: a folder of PEFT or a GGUF file each, or { from, scale }, or a list of these, added up.
   * Requests name theirs (`adapter`).
   */
  readonly adapters?: Readonly<Record<string, AdapterGiven>> | undefined;
  /** Prompts may have images: the model's encoder is loaded, too, on the first rank. Default: false. */
  readonly images?: boolean | undefined;
  /** Prompts may have recordings: the model's encoder of sound is loaded, too, on the first rank. Default: false. */
  readonly sound?: boolean | undefined;
  /** A GGUF model's encoder, a file beside it; turns `images` on, unless `sound` is. Default: mmproj-*.gguf. */
  readonly mmproj?: string | undefined;
  /** The Hub that names such as ORG/NAME mean. Default: https://huggingface.co, in Node what HF_ENDPOINT says. */
  readonly hub?: string | URL | undefined;
  /**
   * An access token of the Hub, for gated and private models: sent to the Hub alone. In a page whoever opens it can
   * read the token. Default: in Node that of HF_TOKEN, or of the file where `hf auth login` keeps it.
   */
  readonly hubToken?: string | undefined;
  /** Headers of every request for the model's files, wherever they are. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The function that makes the requests; not with `workers`. Default: the global fetch. */
  readonly fetch?: typeof fetch | undefined;
  /**
   * The keeping of downloads. In browsers: in the private file system (OPFS). In Node: models of the Hub, whole, in
   * the cache that its tools share (HF_HUB_CACHE), those of another `hub` in a folder of its own; without it they are
   * read by ranges each time. Default: true.
   */
  readonly cache?: boolean | undefined;
  /**
   * SHA-256 of files by their names in the folder, in 64 hex digits or as `sha256-` and base64. A file named here is
   * read once as a whole and checked before anything of it is used; another is an `io` error. What the browser keeps
   * and was checked before isn't read again. Files that aren't named aren't checked.
   */
  readonly integrity?: Readonly<Record<string, string>> | undefined;
  /**
   * How the KV cache keeps its numbers. q8 is bytes with a scale for each 32 of them, half of f16's memory and a
   * little. f16 and q8 clamp numbers that they can't hold. Bits differ between the types. Default: auto, f16 where all
   * ranks run on GPUs and f32 on adapters that run on the CPU.
   */
  readonly kv?: 'auto' | 'f32' | 'f16' | 'q8' | undefined;
  /**
   * Part of a prompt's KV cache that is kept, such as 0.2: each kv head evicts the entries that it attends to least. A
   * number above 0 and at most 1. Default: all of it.
   */
  readonly kvBudget?: number | undefined;
  /**
   * How many entries each head keeps: ada by its share of the layer's best scores, snap all alike, static in
   * proportion to a `kvProfile`; none evicts nothing. Default: ada with a `kvBudget`.
   */
  readonly kvPolicy?: 'none' | 'snap' | 'ada' | 'static' | undefined;
  /**
   * The last tokens of a prompt, whose queries score the entries and which are always kept. An integer from 1 to 256.
   * Default: 32.
   */
  readonly kvWindow?: number | undefined;
  /** Neighbouring entries that score as the best of them: an odd number. An integer from 1 to 255. Default: 7. */
  readonly kvKernel?: number | undefined;
  /**
   * With policy ada, the part of the budget that every head gets whatever its scores, in steps of 0.001. A number from
   * 0 to 1. Default: 0.2.
   */
  readonly kvAlpha?: number | undefined;
  /**
   * What each head kept in a measurement, as `splitkv profile` writes it: its URL, or in Node its file; `kvPolicy`
   * static keeps by it, and `plan` arranged arranges heads by it. Default: plan arranged measures it at the first
   * load, and keeps it.
   */
  readonly kvProfile?: Profile | string | URL | undefined;
  /**
   * Prompts that begin alike share the beginning's cache, and a conversation's turns theirs; with `kvBudget` prompts
   * are then kept whole as well, in room for one context more. The room is on each rank (or group of ranks) that keeps
   * sequences. Default: where the plan allows it, and not with `kvBudget`.
   */
  readonly prefixCaching?: boolean | undefined;
  /**
   * A folder where prompts' keys and values are kept, so that a restart needn't compute them again, on any plan. In a
   * page a name in its private file system (OPFS), or an object that keeps pieces by name.
   */
  readonly kvDir?: string | KvFolder | undefined;
  /**
   * Bytes that `kvDir` may take: what was used longest ago goes first. An integer from 1 to 9007199254740991. Default:
   * 4 GiB.
   */
  readonly kvDirBytes?: number | undefined;
  /**
   * Files of `splitkv prefix make`, by URL or in Node by path: prompts that begin as they do take what they need of
   * them. `#sha256-...` behind one pins it.
   */
  readonly prefixes?: readonly (string | URL)[] | undefined;
  /** Part of an adapter's name; Node only. Default: a GPU, otherwise the fastest software adapter. */
  readonly adapter?: string | undefined;
  /** Which GPU, where there are two. Default: high-performance. */
  readonly powerPreference?: 'high-performance' | 'low-power' | undefined;
  /**
   * Which variants of kernels run: hardware as on GPUs, software as on adapters that run on the CPU, auto as the
   * adapter is. Bits differ between the two. On a CPU, those for GPUs are several times slower: for tests. Default:
   * auto.
   */
  readonly variants?: 'auto' | 'hardware' | 'software' | undefined;
  /**
   * How prompts are multiplied on GPUs: exact, fast by matrix units, in bytes, or in f16, by what all ranks have in
   * common, or auto: fast where that needs no flag. Where all have bytes, generated tokens are multiplied in them.
   * Texts may differ a little between the two; those of fast are as much the same over plans, batches and chunks.
   * `stats.variants` tells. Default: exact.
   */
  readonly precision?: 'auto' | 'exact' | 'fast' | undefined;
  /**
   * The timing of a GPU's kernels at load, for half a second at most, to choose among plans of equal bits. What is
   * quickest on this adapter is kept for the next time. Default: true.
   */
  readonly tune?: boolean | undefined;
  /** Which hidden states of a text make its vector. Default: what the model's files say, otherwise the mean. */
  readonly pooling?: 'mean' | 'last' | 'cls' | undefined;
  /**
   * Prompt tokens computed in one go; never changes a bit of the result. An integer from 1 to 4096. Default: 512, and
   * 256 where stages of layers work side by side.
   */
  readonly prefillChunk?: number | undefined;
  /**
   * Tokens that may come next are proposed, and verified many in a step where that pays; never changes a bit. Default:
   * auto.
   */
  readonly speculate?: 'auto' | 'off' | 'ngram' | 'draft' | 'mtp' | undefined;
  /** A smaller model of the same vocabulary, named as the model is, that proposes tokens, too. */
  readonly draft?: string | URL | undefined;
  /**
   * Decode steps submitted ahead of the host's reading; never changes the result. An integer from 1 to 8. Default: 4,
   * and 8 where a step takes less than 4 ms.
   */
  readonly stepsInFlight?: number | undefined;
  /**
   * GPU devices that run the model together: how many, or an adapter for each, such as "high-performance,low-power"
   * (or software; in Node part of its name). The logits are the same bits whatever their number, on adapters of one
   * kind. With `plan` auto it is how many there may be: fewer, even one, where more do not pay. Default: 1.
   */
  readonly ranks?: number | readonly string[] | undefined;
  /**
   * Who holds what: auto, a policy (tp, sp, tp+sp, pp, ep, token, adp), a product such as "pp x tp", arranged or "pp x
   * arranged" (heads by what each keeps of a prompt), or a plan or arrangement in a file, FILE.json. auto measures the
   * adapters, once, and takes the plan that answers soonest. arranged arranges by `kvProfile`, or by a measurement of
   * the first such load, which is kept. In the library a plan is the object. Default: auto.
   */
  readonly plan?: string | PlanFile | undefined;
  /**
   * `plan` arranged: copies of heads beyond the first, at most so many a layer; 0 is none. An integer from 0 to 1023.
   * Default: as many as it takes where whole heads would leave ranks idle.
   */
  readonly copies?: number | undefined;
  /**
   * Degrees of parallelism name a plan and its ranks in place of `plan` and `ranks`: their product is the number of
   * ranks (1 where left out), and beside `plan` they say how it is cut; this one is of ranks with different heads and
   * columns (tp). An integer from 1 to 64.
   */
  readonly tensor?: number | undefined;
  /**
   * Of the degrees: ranks that sequences are shared out to for each rank with weights, itself among them (token). An
   * integer from 1 to 64.
   */
  readonly token?: number | undefined;
  /** Of the degrees: ranks that split the chunks of each sequence (sp). An integer from 1 to 64. */
  readonly sequence?: number | undefined;
  /** Of the degrees: stages of layers (pp). An integer from 1 to 64. */
  readonly pipeline?: number | undefined;
  /** Of the degrees: ranks, or groups of ranks, with requests of their own (adp). An integer from 1 to 64. */
  readonly data?: number | undefined;
  /** All ranks on one device: tries a plan without more GPUs. Default: false. */
  readonly virtualRanks?: boolean | undefined;
  /**
   * Each rank in a worker of its own: a Web Worker in a page, a worker_thread in Node. The page stays free for other
   * work; `load` then takes URLs, paths and files, not a Source. Default: false.
   */
  readonly workers?: boolean | undefined;
  /**
   * All pages of an origin that load the same model with the same options use one. A worker of all tabs has it, or a
   * tab. A bundled page gives its address. Default: off.
   */
  readonly share?: boolean | string | URL | undefined;
  /**
   * Frees a shared model after so many seconds without a question. A number above 0 and at most 1048576. The next
   * question loads it again. Default: never.
   */
  readonly idle?: number | undefined;
  /**
   * A cluster whose ranks on other machines, or in tabs (`openPeers`), run the model: `ranks` are their names, or how
   * many. A model in a folder must be in theirs (`--models`), under the same name, or in the cluster itself (`splitkv
   * push`), under the name `cluster:NAME`. With plan auto each rank's adapter and each pair's link are measured.
   */
  readonly cluster?: ClusterRanksOptions | undefined;
  /**
   * GPU memory that each rank may take, such as 500MB or 2GB; "1GB,500MB" gives each its own. In the library bytes,
   * one number for all or one each. A plan that needs more is refused.
   */
  readonly memory?: number | readonly number[] | undefined;
  /**
   * Whole contexts that the KV cache has room for: generations that run at once share it, and those that find no room
   * wait. An integer from 1 to 64. Default: as many as a pipeline has stages, otherwise 1.
   */
  readonly requests?: number | undefined;
  /**
   * Which rank, or group of ranks, a request goes to and when its prompt runs, where a plan keeps each request on one
   * (adp, its products, token), in JSON, such as {"enable_balance": false}. The names are TensorRT-LLM's. Default:
   * mode cost with balance; with token, filled by what ranks keep.
   */
  readonly attentionDpConfig?: AttentionDpOptions | undefined;
  /**
   * Prompts are computed on a device of their own, with whole weights, and their keys and values handed over to the
   * ranks. A list: several such workers of one kind, each with a device of its own; a prompt goes to the one with
   * least to do, and where one fails the others compute its prompts. Default: the ranks compute prompts themselves.
   */
  readonly prefill?: PrefillOptions | readonly PrefillOptions[] | undefined;
  /** Told how far the load is. */
  readonly onProgress?: ((progress: LoadProgress) => void) | undefined;
  /** Told what is worth knowing, and no error. */
  readonly onWarning?: ((message: string) => void) | undefined;
  /** Ends the load. */
  readonly signal?: AbortSignal | undefined;
}

/** How a token is chosen. */
export interface SamplingOptions {
  /** How evenly tokens are drawn; 0 takes the likeliest one. A number of at least 0. Default: 0. */
  readonly temperature?: number | undefined;
  /**
   * The likeliest tokens that hold this probability together are drawn from; 1 is all of them. A number above 0 and at
   * most 1. Default: 1.
   */
  readonly topP?: number | undefined;
  /** How many of the likeliest tokens to draw from; 0 is all of them. An integer of at least 0. Default: 0. */
  readonly topK?: number | undefined;
  /**
   * Tokens less likely than this times the likeliest one, after temperature, are left out; 0 is none. A number from 0
   * to 1. Default: 0.
   */
  readonly minP?: number | undefined;
  /**
   * Of tokens of the prompt and generated ones, positive logits are divided by it and negative ones multiplied; above
   * 1 makes repeats less likely. A number above 0. Default: 1.
   */
  readonly repetitionPenalty?: number | undefined;
  /** Subtracted from a token's logit for each time it was generated. A number from -2 to 2. Default: 0. */
  readonly frequencyPenalty?: number | undefined;
  /** Subtracted from the logit of each token that was generated. A number from -2 to 2. Default: 0. */
  readonly presencePenalty?: number | undefined;
  /** Added to the logits of tokens, by their ids: -100 bans one, 100 nearly forces it. */
  readonly logitBias?: Readonly<Record<number, number>> | ReadonlyMap<number, number> | undefined;
  /** Ids of tokens that end the text as the model's own end-of-sequence tokens do, also where those are ignored. */
  readonly stopTokenIds?: readonly number[] | undefined;
  /**
   * No token that ends the text is sampled before this many tokens were, and no stop text is looked for in these. An
   * integer from 0 to 4294967295. Default: 0.
   */
  readonly minTokens?: number | undefined;
  /** The same seed gives the same text. An integer of at least 0. Default: a random one, reported in the result. */
  readonly seed?: number | undefined;
}

/** What a model's makers may recommend. */
export type RecommendedSampling = Pick<SamplingOptions, 'temperature' | 'topP' | 'topK' | 'minP' | 'repetitionPenalty'>;
