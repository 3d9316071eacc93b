import { didYouMean, usageError } from '../../base/errors.js';
import { chatToolCall } from '../../chat_formats/tools.js';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionRequest,
  ChatCompletions,
  ChatFinishReason,
  FinishReason,
  GenerateOptions,
  Generation,
  Prompt,
} from '../contracts/api.js';

const REQUEST_KEYS: readonly string[] = [
  'model',
  'messages',
  'special',
  'stream',
  'max_tokens',
  'temperature',
  'top_p',
  'top_k',
  'seed',
  'stop',
  'min_p',
  'repetition_penalty',
  'frequency_penalty',
  'presence_penalty',
  'logit_bias',
  'stop_token_ids',
  'min_tokens',
  'response_format',
  'grammar',
  'regex',
  'choice',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'chat_template_kwargs',
  'enable_thinking',
  'separate_reasoning',
] satisfies (keyof ChatCompletionRequest)[];

/** The OpenAI shape over `generate`. */
export function chatCompletions(
  modelName: string,
  generate: (prompt: Prompt, options: GenerateOptions) => Generation,
): ChatCompletions {
  let count = 0;
  const finish = (reason: FinishReason): ChatFinishReason => (reason === 'abort' ? 'stop' : reason);

  function create(request: ChatCompletionRequest, options: { signal?: AbortSignal } = {}): Promise<unknown> {
    if (!Array.isArray(request.messages) || request.messages.length === 0) {
      return Promise.reject(
        usageError('chat.completions.create: messages must be a non-empty list of {role, content}'),
      );
    }
    for (const key of Object.keys(request)) {
      if (!REQUEST_KEYS.includes(key)) {
        return Promise.reject(
          usageError(`chat.completions.create: unknown key '${key}'.${didYouMean(key, REQUEST_KEYS)}`),
        );
      }
    }
    const generation = generate(
      { messages: request.messages, ...defined({ special: request.special }) },
      {
        ...defined({
          maxTokens: request.max_tokens,
          temperature: request.temperature,
          topP: request.top_p,
          topK: request.top_k,
          seed: request.seed,
          stop: request.stop,
          minP: request.min_p,
          repetitionPenalty: request.repetition_penalty,
          frequencyPenalty: request.frequency_penalty,
          presencePenalty: request.presence_penalty,
          logitBias: request.logit_bias,
          stopTokenIds: request.stop_token_ids,
          minTokens: request.min_tokens,
          responseFormat: request.response_format,
          grammar: request.grammar,
          regex: request.regex,
          choice: request.choice,
          tools: request.tools,
          toolChoice: request.tool_choice,
          parallelToolCalls: request.parallel_tool_calls,
          chatTemplateKwargs: request.chat_template_kwargs,
          enableThinking: request.enable_thinking,
          separateReasoning: request.separate_reasoning,
          signal: options.signal,
        }),
      },
    );
    const head = {
      id: `chatcmpl-${Date.now().toString(36)}-${count++}`,
      created: Math.floor(Date.now() / 1000),
      model: modelName,
    };
    return request.stream ? Promise.resolve(chunks(generation, head)) : whole(generation, head);
  }

  async function* chunks(
    generation: Generation,
    head: { id: string; created: number; model: string },
  ): AsyncGenerator<ChatCompletionChunk> {
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

  async function whole(
    generation: Generation,
    head: { id: string; created: number; model: string },
  ): Promise<ChatCompletion> {
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

/** The object without its undefined and null entries: OpenAI clients send null for what they leave out. */
function defined<T extends object>(value: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(value).filter(([, entry]) => entry != null)) as never;
}
