import { type BenchAdapter, type Measurement, SOFTWARE_NOTE } from '../../../bench/document.js';
import type { KernelResult } from '../../../bench/suites/kernels.js';
import { SplitkvError } from '../../../src/base/errors.js';
import { pack, unpack } from '../../shared/packed.js';

/** What a result's numbers depend on, as far as a page can tell. */
export interface PageEnvironment {
  readonly date: string;
  /** Of splitkv. */
  readonly version: string;
  readonly browser: string;
  readonly system: string;
  readonly cpu_threads: number;
  readonly adapters: readonly Pick<BenchAdapter, 'name' | 'software' | 'variants'>[];
  readonly note?: string;
}

/** A suite's result as it is copied and sent. */
export interface SharedResult {
  readonly suite: string;
  readonly environment: PageEnvironment;
  readonly measurements: readonly Measurement[];
  readonly results?: readonly unknown[];
  readonly left_out?: readonly unknown[];
  /** For people. */
  readonly table: string;
}

/** More than any suite gives; a link made to fill the memory stops there. */
const MOST_BYTES = 4 * 2 ** 20;
const MARK = '#result=';

interface UserAgentData {
  readonly platform: string;
  readonly brands: readonly { readonly brand: string; readonly version: string }[];
}

export function environmentOf(adapters: readonly BenchAdapter[], version: string): PageEnvironment {
  const agent = (navigator as { userAgentData?: UserAgentData }).userAgentData;
  const brand = agent?.brands.filter(({ brand: name }) => !/not.?a.?brand/i.test(name)).at(-1);
  const distinct = [...new Map(adapters.map((adapter) => [adapter.name, adapter])).values()];
  return {
    date: new Date().toISOString(),
    version,
    browser: brand ? `${brand.brand} ${brand.version}` : navigator.userAgent,
    system: agent?.platform || 'unknown',
    cpu_threads: navigator.hardwareConcurrency,
    adapters: distinct.map(({ name, software, variants }) => ({ name, software, variants })),
    ...(distinct.some(({ software }) => software) && { note: SOFTWARE_NOTE }),
  };
}

/** The environment for people, by names. */
export function environmentRows(environment: PageEnvironment): [name: string, text: string][] {
  const { date, version, browser, system, cpu_threads: threads, adapters, note } = environment;
  return [
    ['Adapter', adapters.map(({ name, variants }) => `${name}, ${variants} variants`).join('; ') || 'none'],
    ['Browser', browser],
    ['System', `${system}, ${threads} CPU threads`],
    ['Taken', `${date.slice(0, 16).replace('T', ' ')} UTC, splitkv ${version}`],
    ...(note === undefined ? [] : [['Note', note] satisfies [string, string]]),
  ];
}

/** A result as one pastes it into an issue. */
export function markdownOf(result: SharedResult, link: string): string {
  const rows = environmentRows(result.environment).map(([name, text]) => `- ${name}: ${text}`);
  // No line of the table can end the block.
  const table = result.table.trimEnd().replaceAll('```', "'''");
  return `### splitkv bench: ${result.suite}\n\n${rows.join('\n')}\n\n\`\`\`\n${table}\n\`\`\`\n\n[The plots and all samples](${link})\n`;
}

/** This page's address with the result in it: behind the #, which no server is told. */
export async function sharedAddress(result: SharedResult): Promise<string> {
  // Plots of kernels need their results; of the others the measurements say it all.
  const { results, ...rest } = result;
  const text = JSON.stringify(result.suite === 'kernels' ? { ...rest, results } : rest);
  return `${location.href.replace(/[?#].*$/, '')}${MARK}${await pack(text, MOST_BYTES)}`;
}

/**
 * The result that an address holds. Anybody may have made it: all of it is checked, and shown as text and plots only.
 * @param hash '#result=...'
 * @throws SplitkvError `usage` where it isn't whole, or no result
 */
export async function readShared(hash: string): Promise<SharedResult> {
  let value: unknown;
  try {
    value = JSON.parse(await unpack(hash.slice(MARK.length), MOST_BYTES));
  } catch (error) {
    throw new SplitkvError('usage', 'The address holds a result that is cut off or changed. Copy the whole link.', {
      cause: error,
    });
  }
  if (isResult(value)) return value;
  throw new SplitkvError('usage', 'The address holds something that is no result of this page. Ask for another link.');
}

type Plain = Readonly<Record<string, unknown>>;
const isPlain = (value: unknown): value is Plain =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value: unknown): value is string => typeof value === 'string';
const isAmount = (value: unknown): value is number => typeof value === 'number' && value >= 0 && value < 1e15;
const isListOf = (value: unknown, is: (item: unknown) => boolean, least = 0): boolean =>
  Array.isArray(value) && value.length >= least && value.every(is);

const isMeasurement = (value: unknown): boolean =>
  isPlain(value) &&
  isText(value['metric']) &&
  isText(value['unit']) &&
  isPlain(value['setting']) &&
  Object.values(value['setting']).every((part) => isText(part) || isAmount(part)) &&
  isListOf(value['samples'], isAmount, 1);

const isEnvironment = (value: unknown): boolean =>
  isPlain(value) &&
  [value['date'], value['version'], value['browser'], value['system'], value['note'] ?? ''].every(isText) &&
  isAmount(value['cpu_threads']) &&
  isListOf(value['adapters'], (adapter) => isPlain(adapter) && isText(adapter['name']) && isText(adapter['variants']));

/** What plots of kernels are made of. */
const isKernelResult = (value: unknown): boolean => {
  if (!isPlain(value)) return false;
  const { kernel, case: name, us, samples, copy_share: copy, fma_share: fma } = value as Partial<KernelResult>;
  return [kernel, name].every(isText) && [us, copy, fma].every(isAmount) && isListOf(samples, isAmount, 1);
};

const isResult = (value: unknown): value is SharedResult =>
  isPlain(value) &&
  isText(value['suite']) &&
  isText(value['table']) &&
  isEnvironment(value['environment']) &&
  isListOf(value['measurements'], isMeasurement) &&
  (value['suite'] !== 'kernels' || isListOf(value['results'], isKernelResult));
