import { didYouMean, usageError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import { begin } from './automaton.js';
import { textsOf } from './expressions.js';
import { jsonSchemaGrammar } from './json_schema.js';
import { ownGrammar } from './own_grammar.js';
import { anyOf, oneOf, text } from './notation.js';
import { Rules } from './rules.js';

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
  /** A grammar in EBNF, as XGrammar reads it, whose first rule is `root`. */
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

/** A form's grammar in XGrammar's notation. */
export interface FormGrammar {
  readonly grammar: string;
}

/** Whether options limit what the text may be. */
export const hasForm = (options: TextForm): boolean =>
  NAMES.some((name) => options[name] != null) &&
  !(options.responseFormat?.type === 'text' && givenOf(options).length === 1);

const givenOf = (options: TextForm): (keyof TextForm)[] => NAMES.filter((name) => options[name] != null);

/** @throws SplitkvError `usage` for what is no form, for several, and for parts that can't be held to: they are named */
export function formGrammar(options: TextForm): FormGrammar | undefined {
  begin();
  const given = givenOf(options).filter((name) => name !== 'responseFormat' || options.responseFormat?.type !== 'text');
  if (given.length > 1) throw usageError(`${given.join(' and ')}: give one of them`);
  const [name] = given;
  switch (name) {
    case undefined:
      return undefined;
    case 'responseFormat':
      return { grammar: jsonGrammar(options.responseFormat!) };
    case 'grammar': {
      const grammar = options.grammar!;
      if (typeof grammar !== 'string' || grammar.trim() === '')
        throw usageError('grammar: expected rules in EBNF, such as root ::= "yes" | "no"');
      if (grammar.length > MAX_GRAMMAR)
        throw usageError(`grammar: it has ${grammar.length} letters; at most ${MAX_GRAMMAR} are read`);
      return { grammar: ownGrammar(grammar) };
    }
    case 'regex': {
      if (typeof options.regex !== 'string') throw usageError('regex: expected a regular expression as a text');
      const rules = new Rules();
      return printed(rules, rules.texts(textsOf(options.regex, true), oneOf), 'regex: it matches no text');
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
      return printed(new Rules(), anyOf(choice.map((one) => text(one as string))), 'choice: expected texts');
    }
  }
}

function printed(rules: Rules, root: Parameters<Rules['print']>[0], none: string): FormGrammar {
  const grammar = rules.print(root);
  if (grammar === undefined) throw usageError(none);
  return { grammar };
}

function jsonGrammar(format: ResponseFormat): string {
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
    return jsonSchemaGrammar(of.schema, { strict: of.strict === true });
  }
  if (format.type === 'json_object' && format.schema != null) return jsonSchemaGrammar(format.schema);
  return jsonSchemaGrammar({ type: 'object' });
}
