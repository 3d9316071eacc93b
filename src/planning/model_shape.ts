import { checkOptions, type OptionsSchema } from '../base/options.js';
import type { NetworkOptions, Source } from '../loader/index.js';
import type { ModelShape } from '../placement/index.js';

/** How a model of the Hub, or of a server, is asked for. */
export interface ShapeOptions extends NetworkOptions {
  readonly signal?: AbortSignal;
}

const schema: OptionsSchema<ShapeOptions> = { hub: true, token: true, headers: true, fetch: true, signal: true };

/**
 * The counts of a model that plans refer to: layers, heads, MLP segments, experts, vocabulary rows. Reads its config.json, or the first
 * part of a GGUF file, and no weights. A loaded model has them as `model.info.shape`.
 *
 * @param where as for `load`: a name of the Hub, a URL, files, or a folder (Node)
 * @throws SplitkvError as `load` where there is no such model, or none that runs
 */
export async function modelShape(
  where: string | URL | readonly File[] | Source,
  options: ShapeOptions = {},
): Promise<ModelShape> {
  checkOptions('modelShape', options, schema);
  return (await import('../engine/faces/read_shape.js')).readShape(where, options);
}
