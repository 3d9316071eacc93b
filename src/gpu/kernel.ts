import { internalError } from '../base/errors.js';
import type { DeviceTraits, FastPath } from './device.js';

export type Access = 'read' | 'read_write';

export type Bindings = Readonly<Record<string, Access>>;
export type ParamTypes = Readonly<Record<string, 'u32' | 'i32' | 'f32'>>;
export type ParamValues<P extends ParamTypes> = { readonly [K in keyof P]: number };

/** Workgroup counts; a function where they depend on what changes from step to step (never on data only the GPU knows). */
type Grid = readonly [number, number, number];
/** What a grid may depend on. */
export interface StepShape {
  /** Rows (tokens) that a dispatch works on, at most the number that it was recorded for. */
  readonly rows: number;
  /** 256-token chunks that the longest sequence of this step may use. */
  readonly chunks: number;
}
export type GridSpec = Grid | ((step: StepShape) => Grid);

/** What a kernel decides for one problem. Pure data: the same problem and traits give the same plan. */
export interface KernelPlan<P extends ParamTypes> {
  /** WGSL sources joined in this order: shared fragments first, the kernel's own file last. */
  readonly wgsl: readonly string[];
  /** Values for the WGSL lines `const NAME: type = default; // variant`. */
  readonly constants: Readonly<Record<string, number | boolean>>;
  readonly params: ParamValues<P>;
  readonly grid: GridSpec;
  /** How it multiplies, where that isn't exactly. */
  readonly fast?: FastPath;
}

export interface Kernel<B extends Bindings = Bindings, P extends ParamTypes = ParamTypes, Problem = never> {
  /** Folder = WGSL file = pipeline label = timing name, snake_case. */
  readonly name: string;
  /** Storage bindings in @binding order (group 0). A uniform `params` follows them as the last binding. */
  readonly bindings: B;
  /** Fields of the WGSL struct `Params`, in order; all are 4 bytes. */
  readonly params: P;
  /** Throws a SplitkvError naming kernel, value, limit and what to use instead when the problem can't run. */
  readonly plan: (problem: Problem, traits: DeviceTraits) => KernelPlan<P>;
  /**
   * Values of `DeviceTraits.tuning` under which plans for GPUs have the same parameters and compute the same bits: a stopwatch chooses
   * among them and the plan without any at load (engine/tuning/tune.ts). Best guesses first; some may change nothing.
   */
  readonly tunings?: readonly string[];
  /** What to put into bindings so that dispatches do their work and tunings can be compared, by their names. With `tunings`. */
  readonly contents?: (problem: Problem) => {
    readonly [K in keyof B]?: Float32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>;
  };
}

/** Declares a kernel. The declaration is checked against its WGSL by `testKernel` (wgsl_reflect). */
export function defineKernel<const B extends Bindings, const P extends ParamTypes, Problem>(
  spec: Kernel<B, P, Problem>,
): Kernel<B, P, Problem> {
  return Object.freeze({ ...spec });
}

/**
 * The WGSL text of a plan: fragments joined, and each `const NAME: type = value; // variant` line given the plan's value.
 * A constant that no line declares is an error, and so is a variant line that the plan leaves out: neither can hide.
 */
export function assembleWgsl(name: string, plan: Pick<KernelPlan<ParamTypes>, 'wgsl' | 'constants'>): string {
  const unused = new Set(Object.keys(plan.constants));
  const text = plan.wgsl
    .join('\n')
    .replace(/^const (\w+)\s*:\s*(\w+)\s*=\s*[^;]+;\s*\/\/ variant\b/gm, (_line, constant: string, type: string) => {
      const value = plan.constants[constant];
      if (value === undefined) throw internalError(`${name}: the plan gives no value for '${constant}'`);
      unused.delete(constant);
      return `const ${constant}: ${type} = ${wgslLiteral(value, type)}; // variant`;
    });
  if (unused.size > 0) {
    throw internalError(`${name}: no WGSL line declares the variant constant '${[...unused].join("', '")}'`);
  }
  // Directives must stand before everything else, whatever fragment they come from.
  const directives = new Set(text.match(/^(?:enable|requires|diagnostic)\b[^;]*;/gm) ?? []);
  return [...directives, text.replace(/^(?:enable|requires|diagnostic)\b[^;]*;/gm, '')].join('\n');
}

function wgslLiteral(value: number | boolean, type: string): string {
  if (type === 'bool') return value ? 'true' : 'false';
  if (type === 'f32') return Number.isInteger(value) ? `${Number(value)}.0f` : `${Number(value)}f`;
  return `${Number(value)}${type === 'u32' ? 'u' : 'i'}`;
}

/** Writes params into `view` at `offset`, 4 bytes each, in declaration order. */
export function writeParams<P extends ParamTypes>(
  types: P,
  values: ParamValues<P>,
  view: DataView,
  offset: number,
): void {
  let at = offset;
  for (const [field, type] of Object.entries(types)) {
    const value = values[field as keyof P];
    if (type === 'u32') view.setUint32(at, value, true);
    else if (type === 'i32') view.setInt32(at, value, true);
    else view.setFloat32(at, value, true);
    at += 4;
  }
}

/** Bytes of the uniform block of these params (uniform structs are padded to 16). */
export const paramBytes = (types: ParamTypes): number => Math.max(16, Math.ceil(Object.keys(types).length / 4) * 16);

/** All that a pipeline is made of: plain data, equal for equal pipelines. */
export interface PipelineSource {
  readonly name: string;
  /** Of the storage bindings, in order. */
  readonly bindings: readonly Access[];
  readonly code: string;
}

export interface CompiledPipeline {
  /** Not there while it is compiled beside a recording (`Device.recorded`), which waits for it. */
  pipeline: GPUComputePipeline | undefined;
  readonly layout: GPUBindGroupLayout;
}

/** What the pipeline of a plan is made of. */
export const pipelineSource = <P extends ParamTypes>(
  { name, bindings }: Pick<Kernel<Bindings, P, never>, 'name' | 'bindings'>,
  plan: KernelPlan<P>,
): PipelineSource => ({ name, bindings: Object.values(bindings), code: assembleWgsl(name, plan) });
