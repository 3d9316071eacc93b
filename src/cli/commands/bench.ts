import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { EMBEDDED_MODEL } from '../../app/example.js';
import { SplitkvError, usageError } from '../../base/errors.js';
import type { BenchDocument } from '../bench/environment.js';
import { isScaleModel, SCALE_MODELS } from '../bench/scale_names.js';
import { environmentLines } from '../bench/table.js';
import { type Command, commonOptions, type Terminal } from '../command.js';
import { modelOptions, modelRequest, type ModelRequest } from '../model_options.js';
import { type Options, parseOptions } from '../options.js';

const SUITES = ['decode', 'ranks', 'planner', 'scale', 'load', 'kernels'] as const;
type Suite = (typeof SUITES)[number];

const WEIGHTS = ['f32', 'f16', 'q8', 'q4'];
const SCALE_WEIGHTS = ['f16', 'q8', 'q4'];

const MODEL_OPTIONS = ['model', 'weights', 'kv', 'context', 'prefill-chunk', 'steps-in-flight', 'host', 'adapter'];
const OPTIONS_OF: Readonly<Record<Suite, readonly string[]>> = {
  decode: [...MODEL_OPTIONS, 'prompt-tokens', 'max-tokens', 'runs'],
  ranks: [
    'model',
    'weights',
    'kv',
    'adapter',
    'ranks',
    'plan',
    'prompt-tokens',
    'max-tokens',
    'runs',
    'batch',
    'one-core',
  ],
  planner: ['model', 'weights', 'kv', 'adapter', 'ranks', 'prompt-tokens', 'max-tokens', 'runs', 'one-core'],
  scale: [...MODEL_OPTIONS, 'prompt-tokens', 'max-tokens'],
  load: [...MODEL_OPTIONS, 'prompt-tokens', 'max-tokens'],
  kernels: ['adapter', 'kernel'],
};

export const command: Command = {
  summary:
    'Measures speed and memory. Suites: decode (a model by prompt length), ranks (plans on several devices against one), planner (what it predicts of every plan against what they do), scale (loading and running models of real sizes with ' +
    'random weights, each load in a process of its own), load (one such load, in this process), kernels (in a checkout).',
  usage: 'bench [--suite decode|ranks|planner|scale|load|kernels] [options]',
  options: {
    suite: { value: 'SUITE', help: `${SUITES.join(', ')}; default decode` },
    ...modelOptions,
    model: {
      value: 'DIR',
      help: `a model folder or its URL; decode: default ${EMBEDDED_MODEL.replace(/\/$/, '')}; scale, ranks: also ${SCALE_MODELS.join(' and ')} by name, with random weights`,
    },
    weights: {
      value: 'LIST',
      help: 'types with commas: f32, f16, q8, q4; default: as stored, for scale f16,q8,q4',
    },
    context: {
      value: 'N',
      help: "tokens the KV cache holds; default: the model's, at most 4096; for scale and load 512",
    },
    'prompt-tokens': {
      value: 'LIST',
      help: 'decode: lengths with commas, default 128, 1024 and near the context; else one, default 32',
    },
    'max-tokens': { value: 'N', help: 'tokens to generate; default 32, for scale and load 16' },
    runs: { value: 'N', help: 'decode, ranks, planner: timed runs of each setting; default 5' },
    plan: { value: 'LIST', help: 'ranks: policies with commas; default tp,sp,pp' },
    batch: { value: 'N', help: 'ranks: sequences decoded side by side; default 8' },
    'one-core': { help: 'ranks, planner: one CPU core for each software device (llvmpipe)' },
    kernel: { value: 'NAME', help: "kernels: part of a kernel's path; default: all of them" },
    out: { value: 'DIR', help: 'also write SUITE-HOST.json and SUITE-HOST.txt there' },
    ...commonOptions,
  },
  async run(options, terminal) {
    const suite = options.oneOf('suite', SUITES) ?? 'decode';
    checkOptions(suite, options);
    const { document, table, failed } = await run(suite, options, terminal);
    const text = `${environmentLines(document.environment)}\n${table}`;
    const json = `${JSON.stringify(document, null, 2)}\n`;
    const out = options.text('out');
    if (out !== undefined) await write(out, `${suite}-${document.environment.host}`, json, text);
    await terminal.write(options.has('json') ? json : text);
    return failed ? 1 : 0;
  },
};

interface Outcome {
  readonly document: BenchDocument<unknown>;
  readonly table: string;
  readonly failed?: boolean;
}

