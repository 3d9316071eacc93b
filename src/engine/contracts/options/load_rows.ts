import { isNode } from '../../../base/platform.js';
import { wholeNumber } from '../../../base/options.js';
import { MAX_STEPS_IN_FLIGHT } from '../../../placement/pools.js';
import type { LoadOptions } from '../../../../generated/option_types.js';
import { parseAttentionDp, parseMemory, parsePrefill, parseRanks, parseSize } from './read_texts.js';
import { SPECULATES } from './sampling_rows.js';
import { inGroup, type OptionRow, readOption } from './row.js';

/** What a plan may have. */
export const MAX_RANKS = 64;
const rank = { integer: true, low: 1, high: MAX_RANKS } as const;

const model = inGroup('Model', 'models.md', {
  weights: {
    help: 'how matrices are kept on the GPU',
    more: "auto keeps f32 checkpoints in f32, f16 and bf16 ones in f16, and a GGUF file's block types as they are, or in q8 where no kernel reads them.",
    choices: ['auto', 'f32', 'f16', 'q8', 'q4'],
    default: 'auto, as they are stored',
  },
  contextLength: {
    help: 'tokens that the KV cache holds for a sequence, prompt and answer',
    default: "the model's maximum, at most 32768; above 4096 no more than 1 GiB of cache holds",
    range: { integer: true, low: 1, high: 2 ** 20 },
    flag: 'context',
    attribute: 'context',
    sheet: { label: 'Context, tokens', min: 1, max: 2 ** 20 },
  },
  adapters: {
    help: 'low-rank adapters by name: a folder of PEFT or a GGUF file each, or { from, scale }, or a list of these, added up',
    more: 'Requests name theirs (`adapter`).',
    type: 'Readonly<Record<string, AdapterGiven>>',
    at: [],
    page: 'adapters.md',
    isOfRunsOnly: true,
  },
  images: {
    help: "prompts may have images: the model's encoder is loaded, too, on the first rank",
    page: 'library.md#images',
    type: 'boolean',
    at: ['cli', 'attribute'],
  },
  sound: {
    help: "prompts may have recordings: the model's encoder of sound is loaded, too, on the first rank",
    page: 'library.md#sound',
    type: 'boolean',
    at: ['cli', 'attribute'],
  },
  mmproj: {
    help: "a GGUF model's encoder, a file beside it; turns `images` on, unless `sound` is",
    default: 'mmproj-*.gguf',
    page: 'library.md#images',
    type: 'string',
    value: 'FILE',
    at: ['cli'],
  },
  hub: {
    help: 'the Hub that names such as ORG/NAME mean',
    default: 'https://huggingface.co, in Node what HF_ENDPOINT says',
    type: 'string | URL',
    at: ['cli', 'attribute'],
    isOfRunsOnly: true,
  },
  hubToken: {
    help: 'an access token of the Hub, for gated and private models: sent to the Hub alone',
    more: 'In a page whoever opens it can read the token.',
    default: 'in Node that of HF_TOKEN, or of the file where `hf auth login` keeps it',
    type: 'string',
    value: 'TOKEN',
    at: ['cli'],
    isSecret: true,
    isOfRunsOnly: true,
  },
  headers: {
    help: "headers of every request for the model's files, wherever they are",
    type: 'Readonly<Record<string, string>>',
    at: [],
  },
  fetch: {
    help: 'the function that makes the requests; not with `workers`',
    default: 'the global fetch',
    type: 'typeof fetch',
    at: [],
  },
  cache: {
    help: 'the keeping of downloads',
    more: 'In browsers: in the private file system (OPFS). In Node: models of the Hub, whole, in the cache that its tools share (HF_HUB_CACHE), those of another `hub` in a folder of its own; without it they are read by ranges each time.',
    type: 'boolean',
    isOn: true,
    at: [],
  },
  integrity: {
    help: 'SHA-256 of files by their names in the folder, in 64 hex digits or as `sha256-` and base64',
    more: "A file named here is read once as a whole and checked before anything of it is used; another is an `io` error. What the browser keeps and was checked before isn't read again. Files that aren't named aren't checked.",
    type: 'Readonly<Record<string, string>>',
    at: [],
  },
});

