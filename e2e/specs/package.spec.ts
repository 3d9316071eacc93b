import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from '@playwright/test';
import { build } from 'vite';
import { serveFiles } from '../../src/server/http/static_files.js';

// The test server builds dist/ before it starts.

const STATIC = /(?:from|import)\s*["'`]\.\/([\w.-]+\.js)["'`]/g;
/** The worker's code as one script: only bundled pages whose ranks are in workers download it, as they share no files with workers. */
const WORKER_TEXT = 'splitkv-rank_worker_text.js';
/** For who asks for texts of a given form (docs/structured_output.md); here, in a worker, and as its text. */
const GRAMMARS = [
  'splitkv-form_threads.js',
  'splitkv-form_worker.js',
  'splitkv-form_worker_text.js',
  'splitkv-masks.js',
  'splitkv-serve_forms.js',
];
/** Ranks of other machines, by NATS (docs/cluster.md). */
const CLUSTER = 'splitkv-cluster_ranks.js';
/** Tabs as ranks, without a server: WebRTC, and the host of a rank. */
const PEERS = 'splitkv-peers.js';
/** Models that the cluster's server keeps: NATS's clients of JetStream and of its buckets. */
const STORE = 'splitkv-model_store.js';
/** The worker that all tabs share: a few lines over what pages have; and for bundled pages, whole. */
const SHARE_WORKER = 'splitkv-share_worker.js';
const WHOLE_SHARE_WORKER = 'splitkv-whole_share_worker.js';
const ON_DEMAND = /import\(["'`]\.\/([\w.-]+\.js)["'`]\)/g;

/** The files of dist/ that these import, and those import; on demand, too, but for Node's. @param but files that aren't followed */
function reached(entries: readonly string[], kinds: readonly RegExp[], but: readonly string[] = []): Set<string> {
  const files = new Set<string>();
  const add = (file: string): void => {
    if (files.has(file) || but.includes(file) || file.startsWith('splitkv-node')) return;
    files.add(file);
    const text = readFileSync(join('dist', file), 'utf8');
    for (const kind of kinds) for (const [, next] of text.matchAll(kind)) add(next!);
  };
  for (const entry of entries) add(entry);
  return files;
}

const gzipped = (files: Iterable<string>): number =>
  [...files].reduce((sum, file) => sum + gzipSync(readFileSync(join('dist', file)), { level: 9 }).length, 0);

/** What any page may need that loads a model in safetensors and generates with it, its ranks in workers. */
const CORE = ['splitkv.js', 'splitkv-page_workers.js', 'splitkv-rank_worker.js'];

test('the runtime is small: dependencies, WGSL and workers included', () => {
  const files = reached(CORE, [STATIC]);
  const kilobytes = gzipped(files) / 1000;
  expect(files.size).toBeGreaterThan(5);
  expect(kilobytes).toBeGreaterThan(50);
  // Since it was 150: the engine that serves many requests is the one that answers a lone one (docs/decisions.md).
  // Then 164: kernels for GPUs, compiling them beside the weights, a cache in 8 bits (docs/decisions.md).
  // Then 172: plans timed at load, sampling by bins, the choice of how prompts are multiplied, sliding windows, rotation in part;
  // 180: a lone row's kernels on GPUs; 184: tools of chats, GPUs that hang; 190: groups of ranks with requests of their own, roots
  // that share a latent, copies of heads by load, lanes shared unevenly; 196: ranks behind links that are measured;
  // 199: clients that share slots and time, parts of layers for more families; 212: what each option is, in a sentence;
  // 220: kernels that do the work of several for a lone row, norms and recurrent mixers among them; rows in bytes;
  // 226: matrices of a type each, in eight types of blocks as they are stored; the bottleneck of latent attention's queries;
  // 231: Gemma 4, whose kernels normalise values, share caches and take inputs for each layer; 235: attention both ways, encoders;
  // 240: pictures in prompts, drafts that are verified, blocks of 2 and 3 bits, a catalog of more models;
  // 243: more ranks than kv heads, caches that even out, runs of pictures, a bias for each row of an adapter;
  // 247: keys and values that outlive the ranks; 248: drafts by default, the way to a model that tabs share;
  // 250: a draft model, encoders beside GGUF files, prefixes that sites ship, a server's slots;
  // 240: latent and recurrent layers' kernels come with such models; 242: sums of ranks in trees, rows for a model's own head;
  // 243: prompts with recordings, drafts of several requests in one step; 244: lanes of copies that move, biases of convolutions;
  // 245: Mixtral, a few rows in one dispatch; 246: types of their own for all that one layer has, adapters of embeddings;
  // 247: names of the Hub as people copy them, parts of messages that are checked.
  expect(kilobytes).toBeLessThan(248);
  const [, claimed] = /(\d+) kB of plain ES modules/.exec(readFileSync('pages/index.html', 'utf8'))!;
  expect(kilobytes).toBeLessThan(Number(claimed));
});

test('what few pages need is loaded on demand, and the element is small', () => {
  const first = reached(CORE, [STATIC]);
  const all = reached(CORE, [STATIC, ON_DEMAND], [CLUSTER, PEERS]);
  const ranks = [...reached(CORE, [STATIC, ON_DEMAND], [STORE, PEERS])].filter((file) => !all.has(file));
  expect(ranks).toContain(CLUSTER);
  expect(gzipped(ranks) / 1000).toBeLessThan(62);
  const cluster = [...reached(CORE, [STATIC, ON_DEMAND])].filter((file) => !all.has(file));
  expect(cluster.filter((file) => !ranks.includes(file)).toSorted()).toEqual([STORE, PEERS]);
  expect(gzipped([STORE]) / 1000).toBeLessThan(27);
  expect(gzipped([PEERS]) / 1000).toBeLessThan(7);
  expect(all.delete(WORKER_TEXT)).toBe(true);
  // The worker's own file is the worker's.
  expect(GRAMMARS.filter((file) => all.delete(file))).toEqual(
    GRAMMARS.filter((file) => !file.endsWith('form_worker.js')),
  );
  // It was 425: the worker's text, for pages that are bundled; that was 240.5: codebooks of GGUF's types; 248: pictures of any size;
  // 252: the head of a model that proposes tokens itself, and LFM2-VL's and Gemma 4's pictures; 258.5: adapters of every matrix;
  // 264: sound; 270: Mamba-2, lanes that move; 271: YaRN, a few rows in one dispatch; 274: rows without an encoder, encoders with windows.
  // Of forms 85: unevaluatedProperties.
  expect(gzipped(GRAMMARS) / 1000).toBeLessThan(86);
  expect(gzipped([WORKER_TEXT]) / 1000).toBeLessThan(278);
  for (const name of [
    'serving_model',
    'gguf_files',
    'catalog_fit',
    'open_draft',
    'draft_model',
    'plan_model',
    'arrange_model',
    'arrangement',
    'self_test',
    'shared_model',
    'head_pages',
    'mla',
    'recurrent',
    'experts',
    'fragments',
    'logit_controls',
    'tokenizer_parts',
    'planes',
    'codebooks',
    'codebook_blocks',
  ]) {
    expect(first).not.toContain(`splitkv-${name}.js`);
    expect(all).toContain(`splitkv-${name}.js`);
  }
  const inWorker = [...reached([SHARE_WORKER], [STATIC])];
  expect(inWorker.filter((file) => !all.has(file))).toEqual([SHARE_WORKER]);
  expect(gzipped([SHARE_WORKER]) / 1000).toBeLessThan(0.5);
  expect([...reached([WHOLE_SHARE_WORKER], [STATIC, ON_DEMAND])]).toEqual([WHOLE_SHARE_WORKER]);
  // It was 569: sound; 590: adapters of embeddings and of stacks of experts, rows without an encoder, encoders with windows; 595:
  // copies of heads where single prompts need them, pipelines balanced with their experts.
  expect(gzipped([WHOLE_SHARE_WORKER]) / 1000).toBeLessThan(600);
  // Since it was 240: models by Hub names, the cache's integrity and its list, the options' schemas; then kernels for GPUs,
  // and 282: tuning, sampling by bins, prompts in f16 and bytes; and 298: what a model's files may ask for is bounded, a lone row's
  // kernels; 314: experts' kernels, more models and types of GGUF files; 320: recurrent layers; 330: answers of a given form;
  // 338: Qwen3-Next, gpt-oss and its MXFP4; 346: tools and formats of answers; 357: bounds of
  // tokenizers; 358: groups of ranks with requests of their own, roots that share a latent; 372: heads arranged by
  // what they keep, where the planner has a KV budget; 378: profiles measured at load; 384: what tells models' files apart;
  // 387: ranks behind links that are measured; 392: whole prompts beside compressed ones;
  // 396: more families, templates and tokenizers as in Python and Rust, clients that share; 408: a sentence an option;
  // 428: encoders, what their files say of embedding and ranking; Gemma 4; texts with a gap; 447: encoders of pictures, drafts;
  // 459: low-rank adapters, of two kinds of files; 466: keys and values that outlive the ranks;
  // 471: a model that tabs share; 481: codebooks of GGUF's types; 489: pictures of any size, rows with three positions;
  // 497: the head of a model that proposes tokens itself, and LFM2-VL's and Gemma 4's pictures; 506: a worker of all tabs;
  // 508: adapters of every matrix, shares by speed; 520: recordings, and an encoder that hears them; 523: NVFP4's factors, drafts of several;
  // 529: Mamba-2, which Granite's hybrids have, lanes that move; 532: drafts of several requests by one model;
  // 533: adapters of embeddings and of stacks of experts, rows without an encoder, encoders with windows;
  // 540: names of the Hub, what is kept by its kind.
  expect(gzipped(all) / 1000).toBeLessThan(542);
  const chat = [...reached(['splitkv-chat.js', 'splitkv-react_chat.js'], [STATIC])].filter((file) => !all.has(file));
  // The page of the command line has the small parts, too.
  expect(chat.toSorted()).toEqual([
    'splitkv-adapter_list.js',
    'splitkv-chat.js',
    'splitkv-chat_rows.js',
    'splitkv-dom.js',
    'splitkv-icons.js',
    'splitkv-preview.js',
    'splitkv-progress.js',
    'splitkv-react_chat.js',
  ]);
  // It was 20: messages that can be worked with, icons, and all texts in one table; 25.6: attributes of degrees, of kept heads and prompts;
  // 27.5: text styles that the page has no part in, directions, maths; 28.2: tabs that share a conversation,
  // downloads that stand still or are tried again; 30.2: versions of messages; 31.2: on paper, and in another document.
  expect(gzipped(chat) / 1000).toBeLessThan(31.3);
  // The library comes with the first model.
  const stores = [...reached(['splitkv-stores.js', 'splitkv-react_hooks.js'], [STATIC])];
  expect(stores).toEqual(['splitkv-stores.js', 'splitkv-react_hooks.js']);
  expect(gzipped(stores) / 1000).toBeLessThan(1.9);
  const more = [...reached(['splitkv-chat.js'], [STATIC, ON_DEMAND])].filter(
    (file) =>
      !all.has(file) &&
      !cluster.includes(file) &&
      !chat.includes(file) &&
      file !== WORKER_TEXT &&
      !GRAMMARS.includes(file),
  );
  expect(more.toSorted()).toEqual([
    'splitkv-attachments.js',
    'splitkv-dialog.js',
    'splitkv-dropped.js',
    'splitkv-markdown.js',
    'splitkv-microphone.js',
    'splitkv-picker.js',
    'splitkv-sheet.js',
    'splitkv-wav_file.js',
  ]);
  // It was 20: models to choose from, and what of them is kept; 22: maths told from Markdown.
  // 23.5: what goes with a question; 24.5: a microphone.
  expect(gzipped(more) / 1000).toBeLessThan(25);
  // What other APIs look like, over a model that is loaded elsewhere.
  const faces = ['splitkv-prompt_api.js', 'splitkv-ai_sdk.js', 'splitkv-offline.js', 'splitkv-service_worker.js'];
  const allOfFaces = reached(faces, [STATIC]);
  expect([...allOfFaces].toSorted()).toEqual([...faces, 'splitkv-stream.js'].toSorted());
  // It was 8: the Prompt API reads, refuses and measures as the platform tests have it; 10: its images and recordings.
  expect(gzipped(allOfFaces) / 1000).toBeLessThan(10.5);
  // Plans without a GPU: neither an engine nor kernels. It was 67: arrangements by seconds, pipelines of them;
  // 73: measured links between ranks.
  const planning = reached(['splitkv-planning.js'], [STATIC]);
  expect(gzipped(planning) / 1000).toBeLessThan(78);
  const planned = [...reached(['splitkv-planning.js'], [STATIC, ON_DEMAND])].filter(
    (file) => !all.has(file) && !cluster.includes(file) && file !== WORKER_TEXT && !GRAMMARS.includes(file),
  );
  expect(planned.toSorted()).toEqual(['splitkv-planning.js', 'splitkv-read_shape.js']);
  // What starts the worker of all tabs names it by its own address.
  const own = new Set([
    ...all,
    SHARE_WORKER,
    WHOLE_SHARE_WORKER,
    ...cluster,
    ...chat,
    ...more,
    ...allOfFaces,
    ...planned,
    ...stores,
    'splitkv-react.js',
  ]);
  const rest = readdirSync('dist').filter((file) => file.endsWith('.js') && !own.has(file));
  rest.splice(rest.indexOf(WORKER_TEXT), 1);
  for (const file of GRAMMARS) rest.splice(rest.indexOf(file), 1);
  for (const file of rest) expect(file, 'any other file is for Node').toMatch(/^splitkv-node/);
  const { alias, browser, exports } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    alias: Record<string, string>;
    browser: Record<string, false>;
    exports: Record<string, string | { default: string }>;
  };
  // Parcel asks for no exports, unless an app tells it to.
  const { '.': main, './package.json': _, ...entries } = exports;
  expect(main).toMatchObject({ default: './dist/splitkv.js' });
  expect(alias).toEqual(
    Object.fromEntries(
      Object.entries(entries).map(([name, file]) => [name, typeof file === 'string' ? file : file.default]),
    ),
  );
  // Bundlers that don't know Node's modules leave these files out.
  expect(Object.keys(browser).toSorted()).toEqual(rest.map((file) => `./dist/${file}`).toSorted());
});

test.describe('for bundlers', () => {
  const root = mkdtempSync(join(tmpdir(), 'splitkv-bundled-'));
  const packed = join(root, 'node_modules/splitkv');
  test.beforeAll(() => {
    mkdirSync(packed, { recursive: true });
    cpSync('dist', join(packed, 'dist'), { recursive: true });
    cpSync('package.json', join(packed, 'package.json'));
  });
  test.afterAll(() => rmSync(root, { recursive: true, force: true }));

  const bundle = async (name: string, script: string): Promise<string> => {
    const folder = join(root, name);
    mkdirSync(folder);
    writeFileSync(
      join(folder, 'index.html'),
      `<!doctype html><title>${name}</title><script type="module" src="./main.js"></script>`,
    );
    writeFileSync(join(folder, 'main.js'), script);
    await build({ root: folder, base: './', configFile: false, logLevel: 'error' });
    return join(folder, 'dist');
  };

  test('who takes one name gets its part only', async () => {
    const folder = await bundle(
      'one',
      "import { SplitkvError } from 'splitkv'; globalThis.found = new SplitkvError('usage', '');",
    );
    const page = readFileSync(join(folder, 'index.html'), 'utf8');
    const [, file] = /<script[^>]* src="([^"]+)"/.exec(page)!;
    const script = readFileSync(join(folder, file!), 'utf8');
    expect(page).not.toContain('modulepreload');
    expect(script.length).toBeLessThan(3000);
    expect(script).not.toMatch(/\bimport\b/);
  });

  test("who takes React's hooks gets nothing of the element", async () => {
    for (const name of ['react', 'react-dom']) {
      if (!existsSync(join(root, 'node_modules', name)))
        symlinkSync(resolve('node_modules', name), join(root, 'node_modules', name), 'junction');
    }
    const scripts = async (name: string): Promise<string> => {
      const folder = await bundle(name, `import { ${name} } from 'splitkv/react'; globalThis.found = ${name};`);
      const [, file] = /<script[^>]* src="([^"]+)"/.exec(readFileSync(join(folder, 'index.html'), 'utf8'))!;
      return readFileSync(join(folder, file!), 'utf8');
    };
    expect(await scripts('SplitkvChat')).toContain('splitkv-chat');
    const hooks = await scripts('useModel');
    expect(hooks).not.toContain('splitkv-chat');
    expect(hooks.length).toBeLessThan(15_000);
  });

  /** The page's folder, and models beside it, by an address. */
  const served = async (folder: string): Promise<{ url: string; close(): void }> => {
    const [pages, models] = [serveFiles('/', folder), serveFiles('/models', resolve('models'))];
    const server = createServer((request, response) =>
      models(request, response, () => pages(request, response, () => response.writeHead(404).end())),
    );
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const close = (): void => {
      server.closeAllConnections();
      server.close();
    };
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, close };
  };

  test('a bundled page runs ranks, and forms, in workers', async ({ page }) => {
    const folder = await bundle('whole', "import { load } from 'splitkv'; globalThis.load = load;");
    const server = await served(folder);
    try {
      await page.goto(`${server.url}index.html`);
      const result = await page.evaluate(async () => {
        const { load } = globalThis as unknown as typeof import('../../src/index.js');
        const model = await load('/models/tiny-gqa/', { workers: true, cache: false, contextLength: 64 });
        const { tokens } = await model.generate([1, 300, 301], { maxTokens: 3, ignoreEos: true }).result;
        const { text } = await model.generate([1, 300, 301], { choice: ['yes'] }).result;
        (globalThis as { model?: unknown }).model = model;
        return [tokens.length, text];
      });
      expect(result).toEqual([3, 'yes']);
      expect(page.workers().length).toBe(2);
    } finally {
      server.close();
    }
  });

  test('bundled pages share the model of a worker whose address they give', async ({ context }) => {
    const folder = await bundle(
      'shared',
      `import { load } from 'splitkv';
      const share = new URL('splitkv/share-worker', import.meta.url);
      globalThis.open = async (options) => {
        const told = { warnings: [], devices: 0 };
        const { requestDevice } = GPUAdapter.prototype;
        GPUAdapter.prototype.requestDevice = function (...given) {
          told.devices++;
          return requestDevice.apply(this, given);
        };
        const model = await load('/models/tiny-gqa/', {
          share, cache: false, contextLength: 64, onWarning: (message) => told.warnings.push(message), ...options,
        });
        const { tokens } = await model.generate([1, 300, 301], { maxTokens: 5, ignoreEos: true }).result;
        const { text } = await model.generate([1, 300, 301], { choice: ['yes'] }).result;
        globalThis.model = model;
        return { ...told, tokens, text };
      };`,
    );
    const server = await served(folder);
    try {
      type Told = Readonly<{ warnings: string[]; devices: number; tokens: number[]; text: string }>;
      const open = async (options: object): Promise<Told> => {
        const page = await context.newPage();
        await page.goto(`${server.url}index.html`);
        return page.evaluate((options) => (globalThis as unknown as { open: typeof open }).open(options), options);
      };
      const alone = await open({ share: false });
      expect(alone).toMatchObject({ text: 'yes', devices: 1 });
      // The address says nothing of whose model it is.
      const shared = { ...alone, devices: 0 };
      expect(await Promise.all([open({}), open({})])).toEqual([shared, shared]);
      const tab = await open({ share: 'none.js', contextLength: 65 });
      // Chrome tells of a script that isn't there by an event, which a busy machine was seen to lose: then it is waited for in vain.
      expect(tab).toEqual({
        ...alone,
        warnings: [expect.stringMatching(/none\.js .*(can't be loaded|no answer in 30 s); a tab does/)],
      });
      const { warnings } = await open({ workers: true });
      expect(warnings).toEqual([expect.stringMatching(/with `workers` or `fetch` no worker/)]);
    } finally {
      server.close();
    }
  });
});
