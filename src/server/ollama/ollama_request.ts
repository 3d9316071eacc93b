/**
 * Room: Ollama's API over the core that answers chats: what bodies mean (here), and how answers are told, in lines of
 * JSON (ollama_writer.ts). Lists of models are in ../model_list.ts.
 */

import * as z from 'zod/mini';
import { isObject, show } from '../../base/json.js';
import { defined } from '../../base/options.js';
import type { ChatMessage, Prompt, Tool, ToolCall } from '../../index.js';
import { badRequest } from '../api_error.js';
import { untagged } from '../model_list.js';
import { chatFields, chatOptionsOf, checkMessages } from '../requests/chat_request.js';
import {
  callOf,
  checkLength,
  commonFields,
  type CompletionCall,
  drawingFields,
  flag,
  given,
  type IgnoredField,
  MAX_STOPS,
  optionalInteger,
  parseFields,
  STOP,
} from '../requests/fields.js';
import { type EmbeddingCall, embeddingCall, MAX_INPUTS, textsField, textsOf } from '../requests/text_request.js';

/** What the answer says of a request besides. */
export interface OllamaCall extends CompletionCall {
  /** As the client named it. */
  readonly named: string | undefined;
}

const TOKENS = 'an integer of at least -2: -1 and -2 are as many as there is room for';
const KEEP = 'seconds, or a duration such as "5m"';
const named = {
  model: commonFields.model,
  // An older name.
  name: commonFields.model,
  // The model stays while the server runs.
  keep_alive: z.nullish(
    z.union([z.number(KEEP), z.string(KEEP).check(z.regex(/^-?(\d+(\.\d+)?([a-zµ]+)?)+$/, KEEP))], KEEP),
  ),
};
/** Those of sampling are every API's. */
const options = {
  options: z.nullish(
    z.looseObject(
      {
        ...drawingFields,
        num_predict: z.nullish(z.int(TOKENS).check(z.minimum(-2, TOKENS))),
        num_ctx: optionalInteger(1),
      },
      'an object such as {"temperature": 0.7}',
    ),
  ),
};
const answering = {
  ...named,
  ...options,
  stream: flag,
  format: z.nullish(z.union([z.enum(['json', '']), z.custom<object>(isObject)], '"json", or a JSON schema')),
  think: z.nullish(z.union([z.boolean(), z.enum(['low', 'medium', 'high'])], 'true, false, low, medium or high')),
  logprobs: flag,
  top_logprobs: optionalInteger(0, 20),
  // Gateways draw one.
  seed: drawingFields.seed,
};
const IMAGES = 'a list of images in base64';
const images = z.nullish(z.array(z.string(IMAGES), IMAGES));
const CALLS = 'a list of calls such as {"function": {"name": "f", "arguments": {}}}';
const call = z.looseObject(
  {
    id: z.nullish(z.string("a call's id")),
    function: z.looseObject({ name: z.string("the tool's name"), arguments: z.nullish(z.unknown()) }, CALLS),
  },
  CALLS,
);
const message = z.looseObject(
  {
    role: z.enum(['system', 'user', 'assistant', 'tool'], 'system, user, assistant or tool'),
    content: z.nullish(z.string('a text')),
    thinking: z.nullish(z.string('a text')),
    images,
    tool_calls: z.nullish(z.array(call, CALLS)),
    tool_call_id: z.nullish(z.string("a call's id")),
    tool_name: z.nullish(z.string('a name')),
    name: z.nullish(z.string('a name')),
  },
  'a message: an object with role and content',
);
const chat = z.looseObject({
  ...answering,
  messages: z.nullish(z.array(message, 'a list of messages such as {"role": "user", "content": "..."}')),
  tools: chatFields.tools,
});
const generate = z.looseObject({
  ...answering,
  prompt: z.nullish(z.string('a text')),
  suffix: z.nullish(z.string('a text')),
  system: z.nullish(z.string('a text')),
  images,
  raw: flag,
});