const cache = inGroup('KV cache', 'kv_compression.md', {
  kv: {
    help: 'how the KV cache keeps its numbers',
    more: "q8 is bytes with a scale for each 32 of them, half of f16's memory and a little. f16 and q8 clamp numbers that they can't hold. Bits differ between the types.",
    choices: ['auto', 'f32', 'f16', 'q8'],
    default: 'auto, f16 where all ranks run on GPUs and f32 on adapters that run on the CPU',
    page: 'library.md#the-caches-type',
  },
  kvBudget: {
    help: "part of a prompt's KV cache that is kept, such as 0.2: each kv head evicts the entries that it attends to least",
    default: 'all of it',
    range: { above: 0, high: 1 },
  },
  kvPolicy: {
    help: "how many entries each head keeps: ada by its share of the layer's best scores, snap all alike, static in proportion to a `kvProfile`; none evicts nothing",
    default: 'ada with a `kvBudget`',
    choices: ['none', 'snap', 'ada', 'static'],
    at: ['cli'],
  },
  kvWindow: {
    help: 'the last tokens of a prompt, whose queries score the entries and which are always kept',
    default: 32,
    range: { integer: true, low: 1, high: 256 },
    at: ['cli'],
  },
  kvKernel: {
    help: 'neighbouring entries that score as the best of them: an odd number',
    default: 7,
    range: { integer: true, low: 1, high: 255 },
    at: ['cli'],
  },
  kvAlpha: {
    help: 'with policy ada, the part of the budget that every head gets whatever its scores, in steps of 0.001',
    default: 0.2,
    range: { low: 0, high: 1 },
    at: ['cli'],
  },
  kvProfile: {
    help: 'what each head kept in a measurement, as `splitkv profile` writes it: its URL, or in Node its file; `kvPolicy` static keeps by it, and `plan` arranged arranges heads by it',
    default: 'plan arranged measures it at the first load, and keeps it',
    type: 'Profile | string | URL',
    value: 'FILE',
    page: 'arrangement.md',
  },
  prefixCaching: {
    help: "prompts that begin alike share the beginning's cache, and a conversation's turns theirs; with `kvBudget` prompts are then kept whole as well, in room for one context more",
    more: 'The room is on each rank (or group of ranks) that keeps sequences.',
    default: 'where the plan allows it, and not with `kvBudget`',
    type: 'boolean',
  },
  kvDir: {
    help: "a folder where prompts' keys and values are kept, so that a restart needn't compute them again, on any plan",
    more: 'In a page a name in its private file system (OPFS), or an object that keeps pieces by name.',
    type: 'string | KvFolder',
    value: 'DIR',
    at: ['cli'],
    isOfRunsOnly: true,
    page: 'kept_kv.md',
  },
  kvDirBytes: {
    help: 'bytes that `kvDir` may take: what was used longest ago goes first',
    default: '4 GiB',
    range: { integer: true, low: 1, high: Number.MAX_SAFE_INTEGER },
    read: parseSize,
    flag: 'kv-dir-size',
    value: 'SIZE',
    at: ['cli'],
    isOfRunsOnly: true,
    page: 'kept_kv.md',
  },
  prefixes: {
    help: 'files of `splitkv prefix make`, by URL or in Node by path: prompts that begin as they do take what they need of them',
    more: '`#sha256-...` behind one pins it.',
    type: 'readonly (string | URL)[]',
    rule: (value) => (Array.isArray(value) ? undefined : `${String(value)}: expected a list of URLs`),
    read: (text) => text.split(/[\s,]+/).filter((each) => each !== ''),
    value: 'FILES',
    at: ['cli', 'attribute'],
    isOfRunsOnly: true,
    page: 'kept_kv.md',
  },
});

