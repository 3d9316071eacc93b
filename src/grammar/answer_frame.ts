import { type CallFormatName, HARMONY, shapeOf } from '../chat_formats/call_shapes.js';
import type { Thinking } from '../chat_formats/chat_format.js';
import type { Tool } from '../chat_formats/tools.js';
import { usageError } from '../base/errors.js';
import { ANY_TEXT, type Automaton, begin, both, except } from './automaton.js';
import { characters } from './code_points.js';
import { textsOf } from './expressions.js';
import { type Notation, SchemaWriter } from './schema/json_schema.js';
import { all, any, type Expression, markOf, NEVER, NOTHING, oneOf, optional, repeat, Rules, text } from './notation.js';
import { networkOf, type Network } from './network.js';
import type { FormGrammar } from './text_form.js';

/** What is around the text that a form holds: thoughts before it, or calls of tools in its place. */
export interface AnswerFrame {
  readonly format: CallFormatName;
  /** Thoughts that may come first; `begun`: the prompt has. */
  readonly thinking?: (Thinking & { readonly begun: boolean }) | undefined;
  /** Calls that may be made, and whether they must. */
  readonly calls?: { readonly tools: readonly Tool[]; readonly needed: boolean; readonly several: boolean } | undefined;
}

const INF = Infinity;

/**
 * An answer with its frame.
 * @param form of the answer's text; undefined: any text
 * @param marks texts that are tokens of their own, in the order of their numbers
 * @throws SplitkvError `usage` for schemas that can't be held to: the tool is named
 */
export function framed(frame: AnswerFrame, form: FormGrammar | undefined, marks: readonly string[]): Network {
  begin();
  const writer = new FrameWriter(frame, marks, form?.rules);
  const network = networkOf(writer.answer(form?.root));
  if (!network) throw usageError('tools: no call is allowed by their schemas');
  return network;
}

const literally = (of: string): string => of.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
const without = (...texts: readonly string[]): Automaton =>
  texts.map((of) => except(textsOf(literally(of), false))).reduce(both, ANY_TEXT);

class FrameWriter {
  readonly #split: RegExp | undefined;

  constructor(
    readonly frame: AnswerFrame,
    readonly marks: readonly string[],
    readonly rules = new Rules(),
  ) {
    this.#split = marks.length > 0 ? new RegExp(`(${marks.map(literally).join('|')})`) : undefined;
  }

  answer(form: Expression | undefined): Expression {
    const { format, thinking, calls } = this.frame;
    if (format === 'harmony') return this.#harmony(form);
    const called = calls ? this.#calls(calls.tools, calls.several) : NEVER;
    const body = calls?.needed ? called : any(called, form ?? this.#freely(called));
    if (!thinking) return body;
    const { open, close, begun } = thinking;
    const blanks = repeat(oneOf(characters(' \n')), 0, 4);
    const thoughts = all(this.#free(without(close)), this.#text(close), blanks);
    return begun ? all(thoughts, body) : any(all(this.#text(open), thoughts, body), body);
  }

  /** Messages of thoughts, then one to the user or to a function. */
  #harmony(form: Expression | undefined): Expression {
    const { channel, message, end, start, constrain } = HARMONY;
    const { calls } = this.frame;
    const thought = all(
      this.#text(`${channel}analysis${message}`),
      this.#free(without(...Object.values(HARMONY))),
      this.#text(`${end}${start}assistant`),
    );
    const said = all(
      this.#text(`${channel}final`),
      optional(this.#text(` ${constrain}json`)),
      this.#text(message),
      form ?? this.#free(without(...Object.values(HARMONY))),
    );
    const called = (calls?.tools ?? []).map((tool) =>
      all(
        this.#text(`${channel}commentary to=functions.${tool.function.name} `),
        optional(this.#text(constrain)),
        this.#text(`json${message}`),
        this.#arguments(tool),
      ),
    );
    return all(repeat(thought, 0, 4), any(...called, ...(calls?.needed ? [] : [said])));
  }

  /** A text with marks in it. */
  #text(of: string): Expression {
    const parts = this.#split ? of.split(this.#split) : [of];
    return all(...parts.map((part) => (this.marks.includes(part) ? markOf(this.marks.indexOf(part)) : text(part))));
  }

  #free(texts: Automaton): Expression {
    return this.rules.texts(texts, oneOf);
  }

  /** Any text that is no call, with calls behind it where the format has such. */
  #freely(called: Expression): Expression {
    const { marks, bare } = shapeOf(this.frame.format);
    const rest = without(...marks.slice(0, 1), ...(bare === undefined ? [] : [bare]));
    if (this.frame.format !== 'json') return all(this.#free(rest), optional(called));
    return this.#free(both(textsOf('^\\s*[^\\s{[`][\\s\\S]*$', false), rest));
  }

  #calls(tools: readonly Tool[], several: boolean): Expression {
    const { around: [open, close] = ['', ''], call, between } = shapeOf(this.frame.format);
    const one = any(
      ...tools.map((tool) => {
        const [before, behind] = call(tool.function.name);
        return all(this.#text(before), this.#arguments(tool), this.#text(behind));
      }),
    );
    const more = several ? repeat(all(this.#text(between), one), 0, INF) : NOTHING;
    return all(this.#text(open), one, more, this.#text(close));
  }

  /** @throws SplitkvError `usage` with the tool's name */
  #arguments({ function: { name, parameters, strict } }: Tool): Expression {
    const { arguments: how } = shapeOf(this.frame.format);
    const notation: Notation =
      how === 'python'
        ? { words: { true: 'True', false: 'False', null: 'None' } }
        : typeof how === 'string'
          ? {}
          : { raw: { quote: this.#text(how.quote), texts: without(how.quote) } };
    // Tools without a schema take no arguments.
    const schema = parameters
      ? { type: 'object', ...parameters }
      : { type: 'object', properties: {}, additionalProperties: false };
    try {
      const writer = new SchemaWriter(schema, { strict: strict === true || 'listed' }, this.rules, name, notation);
      if (how === 'python') return writer.members(schema, inPython(writer), text(', '));
      return how === 'xml' ? writer.members(schema, inXml(writer), NOTHING) : writer.value(schema);
    } catch (error) {
      throw usageError(`tools (${name}): ${(error as Error).message}`);
    }
  }
}

type WriteMember = (name: string, schema: unknown) => Expression;

const inPython =
  (writer: SchemaWriter): WriteMember =>
  (name, schema) => {
    if (!/^\w+$/.test(name)) throw usageError(`schema: the argument ${JSON.stringify(name)} is no name in Python`);
    return all(text(`${name}=`), writer.value(schema));
  };

function inXml(writer: SchemaWriter): WriteMember {
  const values = without('</parameter>', '</function>');
  return (name, schema) => all(text(`<parameter=${name}>\n`), writer.plain(schema, values), text('\n</parameter>\n'));
}
