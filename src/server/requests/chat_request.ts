import * as z from 'zod/mini';
import { isObject, shortened, show } from '../../base/json.js';
import { grouped } from '../../base/math.js';
import { defined } from '../../base/options.js';
import { checkTools } from '../../chat_formats/tools.js';
import type { ChatMessage, ChatOptions, ContentPart, Prompt, Tool, ToolChoice } from '../../index.js';
import { badRequest } from '../api_error.js';
import {
  callOf,
  checkFieldCount,
  checkLength,
  commonFields,
  type CompletionCall,
  flag,
  given,
  type IgnoredField,
  mostTokens,
  optionalInteger,
  parseFields,
} from './fields.js';

const ROLES = ['system', 'developer', 'user', 'assistant', 'tool'] as const;
export const MESSAGES = 'a list of messages such as {"role": "user", "content": "..."}, at least one';
const CALLS =
  'a list of calls such as {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}';
const called = { id: z.string("a call's id") };
const toolName = z.string("the tool's name");
const toolCall = z.discriminatedUnion(
  'type',
  [
    z.looseObject(
      {
        ...called,
        type: z.literal('custom'),
        custom: z.looseObject({ name: toolName, input: z.string('a text') }, CALLS),
      },
      CALLS,
    ),
    z.looseObject(
      {
        ...called,
        type: z.nullish(z.literal('function', "'function'")),
        function: z.looseObject({ name: toolName, arguments: z.string('a JSON text') }, CALLS),
      },
      CALLS,
    ),
  ],
  CALLS,
);
const message = z.looseObject(
  {
    role: z.enum(ROLES, ROLES.join(', ')),
    content: z.unknown(),
    reasoning_content: z.nullish(z.string('a text')),
    reasoning: z.nullish(z.string('a text')),
    tool_calls: z.nullish(z.array(toolCall, CALLS)),
    tool_call_id: z.nullish(z.string("a call's id")),
    name: z.nullish(z.string('a name')),
  },
  'a message: an object with role and content',
);
/** What a template is told beside the messages. Those after `parallel_tool_calls` aren't OpenAI's. */
export const chatFields = {
  tools: z.nullish(z.custom<Tool[]>(Array.isArray, 'a list of tools')),
  tool_choice: z.nullish(
    z.custom<ToolChoice>(
      (value) => typeof value === 'string' || isObject(value),
      "'auto', 'none', 'required' or a function's name in an object",
    ),
  ),
  parallel_tool_calls: flag,
  reasoning_effort: z.nullish(z.string('low, medium or high, or none')),
  chat_template_kwargs: z.nullish(z.custom<Record<string, unknown>>(isObject, 'an object of variables')),
  enable_thinking: flag,
  separate_reasoning: flag,
  reasoning_format: z.nullish(z.enum(['none', 'auto', 'deepseek', 'deepseek-legacy'], 'none, auto or deepseek')),
};

/** How the prompt ends: vLLM's and llama.cpp's names. */
export const endingFields = { add_generation_prompt: flag, continue_final_message: flag };

export const messagesField = z.array(message, MESSAGES).check(z.minLength(1, MESSAGES));
const schema = z.looseObject({
  ...commonFields,
  ...chatFields,
  messages: messagesField,
  special: z.nullish(z.enum(['text', 'token'], "'text' or 'token'")),
  max_completion_tokens: mostTokens,
  n_predict: mostTokens,
  ...endingFields,
  // llama.cpp's.
  verbose: flag,
  timings_per_token: flag,
  return_progress: flag,
  logprobs: flag,
  top_logprobs: optionalInteger(0, 20),
});

/** @throws ApiError 400 where there is no answer to go on with */
export function endingOf(
  { add_generation_prompt: opens, continue_final_message: goesOn }: z.infer<z.ZodMiniObject<typeof endingFields>>,
  messages: readonly ChatMessage[],
): Pick<Extract<Prompt, { readonly messages: unknown }>, 'ending'> {
  if (!goesOn) return opens === false ? { ending: 'none' } : {};
  const field = 'continue_final_message';
  if (opens) throw badRequest(`${field} and add_generation_prompt are both true; give one of them`, field);
  const { role, tool_calls: calls } = messages.at(-1)!;
  if (role === 'assistant' && !calls) return { ending: 'continue' };
  const what = calls ? 'calls tools' : `is of role ${role}`;
  throw badRequest(`${field}: the last message ${what}; expected a text of the assistant`, field);
}

