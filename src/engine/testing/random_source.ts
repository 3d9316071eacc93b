import { makeRandomModel, type RandomModel, type RandomModelOptions } from '../../model/testing/random_model.js';

/** A random model as the files of a folder, as `load` takes them. */
export function randomFiles(options: RandomModelOptions): { model: RandomModel; files: File[] } {
  const model = makeRandomModel(options);
  return { model, files: [...model.files].map(([name, bytes]) => new File([bytes], name)) };
}
