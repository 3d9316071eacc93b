/**
 * Tests that take turns: compiling kernels for software adapters takes seconds a page or a file. `npm test` draws some of each group,
 * `npm run test:all`, `npx playwright test` and `npx vitest run` run all of them. SPLITKV_SEED repeats a draw.
 */

/**
 * Groups of tests that share most of what they run, or its kind: of which files, how many of them a run takes, and the tests, each by
 * the beginning of its title.
 * @type {readonly (readonly [files: string, taken: number, titles: readonly string[]])[]}
 */
export const GROUPS = [
  [
    'bench.spec.ts command_line.spec.ts numerics.spec.ts pages.spec.ts',
    1,
    [
      'decode in Chrome, and its report in a page',
      'kernels in Chrome agree with their references',
      'onnxruntime-web on the same weights in the same page',
      'generate in Chrome prints the document',
      'an answer in Chrome is JSON of a schema',
      'logits in Chrome are the same bits in every run',
      'what fails in the page keeps its code and message',
      'Ctrl-C ends a run in Chrome',
      'logits in Chrome are the same bits whatever the prefill chunk',
      "a GPU's variants give the same bits in Chrome",
      'bench: a suite runs in the page',
      'bench: the other suites run in the page',
      'check: kernels against their references',
    ],
  ],
  [
    'cache.spec.ts hub.spec.ts kind.spec.ts failures.spec.ts hostile.spec.ts',
    1,
    [
      'weights are downloaded once and come from OPFS after that',
      'two pages that load it at once download it once',
      'bytes that change on the disk are noticed and fetched again',
      'a model of the Hub answers in a page of another origin',
      'a gated model tells where its licence is',
      "ORG/NAME is the page's own folder where there is one",
      'a download that breaks off goes on where it stopped',
      'a driver that computes wrongly says so',
      'after a lost GPU, and in a hidden tab',
      'a model that memory is too small for',
      'each failure of a download has its own title',
      'a download that stalls says so',
      'a template that loops',
      'a template that takes long',
      'a tokenizer that could take for ever',
    ],
  ],
  [
    'chat.spec.ts chat_view.spec.ts attached.spec.ts conversations.spec.ts',
    1,
    [
      'before a download: size, memory, speed and plan',
      "the sampling that a model's makers recommend",
      'an element keeps its model when it moves',
      'properties are attributes',
      'keyboard alone, a phone, dark and light',
      'what goes wrong is explained, with what to do',
      'a download that came damaged is told from a broken GPU',
      'a download that is stopped on purpose is no alarm',
      'degrees of an element name its plan',
      'an edited question and another answer',
      'messages are kept over a reload',
      'two tabs that keep one conversation',
      'a conversation can be worked with',
      'an answer that was cut goes on',
      'people may choose a model that fits',
      'a full context gives the question back',
      'a dropped file is opened',
      'tools of the page are called',
      'pictures and texts are attached by button',
      'a model that takes pictures is shown them',
      'a model for text alone reads texts',
      'conversations are kept, found, renamed',
      'a link shares what was said',
      'a model that hears is given recordings',
      'keep: after a reload ',
    ],
  ],
  [
    'page.spec.ts pages.spec.ts looks.spec.ts site.spec.ts',
    1,
    [
      'the page answers questions about the story',
      'an answer can be stopped',
      'nothing overflows on a phone',
      'arrange: the arrangement of the library',
      'simulate: the rows of the command line',
      'a model of another site that the address names',
      'gpus: nothing is drawn of none',
      'ranks and chat: axe finds nothing',
      'pages stay where they are while they open',
      'the chat without a model',
      'the models to choose from',
      'the chat with answers',
      'the chat at work',
    ],
  ],
  [
    'ranks.spec.ts cluster.spec.ts peers.spec.ts',
    1,
    [
      'two pages of a browser: the tokens of one page',
      'another browser, by a text that is copied',
      'another browser, by a relay',
      'the page says whether two are better than one',
      'a rank that loses its device is brought back',
      'a server in a page',
      'heads arranged in one step',
      'the page answers on two ranks by',
      'chunks light up on the ranks that hold them',
      'ranks that cannot be are explained',
      'the map fits a phone',
      'a plan file: heads by load',
      'two tabs are the ranks of a third one',
      'a chat runs on a rank in a process',
      'a GPU and the adapter that runs on the CPU',
      'a latent: logits in Chrome are the bits of one rank',
    ],
  ],
  [
    'site.spec.ts apps.spec.ts pack.spec.ts',
    1,
    [
      'an app with its default configuration takes the package',
      'the packed bench runs from an empty environment',
      'the first page has a live chat',
      'a model that was put into the site',
      'the gallery shows texts that run as they are shown',
      'the playground asks what its address holds',
      "the gallery's extension is one",
      'the chat page opens and answers after one visit',
    ],
  ],
  [
    'workers.spec.ts package.spec.ts conversation.spec.ts offline.spec.ts recipes.spec.ts share.spec.ts images.spec.ts',
    1,
    [
      'in a page: a conversation computes what is new',
      'in a page: the Prompt API',
      'after the first load a page, its scripts and its model need no server',
      'two ranks in Web Workers give the same bits',
      'the built library of',
      'a form is made ready in',
      'a rank that breaks in its worker fails the generation',
      'a worker script that is not served has a substitute',
      'the packed command line runs ranks in worker_threads',
      'a bundled page runs ranks, and forms, in workers',
      'bundled pages share the model of a worker',
      'recipe form_filler',
      'recipe search',
      'recipe webmcp',
      'recipe offline',
      'recipe pictures',
      'recipe from_webllm',
      'recipe rank_in_a_tab',
      'ten tabs share the model',
      'without a worker a tab has it',
      'two chats with share',
      'in a page: what is in a picture',
      'in a page: a .gguf file and its encoder',
    ],
  ],
];

