import { codeOf } from '../base/errors.js';
import type { ChatFormat } from './chat_format.js';
import { argumentsOf, shortId, type Tool, type ToolCall } from './tools.js';

/** One message of a conversation. Templates may look at further keys (`tool_calls`, `name`, `reasoning_content`). */
export interface ChatMessage {
  readonly role: string;
  readonly content: unknown;
  readonly [key: string]: unknown;
}

/** Renders messages as they are. @throws SplitkvError where the template refuses them */
export type Render = (
  messages: readonly ChatMessage[],
  variables: Readonly<Record<string, unknown>>,
  addGenerationPrompt?: boolean,
) => string;

const NAME = 'probe_name';
const VALUES = /probe_key[^a-z\\]{1,16}probe_value/;
const PROBE_TOOL: Tool = {
  type: 'function',
  function: {
    name: NAME,
    description: 'probe',
    parameters: { type: 'object', properties: { probe_key: { type: 'string', description: 'probe' } }, required: [] },
  },
};
const ASKED: ChatMessage = { role: 'user', content: 'probe' };
const RESULT = { role: 'tool', name: NAME, tool_call_id: 'probe0001', content: 'probe_result' };

/** How one template wants tools and calls. */
interface Wishes {
  /** Variables that it shows tools of; 'message': a key of the system message; undefined: none. */
  readonly tools: 'tools' | 'xml_tools' | 'message' | undefined;
  readonly system: boolean;
  /** How calls are told; undefined: it shows none. */
  readonly calls:
    | {
        readonly object: boolean;
        /** Arguments may be a text, too. */
        readonly text: boolean;
        readonly content: null | '';
      }
    | undefined;
  readonly callsBesideText: boolean;
  /** It shows messages of role tool. */
  readonly results: boolean;
}

/** Messages as a template wants them: what it doesn't know of tools is written into them as text. */
export class TemplateMessages {
  #wishes: Wishes | undefined;
  #wantsParts: boolean | undefined;

  constructor(
    readonly format: ChatFormat,
    private readonly template: Render,
  ) {}

