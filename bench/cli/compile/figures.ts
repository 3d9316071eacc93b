import { SplitkvError } from '../../../src/base/errors.js';

/** What AMD's compiler (ACO) and Dawn's (Tint) made of a shader. */
export interface Figures {
  /** Vector registers of a thread. */
  readonly vgprs: number;
  /** Vector registers that didn't fit, and are kept in memory. */
  readonly spilled: number;
  /** Bytes of memory that a wave has for variables that registers can't hold: arrays whose index isn't known, and what was spilled. */
  readonly scratch: number;
  /** Waves that a SIMD holds at once: what its registers and workgroup memory leave room for. */
  readonly waves_per_simd: number;
  /** Bytes of workgroup memory. */
  readonly lds_bytes: number;
  readonly instructions: number;
  readonly valu: number;
  readonly vmem: number;
  /** Instructions of matrix units (v_wmma), and products of four bytes (v_dot4). */
  readonly matrix_products: number;
  readonly byte_products: number;
  /** ACO's estimates in cycles. It weighs every loop alike, so they compare per unit of work only. */
  readonly latency: number;
  readonly inverse_throughput: number;
  /** Threads of a workgroup. */
  readonly threads: number;
  /** Loops in the emitted SPIR-V, and how many of them carry Tint's guard against endless ones. */
  readonly loops: number;
  readonly loop_guards: number;
  /** Loops that load from workgroup memory once a turn and wait for it (`serialScans`). */
  readonly serial_scans: number;
  /** Bytes of memory that a thread waits for at once in a loop (`threadBytesInFlight`); null where it loads nothing. */
  readonly thread_bytes_in_flight: number | null;
}

/**
 * @param spirv Dawn's disassembly
 * @param driver what RADV printed with RADV_DEBUG=shaderstats,asm
 * @throws SplitkvError `internal` where they don't say what they did when this was written
 */
export function readFigures(spirv: string, driver: string): Figures {
  const figure = (name: string): number => {
    const found = new RegExp(`^${name}: (\\d+)$`, 'm').exec(driver)?.[1];
    if (found === undefined)
      throw unreadable(`Mesa's driver says no '${name}'; version 25 of mesa-vulkan-drivers does`);
    return Number(found);
  };
  const size = /OpExecutionMode %\w+ LocalSize (\d+) (\d+) (\d+)/.exec(spirv);
  if (!size)
    throw unreadable("Dawn's dump of a shader has no LocalSize; use the version of webgpu that package.json names");
  return {
    vgprs: figure('VGPRs'),
    spilled: figure('Spilled VGPRs'),
    scratch: figure('Scratch size'),
    waves_per_simd: figure('Subgroups per SIMD'),
    lds_bytes: figure('LDS size'),
    instructions: figure('Instructions'),
    valu: figure('VALU'),
    vmem: figure('VMEM'),
    matrix_products: driver.match(/\bv_s?wmma_/g)?.length ?? 0,
    byte_products: driver.match(/\bv_dot4_/g)?.length ?? 0,
    latency: figure('Latency'),
    inverse_throughput: figure('Inverse Throughput'),
    threads: Number(size[1]) * Number(size[2]) * Number(size[3]),
    loops: spirv.match(/\bOpLoopMerge\b/g)?.length ?? 0,
    loop_guards: loopGuards(spirv),
    serial_scans: serialScans(driver),
    thread_bytes_in_flight: threadBytesInFlight(driver),
  };
}

const unreadable = (what: string): SplitkvError => new SplitkvError('internal', `bench: ${what}`);

/**
 * Loops with Tint's guard: each has a counter of 64 bits, a vec2<u32> variable that is set to all ones before it and counted down in
 * it. Nothing else stores that constant.
 */
export function loopGuards(spirv: string): number {
  const vector = /(%\w+) = OpTypeVector %uint 2\b/.exec(spirv)?.[1];
  const ones = new RegExp(`(%\\w+) = OpConstantComposite ${vector} %uint_4294967295 %uint_4294967295\\b`).exec(
    spirv,
  )?.[1];
  if (vector === undefined || ones === undefined) return 0;
  return spirv.match(new RegExp(`\\bOpStore %\\w+ ${ones}\\b`, 'g'))?.length ?? 0;
}

