/**
 * Room: `splitkv bench`: options, the environment, where results go. suites.ts lists the suites; those that only Node
 * can run are local_suites.ts. Read suites.ts next.
 */

import type { Browser } from 'playwright-core';
import { EMBEDDED_MODEL } from '../../models/example.js';
import { usageError } from '../../src/base/errors.js';
import {
  documentJson,
  documentText,
  openDirectory,
  readOlder,
  withComparison,
  writeDocument,
  writePage,
} from './output.js';
import { MADE_MODELS } from './models/scale_names.js';
import { SUITES } from './suites.js';
import { type Command, commonOptions, tell, type Terminal } from '../../src/cli/command.js';
import { modelOptions } from '../../src/cli/model_options.js';
import type { Options } from '../../src/cli/options.js';

const names = Object.keys(SUITES);
const DEFAULT_OUT = 'bench/results';

export const command: Command = {
  summary: `Measures speed and memory. Suites:\n${Object.entries(SUITES)
    .map(([name, { summary }]) => `  ${name.padEnd(8)} ${summary}`)
    .join('\n')}`,
  usage: `bench [--suite ${names.join('|')}] [options]`,
  options: {
    suite: { value: 'SUITE', help: `${names.join(', ')}; default decode` },
    ...modelOptions,
    host: {
      value: 'HOST',
      help: 'chrome or node; default chrome where one is found (not for compile, planner, scale, load), on its GPU or else in software',
    },
    model: {
      value: 'MODEL',
      help: `a model, as for generate; default ${EMBEDDED_MODEL.replace(/\/$/, '')}; also ${MADE_MODELS.join(', ')} by name, with random weights`,
    },
    weights: {
      value: 'LIST',
      help: 'types with commas: f32, f16, q8, q4; default: as stored, for scale f16,q8,q4',
    },
    context: {
      value: 'N',
      help: "tokens the KV cache holds; default: the model's, at most 4096; for scale and load 512",
    },
    ranks: {
      value: 'LIST',
      help: 'how many; ranks, arranged: numbers with commas; default 2, arranged 2,4,8, serve 1',
    },
    plan: {
      value: 'LIST',
      help: 'ranks, throughput: policies with commas; default tp,sp,pp, throughput tp,token; serve: one',
    },
    'prompt-tokens': {
      value: 'LIST',
      help: 'decode, prefill: lengths with commas, default 128, 1024 and near the context (32 and 256 in software); throughput: default 128,512,1024; profile: default 512,1024,2048; else one',
    },
    'max-tokens': { value: 'N', help: 'tokens to generate; default 32, for scale and load 16' },
    runs: { value: 'N', help: 'timed runs of each setting; default 7, planner 5, check 3' },
    batch: {
      value: 'N',
      help: 'sequences decoded side by side: ranks one number, default 8; arranged, throughput, profile with commas, default 1,8,32',
    },
    copies: { value: 'C', help: 'arranged: copies of heads that a layer gets at most; default ranks - 1' },
    spread: {
      value: 'PART',
      help: "arranged: by how much prompts' heads keep other numbers than those that they are arranged by, such as 0.2; default 0",
    },
    'micro-batches': {
      value: 'LIST',
      help: 'serve, throughput: groups of sequences whose steps run side by side; default auto, throughput 1,2',
    },
    'one-core': {
      help: 'ranks, planner, throughput, profile, serve: one CPU core for each software device (llvmpipe)',
    },
    clients: { value: 'LIST', help: 'serve: numbers of clients with commas; default 1,4,16' },
    requests: { value: 'N', help: 'serve: questions of each client in a run; default 2' },
    questions: {
      value: 'FILE',
      help: 'compression: JSON lines of {"context", "prompt", "answer"}; default models/eval.jsonl of the checkout',
    },
    samples: { value: 'N', help: 'compression: at most so many questions of each length; default all' },
    family: {
      value: 'NAME',
      help: 'compile: the AMD card: gfx1200, navi31, navi21, navi10, vega10 or polaris10; default navi31',
    },
    parts: { value: 'LIST', help: 'gpu: parts with commas; default all that ten minutes have room for' },
    seconds: { value: 'N', help: 'gpu: how long it may take; default 600' },
    kernel: { value: 'NAME', help: "kernels, check, compile: part of a kernel's folder; default: all of them" },
    case: { value: 'NAME', help: "kernels, compile: part of a case's name; default: all of them" },
    compare: { value: 'FILE', help: 'an older document of the suite: shows what changed, with intervals' },
    against: {
      value: 'DIR',
      help: 'decode, prefill, kernels: another checkout of splitkv, or what bench/pack made of it, measured in turns with this one',
    },
    out: {
      value: 'DIR',
      help: `where SUITE-HOST.json, .txt and .html are written; default ${DEFAULT_OUT}, with --json nowhere; for gpu gpu.json and index.html`,
    },
    ...commonOptions,
  },
  run: (options, terminal) => runBench(options, terminal),
};

/**
 * Measures, prints, and writes the report.
 * @param browser Chrome that runs already; default: one is started where a suite runs in a page
 */
export async function runBench(options: Options, terminal: Terminal, browser?: Browser): Promise<number> {
  const name = options.oneOf('suite', names) ?? 'decode';
  const suite = SUITES[name]!;
  checkOptions(name, options);
  const older = await readOlder(options.text('compare'), name);
  const against = options.text('against');
  if (against !== undefined && older) throw usageError('--compare and --against: give one of the two');
  const json = options.has('json');
  const out = options.text('out') ?? (json ? undefined : DEFAULT_OUT);
  if (out !== undefined) await openDirectory(out);
  const {
    document: measured,
    table,
    failed,
    page,
  } = await (against === undefined
    ? suite.run(options, terminal, browser)
    : (await import('./against.js')).runAgainst(name, against, options, terminal));
  const document = older ? withComparison(measured, older) : measured;
  await (json ? terminal.write(documentJson(document)) : tell(terminal, documentText(document, table)));
  if (out !== undefined) {
    const report = page === undefined ? writeDocument(out, document, table) : writePage(out, document, page);
    terminal.note(`report: ${await report}`);
  }
  return failed ? 1 : 0;
}

function checkOptions(suite: string, options: Options): void {
  const known = new Set(SUITES[suite]!.options);
  for (const name of new Set(Object.values(SUITES).flatMap((entry) => entry.options))) {
    if (options.has(name) && !known.has(name)) throw usageError(`--${name} has no meaning for --suite ${suite}`);
  }
}
