import * as z from 'zod/mini';
import { usageError } from '../base/errors.js';
import { sum } from '../base/lists.js';
import { parseForm } from '../base/form.js';
import { type Arrangement, COPY_SHARING, type CopySharing, type Mode, MODES, type Placement } from './types.js';

/** What a compressed cache holds of each head, measured on sample texts (`splitkv profile`): the load of arranging. */
export interface Profile {
  readonly model: string;
  /** The share of the cache that compression kept. */
  readonly kv_budget: number;
  /** [layer][kv head]: mean kept entries. */
  readonly layers: readonly (readonly number[])[];
  /** [layer][kv head]: kept entries of a sample as a part of its tokens, mean and standard deviation. */
  readonly share?: readonly (readonly number[])[] | undefined;
  readonly share_std?: readonly (readonly number[])[] | undefined;
}

const entries = z.number('the mean number of kept entries, 0 or more').check(z.minimum(0, 'a number of at least 0'));
const layer = z.array(entries, 'a list, one number per kv head').check(z.minLength(1, 'at least one kv head'));
const profileSchema = z.object(
  {
    model: z.string("the model's name in quotes"),
    kv_budget: z.number('the KV budget, a number above 0').check(z.positive('a number above 0')),
    layers: z
      .array(layer, 'a list, for each layer the mean kept entries of each kv head')
      .check(z.minLength(1, 'at least one layer')),
    share: z.optional(z.array(layer, 'a list like layers')),
    share_std: z.optional(z.array(layer, 'a list like layers')),
  },
  'a profile: an object with model, kv_budget and layers',
);

/**
 * Reads a profile from JSON text or from what JSON.parse gave. It may have other keys, too.
 *
 * @param name how messages call it: its file
 * @throws SplitkvError `usage` with the path of the first fault and what to write there; `format` for text that isn't JSON
 */
export function parseProfile(json: unknown, name = 'profile'): Profile {
  const profile = parseForm(profileSchema, json, name, Object.keys(profileSchema.shape));
  const [first = []] = profile.layers;
  for (const [at, { length }] of profile.layers.entries()) {
    if (length === first.length) continue;
    throw usageError(
      `${name}.layers[${at}] has ${length} kv heads, layers[0] has ${first.length}; write equally many for each layer`,
    );
  }
  return profile;
}

/** An arrangement as a file: what `splitkv arrange --out` writes. */
export interface ArrangementFile {
  readonly version: 1;
  readonly policy: 'arranged';
  /** The model's name, from the profile. */
  readonly model: string;
  readonly ranks: number;
  /** Runs of layers that different ranks hold, as many ranks each, in order; default 1. */
  readonly pipeline?: number | undefined;
  readonly mode: Mode;
  /** How copies of a head share it; undefined: by lanes where one sequence runs at a time, otherwise by sequences. */
  readonly sharing?: CopySharing | undefined;
  /** By rank, in any unit, where they are unlike. */
  readonly speeds?: readonly number[] | undefined;
  /** Of the search: all loads / (ranks * makespan). */
  readonly utilisation?: number | undefined;
  /** [layer][kv head]: what it was made from. */
  readonly loads?: readonly (readonly number[])[] | undefined;
  /** [layer][kv head]: where its copies lie, ascending by rank, and the share of its requests each serves. */
  readonly placement: Placement;
}

/** Shares add up to 1 within rounding. */
const ROUNDING = 1e-6;

const rank = z.int('a rank, a whole number from 0 on').check(z.minimum(0, 'a rank, a whole number from 0 on'));
const share = z
  .number('a share, above 0 and at most 1')
  .check(z.positive('a share above 0'), z.maximum(1, 'a share of at most 1'));
/** A load, or a weight. */
export const fromZero = z.number('a number from 0 on').check(z.minimum(0, 'a number from 0 on'));
const copies = z
  .array(z.strictObject({ rank, share }, 'an object such as {"rank": 0, "share": 1}'), 'a list of {"rank", "share"}')
  .check(z.minLength(1, 'at least one {"rank", "share"}'));
