import type * as XGrammar from '@mlc-ai/web-xgrammar';
import factory from '@mlc-ai/web-xgrammar?factory';
import { SplitkvError, unsupportedError, usageError } from '../base/errors.js';
import { type AnswerFrame, framedGrammar } from './answer_frame.js';
import { symbolsOfBytes, symbolsOfMark } from './symbols.js';
import { type FormGrammar, formGrammar, type TextForm } from './text_form.js';

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

/** What may come next: bit id % 32 of word id / 32; and the one token, where it is but one. */
export interface NextTokens {
  readonly allowed: Uint32Array;
  readonly only?: number;
}

/** Of grammars that are kept compiled. Over 150,000 tokens a small schema takes 14 MiB. */
const KEPT_BYTES = 2 ** 27;
/** For one grammar, and for all of an instance. */
const FORM_BYTES = 2 ** 28;
const MAX_BYTES = 2 ** 30;

/** One instance of XGrammar. A grammar that it can't read breaks the instance, which is then made anew. */
class Instance {
  readonly #errors: string[] = [];
  readonly #api: typeof XGrammar;
  #broken = false;
  #full = false;
  /** Of its memory, which never shrinks: as it begins. */
  #bytes = 2 ** 24;
  #limit = MAX_BYTES;

  constructor() {
    const say = (...parts: unknown[]): void => void this.#errors.push(parts.join(' '));
    const grown = (bytes: number): void => {
      this.#bytes = bytes;
      this.#full = false;
    };
    // It asks for the limit, and then grows or doesn't.
    const limit = (): number => {
      this.#full = true;
      return this.#limit;
    };
    this.#api = factory({
      log: say,
      warn: say,
      error: say,
      grown,
      get maxBytes() {
        return limit();
      },
    });
  }

  get isBroken(): boolean {
    return this.#broken;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** For one grammar's sake it grows by no more than one may take. */
  limit(): void {
    this.#limit = Math.min(MAX_BYTES, this.#bytes + FORM_BYTES);
  }

  async run<T>(body: (api: typeof XGrammar) => Promise<T> | T): Promise<T> {
    this.#errors.length = 0;
    try {
      return await body(this.#api);
    } catch (error) {
      this.#broken = true;
      if (this.#full) {
        throw usageError(`the form takes more than ${FORM_BYTES / 2 ** 20} MiB to be held to; make it smaller`);
      }
      const fatal = this.#errors.find((line) => line.startsWith('[FATAL]'));
      // "[FATAL] /a/file.cc:12: what is wrong"
      const why = fatal?.replace(/^\[FATAL\] \S+?:\d+: /, '').replace(/^Check failed: \(.*?\) is false: /, '');
      throw usageError(why ?? `the grammar engine failed: ${String(error)}`);
    }
  }
}

interface Engine {
  readonly instance: Instance;
  readonly compiler: XGrammar.GrammarCompiler;
  /** Of its memory, before it has compiled anything. */
  readonly bytes: number;
}

/** Grammars over the tokens of one model, one after the other. */
export class Constraints {
  /** What was used last is last. */
  readonly #compiled = new Map<string, CompiledForm>();
  #engine: Engine | undefined;

  constructor(readonly vocabulary: Vocabulary) {}

  /** What it runs in failed at something; forms that were ready before go on. */
  get isBroken(): boolean {
    return this.#engine?.instance.isBroken ?? false;
  }

  /**
   * Makes a form ready for answers, in a frame where there is one; undefined where the options limit nothing.
   * @param name the form's and the frame's, which nothing else has
   * @throws SplitkvError `usage` as `formGrammar`, and for a grammar that isn't right; `unsupported` where no token can begin a text of it
   */
  async compile(
    options: TextForm,
    frame?: AnswerFrame,
    name = JSON.stringify([options, frame]),
  ): Promise<CompiledForm | undefined> {
    let compiled = this.#compiled.get(name);
    if (!compiled) {
      const form = formGrammar(options);
      if (!form && !frame) return undefined;
      compiled = await this.#compile(form, frame);
    }
    this.#compiled.delete(name);
    this.#compiled.set(name, compiled);
    return compiled;
  }

  async #compile(form: FormGrammar | undefined, frame: AnswerFrame | undefined): Promise<CompiledForm> {
    const rules = frame ? framedGrammar(frame, form?.grammar, this.vocabulary.marks ?? []) : form!.grammar;
    if (this.isBroken) this.#engine = undefined;
    const { instance, compiler, bytes } = (this.#engine ??= await this.#open());
    const held = instance.bytes;
    instance.limit();
    const compiled = await instance.run(async ({ Grammar }) => {
      const grammar = await Grammar.fromEBNF(rules);
      const done = await compiler.compileGrammar(grammar);
      grammar.dispose();
      return done;
    });
    const ready = new CompiledForm(instance, compiled, this.vocabulary);
    await ready.prepare();
    if (instance.bytes > held && instance.bytes - bytes > KEPT_BYTES) this.#dropHalf();
    return ready;
  }

  /** Those that weren't used for longest. Nobody knows what each takes; what they leave is used before the memory grows again. */
  #dropHalf(): void {
    const names = [...this.#compiled.keys()];
    for (const name of names.slice(0, Math.ceil(names.length / 2))) {
      this.#compiled.get(name)!.grammar.dispose();
      this.#compiled.delete(name);
    }
  }

  async #open(): Promise<Engine> {
    const { size, endIds } = this.vocabulary;
    const instance = new Instance();
    const tokens = Array.from({ length: size }, (_, id) => {
      const mark = this.vocabulary.markOf?.(id);
      return mark === undefined ? symbolsOfBytes(this.vocabulary.bytesOf(id) ?? []) : symbolsOfMark(mark);
    });
    const compiler = await instance.run(async ({ TokenizerInfo, GrammarCompiler }) =>
      GrammarCompiler.createGrammarCompiler(
        await TokenizerInfo.createTokenizerInfo(tokens, 'raw', false, size, [...endIds]),
        false,
      ),
    );
    return { instance, compiler, bytes: instance.bytes };
  }
}