/** A vector load from memory, as LLVM's disassembler or ACO itself prints it, and how wide it is. */
const LOAD = /(?<!\w)(?:buffer|global|flat|scratch)_load_(\w+)/;
const WIDTHS: readonly (readonly [name: RegExp, bytes: number])[] = [
  [/(b128|dwordx4)$/, 16],
  [/(b96|dwordx3)$/, 12],
  [/(b64|dwordx2)$/, 8],
];
/** How many of the loads before may be outstanding after it. */
const WAIT = /\b(?:vmcnt|loadcnt)\((\d+)\)|\bs_wait_loadcnt (?:imm:)?(0x[0-9a-f]+|\d+)/;
const JUMP = /\bs_c?branch\w* (?:block:)?BB(\d+)/;

interface Block {
  readonly name: string;
  /** Of the loads outstanding together at any place of it. */
  bytes: number;
  /** Loads from memory, and from workgroup memory. */
  loads: number;
  scans: number;
  readonly jumps: string[];
}

/**
 * Bytes of vector loads that are outstanding together in a loop, by the ISA: a load counts from where it is issued to the wait that
 * lets fewer be outstanding. The most of any loop, or of the whole shader where no loop loads.
 * @returns null where nothing is loaded
 */
export function threadBytesInFlight(assembly: string): number | null {
  const blocks = blocksOf(assembly);
  return mostBytes(loopsOf(blocks).flat()) || mostBytes(blocks) || null;
}

/** Innermost loops of the ISA that wait, each turn, for one load from workgroup memory and for nothing beside: as long as a chain. */
export function serialScans(assembly: string): number {
  const loops = loopsOf(blocksOf(assembly));
  const innermost = loops.filter(
    (loop) => !loops.some((other) => other.length < loop.length && loop.includes(other[0]!)),
  );
  const loads = (loop: readonly Block[], of: 'loads' | 'scans'): number =>
    loop.reduce((sum, block) => sum + block[of], 0);
  return innermost.filter((loop) => loads(loop, 'scans') === 1 && loads(loop, 'loads') === 0).length;
}

function blocksOf(assembly: string): Block[] {
  const blocks: Block[] = [];
  let outstanding: number[] = [];
  for (const line of assembly.split('\n')) {
    const label = /^BB(\d+):?$/.exec(line)?.[1];
    if (label !== undefined) blocks.push({ name: label, bytes: 0, loads: 0, scans: 0, jumps: [] });
    const block = blocks.at(-1);
    if (!block) continue;
    const load = LOAD.exec(line)?.[1];
    if (load !== undefined) {
      block.loads++;
      outstanding.push(WIDTHS.find(([name]) => name.test(load))?.[1] ?? 4);
      block.bytes = Math.max(
        block.bytes,
        outstanding.reduce((sum, bytes) => sum + bytes, 0),
      );
    }
    if (/\bds_(load|read)/.test(line)) block.scans++;
    const wait = WAIT.exec(line);
    if (wait) outstanding = last(outstanding, Number(wait[1] ?? wait[2]));
    const jump = JUMP.exec(line)?.[1];
    if (jump !== undefined) block.jumps.push(jump);
  }
  return blocks;
}

const last = (list: number[], count: number): number[] => list.slice(Math.max(0, list.length - count));

const mostBytes = (blocks: readonly Block[]): number => Math.max(0, ...blocks.map(({ bytes }) => bytes));

/** A jump back makes a loop of the blocks between. */
const loopsOf = (blocks: readonly Block[]): Block[][] =>
  blocks.flatMap(({ jumps }, from) =>
    jumps
      .map((target) => blocks.slice(0, from + 1).findIndex(({ name }) => name === target))
      .filter((first) => first >= 0)
      .map((first) => blocks.slice(first, from + 1)),
  );
