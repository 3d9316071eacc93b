/**
 * Room: what a GPU's compiler makes of the kernels, without a GPU. driver.ts compiles, figures.ts reads what the compilers
 * print, paper_run.ts finds the dispatches of a model's steps. Read driver.ts next.
 */

import { SplitkvError, usageError } from '../../../src/base/errors.js';
import { alignedTable } from '../../../src/base/aligned_table.js';
import type { Terminal } from '../../../src/cli/command.js';
import { loadFast } from '../../../shaders/linear/fast/fast.js';
import type { DeviceTraits } from '../../../src/gpu/index.js';
import { assembleWgsl } from '../../../src/gpu/kernel.js';
import { readModelConfig } from '../../../src/model/families/registry.js';
import { OTHERS, PUBLISHED } from '../../../src/model/testing/published_configs.js';
import type { SuiteDocument } from '../../document.js';
import { type AnyKernelSuite, kernelFolders, loadKernelSuite } from '../../kernel_suites.js';
import { decimals } from '../../table.js';
import { readEnvironment } from '../environment.js';
import { CompileLab, type CompileJob, type Family, type LabAdapter } from './driver.js';
import type { Figures } from './figures.js';
import { countDispatches, PAPER_BATCH, PAPER_TOKENS, paperRun, type StepDispatches } from './paper_run.js';

export interface CompileRequest {
  readonly family: Family;
  /** Part of a kernel's folder; undefined: every kernel. */
  readonly kernel?: string | undefined;
  /** Part of a case's name; undefined: every case. */
  readonly case?: string | undefined;
}

/** A kernel as it is planned for one problem on the card. */
export interface CompileVariant extends CompileJob {
  readonly kernel: string;
  readonly case: string;
  /** Of the dispatch. */
  readonly workgroups: number;
}

export interface CompileRow extends Omit<Figures, 'thread_bytes_in_flight'> {
  readonly kernel: string;
  readonly case: string;
  readonly family: string;
  readonly workgroups: number;
  /**
   * Bytes of vector loads that all threads of the dispatch would wait for at once, were all workgroups resident: those outstanding
   * together in a loop by the ISA (`threadBytesInFlight`) times threads times workgroups. Null where nothing is loaded.
   */
  readonly bytes_in_flight: number | null;
}

export interface CompileModel extends StepDispatches {
  readonly name: string;
}

/** What `bench --suite compile --json` prints. */
export interface CompileDocument extends SuiteDocument {
  /** None where the driver is missing and no kernel was asked for. */
  readonly rows: readonly CompileRow[];
  /** Weights in q4, the cache in f16. */
  readonly models: readonly CompileModel[];
}

/** Models whose steps are compiled, by their names in the catalog, and the types that their weights may have. */
const MODELS = ['qwen2.5-0.5b-instruct', 'llama-3.2-1b-instruct', 'llama-3.2-3b-instruct', 'deepseek-v2-lite-chat'];
const WEIGHTS = ['f16', 'q8', 'q4'] as const;

/** Models whose dispatches are counted: dense ones, then those with windows, states, experts and latents. */
const COUNTED = [
  'qwen2.5-0.5b-instruct',
  'qwen3-0.6b',
  'llama-3.2-1b-instruct',
  'smollm2-360m-instruct',
  'smollm3-3b',
  'phi-4-mini-instruct',
  'granite-4.0-1b',
  'gemma-3-1b-it',
  'gemma-2-2b-it',
  'lfm2-1.2b',
  'qwen3.5-0.8b',
  'gpt-oss-20b',
  'qwen3-30b-a3b',
  'deepseek-v2-lite-chat',
  'minicpm3-4b',
];

/**
 * Every variant that the card gets: each case of each kernel, and every dispatch of the models' steps.
 * @throws SplitkvError `usage` where no kernel's folder or no case has the part in its name
 */
