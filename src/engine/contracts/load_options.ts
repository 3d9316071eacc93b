import { didYouMean, usageError } from '../../base/errors.js';
import { checkOptions, defined, type OptionsSchema } from '../../base/options.js';
import { type OpenOptions, parseIntegrity } from '../../loader/index.js';
import { checkTogether } from '../../placement/index.js';
import { parseAttentionDpConfig } from '../scheduler/adp/config.js';
import type { LoadOptions, PrefillOptions } from './api.js';
import { LOAD_ROWS } from './options/load_rows.js';
import { schemaOf } from './options/row.js';

export const loadSchema: OptionsSchema<LoadOptions> = schemaOf(LOAD_ROWS);

/**
 * Checks what is known of the options before the model is.
 * @throws SplitkvError `usage` for an option or a value that isn't known, or options that don't go together
 */
export function checkLoadOptions(options: LoadOptions): void {
  checkOptions('load', options, loadSchema);
  const given = (['workers', 'virtualRanks'] as const).filter((name) => options[name]);
  checkTogether(given);
  checkPrefill(options.prefill);
  if (options.idle !== undefined && !options.share)
    throw usageError('idle: a model that tabs share is freed when nobody asks; give share, too, or leave idle out');
  const { draft, speculate = 'auto' } = options;
  if (draft === undefined && speculate === 'draft') throw usageError("speculate 'draft': name the model, as draft");
  if (draft !== undefined && speculate !== 'auto' && speculate !== 'draft')
    throw usageError(`draft: speculate '${speculate}' asks for none; leave one of them out`);
  if (options.attentionDpConfig !== undefined) parseAttentionDpConfig(options.attentionDpConfig);
  if (options.integrity !== undefined) parseIntegrity(options.integrity);
}

/** Whether images are wanted. Sound is in the same file of a GGUF model. */
export const wantsImages = ({ images, mmproj, sound }: Encoders): boolean =>
  images === true || (mmproj !== undefined && !sound);

/** Whether an encoder is wanted: true, or the file that has it. */
export const encoderOf = ({ images, mmproj, sound }: Encoders): boolean | string | undefined =>
  mmproj ?? (images || sound);

type Encoders = Pick<LoadOptions, 'images' | 'mmproj' | 'sound'>;
type Network = Pick<LoadOptions, 'hub' | 'hubToken' | 'headers' | 'fetch'>;
/** What is said of the network. */
export const networkOf = ({ hub, hubToken: token, headers, fetch }: Network): OpenOptions =>
  defined({ hub, token, headers, fetch });

/** And which files of the model itself are wanted from there. */
export const modelNetworkOf = (options: Network & Encoders): OpenOptions =>
  defined({ ...networkOf(options), images: encoderOf(options) });

const prefillSchema: OptionsSchema<PrefillOptions> = { kind: true, adapter: true };

/** @throws SplitkvError `usage` for options that say nothing known */
export function checkPrefill(options: PrefillOptions | readonly PrefillOptions[] | undefined): void {
  if (options === undefined) return;
  const workers = prefillList(options);
  if (workers.length === 0) throw usageError('prefill []: give a worker, or leave it out');
  for (const worker of workers) {
    if (typeof worker !== 'object' || worker === null) {
      throw usageError(`prefill ${JSON.stringify(worker)}: expected { kind: 'splitkv' }`);
    }
    checkOptions('prefill', worker, prefillSchema);
    const { kind, adapter } = worker;
    if (kind !== 'splitkv') {
      throw usageError(`prefill kind '${String(kind)}': use splitkv.${didYouMean(String(kind), ['splitkv'])}`);
    }
    if (adapter !== undefined && typeof adapter !== 'string') {
      throw usageError(`prefill adapter ${JSON.stringify(adapter)}: expected a name, or high-performance or low-power`);
    }
  }
}

/** A worker each. */
export const prefillList = (options: PrefillOptions | readonly PrefillOptions[]): readonly PrefillOptions[] =>
  Array.isArray(options) ? (options as readonly PrefillOptions[]) : [options as PrefillOptions];
