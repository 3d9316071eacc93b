/**
 * End-to-end tests that take turns: compiling kernels for a browser's software adapter takes seconds a page. `npm test` draws some
 * of each group, `npm run test:all` and `npx playwright test` run all of them. SPLITKV_SEED repeats a draw.
 */

/**
 * Groups of tests that share most of what they run, or its kind: of which files, how many of them a run takes, and the tests, each by
 * the beginning of its title.
 * @type {readonly (readonly [files: string, taken: number, titles: readonly string[]])[]}
 */
export const GROUPS = [
  [
    'bench.spec.ts command_line.spec.ts numerics.spec.ts pages.spec.ts',
    2,
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
    'cache.spec.ts hub.spec.ts',
    1,
    [
      'weights are downloaded once and come from OPFS after that',
      'two pages that load it at once download it once',
      'bytes that change on the disk are noticed and fetched again',
      'a model of the Hub answers in a page of another origin',
      'a gated model tells where its licence is',
      "ORG/NAME is the page's own folder where there is one",
    ],
  ],
  [
    'chat.spec.ts',
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
    ],
  ],
  [
    'chat_view.spec.ts',
    1,
    [
      'messages are kept over a reload',
      'two tabs that keep one conversation',
      'a conversation can be worked with',
      'an answer that was cut goes on',
      'people may choose a model that fits',
      'a full context gives the question back',
      'a dropped file is opened',
      'tools of the page are called',
    ],
  ],
  [
    'kind.spec.ts failures.spec.ts',
    1,
    [
      'a download that breaks off goes on where it stopped',
      'a driver that computes wrongly says so',
      'after a lost GPU, and in a hidden tab',
      'a model that memory is too small for',
      'each failure of a download has its own title',
      'a download that stalls says so',
    ],
  ],
  [
    'hostile.spec.ts',
    1,
    ['a template that loops', 'a template that takes long', 'a tokenizer that could take for ever'],
  ],
  [
    'page.spec.ts pages.spec.ts',
    1,
    [
      'the page answers questions about the story',
      'an answer can be stopped',
      'nothing overflows on a phone',
      'arrange: the arrangement of the library',
      'simulate: the rows of the command line',
      'a model of another site that the address names',
    ],
  ],
  [
    'ranks.spec.ts cluster.spec.ts',
    1,
    [
      'the page says whether two are better than one',
      'a rank that loses its device is brought back',
      'a server in a page',
      'heads arranged in one step',
      'two tabs are the ranks of a third one',
      'a chat runs on a rank in a process',
    ],
  ],
  [
    'ranks.spec.ts',
    1,
    [
      'the page answers on two ranks by',
      'chunks light up on the ranks that hold them',
      'ranks that cannot be are explained',
      'the map fits a phone',
      'a plan file: heads by load',
    ],
  ],
  [
    'site.spec.ts',
    1,
    [
      'the first page has a live chat',
      'the gallery shows texts that run as they are shown',
      "the gallery's extension is one",
    ],
  ],
  [
    'workers.spec.ts package.spec.ts',
    2,
    [
      'two ranks in Web Workers give the same bits',
      'the built library of',
      'a form is made ready in',
      'a rank that breaks in its worker fails the generation',
      'a worker script that is not served has a substitute',
      'the packed command line runs ranks in worker_threads',
      'a bundled page runs ranks, and forms, in workers',
    ],
  ],
  [
    'looks.spec.ts',
    1,
    ['the chat without a model', 'the models to choose from', 'the chat with answers', 'the chat at work'],
  ],
  [
    'conversation.spec.ts offline.spec.ts',
    1,
    [
      'in a page: a conversation computes what is new',
      'in a page: the Prompt API',
      'after the first load a page, its scripts and its model need no server',
    ],
  ],
  [
    'apps.spec.ts pack.spec.ts',
    1,
    ['an app with its default configuration takes the package', 'the packed bench runs from an empty environment'],
  ],
];

/**
 * The tests that wait for another run.
 * @param {number} seed
 * @returns {RegExp} of their titles
 */
export function waiting(seed) {
  let state = (seed >>> 0) + 1;
  // Park and Miller's generator: 48271 times a number below 2^31 is exact.
  const next = (below) => (state = (state * 48271) % 2147483647) % below;
  for (let i = 0; i < 8; i++) next(1);
  const titles = GROUPS.flatMap(([, taken, of]) => {
    const left = [...of];
    for (let i = 0; i < taken; i++) left.splice(next(left.length), 1);
    return left;
  });
  return new RegExp(titles.map((title) => title.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')).join('|'));
}
