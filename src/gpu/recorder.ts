import { SplitkvError } from '../base/errors.js';
import { alignUp } from '../base/math.js';
import type { Buffer, Device } from './device.js';
import {
  type Bindings,
  type CompiledPipeline,
  getPipeline,
  type GridSpec,
  type Kernel,
  paramBytes,
  type ParamTypes,
  type StepShape,
  writeParams,
} from './kernel.js';

/** A buffer, or a range of one (offset and size in bytes; offset a multiple of minStorageBufferOffsetAlignment). */
export type Tensor = Buffer | { readonly buffer: Buffer; readonly offset: number; readonly size: number };

interface Dispatch {
  readonly label: string;
  readonly pipeline: GPUComputePipeline;
  readonly bindGroup: GPUBindGroup;
  readonly grid: GridSpec;
}

/**
 * A captured list of dispatches. Replaying it creates nothing: no buffer, no bind group, no pipeline, no shape logic.
 * What changes from step to step lives in GPU buffers, and in `StepShape` for the grids.
 */
export class Program {
  constructor(
    readonly label: string,
    readonly dispatches: readonly Dispatch[],
    readonly arena: Buffer | undefined,
  ) {}

  /** Encodes every dispatch into the pass. */
  encode(pass: GPUComputePassEncoder, step: StepShape): void {
    let current: GPUComputePipeline | undefined;
    for (const { pipeline, bindGroup, grid } of this.dispatches) {
      if (pipeline !== current) {
        pass.setPipeline(pipeline);
        current = pipeline;
      }
      pass.setBindGroup(0, bindGroup);
      const [x, y, z] = typeof grid === 'function' ? grid(step) : grid;
      pass.dispatchWorkgroups(x, y, z);
    }
  }

  dispose(): void {
    this.arena?.dispose();
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

  constructor(
    readonly device: Device,
    readonly label: string,
  ) {}

  /**
   * Adds one dispatch of `kernel` for `problem`. `args` names a buffer for each binding; a binding that the variant doesn't
   * use may be left out and is bound to a shared placeholder.
   */
  dispatch<B extends Bindings, P extends ParamTypes, Problem>(
    kernel: Kernel<B, P, Problem>,
    problem: Problem,
    args: { readonly [K in keyof B]?: Tensor | undefined },
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
      grid: plan.grid,
    });
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
    return new Program(this.label, dispatches, arena);
  }
}
