import { Environment, Interpreter, Template } from '@huggingface/jinja';
import { usageError } from '../base/errors.js';
import { jsonText } from '../base/json.js';

/**
 * What a template may take: syntax nodes evaluated, and what they make. A message of a chat takes some 50, a letter of it less than one.
 * A hundred thousand take some 0.2 s, for which a page stands still.
 */
const [STEPS, STEPS_A_MESSAGE] = [1e5, 1000];
/** Items of a list and letters of a text that are as much work as a step. */
const [ITEMS_A_STEP, LETTERS_A_STEP] = [4, 64];
/** Of a text or list that a template makes: as many letters, and eight for one of what it is given. What it makes is tokenized. */
const [LETTERS, LETTERS_FOR_ONE] = [1 << 15, 8];
const MAX_RANGE = 100_000;
/** Of a date, and of each part of it. */
const DATE_STEPS = 200;

/** Filters that take no time, whatever they are applied to. */
const FREE = /^(length|count|first|last|list|safe|default|d|items|bool)$/;
/** Filters that look at what the items hold. */
const DEEP = /^(tojson|string|join|sort|dictsort|min|max)$/;

/** Filters to which nothing is a text without letters, or a list without items; and those of which None is one, too. */
const TEXT_FILTERS = /^(trim|upper|lower|title|capitalize|replace|indent)$/;
const LIST_FILTERS = /^(length|count|list|join|sort|unique|map|selectattr|rejectattr|select|reject)$/;
const LAZY_FILTERS = /^(map|selectattr|rejectattr|select|reject)$/;
/** What stands in a block and prints nothing, or text of its own. */
const STATEMENTS = /^(Set|If|For|Macro|Comment|Break|Continue|CallStatement|FilterStatement|Program)$/;

/** The library's own types are private or not exported; where its insides change, what is counted here isn't counted, no more. */
interface Value {
  readonly type: string;
  readonly value: unknown;
}
interface Node {
  readonly type: string;
  readonly [part: string]: unknown;
}
interface Internals {
  evaluate(node: Node | undefined, environment: Environment): Value;
  evaluateBlock(statements: readonly Node[], environment: Environment): Value;
  evaluateArguments(args: readonly Node[], environment: Environment): [Value[], Map<string, Value>];
  applyFilter(operand: Value, filter: Node, environment: Environment): Value;
  run(program: Template['parsed']): Value;
}
const LibraryInterpreter = Interpreter as unknown as new (environment: Environment) => Internals;

/** Renders a template under a budget. @throws SplitkvError `usage` for one that takes more; what the library throws for others */
export function renderTemplate(
  template: Template,
  variables: Readonly<Record<string, unknown>>,
  messages: number,
): string {
  const letters = jsonText(variables)?.length ?? 0;
  const environment = new Environment();
  const steps = STEPS + messages * STEPS_A_MESSAGE + letters;
  const interpreter = new CountingInterpreter(environment, steps, LETTERS + letters * LETTERS_FOR_ONE);
  // A date takes many times as long as a name; each of its parts is written by itself.
  const strftime_now = (format: unknown): unknown => {
    interpreter.spend(DATE_STEPS * String(format).split('%').length);
    return time.render({ format });
  };
  for (const [name, value] of Object.entries({ ...globals, strftime_now, ...variables })) environment.set(name, value);
  return interpreter.run(template.parsed).value as string;
}

/** What the library gives every template. */
const globals = {
  true: true,
  True: true,
  false: false,
  False: false,
  none: null,
  None: null,
  raise_exception: (message: string): never => {
    throw new Error(message);
  },
  range,
};
const time = new Template('{{ strftime_now(format) }}');

function range(from: number, to?: number, step = 1): number[] {
  const [start, stop] = to === undefined ? [0, from] : [from, to];
  if (step === 0) throw new Error('range() step must not be zero');
  const count = Math.ceil((stop - start) / step);
  if (count > MAX_RANGE) throw tooMuch(`counts to ${count}; a template may count to ${MAX_RANGE}`);
  return Array.from({ length: Math.max(0, count) || 0 }, (_, i) => start + i * step);
}

/** A value in the place of the expression that gave it. */
class Held implements Node {
  readonly type = 'Held';
  [part: string]: unknown;
  constructor(readonly held: Value) {}
}

class CountingInterpreter extends LibraryInterpreter {
  #depth = 0;
  #steps: number;
  /** Statements, and lists of them, whose values become text. */
  readonly #printed = new WeakSet<object>();
  readonly #nodes = new WeakMap<object, number>();

  constructor(
    environment: Environment,
    private readonly mostSteps: number,
    private readonly mostLetters: number,
  ) {
    super(environment);
    this.#steps = mostSteps;
  }