  /** Renders messages with tools. @throws SplitkvError where the template refuses them */
  render(
    messages: readonly ChatMessage[],
    {
      tools,
      variables = {},
      addGenerationPrompt = true,
    }: {
      readonly tools?: readonly Tool[] | undefined;
      readonly variables?: Readonly<Record<string, unknown>> | undefined;
      readonly addGenerationPrompt?: boolean | undefined;
    } = {},
  ): string {
    const render: Render = (given, shown) =>
      this.template(this.#asParts(given), { ...shown, ...variables }, addGenerationPrompt);
    const plain = messages.map((message) => withThoughts(message, this.format));
    const special =
      tools !== undefined || plain.some(({ role, tool_calls: calls }) => role === 'tool' || calls != null);
    if (!special) return render(plain, {});
    const wishes = (this.#wishes ??= wishesOf(this.template));
    const told = this.#told(plain, wishes);
    if (!tools) return render(told, {});
    switch (wishes.tools) {
      case 'tools':
        return render(told, { tools });
      case 'xml_tools':
        return render(told, { xml_tools: tools });
      case 'message': {
        const own = tools.map(({ function: of }) => of);
        const [first, ...rest] = told[0]?.role === 'system' ? told : [{ role: 'system', content: '' }, ...told];
        return render([{ ...first!, tools: JSON.stringify(own) }, ...rest], {});
      }
      case undefined:
        return render(withText(told, this.#instructions(tools), wishes.system), { tools });
    }
  }

  /** Texts as lists of one part, where some message has parts, or the template shows nothing else. */
  #asParts(messages: readonly ChatMessage[]): readonly ChatMessage[] {
    this.#wantsParts ??= wantsParts(this.template);
    if (!this.#wantsParts && !messages.some(({ content }) => Array.isArray(content))) return messages;
    return messages.map((message) =>
      typeof message.content === 'string'
        ? { ...message, content: [{ type: 'text', text: message.content }] }
        : message,
    );
  }

  #instructions(tools: readonly Tool[]): string {
    const example = this.format.write([
      { id: '', type: 'function', function: { name: 'NAME', arguments: '{"ARGUMENT": "VALUE"}' } },
    ]);
    return (
      'You can call functions. These are they, with JSON schemas of their arguments:\n\n' +
      `${tools.map(({ function: of }) => JSON.stringify(of)).join('\n')}\n\n` +
      `To call one, answer with the call alone, in this form:\n\n${example}\n\n` +
      'Its result comes with the next message. Where no function helps, answer as usual.'
    );
  }

  #told(messages: readonly ChatMessage[], wishes: Wishes): ChatMessage[] {
    const { shortIds } = this.format;
    const idOf = (id: unknown): string => (shortIds ? shortId(wordOf(id)) : wordOf(id));
    const names = new Map<string, string>();
    const told: ChatMessage[] = [];
    // Templates want users and assistants to take turns.
    const ask = (message: ChatMessage): void => {
      const last = told.at(-1);
      if (last?.role !== 'user') told.push(message);
      else told[told.length - 1] = { ...last, content: together(last.content, '\n\n', message.content) };
    };
    for (const [index, message] of messages.entries()) {
      const { role, content, tool_calls: calls } = message;
      if (role === 'tool') {
        const name = wordOf(message['name']) || (names.get(wordOf(message['tool_call_id'])) ?? '');
        if (wishes.results) told.push({ ...message, name, tool_call_id: idOf(message['tool_call_id']) });
        else ask({ role: 'user', content: together(`The result of ${name === '' ? 'the call' : name}:\n`, content) });
      } else if (role === 'user' && !wishes.results && messages[index - 1]?.role === 'tool') ask(message);
      else if (!Array.isArray(calls) || calls.length === 0) {
        const { tool_calls: _, ...rest } = message;
        told.push(rest as ChatMessage);
      } else {
        for (const { id, function: of } of calls as readonly ToolCall[]) names.set(String(id), of.name);
        told.push(this.#withCalls(message, calls as readonly ToolCall[], wishes, idOf));
      }
    }
    return told;
  }

  #withCalls(
    message: ChatMessage,
    calls: readonly ToolCall[],
    wishes: Wishes,
    idOf: (id: unknown) => string,
  ): ChatMessage {
    const { tool_calls: _, ...rest } = message;
    const text = typeof rest.content === 'string' ? rest.content : '';
    const byHand = { ...rest, content: `${text}${text === '' ? '' : '\n'}${this.format.write(calls)}` };
    if (!wishes.calls || (text !== '' && !wishes.callsBesideText)) return byHand as ChatMessage;
    const { object, text: takesText, content } = wishes.calls;
    // What is no object is told as it was written, or within one: a template may want results to have calls.
    const given = (json: string): unknown =>
      (object ? argumentsOf(json) : json) ?? (takesText ? json : { arguments: json });
    return {
      ...rest,
      content: text === '' ? content : text,
      tool_calls: calls.map(({ id, function: { name, arguments: json } }) => ({
        id: idOf(id),
        type: 'function',
        function: { name, arguments: given(json) },
      })),
    } as ChatMessage;
  }
}

/** Whether a template shows the parts of a message and not a text. */
function wantsParts(render: Render): boolean {
  const shows = (content: unknown): boolean => attempt(render, [{ role: 'user', content }], {}).includes('probe');
  return !shows('probe') && shows([{ type: 'text', text: 'probe' }]);
}

/** What a template makes of messages; '' where it refuses them. */
function attempt(render: Render, messages: readonly ChatMessage[], variables: Parameters<Render>[1]): string {
  try {
    return render(messages, variables, true);
  } catch (error) {
    if (codeOf(error) === 'usage') return '';
    throw error;
  }
}

const wordOf = (value: unknown): string => (typeof value === 'string' ? value : '');

/** What a message says was thought, by the names that templates look for. */
function withThoughts(message: ChatMessage, { name }: ChatFormat): ChatMessage {
  const { reasoning_content: given, reasoning, ...rest } = message;
  const thought = given ?? reasoning;
  if (message.role !== 'assistant' || typeof thought !== 'string' || thought === '') return rest as ChatMessage;
  // gpt-oss's template refuses both in a message that calls.
  const both = name === 'harmony' && message['tool_calls'] != null && Boolean(message.content);
  return {
    ...rest,
    ...(!both && { reasoning_content: thought, reasoning: thought, thinking: thought }),
  } as ChatMessage;
}

/** Contents behind each other: parts, where some has parts. */
const together = (...contents: readonly ChatMessage['content'][]): ChatMessage['content'] =>
  contents.some(Array.isArray)
    ? contents.flatMap((content): unknown[] => (Array.isArray(content) ? content : [{ type: 'text', text: content }]))
    : contents.join('');

/** Messages with a text before them, for the model alone. */
function withText(messages: readonly ChatMessage[], text: string, system: boolean): ChatMessage[] {
  const [first, ...rest] = messages;
  if (first?.role === 'system') return [{ ...first, content: together(first.content, '\n\n', text) }, ...rest];
  if (system) return [{ role: 'system', content: text }, ...messages];
  const at = messages.findIndex(({ role }) => role === 'user');
  return messages.map((message, index) =>
    index === Math.max(0, at) ? { ...message, content: together(`${text}\n\n`, message.content) } : message,
  );
}

function wishesOf(render: Render): Wishes {
  const shown = attempt.bind(undefined, render);
  const tools =
    (['tools', 'xml_tools'] as const).find((name) => shown([ASKED], { [name]: [PROBE_TOOL] }).includes(NAME)) ??
    (shown([{ role: 'system', content: '', tools: NAME }, ASKED], {}).includes(NAME)
      ? ('message' as const)
      : undefined);
  const given = tools === 'xml_tools' || tools === undefined ? {} : { tools: [PROBE_TOOL] };
  const exchange = (content: unknown, object: boolean): string => {
    const call = { name: NAME, arguments: object ? { probe_key: 'probe_value' } : '{"probe_key": "probe_value"}' };
    const calls = [{ id: 'probe0001', type: 'function', function: call }];
    return shown([ASKED, { role: 'assistant', content, tool_calls: calls }, RESULT], given);
  };
  const words = (text: string): number => text.match(/\b(None|null|undefined)\b/g)?.length ?? 0;
  const shows = (text: string): boolean => text.replace(shown([ASKED], given), '').includes(NAME) && VALUES.test(text);
  let calls: Wishes['calls'];
  for (const object of [true, false]) {
    const [without, empty] = [exchange(null, object), exchange('', object)];
    const isNull = shows(without) && (!shows(empty) || words(without) <= words(empty));
    if (!isNull && !shows(empty)) continue;
    const content = isNull ? null : '';
    // As it is, or as a text of JSON.
    const text = !object || /probe_key.*probe_value/s.test(exchange(content, false));
    calls = { object, text, content };
    break;
  }
  const beside = calls ? exchange('probe_text', calls.object) : '';
  const results = calls
    ? exchange(calls.content, calls.object)
    : shown([ASKED, { role: 'assistant', content: 'probe' }, RESULT], given);
  return {
    tools,
    system: shown([{ role: 'system', content: 'probe_system' }, ASKED], {}).includes('probe_system'),
    calls,
    callsBesideText: shows(beside) && beside.includes('probe_text'),
    results: results.includes('probe_result'),
  };
}