/** Keys of a message that say nothing of the conversation, or nothing when empty: clients send back what they were sent. */
const IGNORED = ['annotations', 'refusal'];
const UNSUPPORTED = ['audio', 'function_call'];

/**
 * Reads the body of a request to /v1/chat/completions.
 * @param room tokens of the context: those that an answer may have where the request doesn't say, and as many messages as may be
 * @throws ApiError 400
 */
export function parseChatRequest(body: unknown, room: number): CompletionCall {
  if (isObject(body) && Array.isArray(body.messages)) checkMessages(body.messages, room);
  const { fields, ignored } = parseFields('chat', schema, body);
  const { max_completion_tokens: maximum, logprobs, top_logprobs: top } = fields;
  const old = fields.max_tokens ?? fields.n_predict;
  if (old != null && maximum != null && old !== maximum) {
    throw badRequest(`max_tokens is ${old} and max_completion_tokens ${maximum}: give one of them`, 'max_tokens');
  }
  if (top != null && !logprobs) {
    throw badRequest('top_logprobs needs logprobs to be true', 'top_logprobs');
  }
  const messages = messagesOf(fields.messages, ignored);
  const maxTokens = given(maximum ?? old) ?? room;
  if (maxTokens === 0) throw badRequest('max_tokens is 0; expected at least 1, or -1 for none', 'max_tokens');
  const prompt = { messages, ...(fields.special && { special: fields.special }), ...endingOf(fields, messages) };
  const textTools = (fields.tools ?? []).flatMap((tool) => customOf(tool)?.name ?? []).map(String);
  const call = callOf(fields, [prompt], {
    promptField: 'messages',
    ignored,
    maxTokens,
    logprobs: logprobs ? (top ?? 0) : undefined,
    chat: chatOptionsOf(fields),
    progress: fields.return_progress,
  });
  return {
    ...call,
    ...(textTools.length > 0 && { textTools }),
    ...(fields.verbose && { verbose: true }),
    ...(fields.timings_per_token && { timings: true }),
  };
}

/** What a tool, a choice or a call says that is of a plain text. */
function customOf(of: unknown): Readonly<Record<string, unknown>> | undefined {
  return isObject(of) && of.type === 'custom' && isObject(of.custom) ? of.custom : undefined;
}

/** A tool that is called with a plain text takes it as `input`. */
export function textTool({ name, description, format }: Readonly<Record<string, unknown>>): Tool {
  const { definition, syntax } = (
    isObject(format) ? (isObject(format.grammar) ? format.grammar : format) : {}
  ) as Record<string, unknown>;
  const form = typeof definition === 'string' ? `The input is of this ${String(syntax)} grammar:\n${definition}` : '';
  const told = [description, form].filter((text) => typeof text === 'string' && text !== '').join('\n\n');
  return { type: 'function', function: { name: name as string, description: told, parameters: PLAIN } };
}

const PLAIN = {
  type: 'object',
  properties: { input: { type: 'string' } },
  required: ['input'],
  additionalProperties: false,
};

/** A choice of a tool that is called with a plain text, as that of a function. */
function functionOf(choice: ToolChoice | null | undefined): ToolChoice | null | undefined {
  const custom = customOf(choice);
  return custom ? { type: 'function', function: { name: String(custom['name']) } } : choice;
}

const ALLOWED = 'expected {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}}';

const nameOf = (of: unknown): unknown => (isObject(of) && isObject(of.function) ? of.function.name : undefined);

/** Of OpenAI's `allowed_tools`: the model is told of those alone. @throws ApiError 400 */
function allowedOf(tools: readonly Tool[] | undefined, toolChoice: ToolChoice | null | undefined) {
  const { type, allowed_tools: allowed } = (toolChoice ?? {}) as Readonly<Record<string, unknown>>;
  if (type !== 'allowed_tools') return { tools, toolChoice };
  const { mode, tools: wanted } = isObject(allowed) ? allowed : {};
  if (!(mode === 'auto' || mode === 'required') || !Array.isArray(wanted) || wanted.length === 0)
    throw badRequest(`tool_choice: ${ALLOWED}`, 'tool_choice');
  const names = wanted.map((each) => nameOf(functionOf(each as ToolChoice)));
  const missing = names.find((name) => !tools?.some((tool) => nameOf(tool) === name));
  if (missing !== undefined || names.includes(undefined))
    throw badRequest(`tool_choice: there is no tool ${show(missing)} to be allowed`, 'tool_choice');
  return { tools: tools?.filter((tool) => names.includes(nameOf(tool))), toolChoice: mode as ToolChoice };
}

