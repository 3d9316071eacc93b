import { internalError, SplitkvError, unsupportedError, usageError } from '../base/errors.js';
import { listIn, valueIn } from '../base/lists.js';
import type { AnswerFrame } from './answer_frame.js';
import { Distinct } from './distinct.js';
import { type Frames, type Matcher, MAX_FOLLOWED, type State } from './matcher.js';
import { symbolOfMark } from './notation.js';
import type { TextForm } from './text_form.js';

/** Tokens as they stand in a text. */
export interface Vocabulary {
  /** One more than the largest token id. */
  readonly size: number;
  /** A token's bytes; undefined: it adds nothing to a text, and is allowed in none. */
  bytesOf(id: number): Uint8Array | undefined;
  /** Texts that tokens of their own stand for in an answer's frame, and those tokens' numbers in this list. */
  readonly marks?: readonly string[];
  markOf?(id: number): number | undefined;
  /** Tokens that end a text. Where there are none, a text ends as soon as nothing may follow. */
  readonly endIds: readonly number[];
}

/** A vocabulary as it is sent: token `id` has the bytes up to ends[id], from where the one before it ends. */
export interface PackedVocabulary {
  readonly bytes: Uint8Array;
  readonly ends: Uint32Array;
  readonly marks: readonly string[];
  /** Tokens that are marks, each with its number. */
  readonly markOf: ReadonlyMap<number, number>;
  readonly endIds: readonly number[];
}

/** What may come next: bit id % 32 of word id / 32; and the one token, where it is but one. */
export interface NextTokens {
  readonly allowed: Uint32Array;
  readonly only?: number;
}

export function unpacked({ bytes, ends, marks, markOf, endIds }: PackedVocabulary): Vocabulary {
  return {
    size: ends.length,
    bytesOf: (id) => bytes.subarray(id === 0 ? 0 : ends[id - 1], ends[id]),
    marks,
    markOf: (id) => markOf.get(id),
    endIds,
  };
}

/** A token as symbols (notation.ts). */
function symbolsOf(vocabulary: Vocabulary, id: number): ArrayLike<number> {
  const mark = vocabulary.markOf?.(id);
  return mark === undefined ? (vocabulary.bytesOf(id) ?? []) : [symbolOfMark(mark)];
}

type Numbers = number[];

/** The tokens of a vocabulary as a tree of symbols, its nodes in the order of a walk: a node's descendants come right behind it. */
export class TokenTree {
  readonly size: number;
  readonly endIds: readonly number[];
  /** By node: its symbol, how deep it is from 1 on, and the first node that isn't below it. */
  readonly #symbols: Uint16Array;
  readonly #depths: Uint16Array;
  readonly #past: Int32Array;
  /** Tokens, by node. */
  readonly #tokens: Int32Array;
  readonly #tokensFrom: Int32Array;
  readonly #stack: State[] = [];

