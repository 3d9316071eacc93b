import { SplitkvError } from '../base/errors.js';
import { alignUp } from '../base/math.js';
import type { Buffer, Device } from './device.js';
import {
  type Bindings,
  type CompiledPipeline,
  getPipeline,
  type Grid,
  type GridSpec,
  type Kernel,
  paramBytes,
  type ParamTypes,
  type StepShape,
  writeParams,
} from './kernel.js';

/** A buffer, or a range of one (offset and size in bytes; offset a multiple of minStorageBufferOffsetAlignment). */
export type Tensor = Buffer | { readonly buffer: Buffer; readonly offset: number; readonly size: number };

/** What happens between two pieces of a program: an exchange with other ranks. */
export interface Hop {
  readonly label: string;
  /** Submits the encoder; resolves when what comes from other ranks is queued on this device. */
  run(encoder: GPUCommandEncoder, step: StepShape): Promise<void>;
}

interface Dispatch {
  readonly label: string;
  readonly pipeline: GPUComputePipeline;
  readonly bindGroup: GPUBindGroup;
  readonly grid: GridSpec;
}

/** Dispatches up to a hop, or up to the program's end. */
interface Piece {
  readonly dispatches: readonly Dispatch[];
  readonly hop: Hop | undefined;
}

/**
 * A captured list of dispatches, cut into pieces by hops. Replaying it creates nothing: no buffer, no bind group, no pipeline,
 * no shape logic. What changes from step to step lives in GPU buffers, and in `StepShape` for the grids.
 */
export class Program {
  readonly dispatchCount: number;
  readonly hopCount: number;

  constructor(
    readonly label: string,
    readonly device: Device,
    readonly pieces: readonly Piece[],
    readonly arena: Buffer | undefined,
  ) {
    this.dispatchCount = pieces.reduce((sum, { dispatches }) => sum + dispatches.length, 0);
    this.hopCount = pieces.filter(({ hop }) => hop).length;
  }

  /** Encodes a program without hops into the pass. */
  encode(pass: GPUComputePassEncoder, step: StepShape): void {
    if (this.hopCount > 0) throw new SplitkvError('internal', `${this.label} has hops: replay it with run`);
    for (const piece of this.pieces) encodePiece(pass, piece, step);
  }

  /** Encodes and submits everything up to the last hop; returns the encoder that holds the rest, for the caller to submit. */
  async run(encoder: GPUCommandEncoder, step: StepShape): Promise<GPUCommandEncoder> {
    let current = encoder;
    for (const piece of this.pieces) {
      if (piece.dispatches.length > 0) {
        const pass = current.beginComputePass();
        encodePiece(pass, piece, step);
        pass.end();
      }
      if (!piece.hop) continue;
      await piece.hop.run(current, step);
      current = this.device.gpu.createCommandEncoder({ label: this.label });
    }
    return current;
  }

  dispose(): void {
    this.arena?.dispose();
  }
}

function encodePiece(pass: GPUComputePassEncoder, { dispatches }: Piece, step: StepShape): void {
  let current: GPUComputePipeline | undefined;
  for (const { pipeline, bindGroup, grid } of dispatches) {
    const [x, y, z] = typeof grid === 'function' ? grid(step) : grid;
    if (x === 0 || y === 0 || z === 0) continue;
    if (pipeline !== current) {
      pass.setPipeline(pipeline);
      current = pipeline;
    }
    pass.setBindGroup(0, bindGroup);
    pass.dispatchWorkgroups(x, y, z);
  }
}

interface Pending {
  readonly label: string;
  readonly compiled: CompiledPipeline;
  readonly tensors: readonly Tensor[];
  readonly types: ParamTypes;
  readonly params: Readonly<Record<string, number>>;
  readonly grid: GridSpec;
}

/** Captures dispatches into a `Program`. All their parameters share one uniform buffer, written once when capture ends. */
export class Recorder {
  readonly #pending: Pending[] = [];
  /** A hop follows the pending dispatches before this index. */
  readonly #hops: { readonly at: number; readonly hop: Hop }[] = [];
  #view: ((step: StepShape) => StepShape) | undefined;

  constructor(
    readonly device: Device,
    readonly label: string,
  ) {}

  /**
   * Adds one dispatch of `kernel` for `problem`. `args` names a buffer for each binding; a binding that the variant doesn't
   * use may be left out and is bound to a shared placeholder. `stepOf`: the step as this dispatch sees it, where its rows aren't
   * the program's.
   */
  dispatch<B extends Bindings, P extends ParamTypes, Problem>(
    kernel: Kernel<B, P, Problem>,
    problem: Problem,
    args: { readonly [K in keyof B]?: Tensor | undefined },
    stepOf = this.#view,
  ): void {
    const plan = kernel.plan(problem, this.device.traits);
    for (const name of Object.keys(args)) {
      if (!(name in kernel.bindings)) throw new SplitkvError('internal', `${kernel.name} has no binding '${name}'`);
    }
    this.#pending.push({
      label: kernel.name,
      compiled: getPipeline(this.device, kernel, plan),
      tensors: Object.entries(kernel.bindings).map(
        ([name, access]) => args[name] ?? this.device.placeholder(name, access),
      ),
      types: kernel.params,
      params: plan.params,
      grid: stepOf ? (step) => gridOf(plan.grid, stepOf(step)) : plan.grid,
    });
  }

  /** Records `body`, whose dispatches see the step through `stepOf`. */
  viewing(stepOf: (step: StepShape) => StepShape, body: () => void): void {
    this.#view = stepOf;
    body();
    this.#view = undefined;
  }

  /** Ends a piece: what follows sees what the exchange brings. */
  hop(hop: Hop): void {
    this.#hops.push({ at: this.#pending.length, hop });
  }

  finish(): Program {
    const { device } = this;
    const alignment = device.traits.limits.minUniformBufferOffsetAlignment;
    const offsets: number[] = [];
    let size = 0;
    for (const { types } of this.#pending) {
      offsets.push(size);
      size += alignUp(paramBytes(types), alignment);
    }
    const arena = size === 0 ? undefined : device.createBuffer(`${this.label} params`, size, 'uniform');
    const bytes = new DataView(new ArrayBuffer(size));
    const dispatches = this.#pending.map(({ label, compiled, tensors, types, params, grid }, index) => {
      writeParams(types, params, bytes, offsets[index]!);
      const entries: GPUBindGroupEntry[] = tensors.map((tensor, binding) => ({
        binding,
        resource:
          'buffer' in tensor
            ? { buffer: tensor.buffer.gpu, offset: tensor.offset, size: tensor.size }
            : { buffer: tensor.gpu },
      }));
      entries.push({
        binding: entries.length,
        resource: { buffer: arena!.gpu, offset: offsets[index]!, size: paramBytes(types) },
      });
      return {
        label,
        pipeline: compiled.pipeline,
        bindGroup: device.gpu.createBindGroup({ label, layout: compiled.layout, entries }),
        grid,
      };
    });
    if (arena) device.write(arena, 0, new Uint8Array(bytes.buffer));
    const pieces: Piece[] = [];
    let first = 0;
    for (const { at, hop } of this.#hops) {
      pieces.push({ dispatches: dispatches.slice(first, at), hop });
      first = at;
    }
    if (first < dispatches.length) pieces.push({ dispatches: dispatches.slice(first), hop: undefined });
    return new Program(this.label, device, pieces, arena);
  }
}

const gridOf = (grid: GridSpec, step: StepShape): Grid => (typeof grid === 'function' ? grid(step) : grid);
