import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { EMBEDDED_MODEL } from '../../models/example.js';
import { usageError } from '../../src/base/errors.js';
import type { Terminal } from '../../src/cli/command.js';
import { findChrome } from '../../src/cli/hosts/find_chrome.js';
import { modelOptions, modelRequest, type ModelRequest } from '../../src/cli/model_options.js';
import { type Options, parseOptions } from '../../src/cli/options.js';
import { isScaleModel } from './models/scale_names.js';

// Not written in one with what it is the base of, which bundlers take for a file to carry along.
const here = import.meta.url;

export const WEIGHTS = ['f32', 'f16', 'q8', 'q4'] as const;

/** --host, or Chrome where it can be started: a user's GPU is most often a browser's. */
export function benchHost(options: Options): 'node' | 'chrome' {
  const host = options.oneOf('host', ['node', 'chrome']);
  if (host !== undefined) {
    if (host === 'chrome' && options.has('adapter')) {
      throw usageError("--adapter needs --host node: browsers can't choose an adapter by name");
    }
    return host;
  }
  return options.has('adapter') || !chromeIsThere() ? 'node' : 'chrome';
}

export function chromeIsThere(): boolean {
  try {
    createRequire(import.meta.url).resolve('playwright-core');
    return findChrome() !== undefined;
  } catch {
    return false;
  }
}

/** The model folder given; a scale model by its name is made first, an embedded one is the default. */
export async function benchModel(options: Options, terminal: Terminal, usual = embeddedModel): Promise<string> {
  const named = options.text('model') ?? usual();
  if (!isScaleModel(named)) return named;
  const { scaleModelFolder } = await import('./models/scale_models.js');
  return scaleModelFolder(named, terminal.signal, (line) => terminal.progress(line));
}

/** Source and build (bench/pack) lie two folders deep. */
export function embeddedModel(): string {
  const folder = fileURLToPath(new URL(`../../${EMBEDDED_MODEL}`, here));
  if (existsSync(folder)) return folder;
  throw usageError('--model is missing: name a model folder (the embedded one is in a checkout only)');
}

export const embeddedMla = (): string => join(embeddedModel(), '..', 'tiny-mla');
export const embeddedVision = (): string => join(embeddedModel(), '..', 'tiny-vlm');

export const passOn = (options: Options, names: readonly string[]): string[] =>
  names.flatMap((name) => (options.has(name) ? [`--${name}=${options.text(name)}`] : []));

/** The request that `generate` would make of these options, for one type of weights. */
export function requestFor(
  options: Options,
  terminal: Terminal,
  model: string,
  weights: string | undefined,
  context?: number,
  rankOptions: readonly string[] = ['ranks', 'plan', 'tensor', 'token', 'sequence', 'pipeline', 'data'],
  precision = options.text('precision'),
): Promise<ModelRequest> {
  const args = [
    `--model=${model}`,
    ...passOn(options, [
      'kv',
      'prefill-chunk',
      'steps-in-flight',
      'host',
      'adapter',
      'variants',
      'hub',
      'hub-token',
      ...rankOptions,
    ]),
    ...(precision === undefined ? [] : [`--precision=${precision}`]),
    ...(weights === undefined ? [] : [`--weights=${weights}`]),
    ...(context === undefined ? passOn(options, ['context']) : [`--context=${context}`]),
    ...(options.has('verbose') ? ['--verbose'] : []),
  ];
  return modelRequest(parseOptions('bench', modelOptions, args), terminal);
}

export function weightsList(options: Options): (typeof WEIGHTS)[number][] | undefined {
  const text = options.text('weights');
  if (text === undefined) return undefined;
  const list = text.split(',').map((given) => {
    const type = WEIGHTS.find((name) => name === given.trim());
    if (type === undefined) throw usageError(`--weights ${text}: '${given.trim()}' is none of ${WEIGHTS.join(', ')}`);
    return type;
  });
  if (new Set(list).size < list.length) throw usageError(`--weights ${text}: expected each type once`);
  return list;
}

export function integerList(options: Options, name: string, least = 1): number[] | undefined {
  const text = options.text(name);
  return text?.split(',').map((part) => {
    const value = /^\s*\d+\s*$/.test(part) ? Number(part) : 0;
    if (value >= least && Number.isSafeInteger(value)) return value;
    throw usageError(`--${name} ${text}: expected integers of at least ${least} with commas`);
  });
}

export function oneWeights(options: Options, suite: string): (typeof WEIGHTS)[number] | undefined {
  const [type, ...others] = weightsList(options) ?? [undefined];
  if (others.length > 0) throw usageError(`--weights ${options.text('weights')}: --suite ${suite} takes one type`);
  return type;
}

export function onePromptLength(options: Options, suite: string, usual: number): number {
  const [length = usual, ...others] = integerList(options, 'prompt-tokens') ?? [];
  if (others.length > 0) {
    throw usageError(`--prompt-tokens ${options.text('prompt-tokens')}: --suite ${suite} takes one length`);
  }
  return length;
}