export async function compileVariants(
  { kernel, case: part = '' }: Omit<CompileRequest, 'family'>,
  card: LabAdapter,
): Promise<CompileVariant[]> {
  await loadFast();
  const variants: CompileVariant[] = [];
  const kernels = new Set<string>();
  for (const folder of kernelFolders(kernel)) {
    const suite = await loadKernelSuite(folder);
    kernels.add(suite.kernel.name);
    variants.push(...caseVariants(suite, card));
  }
  for (const model of MODELS) {
    // Two layers have all that the others have, experts among them.
    const config = await readModelConfig({ ...PUBLISHED[model]!.config, num_hidden_layers: 2 });
    for (const weights of WEIGHTS) {
      const short = `${model.replace(/-(instruct|chat)$/, '')} ${weights}`;
      const exact = await paperRun(config, weights, 'f16', card);
      for (const { what, ...dispatch } of exact) {
        if (kernels.has(dispatch.kernel)) variants.push(named({ ...dispatch, case: `${short}: ${what}` }));
      }
      const known = new Set(exact.map(({ code }) => code));
      for (const path of card.fast.paths) {
        const traits = { ...card.traits, fast: { ...card.fast, paths: [path] } };
        for (const { what, ...dispatch } of await paperRun(config, weights, 'f16', { ...card, traits })) {
          if (!kernels.has(dispatch.kernel) || known.has(dispatch.code)) continue;
          variants.push(named({ ...dispatch, case: `${short}, ${path}: ${what}` }));
        }
      }
    }
  }
  const wanted = variants.filter((variant) => variant.case.includes(part));
  if (wanted.length === 0) throw usageError(`--case ${part}: no case's name contains it`);
  return wanted;
}

const named = (variant: Omit<CompileVariant, 'name'>): CompileVariant => ({
  ...variant,
  name: `${variant.kernel} '${variant.case}'`,
});

/** With shader-f16, and where that makes another shader without; and by each way of precision 'fast' that the card has. */
function caseVariants({ kernel, cases }: AnyKernelSuite, { traits, fast }: LabAdapter): CompileVariant[] {
  const forms: readonly (readonly [suffix: string, traits: DeviceTraits])[] = [
    ['', traits],
    [', without shader-f16', { ...traits, f16: false }],
    ...fast.paths.map((path) => [`, ${path}`, { ...traits, fast: { ...fast, paths: [path] } }] as const),
  ];
  return cases.flatMap(({ name, problem, step = { rows: 1, chunks: 1 }, needsF16 }) => {
    const codes = new Set<string>();
    return forms.flatMap(([suffix, of]) => {
      if (needsF16 && !of.f16) return [];
      const plan = kernel.plan(problem as never, of);
      const code = assembleWgsl(kernel.name, plan);
      if (codes.has(code)) return [];
      codes.add(code);
      const [x, y, z] = typeof plan.grid === 'function' ? plan.grid(step) : plan.grid;
      return named({
        kernel: kernel.name,
        case: name + suffix,
        code,
        bindings: Object.values(kernel.bindings),
        workgroups: x * y * z,
      });
    });
  });
}

/** What the compilers made of the variants; alike ones are compiled once. */
export async function compileRows(
  lab: CompileLab,
  variants: readonly CompileVariant[],
  onProgress?: (done: number, of: number) => void,
): Promise<CompileRow[]> {
  const keyOf = ({ code, bindings }: CompileJob): string => `${bindings.join()}\n${code}`;
  const jobs = new Map(variants.map((variant) => [keyOf(variant), variant]));
  const figures = await lab.compile([...jobs.values()], (done) => onProgress?.(done, jobs.size));
  const byKey = new Map([...jobs.keys()].map((key, index) => [key, figures[index]!]));
  return variants.map((variant) => {
    const { thread_bytes_in_flight: bytes, ...found } = byKey.get(keyOf(variant))!;
    return {
      kernel: variant.kernel,
      case: variant.case,
      family: lab.family,
      ...found,
      workgroups: variant.workgroups,
      bytes_in_flight: bytes === null ? null : bytes * found.threads * variant.workgroups,
    };
  });
}