const runs = inGroup('Where and how it runs', undefined, {
  adapter: {
    help: "part of an adapter's name; Node only",
    default: 'a GPU, otherwise the fastest software adapter',
    type: 'string',
    at: ['cli'],
  },
  powerPreference: {
    help: 'which GPU, where there are two',
    default: 'high-performance',
    choices: ['high-performance', 'low-power'],
    at: [],
  },
  variants: {
    help: 'which variants of kernels run: hardware as on GPUs, software as on adapters that run on the CPU, auto as the adapter is',
    more: 'Bits differ between the two. On a CPU, those for GPUs are several times slower: for tests.',
    default: 'auto',
    choices: ['auto', 'hardware', 'software'],
  },
  precision: {
    help: 'how prompts are multiplied on GPUs: exact, fast by matrix units, in bytes, or in f16, by what all ranks have in common, or auto: fast where that needs no flag',
    more: 'Where all have bytes, generated tokens are multiplied in them. Texts may differ a little between the two; those of fast are as much the same over plans, batches and chunks. `stats.variants` tells.',
    default: 'exact',
    choices: ['auto', 'exact', 'fast'],
    page: 'library.md#how-prompts-are-multiplied',
  },
  tune: {
    help: "the timing of a GPU's kernels at load, for half a second at most, to choose among plans of equal bits",
    more: 'What is quickest on this adapter is kept for the next time.',
    type: 'boolean',
    isOn: true,
    page: 'library.md#which-plan-of-a-kernel-is-quickest',
    isOfRunsOnly: true,
  },
  pooling: {
    help: 'which hidden states of a text make its vector',
    default: "what the model's files say, otherwise the mean",
    choices: ['mean', 'last', 'cls'],
    at: ['cli'],
    isOfRunsOnly: true,
  },
  prefillChunk: {
    help: 'prompt tokens computed in one go; never changes a bit of the result',
    default: '512, and 256 where stages of layers work side by side',
    range: { integer: true, low: 1, high: 4096 },
    at: ['cli'],
  },
  speculate: {
    help: 'tokens that may come next are proposed, and verified many in a step where that pays; never changes a bit',
    choices: SPECULATES,
    default: 'auto',
    isOfRunsOnly: true,
    page: 'library.md#several-tokens-a-step',
  },
  draft: {
    help: 'a smaller model of the same vocabulary, named as the model is, that proposes tokens, too',
    type: 'string | URL',
    value: 'MODEL',
    at: ['cli', 'attribute'],
    isOfRunsOnly: true,
    page: 'library.md#several-tokens-a-step',
  },
  stepsInFlight: {
    help: "decode steps submitted ahead of the host's reading; never changes the result",
    default: '4, and 8 where a step takes less than 4 ms',
    range: { integer: true, low: 1, high: MAX_STEPS_IN_FLIGHT },
    at: ['cli'],
    isOfRunsOnly: true,
  },
});