  override evaluate(node: Node | undefined, environment: Environment): Value {
    if (node instanceof Held) return node.held;
    // Names are looked for from the innermost macro or loop outwards.
    this.spend(1 + (this.#depth++ >> 6));
    try {
      const value = super.evaluate(node && this.#measured(node, environment), environment);
      if (node) this.#made(node, value);
      return node && this.#printed.has(node) && !STATEMENTS.test(node.type)
        ? this.#text(pythonText(value), environment)
        : value;
    } finally {
      this.#depth--;
    }
  }

  override evaluateBlock(statements: readonly Node[], environment: Environment): Value {
    if (!this.#printed.has(statements)) {
      this.#printed.add(statements);
      for (const statement of statements) this.#printed.add(statement);
    }
    return super.evaluateBlock(statements, environment);
  }

  override evaluateArguments(args: readonly Node[], environment: Environment): [Value[], Map<string, Value>] {
    const measured = args.map((argument) =>
      argument.type === 'SpreadExpression' || argument.type === 'KeywordSpreadExpression'
        ? { ...argument, argument: this.#hold(argument['argument'], environment, itemsOf) }
        : argument,
    );
    return super.evaluateArguments(measured, environment);
  }

  override applyFilter(given: Value, filter: Node, environment: Environment): Value {
    const name = String(filter['value'] ?? (filter['callee'] as Node | undefined)?.['value']);
    const attributed = ((filter['args'] ?? []) as Node[]).some(({ type }) => type === 'KeywordArgumentExpression');
    const operand = name === 'join' && attributed ? given : this.#filtered(name, given, environment);
    if (FREE.test(name)) return super.applyFilter(operand, filter, environment);
    const { letters, items, depth } = this.#sizeOf(operand, DEEP.test(name));
    const sorts = /^(sort|dictsort|min|max)$/.test(name);
    this.spend(((letters + items) / LETTERS_A_STEP + items / ITEMS_A_STEP) * (sorts ? Math.log2(items + 2) : 1));
    // These two look at the literals themselves.
    const literal = name === 'selectattr' || name === 'rejectattr';
    const args = ((filter['args'] ?? []) as Node[]).map((argument) => {
      if (literal) return argument;
      const named = argument.type === 'KeywordArgumentExpression';
      const held = new Held(this.evaluate(named ? (argument['value'] as Node) : argument, environment));
      return named ? { ...argument, value: held } : argument.type.includes('Spread') ? argument : held;
    });
    const units = args
      .map((argument) => ('held' in argument ? argument : argument['value']) as Held | undefined)
      .map(unitOf);
    if (literal) this.spend((items * Math.max(0, ...args.map(({ value }) => lettersOf(value)))) / LETTERS_A_STEP);
    else if (name === 'replace') this.#replaced(operand.value, units);
    else {
      const unit = units.reduce((sum, { size }) => sum + size, 0);
      const places = name === 'tojson' ? items * depth : name === 'indent' ? linesOf(operand.value) : items;
      this.#grown(letters + unit * places);
    }
    const measured = args.length > 0 ? { ...filter, args } : filter;
    return this.#missingFilter(name, operand, environment) ?? super.applyFilter(operand, measured, environment);
  }

  /** Filters of Jinja's that the library doesn't have for such a value, made of those that it has. */
  #missingFilter(name: string, operand: Value, environment: Environment): Value | undefined {
    const filtered = (value: Value, by: string): Value =>
      super.applyFilter(value, { type: 'Identifier', value: by }, environment);
    if (name === 'string') return this.#text(pythonText(operand), environment);
    if ((name !== 'min' && name !== 'max') || !Array.isArray(operand.value)) return undefined;
    return filtered(filtered(operand, 'sort'), name === 'min' ? 'first' : 'last');
  }

  /** What Jinja's filters take a value for: nothing is no text or no items, and what is joined is text. */
  #filtered(name: string, operand: Value, environment: Environment): Value {
    const nothing = operand.type === 'UndefinedValue';
    if (TEXT_FILTERS.test(name) && operand.type !== 'StringValue') return this.#text(pythonText(operand), environment);
    if ((nothing && LIST_FILTERS.test(name)) || (operand.type === 'NullValue' && LAZY_FILTERS.test(name)))
      return super.evaluate({ type: 'ArrayLiteral', value: [] }, environment);
    if (name !== 'join' || !Array.isArray(operand.value)) return operand;
    const items = (operand.value as Value[]).map((item) =>
      isComposite(item) || /^(Boolean|Null|Float)Value$/.test(item.type)
        ? new Held(this.#text(pythonText(item), environment))
        : new Held(item),
    );
    return super.evaluate({ type: 'ArrayLiteral', value: items }, environment);
  }

  #text(text: string, environment: Environment): Value {
    this.spend(text.length / LETTERS_A_STEP);
    this.#grown(text.length);
    return super.evaluate({ type: 'StringLiteral', value: text }, environment);
  }

  /** The node, where its cost depends on a part, with that part evaluated and counted. */
  #measured(node: Node, environment: Environment): Node {
    const held = (part: string, cost: (value: Value) => number): Node => ({
      ...node,
      [part]: this.#hold(node[part], environment, cost),
    });
    switch (node.type) {
      case 'For': {
        const iterable = node['iterable'] as Node;
        const turns = (value: Value): number => 4 * itemsOf(value);
        // What isn't there has no items.
        const items = (list: unknown): Node => {
          const held = this.#hold(list, environment, turns);
          return held.held.type === 'UndefinedValue' ? { type: 'ArrayLiteral', value: [] } : held;
        };
        if (iterable.type !== 'SelectExpression') return { ...node, iterable: items(iterable) };
        return { ...node, iterable: { ...iterable, lhs: items(iterable['lhs']) } };
      }
      case 'BinaryExpression': {
        const operator = (node['operator'] as { value: string }).value;
        if (operator === 'and' || operator === 'or') return node;
        const left = this.evaluate(node['left'] as Node, environment);
        const right = this.evaluate(node['right'] as Node, environment);
        // Of one kind they are compared or joined as they are; of two, one becomes text.
        const deep = isComposite(left) !== isComposite(right) && !operator.endsWith('in');
        for (const one of [left, right]) this.#work(one, deep || operator === '~');
        if (operator === '~') return { type: 'StringLiteral', value: pythonText(left) + pythonText(right) };
        return { ...node, left: new Held(left), right: new Held(right) };
      }
      case 'TestExpression':
        return held('operand', (value) => lettersOf(value.value) / LETTERS_A_STEP);
      case 'MemberExpression':
        if ((node['property'] as Node | undefined)?.type !== 'SliceExpression') return node;
        return held('object', (value) => lettersOf(value.value) + itemsOf(value));
      case 'CallExpression': {
        const callee = node['callee'] as Node;
        if (callee.type !== 'MemberExpression') return node;
        const object = this.evaluate(callee['object'] as Node, environment);
        const method = (callee['property'] as Node)['value'];
        // A dictionary's `get` takes no time.
        if (method !== 'get') this.#work(object, method === 'dictsort');
        let args = node['args'] as Node[];
        if (
          object.type === 'StringValue' &&
          !args.some(({ type }) => type.includes('Spread') || type.startsWith('Keyword'))
        ) {
          args = args.map((argument) => new Held(this.evaluate(argument, environment)));
          for (const argument of args) this.#work((argument as Held).held);
          if (method === 'replace')
            this.#replaced(
              object.value,
              args.map((argument) => unitOf(argument as Held)),
            );
        }
        return { ...node, callee: { ...callee, object: new Held(object) }, args };
      }
      case 'Macro':
      case 'CallStatement':
        // The library looks through all of it.
        this.spend(this.#nodesOf(node) / ITEMS_A_STEP);
        return node;
      default:
        return node;
    }
  }

  #hold(node: unknown, environment: Environment, cost: (value: Value) => number): Held {
    const value = this.evaluate(node as Node, environment);
    this.spend(cost(value));
    return new Held(value);
  }