/** Suites are imported when asked for: one's dependencies must not be there for another, nor count in its memory. */
async function run(suite: Suite, options: Options, terminal: Terminal): Promise<Outcome> {
  if (suite === 'kernels') {
    const { kernelsTable, runKernelsSuite } = await import('../bench/kernels_suite.js');
    const request = { kernel: options.text('kernel'), adapter: options.text('adapter') };
    const document = await runKernelsSuite(request, terminal);
    return { document, table: kernelsTable(document.results) };
  }
  const maxTokens = options.integer('max-tokens', 2) ?? (['decode', 'ranks', 'planner'].includes(suite) ? 32 : 16);
  const promptTokens = integerList(options, 'prompt-tokens');
  const weights = weightsList(options);
  if (suite === 'decode') {
    const { decodeTable, runDecodeSuite } = await import('../bench/decode_suite.js');
    const model = options.text('model') ?? embeddedModel();
    const models: ModelRequest[] = [];
    for (const type of weights ?? [undefined]) models.push(await requestFor(options, terminal, model, type));
    const runs = options.integer('runs', 1) ?? 5;
    const document = await runDecodeSuite({ models, promptTokens, maxTokens, runs }, terminal);
    return { document, table: decodeTable(document.results) };
  }

  if (suite === 'ranks') {
    const { ranksTable, runRanksSuite } = await import('../bench/ranks_suite.js');
    const [type] = weights ?? [undefined];
    const named = options.text('model') ?? embeddedModel();
    const { scaleModelFolder } = await import('../bench/scale_models.js');
    const folder = isScaleModel(named)
      ? await scaleModelFolder(named, terminal.signal, (line) => terminal.progress(line))
      : named;
    const model = await requestFor(options, terminal, folder, type, undefined, []);
    const document = await runRanksSuite(
      {
        model,
        plans: (options.text('plan') ?? 'tp,sp,pp').split(',').map((plan) => plan.trim()),
        ranks: options.integer('ranks', 2, 64) ?? 2,
        promptTokens: promptTokens?.[0] ?? 1024,
        batch: options.integer('batch', 1, 256) ?? 8,
        maxTokens,
        runs: options.integer('runs', 1) ?? 5,
        oneCore: options.has('one-core'),
      },
      terminal,
    );
    return { document, table: ranksTable(document.results) };
  }

  if (suite === 'planner') {
    const { plannerTable, runPlannerSuite } = await import('../bench/planner_suite.js');
    const [type] = weights ?? [undefined];
    const document = await withPlannerModels(options.text('model'), async (folders) => {
      const models = [];
      for (const [name, folder] of folders) {
        models.push({ name, request: await requestFor(options, terminal, folder, type, undefined, []) });
      }
      return runPlannerSuite(
        {
          models,
          ranks: options.integer('ranks', 2, 64) ?? 2,
          promptTokens: promptTokens ?? [64, 300, 1100],
          maxTokens,
          runs: options.integer('runs', 1) ?? 5,
          oneCore: options.has('one-core'),
        },
        terminal,
      );
    });
    return { document, table: plannerTable(document) };
  }

  if (promptTokens && promptTokens.length > 1) {
    throw usageError(`--prompt-tokens ${options.text('prompt-tokens')}: --suite ${suite} takes one length`);
  }
  const [length = 32] = promptTokens ?? [];
  const context = options.integer('context', 1) ?? 512;
  if (length + maxTokens > context) {
    throw usageError(`--context ${context}: expected room for ${length} prompt tokens and ${maxTokens} more`);
  }
  if (suite === 'load') {
    const [type, ...others] = weights ?? [undefined];
    if (others.length > 0) throw usageError(`--weights ${options.text('weights')}: --suite load takes one type`);
    const { runLoadSuite } = await import('../bench/load_suite.js');
    const { loadTable } = await import('../bench/scale_suite.js');
    const model = options.required('model', 'name a model folder, e.g. --model models/tiny-gqa');
    const request = await requestFor(options, terminal, model, type, context);
    const document = await runLoadSuite(request, length, maxTokens);
    return { document, table: loadTable(document.results) };
  }

  const { loadTable, runScaleSuite } = await import('../bench/scale_suite.js');
  const model = options.text('model');
  const models = model === undefined ? SCALE_MODELS : [model];
  for (const given of models) {
    // Checked before gigabytes are written, and without them: the models made here need no folder yet.
    await requestFor(options, terminal, isScaleModel(given) ? '.' : given, undefined, context);
  }
  const document = await runScaleSuite(
    {
      host: options.oneOf('host', ['node', 'chrome']) ?? 'node',
      models,
      weights: weights ?? SCALE_WEIGHTS,
      loadArguments: [
        ...passOn(options, ['kv', 'prefill-chunk', 'steps-in-flight', 'adapter', 'ranks', 'plan']),
        `--context=${context}`,
        `--prompt-tokens=${length}`,
        `--max-tokens=${maxTokens}`,
      ],
    },
    terminal,
  );
  return { document, table: loadTable(document.results), failed: document.results.some((result) => 'error' in result) };
}