/** A grammar, ready for as many answers as want it. */
export class CompiledForm {
  #first: NextTokens | undefined;

  constructor(
    readonly instance: Instance,
    readonly grammar: XGrammar.CompiledGrammar,
    readonly vocabulary: Vocabulary,
  ) {}

  /** What a text of it may begin with. */
  get first(): NextTokens {
    return this.#first!;
  }

  async prepare(): Promise<void> {
    const matcher = await this.#matcher();
    this.#first = await nextOf(matcher, this.vocabulary);
    matcher.dispose();
    if (!this.#first) throw usageError('grammar: only the empty text is of it');
  }

  #matcher(): Promise<XGrammar.GrammarMatcher> {
    const stops = this.vocabulary.endIds.length === 0;
    return this.instance.run(({ GrammarMatcher }) =>
      GrammarMatcher.createGrammarMatcher(this.grammar, undefined, stops),
    );
  }

  /** For one answer. */
  async start(): Promise<FormConstraint> {
    return new FormConstraint(await this.#matcher(), this.#first!, this.vocabulary);
  }
}

/** What may follow the tokens of one answer so far. */
export class FormConstraint {
  #open = true;

  constructor(
    private readonly matcher: XGrammar.GrammarMatcher,
    readonly first: NextTokens,
    private readonly vocabulary: Vocabulary,
  ) {}

  reset(): void {
    this.matcher.reset();
  }

  accept(token: number): void {
    if (this.matcher.acceptToken(token)) return;
    throw new SplitkvError('internal', `token ${token} was sampled, which the text's form doesn't allow`);
  }

  /** @throws SplitkvError `unsupported` where the model has no token that the text could go on with */
  next(): Promise<NextTokens | undefined> {
    return nextOf(this.matcher, this.vocabulary);
  }

  dispose(): void {
    if (this.#open) this.matcher.dispose();
    this.#open = false;
  }
}

async function nextOf(matcher: XGrammar.GrammarMatcher, { endIds, size }: Vocabulary): Promise<NextTokens | undefined> {
  if (matcher.isTerminated()) return undefined;
  const mask = await matcher.getNextTokenBitmask();
  const allowed = new Uint32Array(mask.buffer, mask.byteOffset, mask.length);
  // Of tokens beyond the vocabulary there are none.
  if (size % 32 !== 0) allowed[allowed.length - 1]! &= 2 ** (size % 32) - 1;
  let only: number | undefined;
  for (const [word, bits] of allowed.entries()) {
    if (bits === 0) continue;
    if (only !== undefined || (bits & (bits - 1)) !== 0) return { allowed };
    only = word * 32 + 31 - Math.clz32(bits);
  }
  if (only !== undefined) return { allowed, only };
  if (endIds.length === 0) return undefined;
  throw unsupportedError('the model has no token that the text could go on with in its form');
}
