import { usageError } from '../base/errors.js';
import type { TextForm } from '../index.js';
import { readGiven } from './model_options.js';
import type { Options, OptionSpecs } from './options.js';

/** What the answer is to be. */
export const formSpecs: OptionSpecs = {
  'json-schema': {
    value: 'FILE.json',
    help: 'the answer is JSON of this schema; {} for any (docs/structured_output.md)',
  },
  grammar: { value: 'FILE', help: 'the answer is of this grammar in EBNF, whose first rule is root' },
  regex: { value: 'EXPRESSION', help: 'the whole answer matches it' },
  choice: { value: 'TEXT', multiple: true, help: 'the answer is one of these; give it several times' },
};

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
