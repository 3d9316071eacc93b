import { defined } from '../../base/options.js';
import type { LanguageModelV4CallOptions, LanguageModelV4Message, SharedV4Warning } from '@ai-sdk/provider';
import type { ChatMessage, ContentPart, GenerateOptions, ModelInfo, ToolCall } from '../../index.js';

export interface AskedCall {
  readonly messages: readonly ChatMessage[];
  readonly given: GenerateOptions;
  /** What of it isn't done here. */
  readonly warnings: SharedV4Warning[];
}

/** How much models that have levels of it think. */
const EFFORTS: Readonly<Record<string, string>> = {
  minimal: 'low',
  low: 'low',
  medium: 'medium',
  high: 'high',
  xhigh: 'high',
  max: 'high',
};

/** @throws TypeError for messages with parts that are neither texts, images nor recordings */
export function callOf(options: LanguageModelV4CallOptions, info: ModelInfo): AskedCall {
  const { maxOutputTokens, temperature, topP, topK, presencePenalty, frequencyPenalty, seed, stopSequences } = options;
  const warnings: SharedV4Warning[] = [];
  const given = defined({
    maxTokens: maxOutputTokens ?? info.contextLength,
    temperature,
    topP,
    topK,
    presencePenalty,
    frequencyPenalty,
    seed,
    stop: stopSequences,
    responseFormat: formatOf(options.responseFormat),
    ...thinkingOf(options.reasoning),
    ...toolsOf(options, warnings),
  });
  return {
    messages: options.prompt.flatMap(messagesOf),
    // What the model's makers recommend; a caller's value wins.
    given: { ...info.sampling, ...given, ...options.providerOptions?.['splitkv'] },
    warnings,
  };
}

function formatOf(format: LanguageModelV4CallOptions['responseFormat']): GenerateOptions['responseFormat'] | undefined {
  if (format?.type !== 'json') return undefined;
  if (!format.schema) return { type: 'json_object' };
  return { type: 'json_schema', json_schema: { schema: format.schema as Record<string, unknown> } };
}

function thinkingOf(reasoning: LanguageModelV4CallOptions['reasoning']): Partial<GenerateOptions> {
  if (reasoning === undefined || reasoning === 'provider-default') return {};
  if (reasoning === 'none') return { enableThinking: false };
  return { enableThinking: true, chatTemplateKwargs: { reasoning_effort: EFFORTS[reasoning] } };
}

function toolsOf(
  { tools = [], toolChoice }: LanguageModelV4CallOptions,
  warnings: SharedV4Warning[],
): Partial<GenerateOptions> {
  const own = tools.flatMap((tool) => {
    if (tool.type === 'function') {
      const { name, description, inputSchema, strict } = tool;
      return {
        type: 'function' as const,
        function: { name, description, parameters: inputSchema as Record<string, unknown>, strict },
      };
    }
    warnings.push({ type: 'unsupported', feature: `tools of providers (${tool.id})` });
    return [];
  });
  if (own.length === 0) return {};
  const choice =
    toolChoice?.type === 'tool'
      ? { type: 'function' as const, function: { name: toolChoice.toolName } }
      : toolChoice?.type;
  return { tools: own, ...(choice !== undefined && { toolChoice: choice }) };
}

function messagesOf(message: LanguageModelV4Message): ChatMessage[] {
  switch (message.role) {
    case 'system':
      return [{ role: 'system', content: message.content }];
    case 'user': {
      const content = message.content.map((part) => (part.type === 'text' ? part : fileOf(part)));
      const isText = content.every((part) => part.type === 'text');
      return [{ role: 'user', content: isText ? content.map(({ text }) => text).join('') : content }];
    }
    case 'tool':
      return message.content.flatMap((part): ChatMessage[] => {
        if (part.type !== 'tool-result') return [];
        const { toolCallId, toolName, output } = part;
        return [{ role: 'tool', tool_call_id: toolCallId, name: toolName, content: outputOf(output) }];
      });
    case 'assistant':
      return [assistantOf(message.content)];
  }
}

type FilePart = Exclude<
  Extract<LanguageModelV4Message, { readonly role: 'user' }>['content'][number],
  { readonly type: 'text' }
>;

/** Of a file: its bytes, base64 or an address; V3 has them without their kind. */
function fileOf({
  type,
  mediaType,
  data: file,
}: Pick<FilePart, 'mediaType' | 'data'> & { readonly type: string }): ContentPart {
  const given: unknown =
    file instanceof Uint8Array || file instanceof URL || typeof file === 'string'
      ? file
      : file.type === 'data'
        ? file.data
        : file.type === 'url' && file.url;
  const [kind] = mediaType.split('/');
  if ((kind !== 'image' && kind !== 'audio') || !given) refused(`${type}, ${mediaType}`);
  const isBase64 = typeof given === 'string' && !given.startsWith('data:');
  const own = isBase64 ? `data:${mediaType};base64,${given}` : (given as Uint8Array | URL | string);
  return kind === 'image' ? { type: 'image', image: own } : { type: 'audio', audio: own };
}

function assistantOf(content: Extract<LanguageModelV4Message, { readonly role: 'assistant' }>['content']): ChatMessage {
  let text = '';
  let reasoning = '';
  const calls: ToolCall[] = [];
  for (const part of content) {
    if (part.type === 'text') text += part.text;
    else if (part.type === 'reasoning') reasoning += part.text;
    else if (part.type === 'tool-call') {
      const { toolCallId: id, toolName: name, input } = part;
      calls.push({ id, type: 'function', function: { name, arguments: JSON.stringify(input ?? {}) } });
    } else refused(part.type);
  }
  return {
    role: 'assistant',
    content: text === '' && calls.length > 0 ? null : text,
    ...(reasoning !== '' && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

type Output = Extract<
  Extract<LanguageModelV4Message, { readonly role: 'tool' }>['content'][number],
  { readonly type: 'tool-result' }
>['output'];

function outputOf(output: Output): ChatMessage['content'] {
  switch (output.type) {
    case 'text':
    case 'error-text':
      return output.value;
    case 'json':
    case 'error-json':
      return JSON.stringify(output.value);
    case 'execution-denied':
      return output.reason ?? 'the call was denied';
    case 'content': {
      const parts = output.value.map((part): ContentPart => {
        if (part.type === 'text') return { type: 'text', text: part.text };
        return 'mediaType' in part && 'data' in part ? fileOf(part) : refused(part.type);
      });
      return parts.every((part) => part.type === 'text') ? parts.map(({ text }) => text).join('\n') : parts;
    }
  }
}

function refused(type: string): never {
  throw new TypeError(`a part of type '${type}' in the prompt: only texts, images and recordings are read`);
}