  constructor(vocabulary: Vocabulary) {
    this.size = vocabulary.size;
    this.endIds = vocabulary.endIds;
    const ends = new Set(vocabulary.endIds);
    const texts = Array.from({ length: this.size }, (_, id) => ({
      id,
      text: ends.has(id) ? '' : String.fromCharCode(...(symbolsOf(vocabulary, id) as number[])),
    }));
    texts.sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : a.id - b.id));
    const [symbols, depths, past, from, tokens]: [Numbers, Numbers, Numbers, Numbers, Numbers] = [[], [], [], [], []];
    const open: number[] = [];
    let before = '';
    for (const { id, text } of texts) {
      if (text === '') continue;
      let same = 0;
      while (same < before.length && before.charCodeAt(same) === text.charCodeAt(same)) same++;
      for (const node of open.splice(same)) past[node] = symbols.length;
      for (let at = same; at < text.length; at++) {
        open.push(symbols.length);
        symbols.push(text.charCodeAt(at));
        depths.push(at + 1);
        from.push(tokens.length);
      }
      tokens.push(id);
      before = text;
    }
    for (const node of open) past[node] = symbols.length;
    from.push(tokens.length);
    this.#symbols = Uint16Array.from(symbols);
    this.#depths = Uint16Array.from(depths);
    this.#past = Int32Array.from(past);
    this.#tokens = Int32Array.from(tokens);
    this.#tokensFrom = Int32Array.from(from);
  }

  /**
   * What may come next; undefined: nothing, the text is whole.
   * @throws SplitkvError `unsupported` where no token can go on with the text
   */
  next(matcher: Matcher, state: State): NextTokens | undefined {
    if (state.places.length === 0 && this.endIds.length === 0) return undefined;
    state.told ??= this.#told(this.#mask(matcher, state), state.accepts);
    return state.told;
  }

  #told(mask: Uint32Array, accepts: boolean): NextTokens {
    const allowed = accepts ? mask.slice() : mask;
    if (accepts) for (const id of this.endIds) allowed[id >>> 5]! |= 1 << (id & 31);
    let only: number | undefined;
    for (let word = 0; word < allowed.length; word++) {
      const bits = allowed[word]!;
      if (bits === 0) continue;
      if (only !== undefined || (bits & (bits - 1)) !== 0) return { allowed };
      only = word * 32 + 31 - Math.clz32(bits);
    }
    if (only !== undefined) return { allowed, only };
    throw unsupportedError('the model has no token that the text could go on with in its form');
  }

  /** Tokens that go on with a text. What is so whatever is around a rule is found once for all that call it. */
  #mask(matcher: Matcher, state: State): Uint32Array {
    if (state.mask) return state.mask;
    const mask = new Uint32Array(Math.ceil(this.size / 32));
    const groups = new Map<Frames, number[]>();
    for (const { node, frames } of state.places) listIn(groups, frames).push(node);
    for (const [frames, nodes] of groups) {
      const inner = matcher.inner(nodes);
      if (inner === state) {
        const exits: number[] = [];
        this.#walk(matcher, state, -1, mask, exits);
        state.exits = exits;
        break;
      }
      const own = this.#mask(matcher, inner);
      for (let word = 0; word < mask.length; word++) mask[word]! |= own[word]!;
      const exits = inner.exits ?? [];
      const behind = exits.length > 0 ? matcher.behind(frames) : null;
      if (behind && behind.places.length > 0) for (const exit of exits) this.#walk(matcher, behind, exit, mask);
    }
    state.mask = mask;
    matcher.keep(mask.length + (state.exits?.length ?? 0));
    return mask;
  }

  /** Below a node, -1 for all: sets what is allowed, and notes where the text may end. */
  #walk(matcher: Matcher, from: State, node: number, mask: Uint32Array, exits?: number[]): void {
    const [symbols, depths, past, tokens, tokensFrom, stack] = [
      this.#symbols,
      this.#depths,
      this.#past,
      this.#tokens,
      this.#tokensFrom,
      this.#stack,
    ];
    const { classes } = matcher.network;
    const to = node < 0 ? symbols.length : past[node]!;
    stack[node < 0 ? 0 : depths[node]!] = from;
    for (let at = node + 1; at < to;) {
      const of = classes[symbols[at]!];
      const state = stack[depths[at]! - 1]!;
      let next = of === undefined ? null : state.next[of];
      if (next === undefined) next = matcher.stepClass(state, of!);
      if (next === null) {
        at = past[at]!;
        continue;
      }
      for (let token = tokensFrom[at]!; token < tokensFrom[at + 1]!; token++) {
        const id = tokens[token]!;
        mask[id >>> 5]! |= 1 << (id & 31);
      }
      if (exits && next.accepts) exits.push(at);
      stack[depths[at]!] = next;
      at = next.places.length === 0 ? past[at]! : at + 1;
    }
  }
}

/**
 * Tells a form in its frame from others: it is read from it again.
 * @throws SplitkvError `usage` for what isn't JSON
 */
