import type { AnswerInput, Steps } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { DEEPSEEK } from './call_shapes.js';
import { readArguments } from './json_calls.js';

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
