import { usageError } from '../base/errors.js';
import { checkTools } from '../chat_formats/tools.js';
import type { ChatOptions, TextForm, Tool, ToolChoice } from '../index.js';
import { inGroup, type Options, type OptionSpecs, readGiven } from './options.js';

/** What the answer is to be. */
export const formSpecs: OptionSpecs = inGroup('Form of the answer', {
  'json-schema': {
    value: 'FILE.json',
    help: 'the answer is JSON of this schema; {} for any (docs/structured_output.md)',
  },
  grammar: { value: 'FILE', help: 'the answer is of this grammar in EBNF, whose first rule is root' },
  regex: { value: 'EXPRESSION', help: 'the whole answer matches it' },
  choice: { value: 'TEXT', multiple: true, help: 'the answer is one of these; give it several times' },
});

/** What a conversation's template is told. */
export const chatSpecs: OptionSpecs = inGroup('Conversation', {
  tools: { value: 'FILE.json', help: "functions that the model may call, as OpenAI's API has them (docs/tools.md)" },
  'tool-choice': { value: 'CHOICE', help: "'auto' (default), 'none', 'required', or a function's name" },
  'no-parallel-tools': { help: 'one call in an answer at most' },
  'no-thinking': { help: 'the model answers without thinking, where its template can say so' },
  'template-kwargs': { value: 'JSON', help: 'variables of the chat template, an object' },
});

/** What becomes of control tokens that messages spell out. */
export const specialSpecs: OptionSpecs = inGroup('Conversation', {
  special: {
    value: 'WHAT',
    help: "control tokens that a message spells out, such as <|user|>: 'text' (default), or the 'token' itself",
  },
});

/** What specialSpecs were given. @throws SplitkvError `usage` */
export function readSpecial(options: Options): { readonly special?: 'text' | 'token' } {
  const special = options.oneOf('special', ['text', 'token']);
  return special === undefined ? {} : { special };
}

/** What chatSpecs were given. @throws SplitkvError `usage`, `io` */
export async function readChat(options: Options): Promise<ChatOptions> {
  const [tools, choice, variables] = [
    options.text('tools'),
    options.text('tool-choice'),
    options.text('template-kwargs'),
  ];
  const choices: readonly (string | undefined)[] = ['auto', 'none', 'required', undefined];
  const given = {
    ...(tools !== undefined && { tools: readJson('tools', await readGiven('tools', tools)) as readonly Tool[] }),
    ...(choice !== undefined && {
      toolChoice: (choices.includes(choice) ? choice : { type: 'function', function: { name: choice } }) as ToolChoice,
    }),
    ...(options.has('no-parallel-tools') && { parallelToolCalls: false }),
    ...(options.has('no-thinking') && { enableThinking: false }),
    ...(variables !== undefined && {
      chatTemplateKwargs: readJson('template-kwargs', variables) as Record<string, unknown>,
    }),
  };
  checkTools(given);
  return given;
}

function readJson(option: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw usageError(`--${option}: it is no JSON: ${(error as Error).message}`);
  }
}

/** What formSpecs were given. @throws SplitkvError `usage`, `io` */
export async function readForm(options: Options): Promise<TextForm> {
  const [schema, grammar, regex] = [options.text('json-schema'), options.text('grammar'), options.text('regex')];
  const choice = options.texts('choice');
  return {
    ...(schema !== undefined && {
      responseFormat: { type: 'json_schema', json_schema: { schema: await readSchema(schema) } },
    }),
    ...(grammar !== undefined && { grammar: await readGiven('grammar', grammar) }),
    ...(regex !== undefined && { regex }),
    ...(choice.length > 0 && { choice }),
  };
}

async function readSchema(path: string): Promise<boolean | Record<string, unknown>> {
  const text = await readGiven('json-schema', path);
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch (error) {
    throw usageError(`--json-schema ${path}: ${(error as Error).message}`);
  }
}
