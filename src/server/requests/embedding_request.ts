import * as z from 'zod/mini';
import type { EmbedOptions, EmbedResult, Prompt } from '../../index.js';
import { commonFields, type IgnoredField, optionalInteger, parseFields } from './fields.js';
import { checkTexts, textsField, textsOf } from './text_request.js';

/** As OpenAI's. */
const MAX_INPUTS = 2048;

/** A request for embeddings, checked. */
export interface EmbeddingCall {
  readonly model: string | undefined;
  readonly prompts: readonly Prompt[];
  readonly promptField: 'input';
  readonly options: EmbedOptions;
  readonly base64: boolean;
  readonly ignored: readonly IgnoredField[];
}

const FORMAT = '"float" or "base64"';
const POOLING = '"mean" or "last"';
const schema = z.looseObject({
  model: commonFields.model,
  input: textsField(MAX_INPUTS),
  encoding_format: z.nullish(z.enum(['float', 'base64'], FORMAT)),
  dimensions: optionalInteger(1),
  // Not OpenAI's.
  pooling: z.nullish(z.enum(['mean', 'last'], POOLING)),
});

/**
 * Reads the body of a request to /v1/embeddings.
 * @param contextLength tokens that each text may have
 * @throws ApiError 400
 */
export function parseEmbeddingRequest(body: unknown, contextLength: number): EmbeddingCall {
  checkTexts(body, 'input', MAX_INPUTS, contextLength);
  const ignored: IgnoredField[] = [];
  const {
    model,
    input,
    encoding_format: format,
    dimensions,
    pooling,
  } = parseFields('embeddings', schema, body, ignored);
  return {
    model: model ?? undefined,
    prompts: textsOf(input),
    promptField: 'input',
    options: { ...(pooling && { pooling }), ...(dimensions != null && { dimensions }) },
    base64: format === 'base64',
    ignored,
  };
}

/** OpenAI's answer: numbers, or the bytes of little-endian f32 as base64. */
export function embeddingAnswer(model: string, base64: boolean, { embeddings, prompt_tokens }: EmbedResult): object {
  const written = ({ buffer, byteOffset, byteLength }: Float32Array): string =>
    Buffer.from(buffer, byteOffset, byteLength).toString('base64');
  return {
    object: 'list',
    data: embeddings.map((vector, index) => ({
      object: 'embedding',
      index,
      embedding: base64 ? written(vector) : [...vector],
    })),
    model,
    usage: { prompt_tokens, total_tokens: prompt_tokens },
  };
}