/**
 * Unit tests' files that take turns: those that compare the same things in other ways, each some 10 s or more. How many of them a run
 * takes, and the files below a folder. `npx vitest run FILE` runs any of them.
 * @type {readonly (readonly [folder: string, taken: number, files: readonly string[]])[]}
 */
export const FILES = [
  // Plans against one rank.
  [
    'src/engine/testing/contract',
    1,
    [
      'adapters',
      'adp',
      'arranged',
      'contract',
      'drawn_plans',
      'mixed_adapters',
      'mixed_layers',
      'mixed_stages',
      'predicted_exchanges',
      'ranks',
      'sampling_ranks',
      'shards',
      'token',
    ],
  ],
  // Models against what they should compute.
  [
    'src/engine/testing/contract',
    1,
    [
      'embedded',
      'encoders',
      'families',
      'gguf',
      'gguf_types',
      'kv_types',
      'logits',
      'logits_deepseek',
      'precision',
      'trained',
    ],
  ],
  [
    'src/engine/serving',
    1,
    [
      'adapters',
      'embed',
      'engine',
      'engine_adp',
      'engine_compression',
      'engine_constraint',
      'engine_micro_batches',
      'engine_token',
      'text/forms',
    ],
  ],
  // One model's answers.
  [
    'src/engine',
    2,
    [
      'cache/compression',
      'faces/arranged_load',
      'faces/conversation',
      'faces/draft',
      'faces/generate',
      'faces/images',
      'faces/images_gemma3',
      'faces/images_gemma4',
      'faces/images_gguf',
      'faces/images_lfm2',
      'faces/images_qwen',
      'faces/kept_kv',
      'faces/mtp',
      'faces/no_tokenizer',
      'faces/self_test',
      'faces/serving_model',
      'faces/share/shared_model',
      'faces/sound_gemma4',
      'faces/unified_gemma4',
      'faces/windows',
      'prefill/prefill',
      'serving/sentence',
      'serving/speculation/batches',
      'serving/speculation/speculation',
    ],
  ],
  // Ranks and devices that fail.
  [
    'src/engine',
    1,
    [
      'files/hostile_files',
      'ranks/check_variants',
      'ranks/dispatches',
      'ranks/faults',
      'ranks/open_rank',
      'ranks/rank_faults',
      'ranks/rank_memory',
      'serving/losses',
      'workers/workers',
    ],
  ],
  // What is measured, and what is chosen by it.
  ['src/engine', 1, ['measure/measure_machine', 'planning/choose_plan', 'planning/kv_compression', 'tuning/tune']],
  [
    'src/cluster',
    1,
    ['peers/peer_ranks', 'ranks/cluster_losses', 'ranks/cluster_ranks', 'store/store', 'store/stored_ranks'],
  ],
  [
    'src',
    1,
    [
      'cluster/links/cluster_links',
      'cluster/links/hostile_links',
      'distributed/host_staging',
      'distributed/same_device',
      'distributed/worker',
    ],
  ],
  ['src/server', 1, ['gateway/gateway', 'gateway/kills', 'gateway/limits']],
  [
    'src/server',
    1,
    ['agents', 'clients', 'error_lengths', 'hostile_http', 'large_requests', 'load', 'openai_client', 'requests'],
  ],
  ['src/cli', 1, ['chat', 'commands', 'commands/plan', 'commands/profile', 'hub', 'lora', 'serve']],
  [
    'bench',
    1,
    ['cli/bench', 'peers/kernels/decode_graph', 'peers/onnx/prompt_filler', 'suites/check', 'suites/gpu/mla'],
  ],
  // What is computed by the minute, without a device or on one of paper.
  ['bench', 1, ['cli/compile/hot_kernels', 'cli/seeds_suite', 'cli/simulate/simulate_measured', 'simulate/adp_study']],
  ['src', 1, ['arrangement/arrange', 'loader/cache/cached_source', 'loader/hub/node_hub', 'model/gguf/llama_cpp']],
  ['src/grammar', 1, ['automaton', 'grammar', 'own_grammar', 'threads/form_threads']],
  ['src/tokenizer', 1, ['encoder_tokenizers', 'expressions', 'fewest_tokens', 'gguf_tokenizer', 'steps/rust_steps']],
  ['models', 1, ['self_test', 'tiny_vlm', 'train/train']],
  // Matrix kernels; then the others, by room.
  [
    'shaders',
    2,
    [
      'linear/fast/decode_bytes',
      'linear/fast/fast',
      'linear/linear/linear',
      'linear/linear_add_norm/linear_add_norm',
      'linear/linear_conv/linear_conv',
      'linear/linear_grouped/linear_grouped',
      'linear/linear_grouped_merge/linear_grouped_merge',
      'linear/linear_merge/linear_merge',
      'linear/linear_tiled/linear_tiled',
      'linear/low_rank/low_rank',
      'linear/pack',
      'linear/kept/planes',
      'moe/expert_linear/expert_linear',
      'moe/expert_linear_combine/expert_linear_combine',
      'moe/expert_linear_route/expert_linear_route',
      'moe/expert_linear_tiled/expert_linear_tiled',
    ],
  ],
  [
    'shaders/attention',
    1,
    [
      'attention',
      'attention_append/attention_append',
      'attention_prefill/attention_prefill',
      'attention_split/attention_split',
      'head_tables',
      'mla_prefill/mla_prefill',
      'mla_split/mla_split',
      'share',
    ],
  ],
  [
    'shaders/rope',
    1,
    [
      'mla_absorb_append/mla_absorb_append',
      'mla_rope_append/mla_rope_append',
      'mla_up_append/mla_up_append',
      'rope_append/rope_append',
    ],
  ],
  ['shaders/recurrent', 1, ['causal_conv/causal_conv', 'delta_rule/delta_rule', 'delta_step/delta_step']],
  ['shaders/sampling', 1, ['list_bins/list_bins', 'ranks', 'sample/sample', 'sampling']],
];

