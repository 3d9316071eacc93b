import { isNode } from '../../base/platform.js';
import { KeptKv } from '../cache/kept/kept_kv.js';
import type { LoadOptions } from '../contracts/api.js';
import type { KvFolder } from '../contracts/kv_folder.js';
import { weightsDigest } from '../files/model_digest.js';
import { shortPositions } from '../planning/context_length.js';
import type { ModelRanks } from '../ranks/rank_group.js';
import { KeptPrefixes } from '../serving/kept_prefixes.js';
import type { DescribedModel } from './describe_model.js';

/** What says where keys and values are kept, and how many. */
export type KeptChoice = Pick<LoadOptions, 'kvDir' | 'kvDirBytes' | 'onWarning'>;

/** Opens what is kept of a model on these ranks. Where no place is named it is for what asks for it. */
export async function openKept(
  { facts: { config, type }, reader }: Pick<DescribedModel, 'facts' | 'reader'>,
  { runner, adapter: { variants, fast } }: ModelRanks,
  { kvDir, kvDirBytes: bytes, onWarning }: KeptChoice,
): Promise<KeptPrefixes> {
  const folder = typeof kvDir === 'object' ? kvDir : await folderOf(kvDir);
  const adapters = [...new Set(runner.ranks.map(({ facts }) => facts.adapter))].sort();
  const subject = {
    model: await weightsDigest(config, await reader()),
    'weight type': type,
    'KV type': runner.options.kvType,
    // And how it multiplies, and rotates.
    'kind of adapter': { adapters, variants, fast, long: runner.contextLength > shortPositions(config) },
  };
  return new KeptPrefixes(await KeptKv.open(folder, subject, { bytes, onWarning }), kvDir !== undefined);
}

async function folderOf(name: string | undefined): Promise<KvFolder> {
  if (isNode()) return (await import('../cache/kept/node_folder.js')).nodeKvFolder(name);
  return (await import('../cache/kept/page_folder.js')).pageKvFolder(name ?? 'kept');
}
