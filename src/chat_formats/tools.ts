import { usageError } from '../base/errors.js';
import { isObject, parsed, show } from '../base/json.js';

/** A function that the model may call, as OpenAI's API says it. */
export interface Tool {
  readonly type: 'function';
  readonly function: {
    /** 1 to 64 letters, digits, `_`, `-` and `.`. */
    readonly name: string;
    readonly description?: string | undefined;
    /** JSON schema of its arguments, an object; default: it takes none. */
    readonly parameters?: Readonly<Record<string, unknown>> | undefined;
    /** Arguments are held to the schema also where the model calls of its own accord. */
    readonly strict?: boolean | null | undefined;
  };
}

/** 'auto': the model decides. 'required': it calls one or more. A name: it calls that one. 'none': it sees none. */
export type ToolChoice =
  | 'auto'
  | 'none'
  | 'required'
  | { readonly type: 'function'; readonly function: { readonly name: string } };

/** A call, in a message of the assistant. */
export interface ToolCall {
  readonly id: string;
  readonly type: 'function';
  /** `arguments`: a JSON text. */
  readonly function: { readonly name: string; readonly arguments: string };
}

/** What is new of a call: its id and name first, with '' as arguments; then pieces of the arguments' JSON text. */
export interface ToolCallDelta {
  /** Which call of the answer, from 0. */
  readonly index: number;
  readonly id?: string;
  readonly name?: string;
  readonly arguments: string;
}

/** What a conversation's template is told beside the messages, and how its answers are read. */
export interface ChatOptions {
  /** Functions that the model may call (docs/tools.md). */
  readonly tools?: readonly Tool[];
  /** Default 'auto'. */
  readonly toolChoice?: ToolChoice;
  /** Several calls in one answer; default true. */
  readonly parallelToolCalls?: boolean;
  /** Whether the model thinks before it answers, where its template can say so; default: as the template does by itself. */
  readonly enableThinking?: boolean;
  /** Variables of the chat template. */
  readonly chatTemplateKwargs?: Readonly<Record<string, unknown>>;
  /** What is thought comes as reasoning, apart from the answer; false: all is text. Default: true for chat messages, otherwise false. */
  readonly separateReasoning?: boolean;
}

/** What is new of calls, as OpenAI's streams say it: of each call once, as its Python client needs it. */
export function chatToolCalls(deltas: readonly ToolCallDelta[]) {
  const calls: ToolCallDelta[] = [];
  for (const delta of deltas) {
    const last = calls.at(-1);
    if (last?.index === delta.index) calls.splice(-1, 1, { ...last, arguments: last.arguments + delta.arguments });
    else calls.push(delta);
  }
  return calls.map(({ index, id, name, arguments: piece }) => ({
    index,
    ...(id !== undefined && { id, type: 'function' as const }),
    function: { ...(name !== undefined && { name }), arguments: piece },
  }));
}

/** Calls with what is new of them. */
export function withDelta(calls: readonly ToolCall[], deltas: readonly ToolCallDelta[]): readonly ToolCall[] {
  const all = [...calls];
  for (const { index, id, name, arguments: piece } of deltas) {
    const before = all[index] ?? { id: id ?? '', type: 'function', function: { name: name ?? '', arguments: '' } };
    const { function: of } = before;
    all[index] = { ...before, function: { ...of, arguments: of.arguments + piece } };
  }
  return all;
}

const MAX_TOOLS = 128;
const NAME = /^[\w.-]{1,64}$/;
const CHOICES = ['auto', 'none', 'required'];