  #made(node: Node, value: Value): void {
    if (isComposite(value) && this.#printed.has(node)) this.#work(value, true);
    switch (node.type) {
      case 'Identifier':
        // The library looks for what isn't there by an error, which takes its time.
        if (value.type === 'UndefinedValue') this.spend(10);
        break;
      case 'StringLiteral':
      case 'Ternary':
        break;
      default:
        if (node.type === 'MemberExpression' && (node['property'] as Node).type !== 'SliceExpression') break;
        this.#grown(lettersOf(value.value));
        this.spend(lettersOf(value.value) / LETTERS_A_STEP + itemsOf(value) / ITEMS_A_STEP);
    }
  }

  #work(value: Value, deep = false): void {
    const { letters, items } = this.#sizeOf(value, deep);
    this.spend(letters / LETTERS_A_STEP + items / ITEMS_A_STEP);
  }

  /** Letters and items of a value, of all that is in it where `deep`: what several places hold counts as often as it is written. */
  #sizeOf(value: Value, deep: boolean): { letters: number; items: number; depth: number } {
    if (!isComposite(value)) return { letters: lettersOf(value.value), items: 0, depth: 0 };
    const size = { letters: 0, items: 0, depth: 1 };
    const visit = (one: Value, depth: number): void => {
      size.depth = Math.max(size.depth, depth);
      size.letters += lettersOf(one.value);
      if (!isComposite(one) || (depth > 1 && !deep)) return;
      size.items += itemsOf(one);
      this.#grown(size.letters + size.items);
      if (one.value instanceof Map) {
        for (const [key, inner] of one.value as Map<string, Value>) {
          size.letters += key.length;
          visit(inner, depth + 1);
        }
      } else for (const inner of one.value as Value[]) visit(inner, depth + 1);
    };
    visit(value, 1);
    return size;
  }

  #replaced(text: unknown, [from, to]: readonly Unit[]): void {
    if (typeof text !== 'string' || typeof from?.value !== 'string') return;
    const parts = from.value === '' ? text.length + 1 : text.split(from.value).length - 1;
    this.#grown(text.length + parts * (to?.size ?? 0));
  }

  #nodesOf(node: Node): number {
    const known = this.#nodes.get(node);
    if (known !== undefined) return known;
    let count = 0;
    const visit = (part: unknown): void => {
      if (typeof part !== 'object' || part === null) return;
      count++;
      for (const inner of part instanceof Map ? [...part].flat() : Object.values(part)) visit(inner);
    };
    visit(node);
    this.#nodes.set(node, count);
    return count;
  }

  #grown(letters: number): void {
    if (letters > this.mostLetters) throw tooMuch(`makes a text or list of more than ${this.mostLetters} letters`);
  }

  spend(steps: number): void {
    this.#steps -= steps;
    if (this.#steps < 0) throw tooMuch(`takes more than ${this.mostSteps} steps`);
  }
}

