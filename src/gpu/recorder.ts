import { internalError } from '../base/errors.js';
import { nth } from '../base/lists.js';
import { alignUp } from '../base/math.js';
import { type Choice, Choices, type Variant } from './choices.js';
import type { Buffer, Device } from './device.js';
import {
  type Bindings,
  type CompiledPipeline,
  type Kernel,
  paramBytes,
  type ParamTypes,
  pipelineSource,
  writeParams,
} from './kernel.js';
import type { Submits } from './submits.js';

/** A buffer, or a range of one (offset and size in bytes; offset a multiple of minStorageBufferOffsetAlignment). */
export type Tensor = Buffer | { readonly buffer: Buffer; readonly offset: number; readonly size: number };

/** A program's step: rows come in row groups, and each dispatch works on those of some groups. */
export interface ProgramStep {
  /** By row group. */
  readonly rows: readonly number[];
  /** As `StepShape.chunks`. */
  readonly chunks: number;
}

/** Rows that a dispatch works on, of a step's row groups. */
export type RowsOf = (rows: readonly number[]) => number;

export const allRows: RowsOf = (rows) => rows.reduce((sum, count) => sum + count, 0);

/** What happens between two pieces of a program, outside of a pass. */
export type ProgramExchange<Step extends ProgramStep = ProgramStep> = { readonly label: string } & (
  | {
      /** An exchange: submits the encoder; resolves when what comes from elsewhere is queued on this device. */
      readonly run: (encoder: GPUCommandEncoder, step: Step) => Promise<void>;
    }
  | {
      /** Copies of buffers, in the same encoder. */
      readonly copy: (encoder: GPUCommandEncoder, step: Step) => void;
    }
);

interface Dispatch {
  /** Whether it runs in steps of so many chunks; undefined: in all. */
  readonly runsIn: ((chunks: number) => boolean) | undefined;
  readonly label: string;
  readonly variant: Variant;
  readonly bindGroup: GPUBindGroup;
  readonly rowsOf: RowsOf;
}

/** What of a program is timed. */
export interface TimedPasses {
  /** Kernels whose dispatches get passes of their own, by name. */
  readonly kernels: ReadonlySet<string>;
  /** For the next of these passes. */
  next(): GPUComputePassTimestampWrites;
}

export interface RunOptions {
  /** Cuts what takes long, in between too. */
  readonly submits?: Submits;
  /** True: nobody wants the results. What is left isn't dispatched; exchanges go on, as other ranks wait for them. */
  readonly isOver?: () => boolean;
  readonly timed?: TimedPasses | undefined;
}

/** Dispatches up to an exchange, or up to the program's end. */
interface Piece<Step extends ProgramStep> {
  readonly dispatches: readonly Dispatch[];
  readonly exchange: ProgramExchange<Step> | undefined;
}

/**
 * A captured list of dispatches, cut into pieces by exchanges. Replaying it creates nothing: no buffer, no bind group, no pipeline,
 * no shape logic. What changes from step to step lives in GPU buffers, and in `ProgramStep` for the grids.
 */
export class Program<Step extends ProgramStep = ProgramStep> {
  /** Dispatches of a step over short sequences, of one chunk. */
  readonly dispatchCount: number;
  readonly exchangeCount: number;

  constructor(
    readonly label: string,
    readonly device: Device,
    readonly pieces: readonly Piece<Step>[],
    readonly arena: Buffer | undefined,
  ) {
    this.dispatchCount = pieces.reduce(
      (sum, { dispatches }) => sum + dispatches.filter(({ runsIn }) => runsIn?.(1) !== false).length,
      0,
    );
    this.exchangeCount = pieces.filter(({ exchange }) => exchange && 'run' in exchange).length;
  }

  count(kernels: ReadonlySet<string>): number {
    return this.pieces.flatMap(({ dispatches }) => dispatches.filter(({ label }) => kernels.has(label))).length;
  }