/**
 * Reads the body of a request to /api/chat. Without messages there is no prompt: it asks for the model to be loaded.
 * @param room tokens of the context
 * @throws ApiError 400
 */
export function parseOllamaChat(body: unknown, room: number): OllamaCall {
  if (isObject(body) && Array.isArray(body.messages)) checkMessages(body.messages, room);
  const { fields, ignored } = parseFields('ollama', chat, body);
  const messages = messagesOf(fields.messages ?? []);
  const last = messages.at(-1);
  // As Ollama has it: what the assistant has begun to say it goes on with.
  const goesOn = last?.role === 'assistant' && !last.tool_calls;
  const prompts: Prompt[] = last ? [{ messages, ...(goesOn && { ending: 'continue' as const }) }] : [];
  return ollamaCall(fields, prompts, ignored, room, fields.tools);
}

/** Reads the body of a request to /api/generate. @throws ApiError 400 */
export function parseOllamaText(body: unknown, room: number): OllamaCall {
  const { fields, ignored } = parseFields('ollama', generate, body);
  const { prompt = '', suffix = '', system = '', images: given, raw } = fields;
  if (given?.length && (raw || suffix))
    throw badRequest('images: a raw prompt, or one with a suffix, has none', 'images');
  if (raw && system) throw badRequest('raw mode does not support template, system, or context', 'system');
  const turns: ChatMessage[] = [
    ...(system ? [{ role: 'system' as const, content: system }] : []),
    { role: 'user' as const, content: pictured(given, prompt ?? '') },
  ];
  const asked: Prompt = suffix ? { prefix: prompt ?? '', suffix } : raw ? prompt! : { messages: turns };
  return ollamaCall(fields, prompt || suffix ? [asked] : [], ignored, room);
}

function ollamaCall(
  fields: z.infer<z.ZodMiniObject<typeof answering>>,
  prompts: readonly Prompt[],
  ignored: IgnoredField[],
  room: number,
  tools?: Tool[] | null,
): OllamaCall {
  const { format, think, logprobs, top_logprobs: top } = fields;
  const { maxTokens, sampling } = samplingOf(fields.options ?? undefined, ignored, room);
  if (top != null && !logprobs) throw badRequest('top_logprobs needs logprobs to be true', 'top_logprobs');
  const name = fields.model ?? fields.name ?? undefined;
  const [first] = prompts;
  const isChat = typeof first === 'object' && 'messages' in first;
  const call = callOf(
    {
      ...sampling,
      seed: given(sampling.seed) ?? fields.seed,
      model: name && untagged(name),
      stream: fields.stream ?? true,
      ...(format && { response_format: formatOf(format) }),
    } as Parameters<typeof callOf>[0],
    prompts,
    {
      promptField: isChat ? 'messages' : 'prompt',
      ignored,
      maxTokens,
      logprobs: logprobs ? (top ?? 0) : undefined,
      chat: chatOptionsOf({
        tools,
        ...(typeof think === 'string' ? { reasoning_effort: think } : { enable_thinking: think }),
      }),
    },
  );
  return { ...call, ...(format && { formField: 'format' }), named: name };
}

/** @throws ApiError 400 */
function samplingOf(
  { num_predict: most, num_ctx: context, ...sampling }: Partial<NonNullable<z.infer<typeof options.options>>> = {},
  ignored: IgnoredField[],
  room: number,
): { readonly maxTokens: number; readonly sampling: Partial<z.infer<z.ZodMiniObject<typeof drawingFields>>> } {
  if (Array.isArray(sampling.stop)) checkLength(sampling.stop, MAX_STOPS, 'options.stop', STOP);
  if (context != null && context > room) {
    const why = `options.num_ctx is ${context}; this server's context has ${room} tokens: start it with --context ${context}`;
    ignored.push({ name: 'options.num_ctx', why });
  }
  if (most === 0) {
    throw badRequest('options.num_predict is 0; expected at least 1, or -1 for none', 'options.num_predict');
  }
  return { maxTokens: most == null || most < 0 ? room : most, sampling };
}