/** What fields say of templates and tools. @throws ApiError 400 */
export function chatOptionsOf(fields: z.infer<z.ZodMiniObject<typeof chatFields>>): ChatOptions {
  const { reasoning_effort: effort, enable_thinking: thinking, chat_template_kwargs: variables } = fields;
  const separate =
    fields.separate_reasoning ?? (fields.reasoning_format == null ? undefined : fields.reasoning_format !== 'none');
  const options = {
    ...allowedOf(
      fields.tools?.map((tool) => (customOf(tool) ? textTool(customOf(tool)!) : tool)),
      functionOf(fields.tool_choice),
    ),
    parallelToolCalls: fields.parallel_tool_calls,
    enableThinking: thinking ?? (effort === 'none' ? false : undefined),
    // gpt-oss's template asks for it.
    chatTemplateKwargs: effort == null || effort === 'none' ? variables : { reasoning_effort: effort, ...variables },
    separateReasoning: separate,
  };
  const given = defined(options) as ChatOptions;
  try {
    checkTools(given);
  } catch (error) {
    const { message } = error as Error;
    throw badRequest(message, /^(tools|tool_choice|chat_template_kwargs)/.exec(message)?.[0]);
  }
  return given;
}

/** What a conversation says. @throws ApiError 400 */
export const messagesOf = (messages: z.infer<typeof messagesField>, ignored: IgnoredField[]): ChatMessage[] =>
  messages.map((each, index) => messageOf(each, `messages[${index}]`, ignored));

function messageOf(each: z.infer<typeof message>, name: string, ignored: IgnoredField[]): ChatMessage {
  const { role, content, reasoning_content, reasoning, tool_calls, tool_call_id, name: own, ...others } = each;
  const thought = reasoning_content ?? reasoning;
  const calls = role === 'assistant' && tool_calls != null && tool_calls.length > 0 ? tool_calls : undefined;
  const said =
    content == null && role === 'assistant'
      ? ''
      : (role === 'user' || role === 'tool' ? contentOfParts : textOfParts)(content ?? undefined, `${name}.content`, {
          types: ['text'],
          left: role === 'assistant' ? ['refusal'] : [],
          isEmptyTaken: role === 'assistant',
          // As vLLM and llama.cpp read them.
          between: '\n',
        });
  for (const [key, value] of Object.entries(others)) {
    if (IGNORED.includes(key) || value === null || (Array.isArray(value) && value.length === 0)) continue;
    const field = `${name}.${shortened(key)}`;
    if (UNSUPPORTED.includes(key)) throw badRequest(`${field} is not supported by this server; leave it out`, field);
    ignored.push({ name: field, why: `${field} is no known field; leave it out` });
  }
  return {
    // OpenAI's newer name of the same role, which templates don't know.
    role: role === 'developer' ? 'system' : role,
    content: content == null && calls ? null : said,
    ...(role === 'assistant' && thought != null && { reasoning_content: thought }),
    ...(calls && {
      tool_calls: calls.map((call) => {
        const { name, ...of } = call.type === 'custom' ? call.custom : call.function;
        const args = call.type === 'custom' ? JSON.stringify({ input: of.input }) : String(of.arguments);
        return { id: call.id, type: 'function' as const, function: { name, arguments: args } };
      }),
    }),
    ...(role === 'tool' && tool_call_id != null && { tool_call_id }),
    ...(role === 'tool' && own != null && { name: own }),
  };
}

/** Each message, and each part of one, has a token at least. @throws ApiError 400 for more than `most` */
export function checkMessages(messages: readonly unknown[], most: number, name = 'messages'): void {
  const expected = (what: string): string => `at most ${grouped(most)} ${what}, as many as the context has tokens`;
  checkLength(messages, most, name, expected('messages'));
  let parts = 0;
  for (const [index, given] of messages.entries()) {
    if (!isObject(given)) continue;
    checkFieldCount(given, `${name}[${index}]`);
    if (Array.isArray(given.content)) parts += given.content.length;
  }
  if (parts > most) throw badRequest(`${name} has ${grouped(parts)} parts; expected ${expected('parts')}`, name);
}

const IMAGES = ['image_url', 'input_image', 'image'];
const SOUND_FORMATS = /^[a-z0-9-]{1,20}$/;
/** In the types of parts that are no texts, such as `image_url` and `input_audio`. */
const MEDIA = [
  ['image', 'images'],
  ['audio', 'sounds'],
  ['video', 'videos'],
  ['file', 'files'],
  ['document', 'documents'],
] as const;

