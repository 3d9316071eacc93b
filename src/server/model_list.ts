import { createHash } from 'node:crypto';
import { defined } from '../base/options.js';
import type { ServingModel } from '../index.js';
import type { Family } from './routes.js';

export interface ListedModel {
  /** What clients call it. */
  readonly id: string;
  /** Seconds since 1970 since when it is served. */
  readonly created: number;
  /** Where it is at hand: gateways know its name alone. */
  readonly model?: ServingModel | undefined;
}

/** Without Ollama's tag of whatever is newest. */
export const untagged = (name: string): string => name.replace(/:latest$/, '');

const timeOf = ({ created }: ListedModel): string => new Date(created * 1000).toISOString();

const openAiEntry = ({ id, created, model }: ListedModel): object => ({
  id,
  object: 'model',
  created,
  owned_by: 'splitkv',
  // vLLM's name.
  ...defined({ max_model_len: model?.info.contextLength }),
});

const anthropicEntry = (listed: ListedModel): object => ({
  type: 'model',
  id: listed.id,
  display_name: listed.id,
  created_at: timeOf(listed),
  ...defined({ max_input_tokens: listed.model?.info.contextLength }),
});

/** Entries of GET /v1/models, and of one model. */
export const modelEntry = (family: Family, listed: ListedModel): object =>
  family === 'anthropic' ? anthropicEntry(listed) : openAiEntry(listed);

export function modelList(family: Family, all: readonly ListedModel[]): object {
  const data = all.map((listed) => modelEntry(family, listed));
  if (family !== 'anthropic') return { object: 'list', data };
  return { data, has_more: false, first_id: all[0]?.id ?? null, last_id: all.at(-1)?.id ?? null };
}

/** 360M, 1.7B. */
function sizeOf(parameters: number): string {
  const [unit, letter] = parameters >= 1e9 ? [1e9, 'B'] : parameters >= 1e6 ? [1e6, 'M'] : [1e3, 'K'];
  return `${Number((parameters / unit).toPrecision(3))}${letter}`;
}

function detailsOf(model: ServingModel | undefined): object {
  const { architecture = '', parameters = 0, weights = '' } = model?.info ?? {};
  return {
    parent_model: '',
    format: model?.texts.format ?? '',
    family: architecture,
    families: [architecture],
    parameter_size: sizeOf(parameters),
    quantization_level: String(weights).toUpperCase(),
  };
}

/** A model of Ollama's lists; those that run are told with the memory that they take. */
export function ollamaEntry(listed: ListedModel, runs: boolean): object {
  const { id, model } = listed;
  const { weightBytes = 0, kvBytes = 0, contextLength = 0 } = model?.info ?? {};
  const parts = JSON.stringify([id, model?.info.architecture, model?.info.parameters, model?.info.weights]);
  const name = `${id}${id.includes(':') ? '' : ':latest'}`;
  return {
    name,
    model: name,
    size: runs ? weightBytes + kvBytes : weightBytes,
    digest: createHash('sha256').update(parts).digest('hex'),
    details: detailsOf(model),
    ...(runs
      ? // It stays until the server ends.
        { expires_at: '9999-12-31T23:59:59Z', size_vram: weightBytes + kvBytes, context_length: contextLength }
      : { modified_at: timeOf(listed) }),
  };
}

/** What the model can do, in Ollama's words. */
function capabilitiesOf({ info, texts }: ServingModel): string[] {
  const has = {
    completion: true,
    tools: info.hasChatTemplate && texts.shownTools,
    thinking: texts.thinks,
    vision: info.imagePlaceholder !== undefined,
    insert: texts.fillsIn,
    embedding: true,
  };
  return Object.entries(has).flatMap(([name, is]) => (is ? [name] : []));
}

/** The answer of POST /api/show. */
export function shownModel(listed: ListedModel & { readonly model: ServingModel }): object {
  const { info, texts } = listed.model;
  const { architecture, sampling } = info;
  const own = { context_length: info.contextLength, embedding_length: info.hiddenSize, block_count: info.numLayers };
  return {
    modelfile: `FROM ${listed.id}\n`,
    parameters: Object.entries(sampling)
      .map(([name, value]) => `${name} ${String(value)}`)
      .join('\n'),
    template: texts.template,
    details: detailsOf(listed.model),
    model_info: {
      'general.architecture': architecture,
      'general.basename': listed.id,
      'general.parameter_count': info.parameters,
      ...Object.fromEntries(Object.entries(own).map(([name, value]) => [`${architecture}.${name}`, value])),
      [`${architecture}.vocab_size`]: info.vocabSize,
    },
    capabilities: capabilitiesOf(listed.model),
    modified_at: timeOf(listed),
  };
}
