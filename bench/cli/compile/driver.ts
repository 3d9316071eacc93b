import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { SplitkvError, throwIfAborted, unsupportedError } from '../../../src/base/errors.js';
import type { AdapterDescription, DeviceTraits } from '../../../src/gpu/index.js';
import { fastTraits } from '../../../src/gpu/fast_paths.js';
import type { Access } from '../../../src/gpu/kernel.js';
// oxlint-disable-next-line import/default -- its text
import child from './compile_child.mjs?raw';
import shim from './driver_shim.c?raw';
import { type Figures, readFigures } from './figures.js';

/** AMD's cards that Mesa compiles for, newest first: RDNA 4, 3, 2, 1, and two of GCN. */
export const FAMILIES = ['gfx1200', 'navi31', 'navi21', 'navi10', 'vega10', 'polaris10'] as const;
export const DEFAULT_FAMILY = 'navi31';
export type Family = (typeof FAMILIES)[number];

/** A shader as a pipeline is made of it. */
export interface CompileJob {
  /** Names it in errors. */
  readonly name: string;
  /** WGSL with one entry point. */
  readonly code: string;
  /** Of its storage bindings, in order; a uniform follows them. */
  readonly bindings: readonly Access[];
}

/** The card as Dawn offers it. */
export interface LabAdapter {
  readonly traits: DeviceTraits;
  readonly adapter: AdapterDescription;
  /** What precision 'fast' adds to the traits. */
  readonly fast: NonNullable<DeviceTraits['fast']>;
}

const INSTALL =
  'install them (Debian: apt install mesa-vulkan-drivers libvulkan1, version 25 of the drivers: bookworm has it in backports)';

/**
 * AMD's compiler for a card that isn't there: Mesa's driver is told to be for that family (RADV_FORCE_FAMILY), a library made here
 * of driver_shim.c swallows its commands, and Dawn compiles on what that offers, in processes of its own. Nothing is ever run.
 */
export class CompileLab {
  private constructor(
    readonly family: Family,
    readonly card: LabAdapter,
    readonly signal: AbortSignal,
    readonly folder: string,
  ) {}

  /**
   * @throws SplitkvError `unsupported` where the driver, the Vulkan loader or a C compiler is missing, saying what to install;
   * `no_webgpu` without the package webgpu
   */
  static async open(family: Family, signal: AbortSignal): Promise<CompileLab> {
    if (process.platform !== 'linux') {
      throw unsupportedError(`the compile suite needs Mesa's driver for AMD, on Linux; this is ${process.platform}`);
    }
    const folder = await mkdtemp(join(tmpdir(), 'splitkv-compile-'));
    try {
      await makeDriver(folder);
      const { stdout, code } = await runChild(folder, family, [], signal);
      const line = /^@@ADAPTER (.*)$/m.exec(stdout)?.[1];
      if (line === undefined) {
        throw unsupportedError(
          `Dawn finds no AMD driver for ${family} (exit code ${code}): Mesa's Vulkan drivers or the Vulkan loader are missing, or too old; ${INSTALL}`,
        );
      }
      return new CompileLab(family, readCard(line), signal, folder);
    } catch (error) {
      await rm(folder, { recursive: true, force: true });
      throw error;
    }
  }

  /**
   * What the compilers made of each shader, in order, in as many processes as there are cores.
   * @throws SplitkvError `internal` for a shader that doesn't compile
   */
  async compile(jobs: readonly CompileJob[], onProgress?: (done: number) => void): Promise<Figures[]> {
    const figures = new Array<Figures>(jobs.length);
    let next = 0;
    let done = 0;
    const work = async (worker: number): Promise<void> => {
      while (next < jobs.length) {
        const first = next;
        next += SHARE;
        const share = jobs.slice(first, next);
        const file = join(this.folder, `jobs-${worker}.json`);
        const numbered = share.map(({ code, bindings }, id) => ({ id, code, bindings }));
        await writeFile(file, JSON.stringify(numbered));
        const { stdout, stderr, code } = await runChild(this.folder, this.family, [file], this.signal);
        for (const [id, { name }] of share.entries()) {
          figures[first + id] = figuresOf(name, partOf(stdout, id, 'spirv'), partOf(stderr, id, 'driver'), code);
        }
        onProgress?.((done += share.length));
      }
    };
    await Promise.all(Array.from({ length: availableParallelism() }, (_, worker) => work(worker)));
    return figures;
  }