/** Of `seed`: numbers below a bound, by splitmix32, whose numbers of neighbouring seeds have nothing in common. */
function numbers(seed) {
  let state = seed;
  return (below) => {
    state += 0x9e3779b9;
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) % below;
  };
}

/** What takes 45 s and more beside another test on two cores; tests in browsers 70 s and more. A run draws one of each at most, if a few tries can. */
const LONGEST = new Set([
  'adapters',
  'chat',
  'cli/bench',
  'commands',
  'faces/images_gguf',
  'faces/images_qwen',
  'faces/mtp',
  'moe/expert_linear_route/expert_linear_route',
  'peers/peer_ranks',
  'ranks/cluster_ranks',
  'tuning/tune',
  'workers/workers',
  'a conversation can be worked with',
  'a download that breaks off goes on where it stopped',
  'a latent: logits in Chrome are the bits of one rank',
  'a model that hears is given recordings',
  'an app with its default configuration takes the package',
  'before a download: size, memory, speed and plan',
  'bundled pages share the model of a worker',
  'each failure of a download has its own title',
  'kernels in Chrome agree with their references',
  'logits in Chrome are the same bits in every run',
  'ten tabs share the model',
]);

/** What is left of each group where `taken` of it have a run. */
function left(groups, seed) {
  const next = numbers(seed);
  for (let tries = 8; ; tries--) {
    const drawn = [];
    const rests = groups.map(([, taken, of]) => {
      const rest = [...of];
      for (let i = 0; i < taken; i++) drawn.push(...rest.splice(next(rest.length), 1));
      return rest;
    });
    if (tries === 1 || drawn.filter((name) => LONGEST.has(name)).length <= 1) return rests;
  }
}

/**
 * The unit tests' files that wait for another run.
 * @param {number} seed
 * @returns {string[]}
 */
export const waitingFiles = (seed) =>
  left(FILES, seed).flatMap((files, at) => files.map((file) => `${FILES[at][0]}/${file}.test.ts`));

/**
 * The tests that wait for another run.
 * @param {number} seed
 * @returns {RegExp} of their titles
 */
export function waiting(seed) {
  const titles = left(GROUPS, seed).flat();
  return new RegExp(titles.map((title) => title.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')).join('|'));
}
