import { didYouMean, usageError } from '../../base/errors.js';
import { snake } from '../../base/names.js';
import { checkOptions, defined } from '../../base/options.js';
import { chatToolCalls } from '../../chat_formats/tools.js';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionRequest,
  ChatCompletions,
  ChatFinishReason,
  ChatOptions,
  FinishReason,
  GenerateOptions,
  GenerateResult,
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
  ...(['model', 'messages', 'special', 'stream', 'stream_options'] satisfies (keyof ChatCompletionRequest)[]),
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
    const { stream, stream_options: told } = request;
    checkOptions('stream_options', told ?? {}, { include_usage: true });
    if (told && !stream) throw usageError('stream_options go with stream: true; a whole answer has its usage anyway');
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
    return stream ? chunks(generation, head, told?.include_usage === true) : whole(generation, head);
  }

  async function* chunks(generation: Generation, head: Head, counts: boolean): AsyncGenerator<ChatCompletionChunk> {
    const shared = { ...head, object: 'chat.completion.chunk', ...(counts && { usage: null }) } as const;
    const chunk = (
      delta: ChatCompletionChunk['choices'][0]['delta'],
      reason: ChatFinishReason | null,
    ): ChatCompletionChunk => ({ ...shared, choices: [{ index: 0, delta, finish_reason: reason }] });
    yield chunk({ role: 'assistant' }, null);
    for await (const { text, reasoning, toolCalls } of generation.deltas()) {
      if (reasoning) yield chunk({ reasoning_content: reasoning }, null);
      if (text !== '') yield chunk({ content: text }, null);
      if (toolCalls) yield chunk({ tool_calls: chatToolCalls(toolCalls) }, null);
    }
    const result = await generation.result;
    yield chunk({}, finish(result.finish_reason));
    if (counts) yield { ...shared, choices: [], usage: usageOf(result) };
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
      usage: usageOf(result),
    };
  }

  return { create: create as ChatCompletions['create'] };
}

const usageOf = ({ prompt_tokens, tokens, reasoning_tokens = 0 }: GenerateResult): ChatCompletion['usage'] => ({
  prompt_tokens,
  completion_tokens: tokens.length,
  total_tokens: prompt_tokens + tokens.length,
  completion_tokens_details: { reasoning_tokens },
});

/** What a request's model names behind the model itself. */
function adapterIn(asked: string | undefined, modelName: string): string | undefined {
  const own = asked?.startsWith(`${modelName}:`) ? asked.slice(modelName.length + 1) : '';
  return own === '' || own === 'latest' ? undefined : own;
}