/** Checks what `tools` and its like were given. @throws SplitkvError `usage` naming what is wrong */
export function checkTools({ tools, toolChoice, chatTemplateKwargs: variables }: ChatOptions): void {
  if (variables !== undefined && !isObject(variables))
    throw usageError(`chat_template_kwargs: expected an object of variables, got ${show(variables)}`);
  if (tools !== undefined) {
    if (!Array.isArray(tools)) throw usageError(`tools: expected a list, got ${show(tools)}`);
    if (tools.length > MAX_TOOLS) throw usageError(`tools: ${tools.length} of them; at most ${MAX_TOOLS} are taken`);
    for (const [index, tool] of tools.entries()) checkTool(tool, `tools[${index}]`);
    const names = tools.map(({ function: of }: Tool) => of.name);
    const twice = names.find((name, index) => names.indexOf(name) !== index);
    if (twice !== undefined) throw usageError(`tools: two are called '${twice}'`);
  }
  checkChoice(toolChoice, tools ?? []);
}

function checkTool(tool: unknown, where: string): void {
  if (!isObject(tool) || tool.type !== 'function' || !isObject(tool.function)) {
    throw usageError(`${where}: expected {type: 'function', function: {name, description, parameters}}`);
  }
  const { name, description, parameters } = tool.function;
  if (typeof name !== 'string' || !NAME.test(name)) {
    throw usageError(`${where}: the name ${show(name)}: expected 1 to 64 letters, digits, '_', '-' and '.'`);
  }
  if (description != null && typeof description !== 'string')
    throw usageError(`${where} (${name}): the description is no text`);
  if (parameters == null) return;
  const type = isObject(parameters) ? parameters.type : undefined;
  if (!isObject(parameters) || (type !== undefined && type !== 'object')) {
    throw usageError(`${where} (${name}): parameters: expected a JSON schema of an object, got ${show(parameters)}`);
  }
  if (parameters.properties != null && !isObject(parameters.properties))
    throw usageError(`${where} (${name}): parameters: properties: expected an object of schemas`);
}

function checkChoice(choice: unknown, tools: readonly Tool[]): void {
  if (choice === undefined || CHOICES.includes(choice as string)) {
    if (choice === 'required' && tools.length === 0) throw usageError('tool_choice required: there are no tools');
    return;
  }
  const name = isObject(choice) && isObject(choice.function) ? choice.function.name : undefined;
  if (typeof name !== 'string') {
    throw usageError(
      `tool_choice ${show(choice)}: expected ${CHOICES.join(', ')} or {type: 'function', function: {name}}`,
    );
  }
  if (tools.some(({ function: of }) => of.name === name)) return;
  const names = tools.map(({ function: of }) => of.name);
  throw usageError(
    `tool_choice: there is no tool '${name}'${names.length > 0 ? `; there are ${names.join(', ')}` : ''}`,
  );
}

/** The tools that the model is told of, and may call; undefined: none. */
export const shownTools = ({ tools, toolChoice }: ChatOptions): readonly Tool[] | undefined =>
  tools === undefined || tools.length === 0 || toolChoice === 'none' ? undefined : tools;

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';

/** A new call's id. @param short 9 letters and digits, the only ones that Mistral's templates take */
export function callId(short: boolean): string {
  const letters = Array.from(crypto.getRandomValues(new Uint8Array(short ? 9 : 24)), (byte) =>
    LETTERS.charAt(byte % 62),
  );
  return (short ? '' : 'call_') + letters.join('');
}

/** Another's id as 9 letters and digits, always the same ones. */
export function shortId(id: string): string {
  if (/^[A-Za-z0-9]{9}$/.test(id)) return id;
  let short = '';
  for (let round = 0; short.length < 9; round++) {
    let hash = 2166136261 + round;
    for (let at = 0; at < id.length; at++) hash = Math.imul(hash ^ id.charCodeAt(at), 16777619);
    short += LETTERS.charAt((hash >>> 8) % 62);
  }
  return short;
}

/** A call's arguments as an object; undefined where they are none: small models write such, and it is part of what was said. */
export function argumentsOf(text: string): Record<string, unknown> | undefined {
  const value = text.trim() === '' ? {} : parsed(text);
  return isObject(value) ? value : undefined;
}

/** As JSON, or as they were written. */
export function argumentsText({ function: { arguments: text } }: ToolCall): string {
  const value = argumentsOf(text);
  return value === undefined ? text : JSON.stringify(value);
}