const heads = z.array(copies, 'a list, one entry a kv head').check(z.minLength(1, 'at least one kv head'));
const part = 'a number from 0 to 1';
/** What plans' files have, too. */
export const planFields = {
  version: z.literal(1, '1, the version this splitkv reads'),
  sharing: z.optional(z.enum(COPY_SHARING, '"sequences" or "lanes"')),
  speeds: z.optional(z.array(z.number('a speed').check(z.positive('a speed above 0')), 'a list, one speed per rank')),
  utilisation: z.optional(z.number(part).check(z.minimum(0, part), z.maximum(1, part))),
};
const schema = z.strictObject(
  {
    ...planFields,
    policy: z.literal('arranged', '"arranged"'),
    model: z.string("the model's name in quotes"),
    ranks: z.int('the number of ranks').check(z.minimum(1, 'the number of ranks, at least 1')),
    pipeline: z.optional(z.int('the number of stages').check(z.minimum(1, 'the number of stages, at least 1'))),
    mode: z.enum(MODES, `the mode that made it: ${MODES.join(', ')}`),
    loads: z.optional(z.array(z.array(fromZero, 'a list, one number per kv head'), 'a list, one entry per layer')),
    placement: z.array(heads, 'a list, one entry per layer').check(z.minLength(1, 'at least one layer')),
  },
  'an arrangement: an object with version, policy, model, ranks, mode and placement',
);

export const toArrangementFile = (
  model: string,
  ranks: number,
  { mode, utilisation, placement }: Arrangement,
  { sharing, speeds, loads, pipeline = 1 }: Pick<ArrangementFile, 'sharing' | 'speeds' | 'loads' | 'pipeline'> = {},
): ArrangementFile => ({
  version: 1,
  policy: 'arranged',
  model,
  ranks,
  ...(pipeline > 1 && { pipeline }),
  mode,
  ...(sharing && { sharing }),
  ...(speeds && { speeds }),
  utilisation: Math.min(1, utilisation),
  ...(loads && { loads }),
  placement,
});

/**
 * Reads an arrangement from JSON text or from what JSON.parse gave.
 *
 * @param name how messages call it: its file
 * @throws SplitkvError `usage` for a wrong form (with the path of the first fault and what to write there), layers of unequally
 * many heads, ranks out of range or not ascending, and shares that don't add up to 1; `format` for text that isn't JSON
 */
export function parseArrangementFile(json: unknown, name = 'arrangement'): ArrangementFile {
  const file = parseForm(schema, json, name, Object.keys(schema.shape));
  const [first = []] = file.placement;
  for (const [layer, row] of file.placement.entries()) {
    const where = `${name}.placement[${layer}]`;
    if (row.length !== first.length) {
      throw usageError(`${where} has ${row.length} heads, placement[0] has ${first.length}; write equally many`);
    }
    for (const [head, list] of row.entries()) {
      let before = -1;
      for (const { rank } of list) {
        if (rank >= file.ranks) {
          throw usageError(`${where}[${head}] has rank ${rank}; of ${file.ranks} ranks the last is ${file.ranks - 1}`);
        }
        if (rank <= before) {
          throw usageError(`${where}[${head}] has rank ${rank} after ${before}; list each once, ascending`);
        }
        before = rank;
      }
      const total = sum(list.map((copy) => copy.share));
      if (Math.abs(total - 1) > ROUNDING)
        throw usageError(`${where}[${head}]: its shares add up to ${total}; expected 1`);
    }
  }
  checkPipeline(file, name);
  const { loads } = file;
  if (loads && loads.map(({ length }) => length).join() !== file.placement.map(({ length }) => length).join()) {
    throw usageError(
      `${name}.loads: expected as many layers and heads as placement has; leave it out, or arrange again`,
    );
  }
  return file;
}

/** Every layer's heads are on the ranks of one stage, stages in order. */
function checkPipeline({ placement, ranks, pipeline = 1 }: ArrangementFile, name: string): void {
  if (ranks % pipeline !== 0) {
    throw usageError(
      `${name}: ${ranks} ranks make no ${pipeline} stages of as many ranks; write a divisor in pipeline`,
    );
  }
  const stageOf = (rank: number): number => Math.floor(rank / (ranks / pipeline));
  let stage = 0;
  for (const [layer, row] of placement.entries()) {
    const stages = new Set(row.flat().map((copy) => stageOf(copy.rank)));
    const [own] = stages as unknown as [number];
    if (stages.size > 1) {
      throw usageError(
        `${name}.placement[${layer}] has heads on ranks of stages ${[...stages].join(' and ')}; with pipeline ${pipeline} a layer's ` +
          `heads are on the ${ranks / pipeline} ranks of one stage`,
      );
    }
    if (own !== stage && (layer === 0 || own !== stage + 1)) {
      throw usageError(
        `${name}.placement[${layer}] is on stage ${own}, after stage ${stage}: stages hold runs of layers, in order`,
      );
    }
    stage = own;
  }
  if (stage !== pipeline - 1) {
    throw usageError(`${name}: its layers are on ${stage + 1} stages; pipeline is ${pipeline}`);
  }
}
