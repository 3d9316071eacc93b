import { SplitkvError } from '../../base/errors.js';
import { formatBytes } from '../../base/math.js';
import { ggufModels } from '../gguf/file.js';
import type { HubListing } from './hub_api.js';
import { type HubName, hubText } from './hub_name.js';

/** Which of a repository's files is taken unasked: the first of these that there is. All of them are types that this runtime reads. */
const PREFERRED_QUANTS = [
  'Q4_K_M',
  'Q4_0',
  'Q4_K_S',
  'Q5_K_M',
  'Q8_0',
  'Q5_K_S',
  'Q6_K',
  'Q5_0',
  'Q4_1',
  'Q5_1',
  'IQ4_XS',
  'IQ4_NL',
  'MXFP4',
  'MXFP4_MOE',
  'F16',
  'BF16',
  'F32',
  'Q3_K_L',
  'Q3_K_M',
  'Q3_K_S',
] as const;

/** 'Q4_K_M' of 'model-q4_k_m.gguf' or 'Q4_K_M/model-00001-of-00002.gguf'. */
function quantOf(file: string): string | undefined {
  const stem = file.replace(/(-\d{5}-of-\d{5})?\.gguf$/i, '');
  const label = /(?:^|[-._/])((?:IQ|TQ|Q)\d\w*|MXFP4\w*|BF16|F(?:P)?(?:16|32))$/i.exec(stem)?.[1]?.toUpperCase();
  return label?.replace('FP', 'F');
}

/**
 * The .gguf file of a repository that is the model, by its first part: the one that is named, the one of the named quantisation,
 * the only one, or the first of PREFERRED_QUANTS; undefined where it has none, and none was asked for.
 * @throws SplitkvError `io` for a file or quantisation that isn't there, `usage` where it isn't clear which is meant, with the choices
 */
export function chooseGguf(name: HubName, { files }: HubListing): string | undefined {
  const { repo, file, quant } = name;
  const models = ggufModels(files.keys());
  const choices = (): string =>
    models.map((model) => `${model}${sizeText(files.get(model)?.size)}`).join(', ') || 'no .gguf file at all';
  if (file !== undefined) {
    if (files.has(file)) return file;
    throw new SplitkvError('io', `${repo} has no ${file}; it has ${choices()}`);
  }
  if (quant !== undefined) {
    const wanted = models.filter((model) => quantOf(model) === quant.toUpperCase());
    if (wanted.length === 1) return wanted[0];
    if (wanted.length === 0) throw new SplitkvError('io', `${repo} has no ${quant}; it has ${choices()}`);
    throw several(name, wanted);
  }
  if (models.length <= 1) return models[0];
  for (const preferred of PREFERRED_QUANTS) {
    const found = models.filter((model) => quantOf(model) === preferred);
    if (found.length === 1) return found[0];
    if (found.length > 1) throw several(name, found);
  }
  throw new SplitkvError(
    'usage',
    `${repo} holds ${models.length} GGUF models, none in a quantisation that is taken unasked (${PREFERRED_QUANTS.join(', ')}): ` +
      `name the file, as in ${hubText({ ...name, file: models[0] })}; there are ${choices()}`,
  );
}

const several = (name: HubName, models: readonly string[]): SplitkvError =>
  new SplitkvError(
    'usage',
    `${name.repo} holds ${models.length} GGUF models of that quantisation: name the file, as in ` +
      `${hubText({ ...name, quant: undefined, file: models[0] })}; there are ${models.join(', ')}`,
  );

const sizeText = (bytes: number | undefined): string => (bytes === undefined ? '' : ` (${formatBytes(bytes)})`);
