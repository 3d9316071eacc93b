import { SplitkvError } from '../../base/errors.js';
import { Random } from '../../base/random.js';
import { parseProfile } from '../../arrangement/index.js';
import type { Source, TensorReader } from '../../loader/index.js';
import { isCompressed } from '../../model/compression/budgets.js';
import type { CompressionOptions } from '../../model/compression/options.js';
import { modelShape } from '../../model/shape.js';
import { makePlan, type Plan } from '../../placement/index.js';
import type { Profile } from '../contracts/api.js';
import type { ModelTokenizer } from '../files/model_files.js';
import { defaultStore, measured, type MeasureStore } from '../measure/stores/store.js';
import { LoadedModel } from './model.js';
import { checkBudgets } from '../planning/budgets.js';
import { type PlanRanks, type PlanSubject, runnerOf } from '../planning/plan_subject.js';
import { RankGroup } from '../ranks/rank_group.js';
import { measureProfile } from '../measure/measure_profile.js';
import { storyQuestion } from '../measure/story.js';

/** A model whose heads' loads are wanted, before its plan is known. */
export interface ProfiledModel extends ModelTokenizer {
  readonly name: string;
  readonly source: Source;
  readonly reader: () => Promise<TensorReader>;
  readonly onProgress?: ((what: string) => void) | undefined;
  /** For tests. */
  readonly store?: MeasureStore;
}

/** Few: a profile is about the heads, which differ more among themselves than from text to text. */
const SAMPLES = 4;
const SAMPLE_TOKENS = 1024;
/** Changes with the samples: profiles of other ones aren't found then. */
const VERSION = 1;

/**
 * What each kv head keeps of sample prompts, as the model is about to compress them: as it was measured before on this machine, or
 * measured now, on the first rank alone where the model fits there. Undefined where the context is too short to evict anything of.
 * @throws as `RankGroup.open`; `limit` where the ranks have no room for the model
 */
export async function modelProfile(
  model: ProfiledModel,
  compression: CompressionOptions,
  subject: PlanSubject,
  ranks: PlanRanks,
): Promise<Profile | undefined> {
  const length = Math.min(SAMPLE_TOKENS, Math.floor(subject.contextLength / 2));
  if (!isCompressed(compression, length)) return undefined;
  const store = model.store ?? (await defaultStore());
  const what = [VERSION, length, compression, subject.config, subject.type, await identityOf(model)];
  return measured(store, 'profile', what, false, () => measure(model, length, subject, ranks), isProfile);
}

/** Of the same files the same. */
async function identityOf({ name, source, reader }: ProfiledModel): Promise<unknown> {
  const { index } = await reader();
  const versions = await Promise.all(index.files.map((file) => source.version(file.name)));
  return [name, source.name, source.gguf, index.totalBytes, versions];
}

function isProfile(stored: unknown): boolean {
  try {
    parseProfile(stored);
    return true;
  } catch {
    return false;
  }
}

async function measure(
  model: ProfiledModel,
  length: number,
  asked: PlanSubject,
  { adapters, budgets, virtual, signal }: PlanRanks,
): Promise<Profile> {
  const { name, reader, tokenizer, noTokenizer, onProgress } = model;
  const { config, type } = asked;
  // By itself, whatever the load is for.
  const subject: PlanSubject = { ...asked, seatsOf: () => ({ slots: 1 }) };
  const plan = await fittingPlan(subject, budgets);
  onProgress?.('loading the model to measure its heads');
  const group = await RankGroup.open({
    config,
    reader: await reader(),
    type,
    plan,
    adapters,
    // Kernels that run for some prompts needn't be tuned.
    runner: { ...runnerOf(subject, plan), memory: budgets.slice(0, plan.worldSize), tune: false },
    virtual,
    signal,
  });
  const opened = { config, group, tokenizer, ...(noTokenizer && { noTokenizer }), name, sampling: {}, loadSeconds: 0 };
  const loaded = new LoadedModel(opened, { stepsInFlight: 'auto', prefixCaching: false });
  try {
    const samples = Array.from({ length: SAMPLES }, (_, seed) => sampleOf(model, config.vocabSize, length, seed));
    return await measureProfile(loaded, samples, { signal, onProgress });
  } finally {
    await loaded.dispose();
  }
}

/** On one rank, or cut over as few as have room. @throws SplitkvError `limit` where none have */
async function fittingPlan(subject: PlanSubject, budgets: PlanRanks['budgets']): Promise<Plan> {
  const shape = modelShape(subject.config);
  for (let ranks = 1; ; ranks++) {
    try {
      const plan = makePlan(ranks === 1 ? 'single' : 'tp', ranks, shape);
      await checkBudgets(plan, subject, runnerOf(subject, plan), budgets.slice(0, ranks));
      return plan;
    } catch (error) {
      const full = error instanceof SplitkvError && (error.code === 'limit' || error.code === 'usage');
      if (!full || ranks === budgets.length) throw error;
    }
  }
}

/** About so many tokens at most: a story, or ids by dice where there is no tokenizer. */
function sampleOf({ tokenizer }: ModelTokenizer, vocabSize: number, length: number, seed: number): number[] {
  if (!tokenizer) {
    const random = new Random(seed);
    return Array.from({ length }, () => random.integer(vocabSize));
  }
  let words = length;
  for (;;) {
    const ids = [...tokenizer.encode(storyQuestion(words, seed), { addSpecial: true })];
    if (ids.length <= length || words < 16) return ids.slice(-length);
    words = Math.floor((0.95 * words * length) / ids.length);
  }
}