export function nameOf(options: TextForm, frame: AnswerFrame | undefined): string {
  try {
    return JSON.stringify([options, frame ?? null]);
  } catch (error) {
    if (error instanceof RangeError) throw usageError('the form is nested too deeply to be read; nest it less');
    throw usageError(`the form isn't JSON: ${(error as Error).message.split('\n', 1).join('')}`);
  }
}

/** A form, ready for as many answers as want it. */
export interface ReadyForm {
  readonly matcher: Matcher;
  readonly vocabulary: Vocabulary;
  /** What a text of it may begin with. */
  readonly first: NextTokens;
}

/** Tokens with quotes, and how many they have. */
const quotedTokens = new WeakMap<Vocabulary, ReadonlyMap<number, number>>();
const quotedOf = (vocabulary: Vocabulary): ReadonlyMap<number, number> =>
  valueIn(quotedTokens, vocabulary, () => {
    const quotes = (id: number): number => Array.from(symbolsOf(vocabulary, id)).filter((one) => one === 0x22).length;
    return new Map(
      Array.from({ length: vocabulary.size }, (_, id) => [id, quotes(id)] as const).filter(([, count]) => count > 0),
    );
  });

/** Where an answer is in the texts of a form. */
export class FormPlace<F extends ReadyForm> {
  #state: State | undefined;
  readonly #distinct: Distinct | undefined;

  constructor(protected readonly form: F) {
    this.#state = form.matcher.start;
    if (form.matcher.network.distinct) this.#distinct = new Distinct(form);
  }

  get first(): NextTokens {
    return this.own(this.form.first) ?? this.form.first;
  }

  /** Of what may come next in answers that are here, what may in this one. */
  protected own(next: NextTokens | undefined): NextTokens | undefined {
    if (!this.#distinct || !next || !this.#state) return next;
    const { vocabulary } = this.form;
    return this.#distinct.without(next, this.#state, (id) => symbolsOf(vocabulary, id), quotedOf(vocabulary));
  }

  /** Undefined where nothing may come any more. */
  get state(): State | undefined {
    const isOver = this.form.vocabulary.endIds.length === 0 && this.#state?.places.length === 0;
    return isOver ? undefined : this.#state;
  }

  reset(): void {
    this.#state = this.form.matcher.start;
    this.#distinct?.clear();
  }

  /** @throws SplitkvError `internal` for a token that isn't allowed, `usage` where too many ways of reading the text go on */
  accept(token: number): void {
    this.#take(token);
  }

  /** What may follow each of the tokens that may come next, as far as they are allowed and it is known. The place stays. */
  ahead(tokens: readonly number[]): readonly Uint32Array[] {
    const [state, at] = [this.#state, this.#distinct?.at];
    const found: Uint32Array[] = [];
    try {
      for (const token of tokens) {
        this.#take(token);
        const behind = this.own(this.state?.told);
        if (!behind) break;
        found.push(behind.allowed);
      }
    } catch (error) {
      // It isn't allowed, or may be read in too many ways.
      if (!(error instanceof SplitkvError)) throw error;
    }
    this.#state = state;
    if (this.#distinct && at) this.#distinct.at = at;
    return found;
  }

  #take(token: number): void {
    const { matcher, vocabulary } = this.form;
    let state: State | null | undefined = this.#state;
    matcher.begin(MAX_FOLLOWED);
    const symbols = symbolsOf(vocabulary, token);
    if (vocabulary.endIds.includes(token)) state = state?.accepts ? undefined : null;
    else if (symbols.length === 0) state = null;
    else
      for (let at = 0; state && at < symbols.length; at++)
        state = this.#distinct?.take(state, symbols[at]!) === false ? null : matcher.step(state, symbols[at]!);
    if (state === null || (state === undefined && this.#state === undefined))
      throw internalError(`token ${token} was sampled, which the text's form doesn't allow`);
    this.#state = state;
  }
}
