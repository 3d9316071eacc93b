import type { AnswerInput, Steps } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { readArguments } from './json_calls.js';
import { argumentsText, type ToolCall } from './tools.js';

export const DEEPSEEK = {
  open: '<｜tool▁calls▁begin｜>',
  begin: '<｜tool▁call▁begin｜>',
  separator: '<｜tool▁sep｜>',
  end: '<｜tool▁call▁end｜>',
  close: '<｜tool▁calls▁end｜>',
} as const;

/** DeepSeek V2.5, V3 and R1 write `function`, the separator, the name and arguments in a code fence; V3.1 name, separator, arguments. */
export function* readDeepseekCalls(input: AnswerInput, out: AnswerOut): Steps {
  const { open, begin, separator, end, close } = DEEPSEEK;
  while ((yield* input.until([open], out.text)) !== undefined) {
    for (;;) {
      yield* input.blanks();
      if (!(yield* input.literal(begin))) break;
      let head = '';
      if ((yield* input.until([separator], (text) => (head += text))) === undefined) return;
      if ((yield* input.peek(1)) !== '{') {
        head = yield* input.word(/[^\n`]/);
        yield* input.blanks();
        if (yield* input.literal('```')) {
          yield* input.literal('json');
          yield* input.blanks();
        }
      }
      const name = head.trim();
      if (name !== '' && (yield* input.peek(1)) === '{') {
        out.call(name);
        yield* readArguments(input, out.arguments);
        if (out.full) return;
      }
      if ((yield* input.until([end, close], () => {})) !== end) break;
    }
    if (yield* input.literal(close)) yield* input.blanks();
  }
}

/** @param fenced as V2.5, V3 and R1 */
export const writeDeepseekCalls =
  (fenced: boolean) =>
  (calls: readonly ToolCall[]): string => {
    const { open, begin, separator, end, close } = DEEPSEEK;
    const written = calls.map((call) => {
      const [name, json] = [call.function.name, argumentsText(call)];
      return fenced
        ? `${begin}function${separator}${name}\n\`\`\`json\n${json}\n\`\`\`${end}`
        : `${begin}${name}${separator}${json}${end}`;
    });
    return open + written.join(fenced ? '\n' : '') + close;
  };
