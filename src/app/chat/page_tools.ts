import { parsed } from '../../base/json.js';
import { messageOf, SplitkvError, usageError, withAbort } from '../../base/errors.js';
import type { ChatMessage, Tool, ToolCall } from '../../index.js';

/** A tool of the page: what it is for, its arguments, and what it does. */
export interface PageTool {
  readonly description?: string;
  /** JSON schema of its arguments, an object; default: it takes none. */
  readonly parameters?: Readonly<Record<string, unknown>>;
  /** Gives what the model is told: a text, or anything that is JSON. What it throws is told to the model, too. */
  run(args: Readonly<Record<string, unknown>>, call: { readonly signal: AbortSignal }): unknown;
}

/** Tools by the names that the model calls them by. */
export type PageTools = Readonly<Record<string, PageTool>>;

export interface MadeCall {
  readonly call: ToolCall;
  readonly content: string;
  readonly failed: boolean;
}

/** @throws SplitkvError `usage` for a tool that can't be run */
export function toolsOf(tools: PageTools): Tool[] {
  return Object.entries(tools).map(([name, tool]) => {
    if (typeof tool?.run !== 'function') throw usageError(`tools: '${name}' has no function run(arguments)`);
    const { description, parameters } = tool;
    return { type: 'function', function: { name, description, parameters } };
  });
}

/**
 * Runs a call of the model's. A failure is told to the model, which may put it right.
 * @throws SplitkvError `aborted` when the signal says so; the tool may still be running
 */
export async function runCall(tools: PageTools, call: ToolCall, signal: AbortSignal): Promise<MadeCall> {
  const { name } = call.function;
  const made = (content: string, failed = false): MadeCall => ({ call, content, failed });
  const stopped = new SplitkvError('aborted', 'the answer was stopped');
  if (signal.aborted) throw stopped;
  const tool = Object.hasOwn(tools, name) ? tools[name] : undefined;
  if (!tool) return made(`There is no tool '${name}'.`, true);
  const args = parsed(call.function.arguments || '{}') as Readonly<Record<string, unknown>> | undefined;
  if (args === undefined) return made('The arguments are not JSON.', true);
  try {
    const value = await withAbort((async () => tool.run(args, { signal }))(), signal, () => stopped);
    return made(typeof value === 'string' ? value : (JSON.stringify(value) ?? ''));
  } catch (error) {
    if (signal.aborted) throw stopped;
    return made(messageOf(error), true);
  }
}

/** Calls and what came of them, as the model's template is told. */
export const toolMessages = (text: string, calls: readonly MadeCall[]): ChatMessage[] => [
  { role: 'assistant', content: text === '' ? null : text, tool_calls: calls.map(({ call }) => call) },
  ...calls.map(({ call, content }): ChatMessage => ({
    role: 'tool',
    content,
    tool_call_id: call.id,
    name: call.function.name,
  })),
];