  /** Encodes a program without exchanges into the pass. */
  encode(pass: GPUComputePassEncoder, step: Step): void {
    if (this.pieces.some(({ exchange }) => exchange))
      throw internalError(`${this.label} has exchanges: replay it with run`);
    for (const { dispatches } of this.pieces) encodeDispatches(pass, dispatches, step);
  }

  /**
   * Encodes and submits everything up to the last exchange; returns the encoder that holds the rest, for the caller to submit.
   */
  async run(encoder: GPUCommandEncoder, step: Step, options: RunOptions = {}): Promise<GPUCommandEncoder> {
    const { submits, isOver = () => false, timed } = options;
    let current = encoder;
    const rows = allRows(step.rows);
    for (const piece of this.pieces) {
      const { dispatches } = piece;
      const { length } = dispatches;
      for (let first = 0; first < length && !isOver();) {
        const most = submits ? Math.min(length, first + submits.room(rows)) : length;
        const isTimed = timed?.kernels.has(nth(dispatches, first).label) === true;
        const end = timed ? endOfAlike(dispatches, first, most, timed) : most;
        const pass = current.beginComputePass(isTimed ? { timestampWrites: timed.next() } : undefined);
        encodeDispatches(pass, end - first < length ? dispatches.slice(first, end) : dispatches, step);
        pass.end();
        if (submits?.encoded(end - first, rows)) {
          await submits.submit(current);
          current = this.device.gpu.createCommandEncoder({ label: this.label });
        }
        first = end;
      }
      if (!piece.exchange) continue;
      if ('copy' in piece.exchange) {
        piece.exchange.copy(current, step);
        continue;
      }
      await piece.exchange.run(current, step);
      submits?.forget();
      current = this.device.gpu.createCommandEncoder({ label: this.label });
    }
    return current;
  }

  dispose(): void {
    this.arena?.dispose();
  }
}

/** Where the run of dispatches ends that are timed, or that aren't, from `first` on. */
function endOfAlike(
  dispatches: readonly Dispatch[],
  first: number,
  most: number,
  { kernels }: Pick<TimedPasses, 'kernels'>,
): number {
  const isTimed = kernels.has(nth(dispatches, first).label);
  let end = first + 1;
  while (end < most && kernels.has(nth(dispatches, end).label) === isTimed) end++;
  return end;
}

function encodeDispatches(
  pass: GPUComputePassEncoder,
  dispatches: readonly Dispatch[],
  { rows, chunks }: ProgramStep,
): void {
  let current: GPUComputePipeline | undefined;
  // Most dispatches work on the same rows as the one before.
  let counted: RowsOf | undefined;
  let shape = { rows: 0, chunks };
  for (const { variant, bindGroup, rowsOf, runsIn } of dispatches) {
    if (runsIn && !runsIn(chunks)) continue;
    const { compiled, grid } = variant;
    if (rowsOf !== counted) {
      counted = rowsOf;
      shape = { rows: rowsOf(rows), chunks };
    }
    const [x, y, z] = typeof grid === 'function' ? grid(shape) : grid;
    if (x === 0 || y === 0 || z === 0) continue;
    if (compiled.pipeline !== current) {
      pass.setPipeline(compiled.pipeline!);
      current = compiled.pipeline;
    }
    pass.setBindGroup(0, bindGroup);
    pass.dispatchWorkgroups(x, y, z);
  }
}

interface Pending extends Omit<Dispatch, 'bindGroup'> {
  readonly compiled: CompiledPipeline;
  readonly tensors: readonly Tensor[];
  readonly types: ParamTypes;
  readonly params: Readonly<Record<string, number>>;
  readonly choice: Choice | undefined;
}

/** Captures dispatches into a `Program`. All their parameters share one uniform buffer, written once when capture ends. */
export class Recorder<Step extends ProgramStep = ProgramStep> {
  readonly #pending: Pending[] = [];
  /** An exchange follows the pending dispatches before this index. */
  readonly #exchanges: { readonly at: number; readonly exchange: ProgramExchange<Step> }[] = [];
  #runsIn: Dispatch['runsIn'];