const several = inGroup('Several GPUs', 'ranks.md', {
  ranks: {
    help: 'GPU devices that run the model together: how many, or an adapter for each, such as "high-performance,low-power" (or software; in Node part of its name)',
    more: 'The logits are the same bits whatever their number, on adapters of one kind. With `plan` auto it is how many there may be: fewer, even one, where more do not pay.',
    default: 1,
    type: 'number | readonly string[]',
    read: parseRanks,
    value: 'N',
  },
  plan: {
    help: 'who holds what: auto, a policy (tp, sp, tp+sp, pp, ep, token, adp), a product such as "pp x tp", arranged or "pp x arranged" (heads by what each keeps of a prompt), or a plan or arrangement in a file, FILE.json',
    more: 'auto measures the adapters, once, and takes the plan that answers soonest. arranged arranges by `kvProfile`, or by a measurement of the first such load, which is kept. In the library a plan is the object.',
    default: 'auto',
    type: 'string | PlanFile',
    value: 'PLAN',
  },
  copies: {
    help: '`plan` arranged: copies of heads beyond the first, at most so many a layer; 0 is none',
    default: 'as many as it takes where whole heads would leave ranks idle',
    range: { integer: true, low: 0, high: 1023 },
    page: 'arrangement.md',
  },
  tensor: {
    help: 'degrees of parallelism name a plan and its ranks in place of `plan` and `ranks`: their product is the number of ranks (1 where left out), and beside `plan` they say how it is cut; this one is of ranks with different heads and columns (tp)',
    range: rank,
  },
  token: {
    help: 'of the degrees: ranks that sequences are shared out to for each rank with weights, itself among them (token)',
    range: rank,
    // A text may be somebody's secret.
    rule: (value) =>
      typeof value === 'number'
        ? wholeNumber(1, MAX_RANKS)(value)
        : "a text: expected an integer; the Hub's is hubToken",
    read: (text) => readOption({ help: '', range: rank }, text, 'token'),
  },
  sequence: {
    help: 'of the degrees: ranks that split the chunks of each sequence (sp)',
    range: rank,
  },
  pipeline: { help: 'of the degrees: stages of layers (pp)', range: rank },
  data: {
    help: 'of the degrees: ranks, or groups of ranks, with requests of their own (adp)',
    range: rank,
  },
  virtualRanks: {
    help: 'all ranks on one device: tries a plan without more GPUs',
    type: 'boolean',
    attribute: 'virtual',
  },
  workers: {
    help: 'each rank in a worker of its own: a Web Worker in a page, a worker_thread in Node',
    more: 'The page stays free for other work; `load` then takes URLs, paths and files, not a Source.',
    type: 'boolean',
    at: ['cli', 'attribute'],
    isOfRunsOnly: true,
  },
  share: {
    help: 'all pages of an origin that load the same model with the same options use one',
    more: 'A worker of all tabs has it, or a tab. A bundled page gives its address.',
    type: 'boolean | string | URL',
    default: 'off',
    read: (text) => /^(true)?$/.test(text) || text,
    rule: (value) =>
      value === '' || (!/boolean|string/.test(typeof value) && !(value instanceof URL))
        ? `${String(value)}: expected true, false or an address`
        : value !== false && isNode()
          ? 'in Node: load the model once, or serve it (splitkv serve)'
          : undefined,
    at: ['attribute'],
    isOfRunsOnly: true,
    page: 'sharing.md',
  },
  idle: {
    help: 'frees a shared model after so many seconds without a question',
    more: 'The next question loads it again.',
    default: 'never',
    range: { above: 0, high: 2 ** 20 },
    at: ['attribute'],
    isOfRunsOnly: true,
    page: 'sharing.md',
  },
  cluster: {
    help: 'a cluster whose ranks on other machines, or in tabs (`openPeers`), run the model: `ranks` are their names, or how many',
    more: "A model in a folder must be in theirs (`--models`), under the same name, or in the cluster itself (`splitkv push`), under the name `cluster:NAME`. With plan auto each rank's adapter and each pair's link are measured.",
    type: 'ClusterRanksOptions',
    at: ['attribute'],
    page: 'cluster.md',
  },
  memory: {
    help: 'GPU memory that each rank may take, such as 500MB or 2GB; "1GB,500MB" gives each its own',
    more: 'In the library bytes, one number for all or one each. A plan that needs more is refused.',
    type: 'number | readonly number[]',
    read: parseMemory,
    value: 'SIZE',
  },
  requests: {
    help: 'whole contexts that the KV cache has room for: generations that run at once share it, and those that find no room wait',
    default: 'as many as a pipeline has stages, otherwise 1',
    range: { integer: true, low: 1, high: 64 },
    at: ['page'],
  },
  attentionDpConfig: {
    help: 'which rank, or group of ranks, a request goes to and when its prompt runs, where a plan keeps each request on one (adp, its products, token), in JSON, such as {"enable_balance": false}',
    more: "The names are TensorRT-LLM's.",
    default: 'mode cost with balance; with token, filled by what ranks keep',
    type: 'AttentionDpOptions',
    read: parseAttentionDp,
    value: 'JSON',
    page: 'adp.md',
    isOfRunsOnly: true,
  },
  prefill: {
    help: 'prompts are computed on a device of their own, with whole weights, and their keys and values handed over to the ranks',
    more: 'A list: several such workers of one kind, each with a device of its own; a prompt goes to the one with least to do, and where one fails the others compute its prompts.',
    default: 'the ranks compute prompts themselves',
    type: 'PrefillOptions | readonly PrefillOptions[]',
    read: parsePrefill,
    at: ['cli'],
    flag: 'prefill-workers',
    value: 'N|ADAPTER,...',
    isOfRunsOnly: true,
    page: 'serving.md#prompts-on-a-device-of-their-own',
  },
});

const told = {
  onProgress: { help: 'told how far the load is', type: '(progress: LoadProgress) => void', at: [] },
  onWarning: { help: 'told what is worth knowing, and no error', type: '(message: string) => void', at: [] },
  signal: { help: 'ends the load', type: 'AbortSignal', at: [] },
} as const;

/** The options of `load`, most of which `serve` and `planModel` take as well: docs/library.md. */
export const LOAD_ROWS = { ...model, ...cache, ...runs, ...several, ...told } satisfies Readonly<
  Record<keyof LoadOptions, OptionRow>
>;
