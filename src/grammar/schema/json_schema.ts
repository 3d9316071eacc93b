/**
 * Room: rules of a JSON schema. json_schema.ts (here) reads the schema and writes its objects, lists and texts;
 * schema_forms.ts normalises what schemas say together, schema_places.ts finds what they refer to, numbers.ts has ranges
 * and multiples. Read schema_forms.ts next.
 */

import { usageError } from '../../base/errors.js';
import { isObject, typeOf } from '../../base/json.js';
import { valueIn, nth } from '../../base/lists.js';
import { type Automaton, both, except, includes, isEmpty, isEndless, listed, ofLength } from '../automaton.js';
import { characters } from '../code_points.js';
import { textsWith } from '../expressions.js';
import {
  ANY_FRACTION,
  ANY_INTEGER,
  ANY_NUMBER,
  type Bound,
  integersBetween,
  multiplesOf,
  numbersBetween,
} from './numbers.js';
import {
  all,
  any,
  anyOf,
  type Expression,
  inJson,
  JSON_ESCAPE,
  JSON_PLAIN,
  NEVER,
  NOTHING,
  oneOf,
  optional,
  repeat,
  Rules,
  text,
} from '../notation.js';
import {
  canonical,
  type Contained,
  type Form,
  inOrder,
  isNamed,
  type Named,
  namesLike,
  not,
  numberOf,
  OF_TYPES,
  SchemaForms,
  together,
  typesOf,
} from './schema_forms.js';
import { STRING_FORMATS } from './string_formats.js';
import type { FormGrammar } from '../text_form.js';

const MAX_SCHEMA_LETTERS = 512 * 1024;
const MAX_DEPTH = 200;
/** Lists and objects within one another, in the schema's own text. */
const MAX_NESTED = 500;
/** Lengths beyond it aren't counted by states. */
const MAX_MULTIPLE = 200;
const MAX_COUNTED = 1000;
/** Sets of items of which any order is allowed. */
const MAX_SETS = 512;
const MAX_PATTERNS = 16;
const MAX_SOME = 4;

export interface SchemaOptions {
  /** Objects have no properties but those that are listed, where nothing is said of others; 'listed': where any are. */
  readonly strict?: boolean | 'listed';
}

/** How values are written where that isn't as JSON. */
export interface Notation {
  /** For true, false and null. */
  readonly words?: Readonly<Record<'true' | 'false' | 'null', string>>;
  /** Texts as they are, between quotes, of these alone; keys without quotes, those that schemas list alone. */
  readonly raw?: { readonly quote: Expression; readonly texts: Automaton };
}

/**
 * The JSON texts of the values that a schema allows. Properties come in the schema's order, numbers within bounds without exponents, and
 * between parts there is at most a blank or a line's end with up to 32 blanks or tabs.
 * @throws SplitkvError `usage` for a schema that isn't right, or that has a keyword that can't be held to: it is named
 */
export function schemaGrammar(schema: unknown, options: SchemaOptions = {}): FormGrammar {
  const writer = new SchemaWriter(schema, options);
  return { root: writer.value(schema), rules: writer.rules, none: 'schema: no value is allowed by it' };
}

/** Writes values of a schema into the rules of a grammar. */
export class SchemaWriter {
  readonly #forms: SchemaForms;
  readonly #numbers = new Map<unknown, number>();
  readonly #known = new Map<string, number>();
  readonly #namings = new Map<number, NamesBy[]>();
  readonly #texts = new Map<Automaton, Expression>();
  #letters = 0;
  #depth = 0;

  constructor(
    root: unknown,
    readonly options: SchemaOptions,
    readonly rules = new Rules(),
    /** Tells its rules from those of other schemas. */
    private readonly name = '',
    private readonly notation: Notation = {},
  ) {
    checkSize(root);
    this.#forms = new SchemaForms(root);
  }

