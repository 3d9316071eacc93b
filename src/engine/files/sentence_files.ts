import { formatError, unsupportedError } from '../../base/errors.js';
import { isObject, show } from '../../base/json.js';
import { around, matrixShape, readJson, readTensorIndex, type Source, TensorReader } from '../../loader/index.js';
import type { Pooling } from '../contracts/api.js';

/** A dense layer behind pooling: activation(W x + b), normalised where it has a norm. */
export interface Dense {
  readonly rows: number;
  readonly columns: number;
  /** f32 [rows][columns]. */
  readonly weight: Float32Array;
  readonly bias: Float32Array | undefined;
  readonly activation: 'none' | 'tanh' | 'gelu';
  /** Of a LayerNorm of eps 1e-5 behind it. */
  readonly norm: Float32Array | undefined;
}

/** What a score is made of: the last layer has one row. */
export interface ScoreHead {
  readonly pooling: Pooling;
  readonly dense: readonly Dense[];
  /** Whether the score is the sigmoid of what comes out, or that itself. */
  readonly sigmoid: boolean;
}

/** What a model's files say of vectors of texts, beside its network: sentence-transformers' files, a GGUF file's metadata. */
export interface SentenceFiles {
  readonly pooling?: Pooling | undefined;
  /** What is put before texts, by name. */
  readonly prompts?: Readonly<Record<string, string>>;
  readonly defaultPrompt?: string | undefined;
  readonly dense?: readonly Dense[];
  readonly score?: ScoreHead | undefined;
  /** A model of text whose next token is a judgement ("yes", "no"). */
  readonly judges?: boolean;
}

type Read = () => Promise<TensorReader>;

/** Of a folder. @param reader of the model's tensors */
export async function readSentenceFiles(source: Source, config: unknown, reader: Read): Promise<SentenceFiles> {
  const [modules, told] = await Promise.all([
    readJson(source, 'modules.json'),
    readJson(source, 'config_sentence_transformers.json'),
  ]);
  const prompts = isObject(told) && isObject(told.prompts) ? told.prompts : {};
  const defaultPrompt = isObject(told) ? told.default_prompt_name : undefined;
  const raw = isObject(config) ? config : {};
  const architectures = Array.isArray(raw.architectures) ? raw.architectures.join() : '';
  return {
    ...(Array.isArray(modules) && (await readModules(source, modules))),
    prompts: Object.fromEntries(
      Object.entries(prompts).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
    ),
    ...(typeof defaultPrompt === 'string' && { defaultPrompt }),
    ...(architectures.includes('ForSequenceClassification') && { score: await readScore(raw, await reader()) }),
    judges: /rerank/i.test(`${source.name} ${typeof raw._name_or_path === 'string' ? raw._name_or_path : ''}`),
  };
}

async function readModules(source: Source, modules: readonly unknown[]): Promise<SentenceFiles> {
  let pooling: Pooling | undefined;
  const dense: Dense[] = [];
  for (const module of modules) {
    const { type, path } = isObject(module) ? module : {};
    const kind = String(type).split('.').at(-1);
    if (kind === 'Transformer' || kind === 'Normalize') continue;
    if (typeof path !== 'string') throw formatError(`modules.json: path is ${show(path)}; expected a folder`);
    const config = await readJson(source, `${path}/config.json`);
    if (!isObject(config)) throw formatError(`${path}/config.json is missing, which modules.json names`);
    if (kind === 'Pooling') pooling = poolingOf(config, path);
    else if (kind === 'Dense') dense.push(await readDense(source, path, config));
    else
      throw unsupportedError(
        `modules.json: ${show(type)} is not supported; supported are Transformer, Pooling, Dense, Normalize`,
      );
  }
  return { pooling, dense };
}

const POOLINGS = new Map<string, Pooling>(
  Object.entries({
    pooling_mode_cls_token: 'cls',
    pooling_mode_mean_tokens: 'mean',
    pooling_mode_lasttoken: 'last',
    cls: 'cls',
    mean: 'mean',
    lasttoken: 'last',
  }),
);

function poolingOf(config: Readonly<Record<string, unknown>>, path: string): Pooling {
  const modes = Object.keys(config).filter((key) => key.startsWith('pooling_mode_') && config[key] === true);
  const [mode = config['pooling_mode'], ...others] = modes;
  const pooling = POOLINGS.get(String(mode));
  if (pooling === undefined || others.length > 0)
    throw unsupportedError(
      `${path}/config.json: pooling by ${show(modes)} is not supported; supported are mean, last, cls`,
    );
  if (config['include_prompt'] === false)
    throw unsupportedError(`${path}/config.json: include_prompt false is not supported; prompts are a part of texts`);
  return pooling;
}

