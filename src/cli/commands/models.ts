import { ioError, usageError } from '../../base/errors.js';
import { alignedTable } from '../../base/aligned_table.js';
import { formatBytes, formatCount, grouped } from '../../base/math.js';
import { snakeOf } from '../../base/names.js';
import { type CatalogModel, MODELS } from '../../loader/hub/catalog.js';
import { allCaches, deleteLocalModel, listLocalModels, type LocalModel } from '../../loader/hub/node_hub_cache.js';
import { type Command, commonOptions, say, type Terminal } from '../command.js';
import type { Options } from '../options.js';
import { hubNameOf } from '../model_path.js';

export const command: Command = {
  summary:
    'Lists the models of the local Hugging Face cache, and the catalog: small models that run here, by names that --model and pull take.',
  usage: 'models [--delete NAME] [options]',
  options: {
    delete: {
      value: 'NAME',
      help: 'remove this model, ORG/NAME or a name of the catalog, from the cache: all its versions, of all Hubs',
    },
    ...commonOptions,
  },
  async run(options, terminal) {
    const caches = await allCaches();
    const name = options.text('delete');
    if (name !== undefined) return remove(name, caches, options, terminal);
    const local = await Promise.all(
      caches.map(async (cache): Promise<Kept> => ({ cache, models: await listLocalModels(cache) })),
    );
    await say(options, terminal, document(local), describe(local, options.has('verbose')));
    return 0;
  },
};

/** The cache of the Hub's tools is the first; each other Hub has one of its own. */
interface Kept {
  readonly cache: string;
  readonly models: readonly LocalModel[];
}

async function remove(given: string, caches: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const name = await hubNameOf(given, {});
  if (name === undefined) throw usageError(`--delete ${given}: expected ORG/NAME or a name of the catalog`);
  const found = await Promise.all(caches.map((cache) => deleteLocalModel(cache, name.repo)));
  if (found.every((bytes) => bytes === undefined))
    throw ioError(`--delete ${given}: ${name.repo} is not in ${caches.join(', ')}`);
  const bytes = found.reduce<number>((sum, each) => sum + (each ?? 0), 0);
  await say(options, terminal, { deleted: name.repo, bytes }, `${name.repo} deleted: ${formatBytes(bytes)} are free\n`);
  return 0;
}

/** Names are stable: other tools read them. */
const document = (local: readonly Kept[]): object => ({
  cache: local[0]?.cache,
  local: local
    .flatMap(({ models }) => models)
    .map((model) => ({
      ...snakeOf(model, 'kind', 'revision', 'bytes', 'complete', 'gguf'),
      model: model.repo,
      path: model.snapshot,
    })),
  catalog: MODELS.map((model) => ({
    ...snakeOf(model, 'name', 'revision', 'license', 'parameters', 'downloadBytes', 'weightBytes'),
    ...snakeOf(model, 'kvBytesPerToken', 'sampling', 'unverified'),
    model: model.id,
    file: model.file,
    use: model.use ?? null,
    context: model.contextLength,
  })),
});

function describe(local: readonly Kept[], isWhole: boolean): string {
  const shown = COLUMNS.filter(([, where]) => where === 'both' || (where === 'whole') === isWhole);
  const stored = local.flatMap(({ cache, models }, at) => {
    if (at > 0 && models.length === 0) return [];
    const rows = models.map(({ repo, kind, bytes, complete, gguf }) => [
      repo,
      formatBytes(bytes),
      complete ? gguf.join(', ') || (kind === 'adapter' ? kind : 'complete') : 'not complete: pull it again',
    ]);
    const none = '  nothing yet; `splitkv pull NAME` downloads one';
    return [`${at === 0 ? 'on this disk' : 'of another Hub'}, in ${cache}:`, rows.length > 0 ? columns(rows) : none];
  });
  return [
    ...stored,
    '',
    'the catalog (GPU memory of the weights; ~ not verified, --verbose tells what):',
    columns([shown.map(([name]) => name), ...MODELS.map((model) => shown.map(([, , cell]) => cell(model)))]),
    '',
  ].join('\n');
}

const bytesOf = (model: CatalogModel, bytes: number, field = ''): string =>
  `${model.unverified.includes(field) ? '~' : ''}${formatBytes(bytes)}`;

/** Of the catalog's table, which a line of 80 columns holds, or with --verbose is whole. */
const COLUMNS: readonly (readonly [
  name: string,
  where: 'short' | 'whole' | 'both',
  (model: CatalogModel) => string,
])[] = [
  ['name', 'both', ({ name }) => name],
  ['size', 'both', ({ parameters }) => formatCount(parameters)],
  ['download', 'both', (model) => bytesOf(model, model.downloadBytes, 'downloadBytes')],
  ['memory', 'both', (model) => bytesOf(model, model.weightBytes.stored, 'weightBytes.stored')],
  ['f16', 'whole', (model) => bytesOf(model, model.weightBytes.f16)],
  ['q8', 'whole', (model) => bytesOf(model, model.weightBytes.q8)],
  ['q4', 'whole', (model) => bytesOf(model, model.weightBytes.q4)],
  ['context', 'both', ({ contextLength }) => grouped(contextLength)],
  ['note', 'short', ({ use }) => use ?? ''],
  ['licence', 'whole', ({ license }) => license],
  ['model', 'whole', ({ id, use }) => id + (use ? ` (${use})` : '')],
  ['not verified', 'whole', ({ unverified }) => unverified.join(', ')],
];

const columns = (rows: readonly (readonly string[])[]): string =>
  alignedTable(
    rows.map(([name, ...rest]) => [`  ${name}`, ...rest]),
    Infinity,
  ).trimEnd();
