import { didYouMean, usageError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import { begin } from './automaton.js';
import { textsOf } from './expressions.js';
import { schemaGrammar } from './schema/json_schema.js';
import { ownGrammar } from './own_grammar.js';
import { anyOf, type Expression, oneOf, Rules, text } from './notation.js';

/** What a text is to be, as OpenAI's API says it. */
export type ResponseFormat =
  | { readonly type: 'text' }
  /** Any JSON object. */
  | {
      readonly type: 'json_object';
      /** As llama.cpp has it: of this schema. */
      readonly schema?: boolean | Readonly<Record<string, unknown>> | null;
    }
  | {
      readonly type: 'json_schema';
      readonly json_schema: {
        readonly name?: string;
        readonly description?: string;
        readonly schema: boolean | Readonly<Record<string, unknown>>;
        /** Objects have the properties that the schema lists and no others, where it says nothing of others. */
        readonly strict?: boolean | null;
      };
    };

/** At most one of these may be given. */
export interface TextForm {
  /** JSON, of a schema or any object. */
  readonly responseFormat?: ResponseFormat;
  /** A grammar in EBNF, as XGrammar and llama.cpp have it, whose first rule is `root`. */
  readonly grammar?: string;
  /** A regular expression of JavaScript that the whole text matches. */
  readonly regex?: string;
  /** The text is one of these. */
  readonly choice?: readonly string[];
}

const NAMES = ['responseFormat', 'grammar', 'regex', 'choice'] as const satisfies readonly (keyof TextForm)[];
const TYPES = ['text', 'json_object', 'json_schema'];
const MAX_GRAMMAR = 64 * 1024;
const MAX_CHOICES = 10_000;

/** What a form's texts are. */
export interface FormGrammar {
  readonly rules: Rules;
  readonly root: Expression;
  /** What is said where no text is of it. */
  readonly none: string;
}

/** @throws SplitkvError `usage` for what is no form, for several, and for parts that can't be held to: they are named */
export function grammarOf(options: TextForm): FormGrammar | undefined {
  begin();
  const given = NAMES.filter(
    (name) => options[name] != null && (name !== 'responseFormat' || options[name]?.type !== 'text'),
  );
  if (given.length > 1) throw usageError(`${given.join(' and ')}: give one of them`);
  const [name] = given;
  switch (name) {
    case undefined:
      return undefined;
    case 'responseFormat':
      return jsonGrammar(options.responseFormat!);
    case 'grammar': {
      const grammar = options.grammar!;
      if (typeof grammar !== 'string' || grammar.trim() === '')
        throw usageError('grammar: expected rules in EBNF, such as root ::= "yes" | "no"');
      if (grammar.length > MAX_GRAMMAR)
        throw usageError(`grammar: it has ${grammar.length} letters; at most ${MAX_GRAMMAR} are read`);
      return ownGrammar(grammar);
    }
    case 'regex': {
      if (typeof options.regex !== 'string') throw usageError('regex: expected a regular expression as a text');
      const rules = new Rules();
      return { rules, root: rules.texts(textsOf(options.regex, true), oneOf), none: 'regex: it matches no text' };
    }
    case 'choice': {
      const choice: readonly unknown[] = options.choice!;
      if (
        !Array.isArray(choice) ||
        choice.length === 0 ||
        !choice.every((one) => typeof one === 'string' && one !== '')
      ) {
        throw usageError('choice: expected a list of texts that are not empty');
      }
      if (choice.length > MAX_CHOICES)
        throw usageError(`choice: it has ${choice.length} texts; at most ${MAX_CHOICES} are read`);
      return {
        rules: new Rules(),
        root: anyOf(choice.map((one) => text(one as string))),
        none: 'choice: expected texts',
      };
    }
  }
}

function jsonGrammar(format: ResponseFormat): FormGrammar {
  if (!isObject(format)) throw usageError("response_format: expected an object such as {type: 'json_object'}");
  if (!TYPES.includes(format.type)) {
    throw usageError(
      `response_format: type ${show(format.type)}: use ${TYPES.join(', ')}.${didYouMean(String(format.type), TYPES)}`,
    );
  }
  if (format.type === 'json_schema') {
    const { json_schema: of } = format;
    if (!isObject(of) || of.schema === undefined) {
      throw usageError("response_format: expected {type: 'json_schema', json_schema: {name, schema}}");
    }
    return schemaGrammar(of.schema, { strict: of.strict === true });
  }
  if (format.type === 'json_object' && format.schema != null) return schemaGrammar(format.schema);
  return schemaGrammar({ type: 'object' });
}