const ACTIVATIONS = new Map<string, Dense['activation']>(
  Object.entries({ Identity: 'none', Tanh: 'tanh', GELU: 'gelu' }),
);

async function readDense(source: Source, path: string, config: Readonly<Record<string, unknown>>): Promise<Dense> {
  const within = (file: string): string => `${path}/${file}`;
  const folder = around(source, {
    name: `${source.name}/${path}`,
    size: (file, signal) => source.size(within(file), signal),
    read: (file, start, end, signal) => source.read(within(file), start, end, signal),
    version: (file, signal) => source.version(within(file), signal),
  });
  const { activation_function: named = 'torch.nn.modules.activation.Tanh' } = config;
  const activation = ACTIVATIONS.get(String(named).split('.').at(-1)!);
  if (!activation)
    throw unsupportedError(
      `${path}/config.json: activation_function ${show(named)} is not supported; it may be Identity, Tanh, GELU`,
    );
  return denseOf(new TensorReader(folder, await readTensorIndex(folder)), 'linear', activation);
}

/** A dense layer by the names of its tensors. */
type Part = readonly [name: string, activation?: Dense['activation'], norm?: string];

async function denseOf(reader: TensorReader, ...[name, activation = 'none', norm]: Part): Promise<Dense> {
  const vector = async (of: string): Promise<Float32Array | undefined> =>
    reader.index.tensors.has(of) ? reader.readVector(of) : undefined;
  const { rows, columns } = matrixShape(reader.entry(`${name}.weight`));
  return {
    rows,
    columns,
    weight: await reader.readVector(`${name}.weight`),
    bias: await vector(`${name}.bias`),
    activation,
    norm: norm === undefined ? undefined : await vector(`${norm}.weight`),
  };
}

/** The head of a classifier, by which of the usual ones its tensors are: RoBERTa's, ModernBERT's, a GGUF file's, BERT's. */
async function readScore(raw: Readonly<Record<string, unknown>>, reader: TensorReader): Promise<ScoreHead> {
  const has = (name: string): boolean => reader.index.tensors.has(`${name}.weight`);
  const gguf: readonly Part[] = has('cls.norm') ? [['cls', 'gelu', 'cls.norm']] : [['cls', 'tanh']];
  const heads: readonly (readonly Part[])[] = [
    [['classifier.dense', 'tanh'], ['classifier.out_proj']],
    [['head.dense', 'gelu', 'head.norm'], ['classifier']],
    [...gguf, ['cls.output']],
    [['pooler.dense', 'tanh'], ['classifier']],
  ];
  const parts = heads.find((head) => head.every(([name]) => has(name)));
  if (!parts) throw unsupportedError('the tensors of the classifier are not those of BERT, RoBERTa or ModernBERT');
  const dense: Dense[] = [];
  for (const part of parts) dense.push(await denseOf(reader, ...part));
  const labels = dense.at(-1)!.rows;
  if (labels !== 1) throw unsupportedError(`a classifier of ${labels} labels is not supported; a score has one`);
  const own = isObject(raw['sentence_transformers']) ? raw['sentence_transformers'] : {};
  const activation = own['activation_fn'] ?? raw['sbert_ce_default_activation_function'];
  return {
    pooling: raw['classifier_pooling'] === 'mean' ? 'mean' : 'cls',
    dense,
    sigmoid: !String(activation).endsWith('Identity'),
  };
}

/** llama.cpp's LLAMA_POOLING_TYPE. */
const GGUF_POOLINGS: readonly (Pooling | undefined)[] = [undefined, 'mean', 'cls', 'last', undefined];
const RANK = 4;

/** Of a GGUF file: its metadata, and dense layers or a classifier's head among its tensors. */
export async function ggufSentenceFiles(metadata: ReadonlyMap<string, unknown>, reader: Read): Promise<SentenceFiles> {
  const type = metadata.get(`${String(metadata.get('general.architecture'))}.pooling_type`);
  if (typeof type !== 'number') return {};
  const tensors = await reader();
  const has = (name: string): boolean => tensors.index.tensors.has(`${name}.weight`);
  const dense: Dense[] = [];
  for (const name of ['dense_2', 'dense_3']) if (has(name)) dense.push(await denseOf(tensors, name));
  return {
    pooling: GGUF_POOLINGS[type],
    dense,
    ...(type === RANK && has('cls') && { score: await readScore({}, tensors) }),
    judges: type === RANK && !has('cls'),
  };
}