  /** `rowsOf`: rows that dispatches work on where they don't say otherwise; default all. */
  constructor(
    readonly device: Device,
    readonly label: string,
    private rowsOf: RowsOf = allRows,
  ) {}

  /**
   * Adds one dispatch of `kernel` for `problem`. `args` names a buffer for each binding; a binding that the variant doesn't
   * use may be left out and is bound to a shared placeholder. `rowsOf`: rows that it works on, where they aren't the recorder's.
   */
  dispatch<B extends Bindings, P extends ParamTypes, Problem>(
    kernel: Kernel<B, P, Problem>,
    problem: Problem,
    args: { readonly [K in keyof B]?: Tensor | undefined },
    rowsOf = this.rowsOf,
  ): void {
    const { device } = this;
    const traits = device.traitsOf(kernel.name);
    const plan = kernel.plan(problem, traits);
    device.note(kernel.name, traits, plan.fast);
    for (const name of Object.keys(args)) {
      if (!(name in kernel.bindings)) throw internalError(`${kernel.name} has no binding '${name}'`);
    }
    const compiled = device.pipelineOf(pipelineSource(kernel, plan));
    const choice = device.choices.of(kernel, problem, traits, plan, compiled);
    this.#pending.push({
      label: kernel.name,
      compiled,
      tensors: Object.entries(kernel.bindings).map(([name, access]) => args[name] ?? device.placeholder(name, access)),
      types: kernel.params,
      params: plan.params,
      variant: choice?.variant ?? { compiled, grid: plan.grid },
      choice,
      rowsOf,
      runsIn: this.#runsIn,
    });
  }

  /** Records `body`, whose dispatches work on other rows. */
  viewing(rowsOf: RowsOf, body: () => void): void {
    const before = this.rowsOf;
    this.rowsOf = rowsOf;
    body();
    this.rowsOf = before;
  }

  /** Records `body`, whose dispatches run in steps of so many chunks (`StepShape.chunks`) only. */
  inSteps(runsIn: (chunks: number) => boolean, body: () => void): void {
    const before = this.#runsIn;
    this.#runsIn = runsIn;
    body();
    this.#runsIn = before;
  }

  /** Ends a piece: what follows sees what the exchange brings. */
  exchange(exchange: ProgramExchange<Step>): void {
    this.#exchanges.push({ at: this.#pending.length, exchange });
  }

  finish(): Program<Step> {
    const { device } = this;
    const alignment = device.traits.limits.minUniformBufferOffsetAlignment;
    let size = 0;
    const placed = this.#pending.map((each) => {
      const offset = size;
      size += alignUp(paramBytes(each.types), alignment);
      return { ...each, offset };
    });
    const arena = size === 0 ? undefined : device.createBuffer(`${this.label} params`, size, 'uniform');
    const bytes = new DataView(new ArrayBuffer(size));
    const dispatches = placed.map(({ compiled, tensors, types, params, choice, offset, ...dispatch }): Dispatch => {
      writeParams(types, params, bytes, offset);
      const own = { buffer: arena!, offset, size: paramBytes(types) };
      const entries = [...tensors, own].map((tensor, binding) => ({
        binding,
        resource: 'buffer' in tensor ? { ...tensor, buffer: tensor.buffer.gpu } : { buffer: tensor.gpu },
      }));
      const bindGroup = device.gpu.createBindGroup({ label: dispatch.label, layout: compiled.layout, entries });
      if (choice) Choices.note(choice, bindGroup, tensors);
      return { ...dispatch, bindGroup };
    });
    if (arena) device.write(arena, 0, new Uint8Array(bytes.buffer));
    const pieces: Piece<Step>[] = [];
    let first = 0;
    for (const { at, exchange } of this.#exchanges) {
      pieces.push({ dispatches: dispatches.slice(first, at), exchange });
      first = at;
    }
    if (first < dispatches.length) pieces.push({ dispatches: dispatches.slice(first), exchange: undefined });
    return new Program(this.label, device, pieces, arena);
  }
}
