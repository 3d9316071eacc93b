import { isNode } from '../../base/platform.js';
import { KeptKv, type KvSubject } from '../cache/kept/kept_kv.js';
import { ShippedKv } from '../cache/kept/kv_file.js';
import type { LoadOptions } from '../contracts/api.js';
import type { KvFolder } from '../contracts/kv_folder.js';
import { weightsDigest } from '../files/model_digest.js';
import { shortPositions } from '../planning/context_length.js';
import type { ModelRanks } from '../ranks/rank_group.js';
import { KeptPrefixes } from '../serving/kept_prefixes.js';
import type { DescribedModel } from './describe_model.js';

/** Opens what is kept of a model on these ranks, where a place is named or somebody asks for it, and what others shipped. */
export async function openKept(
  { facts: { config, type }, reader }: Pick<DescribedModel, 'facts' | 'reader'>,
  { runner, adapter: { variants, fast } }: ModelRanks,
  options: LoadOptions,
  asks: boolean,
): Promise<KeptPrefixes> {
  const { kvDir, kvDirBytes: bytes, prefixes = [], onWarning } = options;
  const adapters = [...new Set(runner.ranks.map(({ facts }) => facts.adapter))].sort();
  const subject: KvSubject = {
    model: await weightsDigest(config, await reader()),
    'weight type': type,
    'KV type': runner.options.kvType,
    // And how it multiplies, and rotates.
    'kind of adapter': { adapters, variants, fast, long: runner.contextLength > shortPositions(config) },
  };
  const isNamed = kvDir !== undefined;
  const folder = typeof kvDir === 'object' ? kvDir : isNamed || asks ? await folderOf(kvDir) : undefined;
  const kept = folder && (await KeptKv.open(folder, subject, { bytes, onWarning }));
  const shipped = prefixes.map((where) => KeptKv.open(new ShippedKv(where, options), subject, { onWarning }));
  return new KeptPrefixes(kept, isNamed, await Promise.all(shipped));
}

async function folderOf(name: string | undefined): Promise<KvFolder> {
  if (isNode()) return (await import('../cache/kept/node_folder.js')).nodeKvFolder(name);
  return (await import('../cache/kept/page_folder.js')).pageKvFolder(name ?? 'kept');
}
