/**
 * Room: heads put on ranks by what each keeps of a compressed prompt. arrange_model.ts makes the plan, read_profile.ts reads
 * what heads keep, kept_loads.ts says what is known without a profile.
 */

import { usageError } from '../../../base/errors.js';
import {
  arrange,
  type Arrangement,
  type Profile,
  promptDeviations,
  promptUtilisation,
  toArrangementFile,
} from '../../../arrangement/index.js';
import { modelShape } from '../../../model/shape.js';
import { MERGE_LANES, misfit, modelFeatures, readPolicyName, stageCounts } from '../../../placement/index.js';
import { count, nth } from '../../../base/lists.js';
import type { LoadOptions } from '../../contracts/api.js';
import { type PlanRanks, type PlanSubject, type ProfileOf, subjectFeatures } from '../plan_subject.js';
import { type ReadPlan, readPlan } from '../read_plan.js';
import { readProfile } from './read_profile.js';

const percent = (part: number): string => `${(part * 100).toFixed(0)}%`;

/**
 * The plan 'arranged' or 'pp x arranged' of a model: heads are put on ranks by what each keeps of a prompt, and copied where whole heads would leave ranks
 * idle. What they keep is what the options' profile says, or is measured on samples.
 * @param profileOf undefined: nothing is measured, and where nothing is known heads count alike
 * @throws SplitkvError `usage` for a model whose heads can't be arranged, or another model's profile; as `profileOf`, `readProfile`
 */
export async function arrangeModel(
  policy: string,
  options: Pick<LoadOptions, 'kvProfile' | 'copies' | 'fetch' | 'pipeline'>,
  subject: PlanSubject,
  ranks: PlanRanks,
  profileOf?: ProfileOf,
): Promise<ReadPlan> {
  const shape = modelShape(subject.config);
  const why = misfit(['arranged', ...modelFeatures(shape)]);
  if (why !== undefined) throw usageError(`plan '${policy}': ${why}`);
  const pipeline = stagesOf(policy, ranks.adapters.length, shape.numLayers, options.pipeline);
  const { loads, from, profile } = await headLoads(options, subject, ranks, profileOf);
  const worldSize = ranks.adapters.length;
  const make = (copies: number | undefined): { readonly found: Arrangement; readonly read: ReadPlan } => {
    // Shares are parts of the slots, or of the merge lanes: both come in eighths.
    const limits = { batch: MERGE_LANES, ...(copies !== undefined && { copies }) };
    const deviations = profile && promptDeviations(profile);
    const found = arrange({ loads, deviations, ranks: worldSize, pipeline, ...limits });
    return { found, read: readPlan(toArrangementFile(from, worldSize, found, { loads, pipeline }), shape, subject) };
  };
  let { found, read } = make(options.copies);
  // What was asked for beside goes before copies that weren't.
  if (options.copies === undefined && misfit(subjectFeatures(subject), read.plan) !== undefined) {
    ({ found, read } = make(0));
  }
  const before = arrange({ loads, ranks: worldSize, pipeline, mode: 'static' });
  const sharesAnew = read.plan.sharing === 'lanes' && subject.compression !== undefined;
  const ofPrompts = (sharesLanes: boolean): string | undefined => {
    const busy = profile && promptUtilisation(profile, found.placement, worldSize / pipeline, sharesLanes);
    return busy === undefined ? undefined : percent(busy);
  };
  const [planned, anew] = [ofPrompts(false), sharesAnew ? ofPrompts(true) : undefined];
  const least =
    planned === undefined ? '' : `${planned} (a prompt${anew ? `; ${anew} as its lanes are shared anew` : ''}) to `;
  const copied =
    read.plan.sharing === undefined
      ? 'without copies'
      : `${found.copies} ${found.copies === 1 ? 'copy' : 'copies'} sharing ${read.plan.sharing}`;
  return {
    ...read,
    why:
      `heads arranged by ${from}: ranks should be busy with attention ${least}${percent(found.utilisation)} of the time ` +
      `(heads in order: ${percent(before.utilisation)}), ${copied}`,
  };
}

/** Stages of layers, each on ranks of its own. */
function stagesOf(policy: string, ranks: number, layers: number, wanted: number | undefined): number {
  const named = readPolicyName(policy);
  const fitting = stageCounts(named, ranks, wanted).filter((stages) => stages <= layers);
  if (fitting[0] !== undefined) return fitting[0];
  const what = wanted === undefined ? 'they make no 2 stages of 2 ranks or more' : `they make no ${wanted} stages`;
  throw usageError(
    `plan '${named.name}' on ${count(ranks, 'rank')}, ${count(layers, 'layer')}: ${what}; use a number that stages can share, or arranged alone`,
  );
}

interface HeadLoads {
  /** [layer][kv head] */
  readonly loads: Profile['layers'];
  /** Where they are from, for people. */
  readonly from: string;
  readonly profile?: Profile;
}

async function headLoads(
  options: Pick<LoadOptions, 'kvProfile' | 'fetch'>,
  subject: PlanSubject,
  ranks: PlanRanks,
  profileOf: ProfileOf | undefined,
): Promise<HeadLoads> {
  const { compression, config } = subject;
  const { numLayers, kvHeads } = modelShape(config);
  const alike = Array.from({ length: numLayers }, () => Array.from({ length: kvHeads }, () => 1));
  if (options.kvProfile !== undefined) {
    const profile = await readProfile(options.kvProfile, options.fetch);
    const { layers } = profile;
    if (layers.length !== numLayers || nth(layers, 0).length !== kvHeads) {
      throw usageError(
        `kvProfile: ${layers.length} layers of ${nth(layers, 0).length} kv heads; this model has ${numLayers} of ${kvHeads}: profile this model`,
      );
    }
    return { loads: layers, from: 'the profile that was given', profile };
  }
  if (!compression || compression.policy === 'snap' || compression.budget === 1) {
    return { loads: alike, from: 'their number, as all keep as much' };
  }
  const profile = await profileOf?.(compression, subject, ranks);
  if (profile) return { loads: profile.layers, from: 'what they keep of sample prompts', profile };
  return { loads: alike, from: 'their number, as nothing is known of what they keep' };
}
