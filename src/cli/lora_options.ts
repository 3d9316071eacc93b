import { usageError } from '../base/errors.js';
import { modelName } from '../engine/files/model_name.js';
import type { AdapterPart, LoadOptions } from '../index.js';
import { parseHubName } from '../loader/hub/hub_name.js';
import { hubForm } from '../loader/hub/hub_options.js';
import { inGroup, type Options, type OptionSpecs } from './options.js';

export const loraSpecs: OptionSpecs = inGroup('Model', {
  lora: {
    value: 'DIR',
    multiple: true,
    help: 'a low-rank adapter: a folder as PEFT saves it, or a .gguf file; DIR=0.5 for half of it. Several are added up; serve answers with each, as MODEL:NAME',
  },
});

/** The name of what generate, logits and chat answer with. */
const ASKED = 'lora';

/** @throws SplitkvError `usage` */
function partOf(text: string): AdapterPart & { readonly from: string } {
  const [, from = text, scale] = /^(.+)=([-+\d.e]+)$/i.exec(text) ?? [];
  if (scale === undefined) return { from };
  if (Number.isFinite(Number(scale))) return { from, scale: Number(scale) };
  throw usageError(`--lora ${text}: expected a number behind =`);
}

/** One adapter of all that are given. */
export const loraOptions = (options: Options): Pick<LoadOptions, 'adapters'> =>
  options.has(ASKED) ? { adapters: { [ASKED]: options.texts(ASKED).map(partOf) } } : {};

/** Has answers computed with it. */
export const loraOf = (options: Options): { readonly adapter?: string } =>
  options.has(ASKED) ? { adapter: ASKED } : {};

/** Of a folder, a file, an address, or a repository of the Hub. */
function adapterName(from: string): string {
  const form = hubForm(from);
  const { repo, file = repo } = form === 'hub' || form === 'pinned' ? parseHubName(from) : { repo: from };
  return modelName(file).replace(/\.gguf$/i, '');
}

/** Each by the name of its folder or file. @throws SplitkvError `usage` for two of one name */
export function servedAdapters(options: Options): Pick<LoadOptions, 'adapters'> {
  if (!options.has(ASKED)) return {};
  const adapters: Record<string, AdapterPart> = {};
  for (const text of options.texts(ASKED)) {
    const part = partOf(text);
    const name = adapterName(part.from);
    if (Object.hasOwn(adapters, name)) throw usageError(`--lora ${text}: there is one of the name ${name} already`);
    adapters[name] = part;
  }
  return { adapters };
}
