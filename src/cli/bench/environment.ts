import { execFile } from 'node:child_process';
import { arch, cpus, release, totalmem, type } from 'node:os';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { ModelInfo } from '../../index.js';

export interface BenchAdapter {
  readonly name: string;
  readonly vendor: string;
  readonly architecture: string;
  readonly device: string;
  readonly description: string;
  readonly software: boolean;
}

/** What the numbers of a benchmark depend on beside the code. */
export interface BenchEnvironment {
  readonly date: string;
  /** Undefined outside a git checkout; ends with '+' where files were changed since. */
  readonly commit?: string;
  readonly host: 'node' | 'chrome';
  readonly node: string;
  readonly chrome?: string;
  readonly os: string;
  readonly cpu: string;
  readonly cpu_threads: number;
  readonly memory_bytes: number;
  readonly adapters: readonly BenchAdapter[];
  readonly note?: string;
}

/** One document of `bench --json`; what a result holds depends on the suite. */
export interface BenchDocument<Result> {
  readonly suite: string;
  readonly environment: BenchEnvironment;
  readonly results: readonly Result[];
}

export const SOFTWARE_NOTE = 'software adapter: only ratios within a run mean anything';

export async function readEnvironment(
  host: 'node' | 'chrome',
  adapters: readonly BenchAdapter[],
  chrome?: string,
): Promise<BenchEnvironment> {
  const distinct = [...new Map(adapters.map((adapter) => [JSON.stringify(adapter), adapter])).values()];
  const commit = await readCommit();
  return {
    date: new Date().toISOString(),
    ...(commit !== undefined && { commit }),
    host,
    node: process.version,
    ...(chrome !== undefined && { chrome }),
    os: `${type()} ${release()} ${arch()}`,
    cpu: cpus()[0]?.model.trim() || 'unknown',
    cpu_threads: cpus().length,
    memory_bytes: totalmem(),
    adapters: distinct,
    ...(distinct.some(({ software }) => software) && { note: SOFTWARE_NOTE }),
  };
}

export const benchAdapter = ({ adapter }: ModelInfo): BenchAdapter => ({
  name: adapter.name,
  vendor: adapter.vendor,
  architecture: adapter.architecture,
  device: adapter.device,
  description: adapter.description,
  software: adapter.software,
});

/** The commit of the checkout this code lies in; a package inside somebody else's repository has none. */
async function readCommit(): Promise<string | undefined> {
  const here = fileURLToPath(new URL('.', import.meta.url));
  const git = async (...args: string[]): Promise<string> =>
    (await promisify(execFile)('git', ['-C', here, ...args])).stdout.trim();
  try {
    if (here.includes('node_modules')) return undefined;
    const commit = await git('rev-parse', '--short=12', 'HEAD');
    return (await git('status', '--porcelain', '--untracked-files=no')) === '' ? commit : `${commit}+`;
  } catch {
    return undefined; // no git, or no checkout
  }
}
