import { usageError } from '../base/errors.js';
import { isObject, parseJson } from '../base/json.js';
import { checkTools } from '../chat_formats/tools.js';
import { SAMPLING_ROWS } from '../engine/contracts/options/sampling_rows.js';
import type { ChatOptions, SamplingOptions, TextForm, Tool, ToolChoice } from '../index.js';
import { inGroup, type Options, type OptionSpecs, readGiven, readGivenJson, readRows, specsOf } from './options.js';

export const samplingSpecs: OptionSpecs = inGroup('Sampling', specsOf(SAMPLING_ROWS));

/** What samplingSpecs were given. @throws SplitkvError `usage`, `io` */
export const readSampling = (options: Options): Promise<SamplingOptions> =>
  readRows<SamplingOptions>(SAMPLING_ROWS, options, {
    logitBias: readBias,
    stopTokenIds: (text) => text.split(',').map(stopId),
  });

function stopId(text: string): number {
  if (/^\s*\d+\s*$/.test(text)) return Number(text);
  throw usageError(`--stop-token-ids: '${text}' is no token id; give ids with commas, such as 2,32000`);
}

/** A record, as it may have to go to a page. */
async function readBias(given: string): Promise<Readonly<Record<number, number>>> {
  const pairs = given.startsWith('@')
    ? await readPairs(given)
    : given.split(',').map((pair) => pair.split(':').map((text) => text.trim()));
  const biases: Record<number, number> = {};
  for (const [id = '', bias = '', ...rest] of pairs) {
    const value = bias === '' ? Number.NaN : Number(bias);
    if (!/^\d+$/.test(id) || !Number.isFinite(value) || rest.length > 0) {
      const pair = [id, bias, ...rest].join(':');
      throw usageError(`--logit-bias: '${pair}' is no token id and bias; give them such as 50256:-100,11:2.5`);
    }
    biases[Number(id)] = value;
  }
  return biases;
}

async function readPairs(given: string): Promise<string[][]> {
  const parsed = await readGivenJson('logit-bias', given.slice(1), '@');
  if (!isObject(parsed)) {
    throw usageError(`--logit-bias ${given}: expected an object of biases by token id, such as {"50256": -100}`);
  }
  return Object.entries(parsed).map(([id, bias]) => [id, typeof bias === 'number' ? String(bias) : '']);
}

export const formSpecs: OptionSpecs = inGroup('Form of the answer', {
  'json-schema': {
    value: 'FILE.json',
    help: 'the answer is JSON of this schema; {} for any (docs/structured_output.md)',
  },
  grammar: { value: 'FILE', help: 'the answer is of this grammar in EBNF, whose first rule is root' },
  regex: { value: 'EXPRESSION', help: 'the whole answer matches it' },
  choice: { value: 'TEXT', multiple: true, help: 'the answer is one of these; give it several times' },
});

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

/** What chatSpecs were given. @throws SplitkvError `usage`, `io`, `format` */
export async function readChat(options: Options): Promise<ChatOptions> {
  const [tools, choice, variables] = [
    options.text('tools'),
    options.text('tool-choice'),
    options.text('template-kwargs'),
  ];
  const choices: readonly (string | undefined)[] = ['auto', 'none', 'required', undefined];
  const given = {
    ...(tools !== undefined && { tools: (await readGivenJson('tools', tools)) as readonly Tool[] }),
    ...(choice !== undefined && {
      toolChoice: (choices.includes(choice) ? choice : { type: 'function', function: { name: choice } }) as ToolChoice,
    }),
    ...(options.has('no-parallel-tools') && { parallelToolCalls: false }),
    ...(options.has('no-thinking') && { enableThinking: false }),
    ...(variables !== undefined && {
      chatTemplateKwargs: parseJson(variables, '--template-kwargs') as Record<string, unknown>,
    }),
  };
  checkTools(given);
  return given;
}

/** What formSpecs were given. @throws SplitkvError `usage`, `io`, `format` */
export async function readForm(options: Options): Promise<TextForm> {
  const [schema, grammar, regex] = [options.text('json-schema'), options.text('grammar'), options.text('regex')];
  const choice = options.texts('choice');
  return {
    ...(schema !== undefined && {
      responseFormat: {
        type: 'json_schema',
        json_schema: { schema: (await readGivenJson('json-schema', schema)) as Record<string, unknown> },
      },
    }),
    ...(grammar !== undefined && { grammar: await readGiven('grammar', grammar) }),
    ...(regex !== undefined && { regex }),
    ...(choice.length > 0 && { choice }),
  };
}
