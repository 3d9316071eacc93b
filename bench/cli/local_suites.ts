import { usageError } from '../../src/base/errors.js';
import type { Terminal } from '../../src/cli/command.js';
import type { Options } from '../../src/cli/options.js';
import {
  benchHost,
  embeddedMla,
  embeddedModel,
  integerList,
  onePromptLength,
  oneWeights,
  passOn,
  requestFor,
  weightsList,
} from './bench_options.js';
import type { SuiteResult } from './hosted_suites.js';
import { LOAD_ROWS } from '../../src/engine/contracts/options/load_rows.js';
import { loadValues } from '../../src/cli/model_options.js';
import { isScaleModel, SCALE_MODELS } from './models/scale_names.js';

const SCALE_WEIGHTS = ['f16', 'q8', 'q4'];

const { kvBudget, kvPolicy, kvWindow, kvKernel, kvAlpha, kvProfile } = LOAD_ROWS;
const KV_ROWS = { kvBudget, kvPolicy, kvWindow, kvKernel, kvAlpha, kvProfile };

// Suites are imported when asked for: one's dependencies must not be there for another, nor count in its memory.

export async function runPlanner(options: Options, terminal: Terminal): Promise<SuiteResult> {
  const { plannerTable, runPlannerSuite } = await import('./models/planner_suite.js');
  const [type] = weightsList(options) ?? [undefined];
  const document = await withPlannerModels(options.text('model'), async (folders) => {
    const models = [];
    for (const [name, folder] of folders) {
      models.push({ name, request: await requestFor(options, terminal, folder, type, undefined, []) });
    }
    return runPlannerSuite(
      {
        models,
        ranks: options.integer('ranks', 2, 64) ?? 2,
        promptTokens: integerList(options, 'prompt-tokens') ?? [64, 300, 1100],
        maxTokens: options.integer('max-tokens', 2) ?? 32,
        runs: options.integer('runs', 1) ?? 5,
        budget: options.number('kv-budget', 'a part above 0 and at most 1', (part) => part > 0 && part <= 1),
        oneCore: options.has('one-core'),
      },
      terminal,
    );
  });
  return { document, table: plannerTable(document) };
}

export async function runCompression(options: Options, terminal: Terminal): Promise<SuiteResult> {
  const { compressionTable, runCompressionSuite } = await import('./compression/compression_suite.js');
  const { readQuestions } = await import('./compression/questions.js');
  const questions = await readQuestions(options.text('questions'), {
    contexts: integerList(options, 'prompt-tokens') ?? [1024, 2048],
    most: options.integer('samples', 1),
  });
  const model = options.text('model') ?? embeddedModel();
  const request = await requestFor(options, terminal, model, oneWeights(options, 'compression'), undefined, []);
  const document = await runCompressionSuite({ request, questions, kv: await loadValues(options, KV_ROWS) }, terminal);
  return { document, table: compressionTable(document.results) };
}

export async function runCompile(options: Options, terminal: Terminal): Promise<SuiteResult> {
  if (options.oneOf('host', ['node', 'chrome']) === 'chrome') {
    throw usageError('--host chrome: --suite compile runs in Node: it compiles by a driver that browsers do not take');
  }
  const { compileTable, runCompileSuite } = await import('./compile/compile_suite.js');
  const { DEFAULT_FAMILY, FAMILIES } = await import('./compile/driver.js');
  const family = options.oneOf('family', FAMILIES) ?? DEFAULT_FAMILY;
  const request = { family, kernel: options.text('kernel'), case: options.text('case') };
  const document = await runCompileSuite(request, terminal);
  return { document, table: compileTable(document) };
}

export async function runSeeds(options: Options, terminal: Terminal): Promise<SuiteResult> {
  if (options.has('one-core')) process.env['LP_NUM_THREADS'] ??= '1';
  const { runSeedsSuite } = await import('./seeds_suite.js');
  return runSeedsSuite(
    {
      host: benchHost(options),
      adapter: options.text('adapter'),
      ranks: options.integer('ranks', 2, 8) ?? 2,
      runs: options.integer('runs', 1) ?? 5,
      seeds: [1, 2, 3],
    },
    terminal,
  );
}

export async function runGpu(options: Options, terminal: Terminal): Promise<SuiteResult> {
  const { runGpuSuite } = await import('./gpu_suite.js');
  return runGpuSuite(options, terminal);
}

export async function runLoad(options: Options, terminal: Terminal): Promise<SuiteResult> {
  const { length, maxTokens, context } = shortRun(options, 'load');
  const type = oneWeights(options, 'load');
  const { runLoadSuite } = await import('./load_suite.js');
  const { loadTable } = await import('./models/scale_suite.js');
  const model = options.required('model', 'name a model folder, e.g. --model models/tiny-gqa');
  const request = await requestFor(options, terminal, model, type, context);
  const document = await runLoadSuite(request, length, maxTokens);
  return { document, table: loadTable(document.results) };
}

export async function runScale(options: Options, terminal: Terminal): Promise<SuiteResult> {
  const { length, maxTokens, context } = shortRun(options, 'scale');
  const { loadTable, runScaleSuite } = await import('./models/scale_suite.js');
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
      weights: weightsList(options) ?? SCALE_WEIGHTS,
      loadArguments: [
        ...passOn(options, [
          'kv',
          'prefill-chunk',
          'steps-in-flight',
          'adapter',
          'variants',
          'precision',
          'ranks',
          'plan',
        ]),
        `--context=${context}`,
        `--prompt-tokens=${length}`,
        `--max-tokens=${maxTokens}`,
      ],
    },
    terminal,
  );
  return { document, table: loadTable(document.results), failed: document.results.some((result) => 'error' in result) };
}

/** A short prompt and answer in a small context. */
function shortRun(options: Options, suite: string) {
  const maxTokens = options.integer('max-tokens', 2) ?? 16;
  const length = onePromptLength(options, suite, 32);
  const context = options.integer('context', 1) ?? 512;
  if (length + maxTokens > context) {
    throw usageError(`--context ${context}: expected room for ${length} prompt tokens and ${maxTokens} more`);
  }
  return { maxTokens, length, context };
}

/** The model given; else the embedded ones and, while `body` runs, random ones of other shapes. */
async function withPlannerModels<T>(
  given: string | undefined,
  body: (folders: readonly (readonly [name: string, folder: string])[]) => Promise<T>,
): Promise<T> {
  if (given !== undefined) return body([[given, given]]);
  const { PLANNER_MODELS, withPlannerModel } = await import('./models/planner_models.js');
  const folders: [string, string][] = [
    ['tiny-gqa', embeddedModel()],
    ['tiny-mla', embeddedMla()],
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
