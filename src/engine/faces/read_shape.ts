import { modelShape } from '../../model/shape.js';
import type { NetworkOptions, Source } from '../../loader/index.js';
import type { ModelShape } from '../../placement/index.js';
import { openModelFiles } from '../files/model_files.js';
import { openFiles } from '../files/open_files.js';
import { networkOf } from '../contracts/load_options.js';

/** The shape of a model whose weights aren't read. @throws as `openFiles`, `openModelFiles` */
export async function readShape(
  where: string | URL | readonly File[] | Source,
  options: NetworkOptions & { readonly signal?: AbortSignal },
): Promise<ModelShape> {
  const { signal } = options;
  const source = await openFiles(where, { network: networkOf(options), lookOnly: true, signal });
  return modelShape((await openModelFiles(source, signal)).config);
}