/** The model given; else the embedded ones and, while `body` runs, random ones of other shapes. */
async function withPlannerModels<T>(
  given: string | undefined,
  body: (folders: readonly (readonly [name: string, folder: string])[]) => Promise<T>,
): Promise<T> {
  if (given !== undefined) return body([[given, given]]);
  const { PLANNER_MODELS, withPlannerModel } = await import('../bench/planner_models.js');
  const embedded = embeddedModel();
  const folders: [string, string][] = [
    ['tiny-gqa', embedded],
    ['tiny-mla', join(embedded, '..', 'tiny-mla')],
  ];
  const next = async (at: number): Promise<T> =>
    at === PLANNER_MODELS.length
      ? body(folders)
      : withPlannerModel(PLANNER_MODELS[at]!, (folder) => {
          folders.push([PLANNER_MODELS[at]!, folder]);
          return next(at + 1);
        });
  return next(0);
}

/** Source and build lie at different depths. */
function embeddedModel(): string {
  const found = ['../../../', '../../']
    .map((up) => fileURLToPath(new URL(`${up}${EMBEDDED_MODEL}`, import.meta.url)))
    .find((folder) => existsSync(folder));
  if (found !== undefined) return found;
  throw usageError('--model is missing: name a model folder (the embedded one is in a checkout only)');
}

const passOn = (options: Options, names: readonly string[]): string[] =>
  names.flatMap((name) => (options.has(name) ? [`--${name}=${options.text(name)}`] : []));

/** The request that `generate` would make of these options, for one type of weights. */
function requestFor(
  options: Options,
  terminal: Terminal,
  model: string,
  weights: string | undefined,
  context?: number,
  rankOptions: readonly string[] = ['ranks', 'plan'],
): Promise<ModelRequest> {
  const args = [
    `--model=${model}`,
    ...passOn(options, ['kv', 'prefill-chunk', 'steps-in-flight', 'host', 'adapter', ...rankOptions]),
    ...(weights === undefined ? [] : [`--weights=${weights}`]),
    ...(context === undefined ? passOn(options, ['context']) : [`--context=${context}`]),
    ...(options.has('verbose') ? ['--verbose'] : []),
  ];
  return modelRequest(parseOptions('bench', modelOptions, args), terminal);
}

function checkOptions(suite: Suite, options: Options): void {
  const known = new Set(OPTIONS_OF[suite]);
  for (const name of new Set(Object.values(OPTIONS_OF).flat())) {
    if (options.has(name) && !known.has(name)) throw usageError(`--${name} has no meaning for --suite ${suite}`);
  }
}

function weightsList(options: Options): string[] | undefined {
  const text = options.text('weights');
  const list = text?.split(',').map((type) => type.trim());
  const wrong = list?.find((type) => !WEIGHTS.includes(type));
  if (wrong !== undefined) throw usageError(`--weights ${text}: '${wrong}' is none of ${WEIGHTS.join(', ')}`);
  if (list && new Set(list).size < list.length) throw usageError(`--weights ${text}: expected each type once`);
  return list;
}

function integerList(options: Options, name: string): number[] | undefined {
  const text = options.text(name);
  return text?.split(',').map((part) => {
    const value = /^\s*\d+\s*$/.test(part) ? Number(part) : 0;
    if (value >= 1 && Number.isSafeInteger(value)) return value;
    throw usageError(`--${name} ${text}: expected integers of at least 1 with commas`);
  });
}

async function write(directory: string, name: string, json: string, text: string): Promise<void> {
  try {
    await mkdir(directory, { recursive: true });
    await writeFile(join(directory, `${name}.json`), json);
    await writeFile(join(directory, `${name}.txt`), text);
  } catch (error) {
    throw new SplitkvError('io', `--out ${directory}: can't be written: ${(error as Error).message}`, { cause: error });
  }
}
