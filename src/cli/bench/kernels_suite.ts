import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { SplitkvError, throwIfAborted } from '../../base/errors.js';
import { nodeGpu } from '../../gpu/node.js';
import type { BenchRow } from '../../gpu/testing/bench_kernel.js';
import type { Terminal } from '../command.js';
import { type BenchAdapter, type BenchDocument, readEnvironment } from './environment.js';
import { alignedTable, decimals } from './table.js';

const CONFIG = 'vitest.bench.config.ts';

export interface KernelsRequest {
  /** Part of a kernel's path, e.g. `attention/`; undefined: every kernel. */
  readonly kernel: string | undefined;
  readonly adapter: string | undefined;
}

/** The kernel library's own benchmarks (`*.bench.ts`), which belong to the source and not to the package. */
export async function runKernelsSuite(
  { kernel, adapter }: KernelsRequest,
  terminal: Terminal,
): Promise<BenchDocument<BenchRow>> {
  const root = checkout();
  const directory = mkdtempSync(join(tmpdir(), 'splitkv-kernels-'));
  try {
    const args = ['run', '--config', CONFIG, ...(kernel === undefined ? [] : [kernel])];
    const env = { SPLITKV_BENCH_DIR: directory, ...(adapter !== undefined && { SPLITKV_BENCH_ADAPTER: adapter }) };
    const { code, output } = await runVitest(root, args, env, terminal);
    throwIfAborted(terminal.signal, 'bench');
    if (code !== 0) {
      const none = output.includes('No test files found');
      if (none) throw new SplitkvError('usage', `--kernel ${kernel}: no benchmark's path contains it; see shaders/`);
      terminal.note(output.trim());
      throw new SplitkvError('internal', `the kernel benchmarks failed (exit code ${code}); what they said is above`);
    }
    const files = readdirSync(directory).sort();
    const rows = files.flatMap((file) => JSON.parse(readFileSync(join(directory, file), 'utf8')) as BenchRow[]);
    const described = await Promise.all([...new Set(rows.map((row) => row.adapter))].map(describeByName));
    const adapters = described.filter((found) => found !== undefined);
    return { suite: 'kernels', environment: await readEnvironment('node', adapters), results: rows };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** The root of the checkout: source and build lie at different depths. */
function checkout(): string {
  for (const path of ['../../../', '../../']) {
    const root = fileURLToPath(new URL(path, import.meta.url));
    if (existsSync(join(root, CONFIG)) && existsSync(join(root, 'node_modules/vitest'))) return root;
  }
  throw new SplitkvError(
    'unsupported',
    '--suite kernels runs in a checkout of splitkv only, with its development packages installed (npm install): the package has no kernel benchmarks',
  );
}

function runVitest(
  root: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  terminal: Terminal,
): Promise<{ readonly code: number | null; readonly output: string }> {
  const child = spawn(process.execPath, [join(root, 'node_modules/vitest/vitest.mjs'), ...args], {
    cwd: root,
    env: { ...process.env, ...env },
  });
  let output = '';
  const take = (text: string): void => {
    output += text;
    const [line] = /^bench .*|^\S+ on .*/m.exec(text) ?? [];
    if (line !== undefined) terminal.progress(line);
  };
  child.stdout.setEncoding('utf8').on('data', take);
  child.stderr.setEncoding('utf8').on('data', take);
  const abort = (): void => void child.kill('SIGINT');
  terminal.signal.addEventListener('abort', abort);
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => {
      terminal.signal.removeEventListener('abort', abort);
      resolve({ code, output });
    });
  });
}

/** Rows name an adapter by its description; the rest is asked of the adapter itself, found by how that begins. */
async function describeByName(name: string): Promise<BenchAdapter | undefined> {
  for (const part of [name, name.split(':')[0]!, name.split(/\W/)[0]!]) {
    const gpu = await nodeGpu(part);
    const adapter = await gpu.requestAdapter().catch(() => null); // Dawn finds none of this name
    if (adapter?.info.description !== name) continue;
    const { vendor, architecture, device, description, isFallbackAdapter } = adapter.info;
    return { name, vendor, architecture, device, description, software: isFallbackAdapter ?? false };
  }
  return undefined;
}

export const kernelsTable = (rows: readonly BenchRow[]): string =>
  alignedTable(
    [
      ['kernel', 'case', 'adapter', 'us', 'GFLOP/s', 'GB/s'],
      ...rows.map((row) => [
        row.kernel,
        row.case,
        row.adapter.split(':')[0]!,
        decimals(row.us),
        decimals(row.gflops),
        decimals(row.gbps),
      ]),
    ],
    3,
  );