  async close(): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** Shaders that a process compiles before another one begins: few enough that all cores have work to the end. */
const SHARE = 24;

/** What a stream says of one job: all between its mark and the next one's. */
function partOf(text: string, id: number, of: 'spirv' | 'driver'): string {
  const mark = of === 'spirv' ? `// @@JOB ${id}\n` : `\n@@JOB ${id}\n`;
  const start = text.indexOf(mark);
  if (start < 0) return '';
  const end = text.indexOf('@@JOB ', start + mark.length);
  return text.slice(start, end < 0 ? undefined : end);
}

function figuresOf(name: string, spirv: string, driver: string, code: number | null): Figures {
  const error = /^@@ERROR (.*)$/m.exec(driver)?.[1];
  if (error !== undefined)
    throw new SplitkvError('internal', `${name} doesn't compile: ${JSON.parse(error) as string}`);
  if (!driver.includes('SHADER STATS')) {
    throw new SplitkvError(
      'internal',
      `${name}: the driver ended (exit code ${code}) and said nothing of it: ${driver.trim().split('\n').at(-1)}`,
    );
  }
  return readFigures(spirv, driver);
}

async function makeDriver(folder: string): Promise<void> {
  const [source, library] = [join(folder, 'driver_shim.c'), join(folder, 'libradv_null.so')];
  await writeFile(source, shim);
  await writeFile(join(folder, 'compile_child.mjs'), child);
  const icd = { file_format_version: '1.0.0', ICD: { library_path: library, api_version: '1.3.0' } };
  await writeFile(join(folder, 'icd.json'), JSON.stringify(icd));
  const install =
    'the compile suite builds a small library in C: install a compiler (Debian: apt install gcc libc6-dev)';
  const { code, stderr } = await runProcess('cc', ['-shared', '-fPIC', '-O1', '-o', library, source, '-ldl'], {}).catch(
    (error: NodeJS.ErrnoException) => {
      throw unsupportedError(`cc: ${error.code === 'ENOENT' ? 'not found' : error.message}; ${install}`);
    },
  );
  if (code !== 0) throw unsupportedError(`cc failed: ${stderr.trim().split('\n')[0]}; ${install}`);
}

function runChild(folder: string, family: Family, args: readonly string[], signal: AbortSignal): Promise<Ended> {
  let dawn: string;
  try {
    dawn = pathToFileURL(createRequire(import.meta.url).resolve('webgpu')).href;
  } catch (cause) {
    throw new SplitkvError('no_webgpu', "Node needs the npm package 'webgpu' (Dawn): npm install webgpu", { cause });
  }
  const { VK_ADD_DRIVER_FILES: _, ...environment } = process.env;
  const env = {
    ...environment,
    // Mesa keeps shaders of its own in the user's cache otherwise.
    MESA_SHADER_CACHE_DIR: folder,
    XDG_RUNTIME_DIR: folder,
    RADV_FORCE_FAMILY: family,
    RADV_DEBUG: 'shaderstats,asm,nocache',
    VK_DRIVER_FILES: join(folder, 'icd.json'),
  };
  return runProcess(process.execPath, [join(folder, 'compile_child.mjs'), dawn, ...args], { env, signal });
}

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function runProcess(
  command: string,
  args: readonly string[],
  { signal, env }: { readonly signal?: AbortSignal; readonly env?: NodeJS.ProcessEnv },
): Promise<Ended> {
  if (signal) throwIfAborted(signal, 'bench');
  const started = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], ...(env && { env }) });
  let [stdout, stderr] = ['', ''];
  started.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  started.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const abort = (): void => void started.kill();
  signal?.addEventListener('abort', abort);
  return new Promise((resolve, reject) => {
    started.on('error', reject);
    started.on('close', (code) => {
      signal?.removeEventListener('abort', abort);
      try {
        if (signal) throwIfAborted(signal, 'bench');
        resolve({ code, stdout, stderr });
      } catch (error) {
        reject(error as Error);
      }
    });
  });
}

function readCard(line: string): LabAdapter {
  const { info, limits, features, language, matrices } = JSON.parse(line) as {
    readonly info: Omit<AdapterDescription, 'software' | 'variants' | 'fast'> & { readonly subgroupMaxSize: number };
    readonly limits: DeviceTraits['limits'];
    readonly features: readonly string[];
    readonly language: readonly string[];
    readonly matrices: readonly { readonly [name: string]: string | number }[];
  };
  const told = { info: { ...info, subgroupMatrixConfigs: matrices }, features: new Set(features) };
  return {
    adapter: { ...info, software: false, variants: 'hardware' },
    traits: { limits, f16: features.includes('shader-f16'), software: false, unroll: true },
    fast: fastTraits(told as never, new Set(language)),
  };
}
