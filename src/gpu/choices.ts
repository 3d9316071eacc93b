import { nth, valueIn } from '../base/lists.js';
import type { Device, DeviceTraits } from './device.js';
import {
  type Bindings,
  type CompiledPipeline,
  type GridSpec,
  type Kernel,
  type KernelPlan,
  type ParamTypes,
  type PipelineSource,
  pipelineSource,
} from './kernel.js';
import type { Tensor } from './recorder.js';

/** Layers whose weights a stopwatch reads in turn, so that caches don't hold them. */
const MOST_USES = 64;

/** What dispatches of a kernel for a problem run. They share it, so that it may be exchanged after they were recorded. */
export interface Variant {
  compiled: CompiledPipeline;
  grid: GridSpec;
}

interface Candidate {
  /** Of the kernel's; undefined: its plan without any. */
  readonly tuning: string | undefined;
  readonly source: PipelineSource;
  readonly grid: GridSpec;
}

/** A kernel and a problem that it has several plans of the same bits for. */
export interface Choice {
  readonly kernel: string;
  /** Plain data. */
  readonly problem: unknown;
  /** All different; the first is the plan that runs unless another is chosen. */
  readonly candidates: readonly [Candidate, ...Candidate[]];
  chosen: number;
  /** A choice was made, by whoever may. */
  made: boolean;
  /** Dispatches that were recorded, until a choice is made. */
  readonly uses: { readonly bindGroup: GPUBindGroup; readonly tensors: readonly Tensor[] }[];
  /** What to put into bindings, by their index, to run it outside of a step. */
  readonly contents: () => readonly (readonly [binding: number, data: ArrayBufferView])[];
  readonly variant: Variant;
}

export class Choices {
  /** By the plan's pipeline, then by the problem. */
  readonly #choices = new Map<CompiledPipeline, Map<string, Choice>>();

  get all(): readonly Choice[] {
    const all = [...this.#choices.values()].flatMap((each) => [...each.values()]);
    return all.filter(({ candidates }) => candidates.length > 1);
  }

  /** What there is to choose from for a kernel's problem; undefined where it is the plan alone. */
  of<B extends Bindings, P extends ParamTypes, Problem>(
    kernel: Kernel<B, P, Problem>,
    problem: Problem,
    traits: DeviceTraits,
    plan: KernelPlan<P>,
    compiled: CompiledPipeline,
  ): Choice | undefined {
    const { tunings } = kernel;
    if (!tunings || traits.software) return undefined;
    const choices = valueIn(this.#choices, compiled, () => new Map<string, Choice>());
    const choice = valueIn(choices, JSON.stringify(problem), (): Choice => {
      const candidateOf = (tuning: string | undefined, own: KernelPlan<P>): Candidate => ({
        tuning,
        source: pipelineSource(kernel, own),
        grid: own.grid,
      });
      const others = tunings.map((tuning) => candidateOf(tuning, kernel.plan(problem, { ...traits, tuning })));
      const names = Object.keys(kernel.bindings);
      return {
        kernel: kernel.name,
        problem,
        candidates: allDifferent(candidateOf(undefined, plan), others),
        chosen: 0,
        made: false,
        uses: [],
        contents: () => {
          const contents: Readonly<Record<string, ArrayBufferView | undefined>> = kernel.contents?.(problem) ?? {};
          return Object.entries(contents).flatMap(([at, data]) => (data ? [[names.indexOf(at), data] as const] : []));
        },
        variant: { compiled, grid: plan.grid },
      };
    });
    return choice.candidates.length > 1 ? choice : undefined;
  }

  /** A dispatch of the choice was recorded. */
  static note({ made, uses }: Choice, bindGroup: GPUBindGroup, tensors: readonly Tensor[]): void {
    if (!made && uses.length < MOST_USES) uses.push({ bindGroup, tensors });
  }

  /** Runs a candidate from now on, in all programs. */
  make(device: Device, choice: Choice, index: number): void {
    const { source, grid } = nth(choice.candidates, index);
    choice.variant.compiled = device.pipelineOf(source);
    choice.variant.grid = grid;
    choice.chosen = index;
    choice.made = true;
    choice.uses.length = 0;
  }
}

/** By their code: what a grid is cut by is a constant of it. */
function allDifferent(first: Candidate, others: readonly Candidate[]): Choice['candidates'] {
  const codes = new Set([first.source.code]);
  const different = others.filter(({ source: { code } }) => !codes.has(code) && codes.add(code));
  return [first, ...different];
}