/**
 * Without the driver dispatches are counted all the same, where no kernel is asked for.
 * @throws SplitkvError as `CompileLab.open` and `compileVariants`
 */
export async function runCompileSuite(request: CompileRequest, terminal: Terminal): Promise<CompileDocument> {
  kernelFolders(request.kernel); // a wrong name is told before the driver is looked for
  const lab = await CompileLab.open(request.family, terminal.signal).catch((error: unknown) => {
    const isMissing = error instanceof SplitkvError && error.code === 'unsupported';
    if (!isMissing || (request.kernel ?? request.case) !== undefined) throw error;
    terminal.note(`bench: ${error.message}`);
    return undefined;
  });
  try {
    const models = await countModels(lab?.card, terminal);
    if (!lab) return { suite: 'compile', environment: await readEnvironment('node', []), rows: [], models };
    const variants = await compileVariants(request, lab.card);
    const rows = await compileRows(lab, variants, (done, of) => terminal.progress(`${done} of ${of} shaders compiled`));
    const { adapter } = lab.card;
    const environment = await readEnvironment('node', [
      { ...adapter, name: `${adapter.description}, ${request.family}` },
    ]);
    return { suite: 'compile', environment, rows, models };
  } finally {
    await lab?.close();
  }
}

async function countModels(card: LabAdapter | undefined, terminal: Terminal): Promise<CompileModel[]> {
  const models: CompileModel[] = [];
  for (const name of COUNTED) {
    terminal.progress(`counting dispatches of ${name}`);
    const config = await readModelConfig(PUBLISHED[name]?.config ?? OTHERS[name]!);
    models.push({ name, ...(await countDispatches(config, 'q4', 'f16', card)) });
  }
  return models;
}

export const compileTable = ({ rows, models }: CompileDocument): string =>
  (rows.length > 0 ? `${rowsTable(rows)}\n` : '') + modelsTable(models);

function modelsTable(models: readonly CompileModel[]): string {
  const cells = models.map(({ name, ...counted }) => [
    name,
    ...[
      counted.dispatches_512,
      counted.dispatches_4096,
      counted.dispatches_prompt,
      counted.dispatches_2_rows,
      counted.dispatches_8_rows,
    ].map(String),
  ]);
  return (
    alignedTable([['dispatches', 'at 512', `at ${PAPER_TOKENS}`, 'prompt', '2 rows', '8 rows'], ...cells], 1) +
    '\nCounted, in q4: a token of one sequence with so many in its cache, a chunk of a prompt, a token of each of 2 or 8 sequences.\n'
  );
}

function rowsTable(rows: readonly CompileRow[]): string {
  const heading = [
    'kernel',
    'case',
    'VGPRs',
    'spilled',
    'scratch',
    'waves',
    'LDS',
    'instr',
    'latency',
    'inv thr',
    'threads',
    'groups',
    'KiB in flight',
    'loops',
    'guards',
    'scans',
  ];
  const cells = rows.map((row) => [
    row.kernel,
    row.case,
    ...[row.vgprs, row.spilled, row.scratch, row.waves_per_simd, row.lds_bytes, row.instructions].map(String),
    ...[row.latency, row.inverse_throughput, row.threads, row.workgroups].map(String),
    row.bytes_in_flight === null ? '-' : decimals(row.bytes_in_flight / 1024),
    ...[row.loops, row.loop_guards, row.serial_scans].map(String),
  ]);
  return (
    alignedTable([heading, ...cells], 2) +
    `\nCompiled for ${rows[0]!.family}, never run. waves: that a SIMD holds at once. LDS: bytes of workgroup memory. latency, inv thr: the compiler's
estimates in cycles; it weighs every loop alike. groups: workgroups; of a model at ${PAPER_TOKENS} tokens, a token of one sequence, the batch of ${PAPER_BATCH}.
KiB in flight: loads outstanding together in a loop x threads x groups, were all resident. guards: loops that Tint can't prove finite.\n`
  );
}
