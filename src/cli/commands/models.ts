import { SplitkvError, usageError } from '../../base/errors.js';
import { formatBytes, grouped } from '../../base/math.js';
import { type CatalogModel, MODELS } from '../../loader/hub/catalog.js';
import { deleteLocalModel, listLocalModels, type LocalModel } from '../../loader/hub/node_hub_cache.js';
import { hubCacheFolder } from '../../loader/hub/node_hub_settings.js';
import { type Command, commonOptions, type Terminal } from '../command.js';
import { hubNameOf } from '../model_path.js';

export const command: Command = {
  summary:
    'Lists the models of the local Hugging Face cache, and the catalog: small models that run here, by names that --model and pull take.',
  usage: 'models [--delete NAME] [options]',
  options: {
    delete: {
      value: 'NAME',
      help: 'remove this model, ORG/NAME or a name of the catalog, from the cache: all its versions',
    },
    ...commonOptions,
  },
  async run(options, terminal) {
    const cache = hubCacheFolder();
    const name = options.text('delete');
    if (name !== undefined) return remove(name, cache, options.has('json'), terminal);
    const local = await listLocalModels(cache);
    await terminal.write(options.has('json') ? `${JSON.stringify(document(cache, local))}\n` : describe(cache, local));
    return 0;
  },
};

async function remove(given: string, cache: string, json: boolean, terminal: Terminal): Promise<number> {
  const name = await hubNameOf(given, {});
  if (name === undefined) throw usageError(`--delete ${given}: expected ORG/NAME or a name of the catalog`);
  const bytes = await deleteLocalModel(cache, name.repo);
  if (bytes === undefined) throw new SplitkvError('io', `--delete ${given}: ${name.repo} is not in ${cache}`);
  if (json) await terminal.write(`${JSON.stringify({ deleted: name.repo, bytes })}\n`);
  else await terminal.write(`${name.repo} deleted: ${formatBytes(bytes)} are free\n`);
  return 0;
}

/** Names are stable: other tools read them. */
const document = (cache: string, local: readonly LocalModel[]): object => ({
  cache,
  local: local.map(({ repo, snapshot, revision, bytes, complete, gguf }) => ({
    model: repo,
    revision,
    path: snapshot,
    bytes,
    complete,
    gguf,
  })),
  catalog: MODELS.map((model) => ({
    name: model.name,
    model: model.id,
    revision: model.revision,
    file: model.file ?? null,
    license: model.license,
    gated: model.gated,
    parameters: model.parameters,
    download_bytes: model.downloadBytes,
    weight_bytes: model.weightBytes,
    kv_bytes_per_token: model.kvBytesPerToken,
    context: model.contextLength,
    sampling: model.sampling,
    unverified: model.unverified,
  })),
});

function describe(cache: string, local: readonly LocalModel[]): string {
  const stored = local.map(({ repo, bytes, complete, gguf }) => [
    repo,
    formatBytes(bytes),
    complete ? gguf.join(', ') || 'complete' : 'not complete: pull it again',
  ]);
  const catalog = MODELS.map((model) => [
    model.name,
    billions(model),
    formatBytes(model.downloadBytes),
    ...(['f16', 'q8', 'q4'] as const).map((type) => formatBytes(model.weightBytes[type])),
    grouped(model.contextLength),
    model.license + (model.gated ? ', gated' : ''),
    model.id,
  ]);
  const heads = ['name', 'size', 'download', 'f16', 'q8', 'q4', 'context', 'licence', 'model'];
  return [
    `on this disk, in ${cache}:`,
    ...(stored.length > 0 ? columns(stored) : ['  nothing yet; `splitkv pull NAME` downloads one']),
    '',
    'the catalog (f16, q8, q4: GPU memory of the weights):',
    ...columns([heads, ...catalog]),
    '',
  ].join('\n');
}

const billions = ({ parameters }: CatalogModel): string =>
  parameters < 1e9 ? `${Math.round(parameters / 1e6)} M` : `${(parameters / 1e9).toFixed(1)} B`;

function columns(rows: readonly (readonly string[])[]): string[] {
  const widths = rows[0]!.map((_, at) => Math.max(...rows.map((row) => row[at]!.length)));
  return rows.map((row) => `  ${row.map((cell, at) => cell.padEnd(widths[at]!)).join('  ')}`.trimEnd());
}