const formatOf = (format: 'json' | object): { readonly type: string } =>
  format === 'json'
    ? { type: 'json_object' }
    : ({ type: 'json_schema', json_schema: { schema: format, strict: true } } as { readonly type: string });

/** Pictures, in base64, and the text behind them. */
const pictured = (images: readonly string[] | null | undefined, text: string): ChatMessage['content'] =>
  images && images.length > 0
    ? [
        ...images.map((data) => ({ type: 'image_url' as const, image_url: { url: `data:image/*;base64,${data}` } })),
        { type: 'text', text },
      ]
    : text;

/** Calls without ids get some; results without one are of the first call of that name that has none yet. @throws ApiError 400 */
function messagesOf(given: readonly z.infer<typeof message>[]): ChatMessage[] {
  const open: ToolCall[] = [];
  let count = 0;
  return given.map((each): ChatMessage => {
    const { role, thinking, tool_name, name, tool_call_id } = each;
    const content = each.content ?? '';
    if (role === 'tool') {
      const of = tool_name ?? name ?? undefined;
      const at = open.findIndex(({ id, function: called }) =>
        tool_call_id == null ? of === undefined || called.name === of : id === tool_call_id,
      );
      const [answered] = at < 0 ? [] : open.splice(at, 1);
      return {
        role,
        content: pictured(each.images, content),
        ...defined({ tool_call_id: tool_call_id ?? answered?.id, name: of }),
      };
    }
    const calls = (each.tool_calls ?? []).map(({ id, function: { name: called, arguments: input } }): ToolCall => ({
      id: id ?? `call_${count++}`,
      type: 'function',
      function: { name: called, arguments: typeof input === 'string' ? input : JSON.stringify(input ?? {}) },
    }));
    open.push(...calls);
    return {
      role,
      content: content === '' && calls.length > 0 ? null : pictured(each.images, content),
      ...(role === 'assistant' && thinking && { reasoning_content: thinking }),
      ...(role === 'assistant' && calls.length > 0 && { tool_calls: calls }),
    };
  });
}

const INPUT = `a text, or a list of at most ${MAX_INPUTS} texts`;
const embed = z.looseObject({
  ...named,
  ...options,
  input: z.nullish(textsField(MAX_INPUTS, INPUT)),
  // The older route's.
  prompt: z.nullish(textsField(1, INPUT)),
  dimensions: optionalInteger(1),
  truncate: flag,
});

/** Reads the body of a request to /api/embed, or to the older /api/embeddings. @throws ApiError 400 */
export function parseOllamaEmbed(body: unknown): EmbeddingCall {
  const { fields, ignored } = parseFields('ollama', embed, body);
  const input = fields.input ?? fields.prompt;
  if (input == null) throw badRequest(`input is missing; expected ${INPUT}`, 'input');
  const name = fields.model ?? fields.name;
  // Cut unless they say otherwise, as there.
  const { dimensions, truncate } = { ...fields, truncate: fields.truncate ?? true };
  return embeddingCall({ model: name && untagged(name), dimensions, truncate }, textsOf(input), ignored);
}

const wanted = z.looseObject({ ...named, stream: flag });

/** A request that names a model, and nothing else: what /api/show and /api/pull read. */
export interface NamedCall {
  readonly model: string;
  readonly stream: boolean;
  readonly ignored: readonly IgnoredField[];
}

/** @throws ApiError 400 */
export function parseNamed(body: unknown): NamedCall {
  const { fields, ignored } = parseFields('ollama', wanted, body);
  const model = fields.model ?? fields.name;
  if (model == null || model === '') throw badRequest(`model is ${show(model ?? null)}; expected a name`, 'model');
  return { model: untagged(model), stream: fields.stream ?? true, ignored };
}
