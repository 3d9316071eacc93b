import { SplitkvError } from '../../../base/errors.js';
import type * as Arranging from '../../../arrangement/index.js';
import { capacity, givenBudgets, isCompressed } from '../../../model/compression/budgets.js';
import { modelShape } from '../../../model/shape.js';
import { arrangedPlan, misfit, modelFeatures, type Plan } from '../../../placement/index.js';
import type { Workload } from '../../../placement/planner.js';
import { type PlanSubject, subjectFeatures } from '../plan_subject.js';

/**
 * What heads keep of a compressed prompt, as far as that is known before one: by the loads of policy 'static', otherwise alike. And the
 * arrangement by it that a model's ranks may have.
 */
export async function keptLoads(
  subject: PlanSubject,
  promptLength: number,
): Promise<Pick<Workload, 'kept' | 'arranged'> | undefined> {
  const { compression, config } = subject;
  const shape = modelShape(config);
  if (!compression || !isCompressed(compression, promptLength)) return undefined;
  const { numLayers, kvHeads } = shape;
  const kept =
    compression.policy === 'static'
      ? givenBudgets(compression, { numLayers, numKvHeads: kvHeads }, promptLength).map((heads) =>
          heads.map((own) => own + compression.window),
        )
      : Array.from({ length: numLayers }, () =>
          Array.from({ length: kvHeads }, () => capacity(compression, promptLength)),
        );
  if (misfit(['arranged', ...subjectFeatures(subject), ...modelFeatures(shape)]) !== undefined) return { kept };
  // A library of its own, which plans without a GPU share.
  const arranging = await import('../../../arrangement/index.js');
  return { kept, arranged: (worldSize, costs) => arrangedBy(arranging, kept, subject, worldSize, costs) };
}

function arrangedBy(
  { arrange, toArrangementFile }: typeof Arranging,
  loads: readonly (readonly number[])[],
  subject: PlanSubject,
  ranks: number,
  costs: Arranging.HeadCosts,
): Plan | undefined {
  const shape = modelShape(subject.config);
  const problem = { loads, ranks, mode: 'exact', costs } as const;
  const make = (batch: number, copies?: number): Plan => {
    const found = arrange({ ...problem, batch, ...(copies !== undefined && { copies }) });
    return arrangedPlan(toArrangementFile('model', ranks, found, { loads }), shape, 'sequences');
  };
  try {
    const whole = make(1, 0);
    const { slots, batches = 1 } = subject.seatsOf(whole);
    const together = slots * batches;
    const copied = together > 1 ? make(together) : whole;
    return misfit(subjectFeatures(subject), copied) === undefined ? copied : whole;
  } catch (error) {
    // More ranks than heads and MLP segments, or too little room: the others' predictions say so.
    if (error instanceof SplitkvError && error.code === 'usage') return undefined;
    throw error;
  }
}
