import type { AnswerInput, Steps, Take } from './answer_input.js';
import type { AnswerOut } from './answer_reader.js';
import { HARMONY } from './call_shapes.js';

const MARKS = Object.values(HARMONY);

/**
 * gpt-oss's answers, which consist of messages on channels:
 *
 *   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>
 *   <|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>
 *
 * What is said on `final` is the answer, what is for a function a call, all else is thought; roles and channels' names are neither. An
 * answer without marks is one, and so is a message without a channel.
 */
export function* readHarmony(input: AnswerInput, out: AnswerOut): Steps {
  let header: string | undefined;
  let take: Take = out.text;
  // The prompt ends with the beginning of a message, which may go on with whom it is for.
  if (out.options.tools && (yield* input.literal(' to='))) header = ' to=';
  for (;;) {
    const into: Take = header === undefined ? take : (text) => (header += text);
    const mark = yield* input.until(MARKS, into, true);
    switch (mark) {
      case undefined:
        return;
      case HARMONY.start:
        header = '';
        out.thinking = false;
        break;
      case HARMONY.channel:
        header = `${header ?? ''}${HARMONY.channel}`;
        out.thinking = false;
        break;
      case HARMONY.constrain:
        if (header !== undefined) header += ' ';
        break;
      case HARMONY.message:
        take = reader(header ?? '', out);
        header = undefined;
        break;
      default:
        if (out.full) return;
        // Until the next message begins there is nothing to read.
        out.thinking = false;
        take = () => {};
    }
  }
}

function reader(header: string, out: AnswerOut): Take {
  const [, channel = ''] = header.split(HARMONY.channel);
  const [, name] = /\bto=functions\.([\w.-]+)/.exec(header) ?? [];
  if (name !== undefined && out.options.tools) {
    out.call(name);
    return out.arguments;
  }
  if (/^\s*(final\b|$)/.test(channel) && name === undefined) return out.text;
  out.thinking = true;
  return out.reasoning;
}