interface PartsOptions {
  /** Of parts that are texts. */
  readonly types: readonly string[];
  /** Of parts that say nothing of the conversation, and are left out. */
  readonly left?: readonly string[];
  readonly between?: string;
  /** Whether a list of no parts is taken; default true. */
  readonly isEmptyTaken?: boolean;
}

/**
 * What a message's content says: a text, or parts, where some are images, whose addresses are `data:` URLs, or recordings.
 * @param name the content's place in the body, for errors
 * @throws ApiError 400
 */
export function contentOfParts(
  content: unknown,
  name: string,
  { types, left = [], between = '', isEmptyTaken = true }: PartsOptions,
  takesMedia = true,
): string | readonly ContentPart[] {
  if (typeof content === 'string') return content;
  const expected = `a text, or a list of parts {"type": "${types[0]}", "text": "..."}`;
  if (!Array.isArray(content) || (content.length === 0 && !isEmptyTaken)) {
    throw badRequest(`${name} is ${content === undefined ? 'missing' : show(content)}; expected ${expected}`, name);
  }
  const parts = content.flatMap((part: unknown, index): ContentPart[] => {
    const at = `${name}[${index}]`;
    const of = isObject(part) ? part : {};
    const { type } = of;
    if (typeof type === 'string' && left.includes(type)) return [];
    if (takesMedia && IMAGES.includes(String(type))) {
      return [{ type: 'image_url', image_url: { url: imageUrlOf(of, at) } }];
    }
    if (takesMedia && type === 'input_audio') return [{ type, input_audio: soundOf(of, at) }];
    if (typeof type === 'string' && types.includes(type)) return [{ type: 'text', text: textAt(of, 'text', at) }];
    const media = MEDIA.find(([part]) => typeof type === 'string' && type.includes(part))?.[1];
    const why = media === undefined ? "which this server doesn't have" : `${media} aren't supported here`;
    const what = typeof type === 'string' ? `of type '${shortened(type)}', ${why}` : show(part);
    throw badRequest(`${at} is ${what}; expected ${expected}`, at);
  });
  const texts = parts.flatMap((part) => (part.type === 'text' ? part.text : []));
  return texts.length < parts.length ? parts : texts.join(between);
}

/** The same where there may be none of these. @throws ApiError 400 */
export const textOfParts = (content: unknown, name: string, options: PartsOptions): string =>
  contentOfParts(content, name, options, false) as string;

/** In the words of OpenAI's APIs, or of Anthropic's. @throws ApiError 400 for an address elsewhere */
function imageUrlOf({ image_url: given, source }: Readonly<Record<string, unknown>>, name: string): string {
  const { type, media_type: media, data, url } = (isObject(source) ? source : {}) as Record<string, unknown>;
  const address = type === 'base64' ? `data:${String(media)};base64,${String(data)}` : url;
  const found = (isObject(given) ? given['url'] : given) ?? address;
  if (typeof found === 'string' && /^data:/i.test(found)) return found;
  throw badRequest(
    `${name} is an image at ${show(found)}; expected a data: URL: this server reads images from nowhere else`,
    name,
  );
}

/** In OpenAI's words. @throws ApiError 400 */
function soundOf({ input_audio: given }: Readonly<Record<string, unknown>>, name: string) {
  const { data, format } = isObject(given) ? given : {};
  if (typeof data === 'string' && typeof format === 'string' && SOUND_FORMATS.test(format)) return { data, format };
  throw badRequest(`${name}.input_audio: expected {"data": "base64", "format": "wav"}`, name);
}

/** A text of an item. @param name the item's place in the body @throws ApiError 400 */
export function textAt(item: Readonly<Record<string, unknown>>, key: string, name: string): string {
  const value = item[key];
  if (typeof value === 'string') return value;
  throw badRequest(`${name}.${key} is ${show(value)}; expected a text`, `${name}.${key}`);
}

/** System messages at the beginning become one: many templates take one alone. */
export function withOneSystem(messages: readonly ChatMessage[]): ChatMessage[] {
  const count = messages.findIndex(({ role }) => role !== 'system');
  const leading = messages.slice(0, count < 0 ? messages.length : count);
  if (leading.length < 2) return [...messages];
  const content = leading.map(({ content: text }) => (typeof text === 'string' ? text : '')).join('\n\n');
  return [{ role: 'system', content }, ...messages.slice(leading.length)];
}
