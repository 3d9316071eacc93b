import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { SplitkvError, usageError } from '../../src/base/errors.js';
import { parseJson } from '../../src/base/json.js';
import type { Terminal } from '../../src/cli/command.js';
import type { Options } from '../../src/cli/options.js';
import { compareDocuments, type OlderDocument, readOlderDocument } from '../compare.js';
import type { Measurement, SuiteDocument } from '../document.js';
import { interleave } from '../interleave.js';
import { pairedRatio } from '../statistics.js';
import { benchHost, benchModel, passOn } from './bench_options.js';
import type { SuiteResult } from './hosted_suites.js';

/** What both are told. */
const SHARED = [
  'weights',
  'kv',
  'context',
  'prefill-chunk',
  'steps-in-flight',
  'variants',
  'adapter',
  'prompt-tokens',
  'max-tokens',
  'kernel',
  'case',
];
const RUNS = 7;
const MOST_OUTPUT = 2 ** 26;

// Not written in one, which bundlers take for a file to carry along. Source and build (bench/pack) lie two folders deep.
const here = import.meta.url;
const own = fileURLToPath(new URL('../..', here));
const fileOf = (folder: string): string => join(folder, 'bin/splitkv.js');

/**
 * A suite by this splitkv and by another, a checkout or what bench/pack made of one, in turns: a process for each run, on the same
 * model. Gains are of runs that followed each other, so that what slows both at once doesn't count.
 * @throws SplitkvError `usage` where there is no splitkv; `io` where a run fails, with what it said
 */
export async function runAgainst(
  suite: string,
  other: string,
  options: Options,
  terminal: Terminal,
): Promise<SuiteResult> {
  const folder = resolve(other);
  if (!existsSync(fileOf(folder))) {
    throw usageError(`--against ${other}: expected a checkout of splitkv, or what bench/pack made of one`);
  }
  const model = suite === 'kernels' ? undefined : await benchModel(options, terminal);
  const args = [
    'bench',
    `--suite=${suite}`,
    `--host=${benchHost(options)}`,
    ...(model === undefined ? [] : [`--model=${existsSync(model) ? resolve(model) : model}`]),
    '--runs=1',
    '--json',
    ...passOn(options, SHARED),
  ];
  const contender = (name: string, program: string) => ({
    name,
    run: async (): Promise<Whole> => {
      const run = promisify(execFile)(process.execPath, [program, ...args], {
        maxBuffer: MOST_OUTPUT,
        signal: terminal.signal,
      });
      const { stdout } = await run.catch((error: Error & { readonly stderr?: string }) => {
        throw new SplitkvError('io', `${name}: ${error.stderr?.trim() || error.message}`, { cause: error });
      });
      const document = parseJson(stdout, name);
      return { ...(document as SuiteDocument), ...readOlderDocument(document, name, suite) };
    },
  });
  const [ours, theirs] = await interleave(
    [contender('this splitkv', fileOf(own)), contender(other, fileOf(folder))],
    options.integer('runs', 1) ?? RUNS,
    {
      signal: terminal.signal,
      onProgress: (line) => terminal.progress(line),
      onWarning: (line) => terminal.note(line),
    },
  );
  const document = together(ours!);
  const comparison = compareDocuments(together(theirs!), document, pairedRatio);
  return { document: { ...document, comparison }, table: '' };
}

type Whole = SuiteDocument & OlderDocument;

/** The first run's document, with the samples of all. */
function together(documents: readonly Whole[]): Whole {
  const { suite, environment, measurements } = documents[0]!;
  const samplesOf = ({ metric, setting }: Measurement): number[] =>
    documents.flatMap((document) =>
      document.measurements
        .filter((each) => each.metric === metric && JSON.stringify(each.setting) === JSON.stringify(setting))
        .flatMap(({ samples }) => samples),
    );
  return { suite, environment, measurements: measurements.map((each) => ({ ...each, samples: samplesOf(each) })) };
}