interface Unit {
  readonly value: unknown;
  /** Letters that one use of an argument adds. */
  readonly size: number;
}
const unitOf = (argument: Held | undefined): Unit => {
  const value = argument?.held?.value;
  const numbers = typeof value === 'number' ? Math.max(0, value) : 0;
  const texts = Array.isArray(value) ? value.reduce((sum: number, one: Value) => sum + lettersOf(one.value), 0) : 0;
  return { value, size: lettersOf(value) + numbers + texts };
};

const isComposite = ({ value }: Value): boolean => value instanceof Map || Array.isArray(value);
const lettersOf = (value: unknown): number => (typeof value === 'string' ? value.length : 0);
const itemsOf = ({ value }: Value): number =>
  Array.isArray(value) ? value.length : value instanceof Map ? value.size : 0;
const linesOf = (text: unknown): number => (typeof text === 'string' ? text.split('\n').length : 0);

const tooMuch = (what: string) =>
  usageError(`the model's chat template ${what}; use another template, or give plain text instead of messages`);

/** A value as Python's `str` writes it, which is how Jinja prints it. */
function pythonText(value: Value): string {
  if (value.type === 'StringValue') return String(value.value);
  return value.type === 'UndefinedValue' ? '' : representation(value);
}

/** As Python's `repr`. */
function representation(value: Value): string {
  switch (value.type) {
    case 'StringValue':
      return quoted(String(value.value));
    case 'BooleanValue':
      return value.value === true ? 'True' : 'False';
    case 'NullValue':
      return 'None';
    case 'UndefinedValue':
      return 'Undefined';
    case 'FloatValue':
      return pythonFloat(Number(value.value));
    case 'TupleValue': {
      const items = (value.value as Value[]).map(representation);
      return `(${items.join(', ')}${items.length === 1 ? ',' : ''})`;
    }
    default:
      if (Array.isArray(value.value)) return `[${(value.value as Value[]).map(representation).join(', ')}]`;
      if (value.value instanceof Map) {
        const entries = [...(value.value as Map<string, Value>)];
        return `{${entries.map(([key, item]) => `${quoted(key)}: ${representation(item)}`).join(', ')}}`;
      }
      return String(value.value);
  }
}

/** Python writes large and small numbers with an exponent of two digits at least, from other bounds than JavaScript. */
function pythonFloat(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e16)) return value.toExponential().replace(/e([+-])(\d)$/, 'e$10$2');
  const text = String(value);
  return text.includes('.') ? text : `${text}.0`;
}

const ESCAPES: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\\': '\\\\' };

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(/[\\\p{C}\p{Z}']/gu, (letter) => {
    if (letter === ' ' || (letter === "'" && quote === '"')) return letter;
    if (letter === "'") return "\\'";
    const code = letter.codePointAt(0)!;
    const hex = (digits: number): string => code.toString(16).padStart(digits, '0');
    return ESCAPES[letter] ?? (code < 0x100 ? `\\x${hex(2)}` : code < 0x10000 ? `\\u${hex(4)}` : `\\U${hex(8)}`);
  });
  return quote + escaped + quote;
}