  /** A value of the schema. */
  value(schema: unknown): Expression {
    const own = this.#forms.own(schema);
    return this.rules.rule(`${this.name} value ${this.#number(own)}`, () => {
      if (++this.#depth > MAX_DEPTH) throw usageError(`schema: it is nested deeper than ${MAX_DEPTH}`);
      const made = any(...this.#forms.of(own).map((form) => this.#form(form)));
      this.#depth--;
      return made;
    });
  }

  /** Schemas that say the same have the same number. */
  #number(of: unknown): number {
    return valueIn(this.#numbers, of, () => {
      // In the place of its parts their numbers.
      const key = inOrder(of, (part) =>
        typeof part === 'object' && part !== null ? `#${this.#number(part)}` : canonical(part),
      );
      this.#letters += key.length;
      if (this.#letters > 100 * MAX_SCHEMA_LETTERS)
        throw usageError('schema: its parts are too many, one within the other: make it smaller');
      return valueIn(this.#known, key, () => this.#known.size);
    });
  }

  #form(form: Form): Expression {
    if (form['enum'] !== undefined) return anyOf(listedBy(form).map((value) => this.#constant(value)));
    const types = typesOf(form);
    const numbers = types.includes('number') ? 'number' : 'integer';
    const options = types
      .filter((type) => type !== 'integer' || numbers === 'integer')
      .map((type): Expression => {
        switch (type) {
          case 'null':
            return text(this.notation.words?.null ?? 'null');
          case 'boolean':
            return any(text(this.notation.words?.true ?? 'true'), text(this.notation.words?.false ?? 'false'));
          case 'number':
          case 'integer':
            return number(form, type, this.rules);
          case 'string':
            return this.#string(form);
          case 'array':
            return this.#array(form);
          default:
            return this.#object(form);
        }
      });
    return any(...options);
  }

  #constant(value: unknown): Expression {
    if (Array.isArray(value)) return this.#around('[', this.#separated(value.map((item) => this.#constant(item))), ']');
    if (isObject(value)) {
      const members = Object.entries(value).map(([key, of]) => this.#member(this.#key(key), this.#constant(of)));
      return this.#around('{', this.#separated(members), '}');
    }
    const { raw, words } = this.notation;
    if (raw && typeof value === 'string') return this.#quoted(listed([value]), raw);
    const word = String(value) as 'true' | 'false' | 'null';
    return text((typeof value !== 'string' && words?.[word]) || JSON.stringify(value));
  }

  /** Blanks that may be between two parts. */
  get #blank(): Expression {
    return this.rules.rule('blank', () =>
      optional(any(text(' '), all(text('\n'), repeat(oneOf(characters(' \t')), 0, 32)))),
    );
  }

  #around(open: string, part: Expression, close: string): Expression {
    if (part === NOTHING) return all(text(open), this.#blank, text(close));
    return all(text(open), this.#blank, part, this.#blank, text(close));
  }

  get #comma(): Expression {
    return all(text(','), this.#blank);
  }

  #separated(parts: readonly Expression[]): Expression {
    return all(...parts.flatMap((part, at) => (at === 0 ? [part] : [this.#comma, part])));
  }

  #member(key: Expression, value: Expression): Expression {
    return all(key, text(':'), this.#blank, value);
  }

  #string(form: Form): Expression {
    const { raw } = this.notation;
    if (raw) return this.#quoted(textsOfForm(form), raw);
    const { texts, unlike } = saidOf(form);
    if (texts.length + unlike.length > 0) {
      const said = ['patterns', 'formats', 'unlike', 'minLength', 'maxLength'].map((key) => form[key]);
      return inQuotes(
        this.rules.rule(canonical(['texts', ...said]), () => this.rules.texts(textsOfForm(form), inJson)),
      );
    }
    const [least, most] = rangeOf(form, 'Length');
    const unit = this.rules.rule('character', () => any(JSON_PLAIN, JSON_ESCAPE));
    const free: Expression = this.rules.rule('characters', () => {
      const rest = this.rules.rule('characters', () => NEVER);
      return any(all(JSON_PLAIN, rest), all(JSON_ESCAPE, rest), NOTHING);
    });
    if (most === Infinity) return inQuotes(all(repeat(unit, least, least), free));
    return inQuotes(repeat(unit, least, most));
  }

  #array(form: Form): Expression {
    const [least, most] = rangeOf(form, 'Items');
    const first = (form['prefixItems'] ?? []) as readonly unknown[];
    const rest = form['items'] ?? true;
    if (most < least) return NEVER;
    if (form['contains'] !== undefined) return this.#around('[', this.#containing(form), ']');
    const distinct = form['uniqueItems'] === true && most > 1 ? this.#distinctItem(form) : undefined;
    if (form['uniqueItems'] === true && most > 1 && !distinct)
      return this.#around('[', this.#unique(form, rest === false ? Math.min(most, first.length) : most), ']');
    const item = (at: number): Expression => {
      const value = at < first.length ? this.value(first[at]) : (distinct ?? this.value(rest));
      return at === 0 ? value : all(this.#comma, value);
    };
    // From the end: what may follow the first `at` items.
    const shared = Math.min(Math.max(first.length, 1), most);
    let behind: Expression =
      shared >= most || rest === false
        ? shared < least
          ? NEVER
          : NOTHING
        : repeat(all(this.#comma, distinct ?? this.value(rest)), Math.max(0, least - shared), most - shared);
    for (let at = shared - 1; at >= 0; at--) {
      const next = all(item(at), behind);
      behind = at >= least ? any(next, NOTHING) : next;
    }
    return this.#around('[', behind, ']');
  }

  /** Items of which so many are of a schema: counted. */
  #containing(form: Form): Expression {
    const [{ of, least, most }, another] = form['contains'] as [Contained, Contained?];
    if (another) throw usageError('schema: contains that is given twice, by allOf, not or $ref, is not done');
    const [from, to] = rangeOf(form, 'Items');
    const first = (form['prefixItems'] ?? []) as readonly unknown[];
    const places = Math.max(first.length, to === Infinity ? from : to + 1);
    const counted = most === Infinity ? least : most;
    if (places * (counted + 1) > MAX_COUNTED) throw usageError('schema: contains among so many items is not done');
    const key = `${this.name} containing ${this.#number(form)}`;
    const behind = (at: number, count: number): Expression =>
      this.rules.rule(`${key} ${Math.min(at, Math.max(1, places))} ${count}`, () => {
        const schema = at < first.length ? first[at] : (form['items'] ?? true);
        const item = (alsoOf: unknown, next: number): Expression => {
          const own = together(schema, alsoOf);
          if (own === false || at >= to) return NEVER;
          const isUnique = form['uniqueItems'] === true && this.#forms.of(own).length > 0;
          const value = isUnique ? this.#distinctItem({ items: own }) : this.value(own);
          if (!value) throw usageError('schema: contains beside uniqueItems is done of texts without a bound');
          return all(at === 0 ? NOTHING : this.#comma, value, behind(at + 1, next));
        };
        const other = item(most === Infinity ? true : not(of), count);
        const one = count < counted ? item(of, count + 1) : NEVER;
        return any(one, other, ...(at >= from && count >= least ? [NOTHING] : []));
      });
    return behind(0, 0);
  }

  /** Items that differ: of values that are listed, so that those that are left can be told. */
  #unique(form: Form, most: number): Expression {
    const [least] = rangeOf(form, 'Items');
    const first = (form['prefixItems'] ?? []) as readonly unknown[];
    const values = [...first.slice(0, most), ...(most > first.length ? [form['items'] ?? true] : [])].map((of) =>
      this.#valuesOf(of),
    );
    const known = [...new Set(values.flat())];
    const last = Math.min(most, known.length);
    const key = `${this.name} unique ${this.#number(form)}`;
    const item = (value: string): Expression => this.#constant(JSON.parse(value));
    // How many sets of values there are.
    let [sets, ofSize] = [0, 1];
    for (let size = 0; size <= last; size++, ofSize *= (known.length - size + 1) / size) sets += ofSize;
    if (sets > MAX_SETS) {
      if (first.length > 0) throw usageError('schema: uniqueItems beside prefixItems is done of few values');
      const members = known.map((value) => ({ needed: false, ways: [{ covers: 0, member: item(value) }] }));
      const counts = { minProperties: least, ...(most < known.length && { maxProperties: most }) };
      return this.#inOrder(key, counts, members, this.#comma);
    }
    const behind = (used: readonly string[]): Expression =>
      this.rules.rule(`${key} ${[...used].sort().join()}`, () => {
        const free = values[Math.min(used.length, values.length - 1)]?.filter((value) => !used.includes(value)) ?? [];
        const goesOn = free.map((value) =>
          all(used.length > 0 ? this.#comma : NOTHING, item(value), behind([...used, value])),
        );
        return any(...(used.length < last ? goesOn : []), ...(used.length >= least ? [NOTHING] : []));
      });
    return behind([]);
  }

  /** An item that a string tells from all others, where there is always another one; otherwise undefined. Items of other types are left out. */
  #distinctItem(form: Form): Expression | undefined {
    const [first, second] = (form['prefixItems'] ?? []) as readonly unknown[];
    const forms = this.#forms.of(form['items'] ?? true);
    const own = (type: string): Form[] => forms.filter((of) => kindsOf(of).includes(type));
    const isOther = this.#forms.of(first ?? false).every((of) => kindsOf(of).every((type) => own(type).length === 0));
    const [strings, objects] = [own('string'), own('object')];
    if (second !== undefined || !isOther || this.notation.raw || strings.length + objects.length === 0)
      return undefined;
    const text = strings.length > 0 ? this.#distinct(strings, 1) : NEVER;
    // All objects by the same property, which each then has.
    const named = objects.map((of) =>
      of['enum'] === undefined ? namesOf(of) : { names: [], wanted: new Set<string>() },
    );
    const names = (named[0]?.names ?? []).filter((name) => named.every((one) => one.names.includes(name)));
    names.sort(
      (a, b) => named.filter(({ wanted }) => wanted.has(b)).length - named.filter(({ wanted }) => wanted.has(a)).length,
    );
    for (const name of objects.length > 0 ? names : ['']) {
      const members = objects.map((of) => this.#distinct(this.#forms.of(this.#schemaOf(name, of)), 2));
      if (!text || members.includes(undefined)) continue;
      return any(text, ...objects.map((of, at) => this.#object(of, [name, nth(members, at) ?? NEVER])));
    }
    return undefined;
  }

  /** A string of these forms that no other of its list is. */
  #distinct(forms: readonly Form[], within: number): Expression | undefined {
    const texts = unionOf(forms.filter((of) => kindsOf(of).includes('string')));
    if (!isEndless(texts)) return undefined;
    return this.rules.rule(`distinct ${within} ${canonical(forms)}`, () => ({
      kind: 'distinct',
      within,
      of: inQuotes(this.rules.texts(texts, inJson)),
    }));
  }

  /** The values of a schema, as JSON. */
  #valuesOf(schema: unknown): string[] {
    const forms = this.#forms.of(schema);
    const listing = forms.some((form) => form['enum'] !== undefined);
    const values = forms.flatMap((form): unknown[] => {
      if (form['enum'] !== undefined) return listedBy(form);
      return typesOf(form).flatMap((type): unknown[] => {
        // Other spellings of what is listed.
        if (type === 'string' && listing) return [];
        if (type === 'boolean') return [true, false];
        if (type === 'null') return [null];
        throw usageError(
          `schema: uniqueItems is done of texts without a bound, of objects that have one, and of listed values: not of ${type}s`,
        );
      });
    });
    return [...new Set(values.map(canonical))];
  }

  /** @param distinct a property that it has, and its value */
  #object(form: Form, [own, distinct]: readonly [string?, Expression?] = []): Expression {
    const { names, wanted } = namesOf(form);
    const somes = (form['some'] ?? []) as readonly Named[];
    if (somes.length > MAX_SOME)
      throw usageError(
        `schema: not, else or oneOf of properties that are not listed is done ${MAX_SOME} times of an object`,
      );
    const others = this.#others(form, names);
    const members = names.map((name): Member => {
      const schema = this.#schemaOf(name, form);
      const may = somes.map((one, at) => (name !== own && isNamed(one, name) ? 1 << at : 0));
      const free = may.filter((_, at) => somes[at]?.of === true).reduce((all, bit) => all | bit, 0);
      const ways = may.reduce((sets, bit) => (bit & ~free ? [...sets, ...sets.map((set) => set | bit)] : sets), [free]);
      return {
        needed: wanted.has(name) || name === own,
        ways: ways.map((covers) => {
          const also = somes.flatMap(({ of }, at) => ((covers >> at) & 1 ? [of] : []));
          const value = (name === own && distinct) || this.value(also.reduce(together, schema));
          return { covers, member: this.#member(this.#key(name), value) };
        }),
      };
    });
    const lacking = {
      all: 2 ** somes.length - 1,
      last: (lacks: number) =>
        this.#others(
          form,
          names,
          somes.filter((_, at) => (lacks >> at) & 1),
        ),
    };
    const key = `${this.name} members ${this.#number(form)} ${own ?? ''}`;
    return this.#around('{', this.#inOrder(key, form, members, this.#comma, others, lacking), '}');
  }

  /**
   * Members, of which those may be left out that aren't needed, and others behind them.
   * @param lacking bits of what must be covered yet, and a member behind all others that covers these
   */
  #inOrder(
    key: string,
    form: Form,
    members: readonly Member[],
    between: Expression,
    others?: Expression,
    { all: whole, last }: Lacking = { all: 0, last: () => undefined },
  ): Expression {
    const [least, most] = rangeOf(form, 'Properties');
    // Counts matter up to where neither bound does any more.
    const counted = least > 0 || most !== Infinity ? (most === Infinity ? least : most + 1) : 1;
    if (counted > MAX_COUNTED)
      throw usageError(`schema: minProperties and maxProperties above ${MAX_COUNTED} are not done`);
    const shared = new Map<string, Expression>();
    const behind = (at: number, count: number, lacks: number): Expression => {
      if (count > most) return NEVER;
      return this.rules.rule(`${key} ${at} ${count} ${lacks}`, () => {
        const comma = count === 0 ? NOTHING : between;
        const next = Math.min(count + 1, counted);
        if (at < members.length) {
          const { needed, ways } = nth(members, at);
          const given = ways
            .filter(({ covers }, way) => way === 0 || (covers & lacks) === (covers & whole & lacks && covers))
            .map(({ covers, member }) => all(member, behind(at + 1, next, lacks & ~covers)));
          // What may be the first member, or a later one, is there once.
          const isBoth = counted === 1 && at > 0 && !members.slice(0, at).some((before) => before.needed);
          const own = isBoth
            ? valueIn(shared, `${at} ${lacks}`, (): Expression => ({ kind: 'rule', body: any(...given) }))
            : any(...given);
          return any(all(comma, own), ...(needed ? [] : [behind(at + 1, count, lacks)]));
        }
        const stops = count >= least && lacks === 0 ? [NOTHING] : [];
        // Behind it the same name might come again, with another value.
        const covering = lacks > 0 && next <= most && next >= least ? last(lacks) : undefined;
        if (covering) stops.push(all(comma, covering));
        if (!others) return any(...stops);
        if (least > count + 1) {
          throw usageError(
            'schema: minProperties that additional properties must come to is not done: the same name may come twice',
          );
        }
        return any(...stops, all(comma, others, behind(at, next, lacks)));
      });
    };
    // From the last one on, with every count that it may have before it: each then finds what follows it.
    let needed = members.filter((member) => member.needed).length;
    for (let at = members.length; at >= 0; at--) {
      if (members[at]?.needed) needed--;
      for (let count = Math.min(at, counted); count >= Math.min(needed, counted); count--)
        for (let lacks = 0; lacks <= whole; lacks++) behind(at, count, lacks);
    }
    return behind(0, 0, whole);
  }

  /** A text without quotes in it. */
  #quoted(texts: Automaton, raw: NonNullable<Notation['raw']>): Expression {
    return all(raw.quote, this.rules.texts(both(texts, raw.texts), oneOf), raw.quote);
  }

  #key(name: string): Expression {
    return text(this.notation.raw ? name : JSON.stringify(name));
  }

  /**
   * The properties of an object by themselves, in the schema's order: those that it lists.
   * @param write one of them, by its name and its schema
   * @param between two of them
   */
  members(schema: unknown, write: (name: string, schema: unknown) => Expression, between: Expression): Expression {
    const forms = this.#forms.of(schema).filter((form) => typesOf(form).includes('object'));
    const options = forms.map((form, at) => {
      const { names, wanted } = namesOf(form);
      const unknown = ['enum', 'minProperties', 'maxProperties', 'some'].find((keyword) => form[keyword] !== undefined);
      if (unknown !== undefined)
        throw usageError(`schema: ${unknown} of the arguments is not done in this model's calls`);
      const members = names.map((name) => {
        const of = this.#schemaOf(name, form);
        const member = of === false ? NEVER : write(name, of);
        return { needed: wanted.has(name), ways: [{ covers: 0, member }] };
      });
      return this.#inOrder(`${this.name} argument ${at}`, form, members, between);
    });
    return any(...options);
  }

  /** A text as it is, where the schema allows texts; other values as JSON. */
  plain(schema: unknown, texts: Automaton): Expression {
    const options = this.#forms.of(schema).flatMap((form): Expression[] => {
      if (form['enum'] !== undefined)
        return listedBy(form).map((value) => text(typeof value === 'string' ? value : JSON.stringify(value)));
      const types = typesOf(form);
      const others = types.filter((type) => type !== 'string');
      const own = types.includes('string') ? [this.rules.texts(both(textsOfForm(form), texts), oneOf)] : [];
      // What could be read as a text is one.
      return own.length > 0 ? [...own, ...(others.includes('null') ? [text('null')] : [])] : [this.#form(form)];
    });
    return any(...options);
  }

  /** The schema of a property: also by patterns of names; false: there may be none. */
  #schemaOf(name: string, form: Form): unknown {
    const mayBe = (of: Form): boolean => allows(of, name) && (of['enum'] === undefined || listedBy(of).includes(name));
    if (form['propertyNames'] !== undefined && !this.#forms.of(form['propertyNames']).some(mayBe)) return false;
    const properties = propertiesOf(form);
    const own = Object.hasOwn(properties, name) ? [properties[name]] : [];
    const patterns = patternsOf(form).flatMap((one) => (isNamed(one, name) ? [one.of] : []));
    const each = eachOf(form).flatMap((one) => (isNamed(one, name) ? [one.of] : []));
    return each.reduce(together, this.#together(form, [...own, ...patterns]));
  }

  /** What a property is of which these are said; of none what is said of others. */
  #together(form: Form, schemas: readonly unknown[]): unknown {
    if (schemas.length > 0) return schemas.length === 1 ? schemas[0] : { allOf: schemas };
    const { strict } = this.options;
    const closed = strict === 'listed' ? Object.keys(propertiesOf(form)).length > 0 : strict;
    return form['additionalProperties'] ?? !closed;
  }

  /** A member of another name than those of `properties`; undefined where there is none. @param some of these, and of its schema */
  #others(form: Form, listedNames: readonly string[], some: readonly Named[] = []): Expression | undefined {
    if (this.notation.raw) return undefined;
    const [patterns, each] = [patternsOf(form), eachOf(form)];
    if (patterns.length === 0 && this.#together(form, []) === false) return undefined;
    if (patterns.length + each.length > MAX_PATTERNS)
      throw usageError(`schema: more than ${MAX_PATTERNS} patternProperties are not done`);
    const said = [...patterns, ...each];
    const options = this.#namesBy(form, listedNames, some, said).flatMap(({ names, which }): Expression[] => {
      const own = which.map((at) => nth(said, at));
      const named = own.filter(({ like }) => like !== undefined).map(({ of }) => of);
      const others = [...some, ...own.filter(({ like }) => like === undefined)].map(({ of }) => of);
      const value = others.reduce(together, this.#together(form, named));
      if (value === false) return [];
      const name = valueIn(this.#texts, names, () => inQuotes(this.rules.texts(names, inJson)));
      return [this.#member(name, this.value(value))];
    });
    return options.length > 0 ? any(...options) : undefined;
  }

  /** Other names than those of `properties` by which schemas are said of them: once, however many objects have the same ones. */
  #namesBy(form: Form, listedNames: readonly string[], some: readonly Named[], said: readonly Named[]): NamesBy[] {
    const names = [some, said].map((list) => list.map(({ of: _, ...name }) => name));
    return valueIn(this.#namings, this.#number([listedNames, form['propertyNames'] ?? null, ...names]), () => {
      const { propertyNames = {} } = form;
      const forms = this.#forms.of(propertyNames).filter((of) => typesOf(of).includes('string'));
      const base = some.map(namesLike).reduce(both, unionOf(forms));
      let parts = [{ names: both(base, except(listed(listedNames))), which: [] as number[] }];
      for (const [at, one] of said.entries()) {
        const language = namesLike(one);
        parts = parts.flatMap(({ names: of, which }) => [
          { names: both(of, language), which: [...which, at] },
          { names: both(of, except(language)), which },
        ]);
        parts = parts.filter(({ names: of }) => !isEmpty(of));
      }
      return parts.filter(({ names: of }) => !isEmpty(of));
    });
  }
}

/** The strings of any of these forms. */
function unionOf(forms: readonly Form[]): Automaton {
  const texts = forms.map((of) =>
    of['enum'] === undefined ? textsOfForm(of) : listed(listedBy(of).filter((value) => typeof value === 'string')),
  );
  if (texts.length < 2) return texts[0] ?? listed([]);
  return except(texts.map(except).reduce(both));
}

const inQuotes = (part: Expression): Expression => all(text('"'), part, text('"'));

/** The least and the most that a form counts. */
const rangeOf = (form: Form, what: 'Items' | 'Length' | 'Properties'): [least: number, most: number] => [
  numberOf(form, `min${what}`) ?? 0,
  numberOf(form, `max${what}`) ?? Infinity,
];

/** Types of its values: of those that it lists, where it does. */
const kindsOf = (form: Form): readonly string[] =>
  form['enum'] === undefined ? typesOf(form) : [...new Set(listedBy(form).map(typeOf))];

const propertiesOf = (form: Form): Readonly<Record<string, unknown>> => (form['properties'] ?? {}) as Form;

/** Names of an object's properties that a form speaks of, in order, and those that must be there. */
function namesOf(form: Form): { readonly names: readonly string[]; readonly wanted: ReadonlySet<string> } {
  const wanted = new Set((form['required'] ?? []) as readonly string[]);
  return { names: [...new Set([...Object.keys(propertiesOf(form)), ...wanted])], wanted };
}

const patternsOf = (form: Form): Named[] =>
  Object.entries((form['patternProperties'] ?? {}) as Form).map(([like, of]) => ({ like, of }));
const eachOf = (form: Form): readonly Named[] => (form['each'] ?? []) as readonly Named[];

/** A member of an object, or an item of a list in its order. */
interface Member {
  readonly needed: boolean;
  /** Ways to write it, each with bits of what it covers: the first covers least. */
  readonly ways: readonly { readonly covers: number; readonly member: Expression }[];
}

interface NamesBy {
  readonly names: Automaton;
  readonly which: readonly number[];
}

interface Lacking {
  readonly all: number;
  readonly last: (lacks: number) => Expression | undefined;
}

interface Said {
  readonly texts: readonly Automaton[];
  readonly unlike: readonly Form[];
}

const known = new WeakMap<Form, Said>();

/** Of a form's patterns and formats, and forms that its texts aren't of. */
const saidOf = (form: Form): Said =>
  valueIn(known, form, () => {
    const { patterns = [], formats = [], unlike = [] } = form as Readonly<Record<string, readonly string[]>>;
    const named = formats.flatMap((name) => STRING_FORMATS.get(name) ?? []);
    return {
      texts: [...patterns.map((of) => textsWith(of)), ...named.map((of) => textsWith(of, true))],
      unlike: unlike as unknown as readonly Form[],
    };
  });

/** All strings of a form. */
function textsOfForm(form: Form): Automaton {
  const { texts, unlike } = saidOf(form);
  const [least, most] = rangeOf(form, 'Length');
  const others = unlike.map(({ enum: values, ...of }) => except(values ? listed(values as string[]) : textsOfForm(of)));
  return [...texts, ...others, ofLength(least, most)].reduce(both);
}

/** What is too large or too deep is told before anything goes through it by itself. */
function checkSize(schema: unknown): void {
  let letters = 0;
  const waiting: [unknown, number][] = [[schema, 0]];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const [value, depth] = next;
    if (depth > MAX_NESTED) throw usageError(`schema: it is nested deeper than ${MAX_NESTED} lists and objects`);
    letters += typeof value === 'string' ? value.length + 3 : 2;
    if (typeof value === 'object' && value !== null) {
      for (const [key, of] of Object.entries(value)) {
        if (!Array.isArray(value)) letters += key.length + 4;
        waiting.push([of, depth + 1]);
      }
    }
    if (letters > MAX_SCHEMA_LETTERS)
      throw usageError(`schema: it has more than ${MAX_SCHEMA_LETTERS} letters: make it smaller`);
  }
}

