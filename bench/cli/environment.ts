import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { arch, cpus, release, totalmem, type } from 'node:os';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type BenchAdapter, type BenchEnvironment, SOFTWARE_NOTE } from '../document.js';

export async function readEnvironment(
  host: 'node' | 'chrome',
  adapters: readonly BenchAdapter[],
  chrome?: string,
): Promise<BenchEnvironment> {
  const distinct = [...new Map(adapters.map((adapter) => [JSON.stringify(adapter), adapter])).values()];
  const commit = await readCommit();
  const { version } = await manifest();
  return {
    date: new Date().toISOString(),
    ...(commit !== undefined && { commit }),
    ...(version !== undefined && { version }),
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

/** The commit of the checkout this code lies in, or that it was packed from; a package inside somebody else's repository has none. */
async function readCommit(): Promise<string | undefined> {
  const here = fileURLToPath(new URL('.', import.meta.url));
  const git = async (...args: string[]): Promise<string> =>
    (await promisify(execFile)('git', ['-C', here, ...args])).stdout.trim();
  try {
    if (here.includes('node_modules')) return undefined;
    const { commit: packed } = await manifest();
    if (packed !== undefined) return packed;
    const commit = await git('rev-parse', '--short=12', 'HEAD');
    return (await git('status', '--porcelain', '--untracked-files=no')) === '' ? commit : `${commit}+`;
  } catch {
    return undefined; // no git, or no checkout
  }
}

// Not written in one, which bundlers take for a file to carry along.
const moduleUrl = import.meta.url;

/** Of the checkout or package, two folders above; bench/pack writes the commit into its own. */
async function manifest(): Promise<{ readonly version?: string; readonly commit?: string }> {
  const text = await readFile(new URL('../../package.json', moduleUrl), 'utf8').catch(() => '{}');
  return JSON.parse(text) as { readonly version?: string; readonly commit?: string };
}
