import { defined } from '../../base/options.js';
import { usageError } from '../../base/errors.js';
import { type CompressionOptions, compressionOptions } from '../../model/compression/options.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { modelShape } from '../../model/shape.js';
import { checkTogether, isArranged, modelFeatures } from '../../placement/index.js';
import type { LoadOptions, Profile } from '../contracts/api.js';

/**
 * How prompts of a model are compressed; undefined: not at all.
 * @throws SplitkvError `usage` for options that are none or don't go together; `unsupported` for a model whose cache has no heads
 */
export async function kvCompression(
  options: LoadOptions,
  config: ModelConfig,
): Promise<CompressionOptions | undefined> {
  const { kvBudget, kvPolicy = kvBudget === undefined ? 'none' : 'ada', kvWindow, kvKernel, kvAlpha } = options;
  if (kvPolicy === 'none') {
    const stray = (['kvWindow', 'kvKernel', 'kvAlpha', 'kvProfile'] as const).find(
      (name) => options[name] !== undefined,
    );
    if (options.kvPolicy === undefined && stray !== undefined) {
      throw usageError(`${stray} is for a compressed cache: give kvBudget too, or leave it out`);
    }
    return undefined;
  }
  if (kvBudget === undefined) {
    throw usageError(`kvPolicy '${kvPolicy}' needs kvBudget: the part of a prompt that is kept, such as 0.2`);
  }
  if (options.kvProfile !== undefined && kvPolicy !== 'static' && !isArranged(options.plan)) {
    throw usageError(
      `kvProfile is what kvPolicy 'static' keeps by, and plan 'arranged' arranges by, not kvPolicy '${kvPolicy}': leave one of them out`,
    );
  }
  const shape = modelShape(config);
  checkTogether(['compression', ...modelFeatures(shape)]);
  let loads: Profile['layers'] | undefined;
  if (options.kvProfile !== undefined && kvPolicy === 'static') {
    // The form of profiles is checked by code that few pages need.
    const { readProfile } = await import('./heads/read_profile.js');
    loads = (await readProfile(options.kvProfile, options.fetch)).layers;
  }
  return compressionOptions(
    {
      policy: kvPolicy,
      budget: kvBudget,
      ...defined({ window: kvWindow, poolWidth: kvKernel, floor: kvAlpha, loads }),
    },
    { numLayers: shape.numLayers, numKvHeads: shape.kvHeads },
  );
}