/** The ends of the range of its numbers: of two the narrower. */
function boundsOf(form: Form): (Bound | undefined)[] {
  return (['minimum', 'maximum'] as const).map((plain) => {
    const strict = plain === 'minimum' ? 'exclusiveMinimum' : 'exclusiveMaximum';
    const [value, other] = [numberOf(form, plain), numberOf(form, strict)];
    if (other === undefined) return value === undefined ? undefined : { value, exclusive: false };
    const exclusive = value === undefined || (plain === 'minimum' ? other >= value : other <= value);
    return { value: exclusive ? other : value, exclusive };
  });
}

function number(form: Form, type: 'number' | 'integer', rules: Rules): Expression {
  const [low, high] = boundsOf(form);
  const step = form['multipleOf'];
  const from = low ? (low.exclusive ? Math.floor(low.value) + 1 : Math.ceil(low.value)) : -Infinity;
  const to = high ? (high.exclusive ? Math.ceil(high.value) - 1 : Math.floor(high.value)) : Infinity;
  if (form['fraction'] !== undefined) {
    if (type === 'integer' || step !== undefined) return NEVER;
    if (low || high) throw usageError('schema: numbers that are not whole are not done within bounds');
    return ANY_FRACTION;
  }
  if (step !== undefined) {
    if (typeof step !== 'number' || !Number.isInteger(step))
      throw usageError('schema: multipleOf is done of whole numbers: others are not exact in float64');
    const first = Math.ceil(from / step) * step;
    const count = Math.floor((to - first) / step) + 1;
    if (count <= MAX_COUNTED)
      return any(...Array.from({ length: Math.max(0, count) }, (_, i) => text(`${first + i * step}`)));
    if (step === 1 && type === 'integer') return low || high ? integersBetween(from, to) : ANY_INTEGER;
    if (low || high) throw usageError(`schema: multipleOf within bounds is done of up to ${MAX_COUNTED} numbers`);
    if (step > MAX_MULTIPLE) throw usageError(`schema: multipleOf ${step}: at most ${MAX_MULTIPLE} is done`);
    return multiplesOf(step, rules);
  }
  if (type === 'integer') return low || high ? integersBetween(from, to) : ANY_INTEGER;
  return low || high ? numbersBetween(low, high) : ANY_NUMBER;
}

