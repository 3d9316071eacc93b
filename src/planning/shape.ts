import * as z from 'zod/mini';
import { parseForm } from '../base/form.js';
import type { ModelShape } from '../placement/index.js';

const atLeast = (least: number) => {
  const message = `a whole number of at least ${least}`;
  return z.int(message).check(z.minimum(least, message));
};
const counts = z
  .array(atLeast(0), 'a list of whole numbers')
  .check(z.minLength(1, 'a list of whole numbers, one at least'));
const flag = z.boolean('true or false');
const schema = z.strictObject(
  {
    numLayers: atLeast(1),
    hiddenSize: atLeast(1),
    vocabSize: atLeast(1),
    segmentHeads: counts,
    kvHeads: atLeast(1),
    mixedHeads: z.optional(flag),
    latent: flag,
    windowed: z.optional(flag),
    recurrent: z.optional(flag),
    mlpSegments: counts,
    numExperts: atLeast(0),
  },
  "a model's shape, as modelShape or model.info.shape gives it",
);

/** @throws SplitkvError `usage` with the first fault */
export function checkShape(shape: ModelShape): void {
  parseForm(schema as z.ZodMiniType<unknown>, shape, 'shape', Object.keys(schema.shape));
}
