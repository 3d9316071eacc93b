import * as z from 'zod/mini';
import { usageError } from '../base/errors.js';
import { parseForm } from '../base/form.js';

/** What a compressed cache holds of each head, measured on sample texts (`splitkv profile`): the load of arranging. */
export interface Profile {
  /** The model's name. */
  readonly model: string;
  /** The share of the cache that compression kept. */
  readonly kv_budget: number;
  /** [layer][kv head]: mean kept entries. */
  readonly layers: readonly (readonly number[])[];
}

const entries = z.number('the mean number of kept entries, 0 or more').check(z.minimum(0, 'a number of at least 0'));
const heads = z.array(entries, 'a list, one number per kv head').check(z.minLength(1, 'at least one kv head'));
const schema = z.object(
  {
    model: z.string("the model's name in quotes"),
    kv_budget: z.number('the KV budget, a number above 0').check(z.positive('a number above 0')),
    layers: z
      .array(heads, 'a list, for each layer the mean kept entries of each kv head')
      .check(z.minLength(1, 'at least one layer')),
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
  const profile = parseForm(schema, json, name, Object.keys(schema.shape));
  const [first] = profile.layers;
  const odd = profile.layers.findIndex((layer) => layer.length !== first!.length);
  if (odd < 0) return profile;
  throw usageError(
    `${name}.layers[${odd}] has ${profile.layers[odd]!.length} kv heads, layers[0] has ${first!.length}; write equally many for each layer`,
  );
}