/** Values that a form lists, without those that its other keywords forbid. */
const listedBy = (form: Form): unknown[] => (form['enum'] as unknown[]).filter((value) => allows(form, value));

/** Whether a text is of a form: without an automaton of all that are. */
function isText(form: Form, value: string): boolean {
  const [least, most] = rangeOf(form, 'Length');
  const { length } = Array.from(value);
  const { texts, unlike } = saidOf(form);
  return (
    length >= least &&
    length <= most &&
    texts.every((of) => includes(of, value)) &&
    !unlike.some((of) => (of['enum'] as readonly unknown[] | undefined)?.includes(value) ?? isText(of, value))
  );
}

/** Whether a form allows a value, whatever it lists. */
function allows(form: Form, value: unknown): boolean {
  const type = typeOf(value);
  const types = typesOf(form);
  if (!types.includes(type) && !(type === 'number' && types.includes('integer') && Number.isInteger(value)))
    return false;
  if (typeof value === 'number') {
    if (form['fraction'] !== undefined && Number.isInteger(value)) return false;
    const [low, high] = boundsOf(form);
    if (low && (low.exclusive ? value <= low.value : value < low.value)) return false;
    if (high && (high.exclusive ? value >= high.value : value > high.value)) return false;
    const step = form['multipleOf'] as number | undefined;
    return step === undefined || Number.isInteger(value / step);
  }
  if (typeof value === 'string') return isText(form, value);
  const beside = Object.keys(form).find((keyword) => OF_TYPES[type]?.test(keyword));
  if ((type === 'array' || type === 'object') && beside !== undefined)
    throw usageError(`schema: enum or const of ${type}s beside ${beside} is not done`);
  return true;
}
