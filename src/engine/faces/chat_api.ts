import { didYouMean, usageError } from '../../base/errors.js';
import { snake } from '../../base/names.js';
import { defined } from '../../base/options.js';
import { chatToolCall } from '../../chat_formats/tools.js';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionRequest,
  ChatCompletions,
  ChatFinishReason,
  ChatOptions,
  FinishReason,
  GenerateOptions,
  Generation,
  Prompt,
  SamplingOptions,
  TextForm,
} from '../contracts/api.js';
import { SAMPLING_ROWS } from '../contracts/options/sampling_rows.js';
import { formSchema } from '../serving/text/forms.js';
import { chatSchema } from '../serving/text/reading.js';

/** Options of `generate` that a request has, by their names in JSON. */
const OPTIONS = [
  ...(Object.keys(SAMPLING_ROWS) as (keyof SamplingOptions)[]),
  'maxTokens',
  'stop',
  ...(Object.keys(formSchema) as (keyof TextForm)[]),
  ...(Object.keys(chatSchema) as (keyof ChatOptions)[]),
] as const satisfies (keyof GenerateOptions)[];
const REQUEST_KEYS: readonly string[] = [
  ...(['model', 'messages', 'special', 'stream'] satisfies (keyof ChatCompletionRequest)[]),
  ...(OPTIONS.map(snake) satisfies (keyof ChatCompletionRequest)[]),
];

type Head = Pick<ChatCompletion, 'id' | 'created' | 'model'>;

/** The OpenAI shape over `generate`. */
export function chatCompletions(
  modelName: string,
  generate: (prompt: Prompt, options: GenerateOptions) => Generation,
): ChatCompletions {
  let count = 0;
  const finish = (reason: FinishReason): ChatFinishReason => (reason === 'abort' ? 'stop' : reason);

  async function create(request: ChatCompletionRequest, options: { signal?: AbortSignal } = {}): Promise<unknown> {
    if (!Array.isArray(request.messages) || request.messages.length === 0) {
      throw usageError('chat.completions.create: messages must be a non-empty list of {role, content}');
    }
    for (const key of Object.keys(request)) {
      if (REQUEST_KEYS.includes(key)) continue;
      throw usageError(`chat.completions.create: unknown key '${key}'.${didYouMean(key, REQUEST_KEYS)}`);
    }
    const generation = generate(
      { messages: request.messages, ...defined({ special: request.special }) },
      defined({
        ...Object.fromEntries(OPTIONS.map((name) => [name, request[snake(name)]])),
        adapter: adapterIn(request.model, modelName),
        signal: options.signal,
      }),
    );
    const head = {
      id: `chatcmpl-${Date.now().toString(36)}-${count++}`,
      created: Math.floor(Date.now() / 1000),
      model: adapterIn(request.model, modelName) === undefined ? modelName : request.model!,
    };
    return request.stream ? chunks(generation, head) : whole(generation, head);
  }

  async function* chunks(generation: Generation, head: Head): AsyncGenerator<ChatCompletionChunk> {
    const chunk = (
      delta: ChatCompletionChunk['choices'][0]['delta'],
      reason: ChatFinishReason | null,
    ): ChatCompletionChunk => ({
      ...head,
      object: 'chat.completion.chunk',
      choices: [{ index: 0, delta, finish_reason: reason }],
    });
    yield chunk({ role: 'assistant' }, null);
    for await (const { text, reasoning, toolCalls } of generation.deltas()) {
      if (reasoning) yield chunk({ reasoning_content: reasoning }, null);
      if (text !== '') yield chunk({ content: text }, null);
      if (toolCalls) yield chunk({ tool_calls: toolCalls.map(chatToolCall) }, null);
    }
    yield chunk({}, finish((await generation.result).finish_reason));
  }

  async function whole(generation: Generation, head: Head): Promise<ChatCompletion> {
    const result = await generation.result;
    return {
      ...head,
      object: 'chat.completion',
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: result.tool_calls && result.text === '' ? null : result.text,
            ...(result.reasoning !== undefined && { reasoning_content: result.reasoning }),
            ...(result.tool_calls && { tool_calls: result.tool_calls }),
          },
          finish_reason: finish(result.finish_reason),
        },
      ],
      usage: {
        prompt_tokens: result.prompt_tokens,
        completion_tokens: result.tokens.length,
        total_tokens: result.prompt_tokens + result.tokens.length,
        completion_tokens_details: { reasoning_tokens: result.reasoning_tokens ?? 0 },
      },
    };
  }

  return { create: create as ChatCompletions['create'] };
}

/** What a request's model names behind the model itself. */
function adapterIn(asked: string | undefined, modelName: string): string | undefined {
  const own = asked?.startsWith(`${modelName}:`) ? asked.slice(modelName.length + 1) : '';
  return own === '' || own === 'latest' ? undefined : own;
}
