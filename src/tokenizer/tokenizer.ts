import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import { formatError, ioError, unsupportedError, usageError } from '../base/errors.js';
import { SEGMENT_SHIFT } from '../base/kv_units.js';
import { isObject, parseJson, parsePythonJson, show } from '../base/json.js';
import type { Tool } from '../chat_formats/tools.js';
import type { PlainText } from './plain_text.js';
import type { ChatTemplateOptions, ChatTemplates } from './chat_template.js';
import type * as Parts from './parts.js';
import type { AnswerReader, ReadOptions } from '../chat_formats/answer_reader.js';
import type { ChatFormat } from '../chat_formats/chat_format.js';
import type { ChatMessage, TemplateMessages } from '../chat_formats/template_messages.js';
import { createTokenDecoder, type TokenDecoder, type TokenPiece } from './token_bytes.js';

/** The files of a model folder that make a tokenizer: JSON as text or parsed. */
export interface TokenizerFiles {
  tokenizerJson: unknown;
  tokenizerConfig?: unknown;
  generationConfig?: unknown;
  /** Of files of its own: a text, or a list of {name, template}. It wins over `chat_template` of tokenizer_config.json. */
  chatTemplate?: unknown;
}

export interface TextStreamOptions {
  /** Leave out special tokens; default true. */
  skipSpecial?: boolean;
  /** Special tokens that aren't left out. */
  keep?: ReadonlySet<number> | undefined;
  /** True when the ids follow others, as an answer follows its prompt: a leading space is text then. Default false. */
  continues?: boolean;
}

/** Below, no expression takes long. */
const LONG_TEXT = 2000;
/** Of a text, more than most have; and of a token. */
const [LETTERS_A_TOKEN, LONGEST_TOKEN] = [8, 512];

export class Tokenizer {
  /** The beginning-of-sequence token, where the model has one. */
  readonly bosId: number | null;
  /** Tokens that end an answer: those of generation_config.json and the `eos_token` of tokenizer_config.json. */
  readonly eosIds: readonly number[];
  /** One more than the largest token id; the model's logits may be padded beyond it. */
  readonly vocabSize: number;
  readonly strip: TokenDecoder['strip'];
  readonly #library: HuggingFaceTokenizer;
  readonly #decoder: TokenDecoder;
  readonly #tokens: readonly (string | undefined)[];
  readonly #added: ReadonlySet<number>;
  readonly #special: ReadonlySet<number>;
  /** An added token may take all blanks before it. */
  readonly #takesBlanks: boolean;
  readonly #templates: ChatTemplates;
  readonly #messages: TemplateMessages;
  /** Tells an answer's text, thoughts and calls apart. It reads what a stream gives that keeps `marks`. */
  readonly reader: (options: ReadOptions) => AnswerReader;
  /** How its model writes answers. */
  readonly format: ChatFormat;
  /** Ids of the texts that structure its answers. */
  readonly marks: ReadonlyMap<number, string>;
  readonly #plain: PlainText;
  readonly #checkText: ((text: string) => void) | undefined;
  readonly #pieces = new Map<number, TokenPiece | undefined>();

  /**
   * Reads the files.
   * @throws SplitkvError `format` for what isn't a tokenizer, or could take for ever; `unsupported` for parts that we don't have
   */
  static async load(files: TokenizerFiles): Promise<Tokenizer> {
    return new Tokenizer(files, await import('./parts.js'));
  }

  constructor(files: TokenizerFiles, parts: typeof Parts) {
    const { AnswerReader, ChatFormat, ChatTemplates, PlainText, TemplateMessages, checkTokenizer } = parts;
    const json = readTokenizerJson(files.tokenizerJson);
    this.#checkText = checkTokenizer(json);
    const config = readOptional(files.tokenizerConfig, 'tokenizer_config.json');
    const generation = readOptional(files.generationConfig, 'generation_config.json');
    this.#decoder = createTokenDecoder(json.decoder);
    this.strip = this.#decoder.strip;
    try {
      this.#library = new HuggingFaceTokenizer(parts.rustSteps(json), { ...config, ...unknownWord(json) });
      this.#library.encode('a'); // some parts are read with the first text only
    } catch (cause) {
      const { message } = cause as Error;
      if (/^Unknown \w+ type/.test(message)) throw unsupportedError(`tokenizer.json: ${message}: it is not supported`);
      throw formatError(`tokenizer.json: not a tokenizer this runtime reads (${message})`, cause);
    }
    this.#tokens = this.#library.model?.vocab ?? [];
    this.vocabSize = this.#tokens.length;

    const added = this.#library.get_added_tokens_decoder();
    this.#added = new Set(added.keys());
    this.#takesBlanks = [...added.values()].some(({ lstrip }) => lstrip);
    const specials = specialTokens(config);
    const special = [...added.values()].filter((token) => token.special).map((token) => token.id);
    const idOf = (token: string | undefined) => (token === undefined ? undefined : this.#library.token_to_id(token));
    special.push(...specials.all.map(idOf).filter((id) => id !== undefined));
    this.#special = new Set(special);
    const controls = new Set(special.map((id) => this.#tokens[id]));
    this.#plain = new PlainText(this.#library, (token) => controls.has(token));
    parts.cutLikeRust(this.#library);

    this.bosId = idOf(specials.named.bos_token) ?? readIds(generation, 'bos_token_id')[0] ?? null;
    const eos = idOf(specials.named.eos_token);
    this.eosIds = [...new Set([...readIds(generation, 'eos_token_id'), ...(eos === undefined ? [] : [eos])])];
    const fromFile = files.chatTemplate !== undefined;
    const file = fromFile ? 'chat_template.jinja' : 'tokenizer_config.json';
    this.#templates = new ChatTemplates(fromFile ? files.chatTemplate : config.chat_template, file, specials.named);
    this.format = new ChatFormat(this.#templates.source, (text) => idOf(text) !== undefined);
    this.marks = new Map(
      this.format.marks.flatMap((text) => {
        const id = idOf(text);
        return id === undefined ? [] : [[id, text] as const];
      }),
    );
    this.#messages = new TemplateMessages(this.format, (messages, variables, addGenerationPrompt = true) => {
      const tools = variables['tools'] as readonly unknown[] | undefined;
      return this.#templates.render(messages, { addGenerationPrompt, variables, tools });
    });
    this.reader = (options) => new AnswerReader(this.format, options);
  }

  /**
   * Token ids of the text. Special tokens written in the text are recognised; `addSpecial` (default true) adds what the model
   * wants around a text, such as the beginning-of-sequence token. Leave it false for what a chat template has rendered.
   */
  encode(text: string, { addSpecial = true }: { addSpecial?: boolean } = {}): number[] {
    const { ids } = this.#encode(text, addSpecial);
    if (!ids.every(Number.isInteger))
      throw formatError('tokenizer.json: a piece of the text has no token, and there is no unknown token');
    return ids;
  }

  #encode(text: string, addSpecial: boolean): { ids: number[] } {
    if (this.#checkText && text.length > LONG_TEXT) {
      this.#checkText(text);
      // What letters become may be looked at again, too.
      this.#checkText(this.#library.normalizer?.normalize(text) ?? '');
    }
    try {
      return this.#plain.encoding(text, () => this.#library.encode(text, { add_special_tokens: addSpecial }));
    } catch (error) {
      // Some kinds put the tokens of one word on the stack.
      if (!(error instanceof RangeError)) throw error;
      throw usageError(`a text of ${text.length} characters without a break is too long for the tokenizer; cut it`);
    }
  }

  /**
   * Ids of two texts as one pair, each with what it is a part of above the bits of its id: of the first 0, of the second up to `types` - 1.
   * @param most of more the ends of the texts are left out, the longer one's first
   */
  encodePair(first: string, second: string, types: number, most = Infinity): number[] {
    const pair = (one: string, other: string) =>
      this.#plain.encoding(one + other, (): { ids: number[]; token_type_ids: number[] } =>
        this.#library.encode(one, { text_pair: other, return_token_type_ids: true }),
      );
    const { ids, token_type_ids: parts } = pair(first, second);
    const whole = ids.map((id, at) => id + Math.min(parts[at] ?? 0, types - 1) * 2 ** SEGMENT_SHIFT);
    if (whole.length <= most) return whole;
    const [before, behind] = this.#around(pair('a', 'a').ids);
    const [one, other] = [first, second].map((text) => this.encode(text, { addSpecial: false }).length) as [
      number,
      number,
    ];
    const between = whole.length - before - one - other - behind;
    const room = Math.max(0, most - before - between - behind);
    const shorter = Math.min(one, other, Math.floor(room / 2));
    const [kept, left] = one <= other ? [shorter, room - shorter] : [room - shorter, shorter];
    const next = before + one;
    return [
      ...whole.slice(0, before + kept),
      ...whole.slice(next, next + between + left),
      ...whole.slice(whole.length - behind),
    ];
  }

  /** As `encode`; of more than `most` the text's end is left out, and nothing of what the model wants around it. */
  encodeWithin(text: string, most: number, addSpecial = true): number[] {
    const ids = this.#long(text, most) ?? this.encode(text, { addSpecial: false });
    const framed = this.encode('a', { addSpecial });
    const [before, behind] = this.#around(framed);
    return [
      ...framed.slice(0, before),
      ...ids.slice(0, Math.max(0, most - before - behind)),
      ...framed.slice(framed.length - behind),
    ];
  }

  /** Ids before and behind, in what 'a' becomes by itself or as both of a pair. */
  #around(ids: readonly number[]): [before: number, behind: number] {
    const own = this.encode('a', { addSpecial: false });
    const isHere = (_: number, at: number): boolean => own.every((id, i) => ids[at + i] === id);
    return [ids.findIndex(isHere), ids.length - ids.findLastIndex(isHere) - own.length];
  }

  /**
   * At least how many tokens `encode` gives of a text that is long for `most` of them: those of its beginning, without what could be one
   * token with what comes behind; 0 where it isn't long.
   */
  fewestTokens(text: string, most: number): number {
    return this.#long(text, most)?.length ?? 0;
  }

  #long(text: string, most: number): number[] | undefined {
    for (let letters = LETTERS_A_TOKEN * (most + LONGEST_TOKEN); text.length >= 2 * letters; letters *= 2) {
      const given = text.slice(0, letters);
      const ids = this.encode(this.#takesBlanks ? given.trimEnd() : given, { addSpecial: false });
      if (ids.length > most + LONGEST_TOKEN) return ids.slice(0, -LONGEST_TOKEN);
    }
    return undefined;
  }

  /**
   * The text of the ids, as `TextStream` gives it: exactly what the tokens say (`clean_up_tokenization_spaces`, which removes
   * blanks before punctuation, isn't applied). Ids the tokenizer doesn't know, as a padded vocabulary has, add nothing.
   */
  decode(ids: Iterable<number>, { skipSpecial = true }: { skipSpecial?: boolean } = {}): string {
    const stream = this.stream({ skipSpecial });
    let text = '';
    for (const id of ids) text += stream.push(id);
    return text + stream.flush();
  }

  /** A decoder for ids that come one by one. */
  stream(options?: TextStreamOptions): TextStream {
    return new TextStream(this, options);
  }

  /** The text of its chat template; '' where there is none. */
  get template(): string {
    return this.#templates.source;
  }

  get hasChatTemplate(): boolean {
    return this.#templates.available;
  }

  /**
   * Messages whose control tokens are text: for `applyChatTemplate`, whose text `encode` takes then. Those of the role 'assistant' stay as
   * they are.
   */
  asText(messages: readonly ChatMessage[]): readonly ChatMessage[] {
    return this.#plain.mark(messages);
  }

  /** The conversation as the one text the model was trained on; encode it with `addSpecial: false`. */
  applyChatTemplate(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): string {
    if (options.template !== undefined) return this.#templates.render(messages, options);
    this.#templates.check(messages);
    return this.#messages.render(messages, { ...options, tools: options.tools as readonly Tool[] | undefined });
  }

  idOf(token: string): number | undefined {
    return this.#library.token_to_id(token);
  }

  /** As the vocabulary writes it. */
  token(id: number): string | undefined {
    return this.#tokens[id];
  }

  isSpecial(id: number): boolean {
    return this.#special.has(id);
  }

  /** What the token adds to the text; undefined for one that adds nothing. Throws `usage` for what is no token id. */
  piece(id: number, skipSpecial: boolean): TokenPiece | undefined {
    if (skipSpecial && this.#special.has(id)) return undefined;
    if (this.#pieces.has(id)) return this.#pieces.get(id);
    if (!Number.isInteger(id) || id < 0) throw usageError(`token id ${id}; expected a whole number from 0`);
    const token = this.#tokens[id];
    const piece =
      token === undefined ? undefined : this.#added.has(id) ? this.#decoder.added(token) : this.#decoder.piece(token);
    this.#pieces.set(id, piece);
    return piece;
  }
}

/**
 * Token ids in, text out, a piece at a time. A piece ends at a character boundary: bytes of a character that isn't complete
 * wait for the next id. Bytes that can't be UTF-8 become U+FFFD, one for each longest invalid run (WHATWG decoding). The pieces
 * joined, with that of `flush`, are the text of all the ids.
 */
export class TextStream {
  readonly #bytes = new TextDecoder('utf-8', { ignoreBOM: true });
  #toStrip: number;

  constructor(
    private readonly source: Tokenizer,
    private readonly options: TextStreamOptions = {},
  ) {
    this.#toStrip = options.continues ? 0 : source.strip.count;
  }

  /** The text that this id completes; '' while it only begins a character. */
  push(id: number): string {
    const { skipSpecial = true, keep } = this.options;
    const piece = this.source.piece(id, skipSpecial && !keep?.has(id));
    if (piece === undefined) return '';
    if (piece.raw) return this.#strip(this.#bytes.decode(piece.bytes, { stream: true }));
    return this.#strip(this.#bytes.decode() + this.#bytes.decode(piece.bytes));
  }

  /** What is left of a character that never got complete. The stream may go on after it. */
  flush(): string {
    return this.#strip(this.#bytes.decode());
  }

  #strip(text: string): string {
    if (this.#toStrip === 0 || text === '') return text;
    let start = 0;
    while (start < this.#toStrip && text[start] === this.source.strip.character) start++;
    this.#toStrip = start === text.length ? this.#toStrip - start : 0;
    return text.slice(start);
  }
}

function readTokenizerJson(source: unknown): Record<string, unknown> {
  const file = 'tokenizer.json';
  if (source == null) throw ioError(`${file} is missing; splitkv needs it beside the model's weights`);
  const json = readOptional(source, file);
  if (!isObject(json.model))
    throw formatError(`${file}: the key 'model' is ${show(json.model ?? null)}; expected an object with a vocabulary`);
  // Those who write the file by hand leave out what is null; the library wants to see it.
  return { added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null, ...json };
}

/** The library looks for a word-level model's unknown token in the config, where it need not be. */
function unknownWord({ model }: Record<string, unknown>): { unk_token?: unknown } {
  return isObject(model) && model.type === 'WordLevel' && model.unk_token != null ? { unk_token: model.unk_token } : {};
}

function readOptional(source: unknown, file: string): Record<string, unknown> {
  if (source == null) return {};
  const json = typeof source === 'string' ? parseJson(source, file, parsePythonJson) : source;
  if (!isObject(json)) throw formatError(`${file}: expected a JSON object, got ${show(json)}`);
  return json;
}

function readIds(config: Record<string, unknown>, key: string): number[] {
  const value = config[key] ?? [];
  const ids = Array.isArray(value) ? value : [value];
  for (const id of ids) {
    if (!Number.isInteger(id) || id < 0)
      throw formatError(`generation_config.json: ${key} is ${show(id)}; expected a token id`);
  }
  return ids;
}

/** `bos_token` and the like (text, or an object with `content`), and all tokens the config calls special. */
function specialTokens(config: Record<string, unknown>): { named: Record<string, string>; all: string[] } {
  const content = (value: unknown) => (isObject(value) ? value.content : value);
  const named: Record<string, string> = {};
  for (const [key, value] of Object.entries(config)) {
    const token = content(value);
    if (/^(bos|eos|unk|sep|pad|cls|mask)_token$/.test(key) && typeof token === 'string') named[key] = token;
  }
  const more = Array.isArray(config.additional_special_tokens) ? config.additional_special_tokens.map(content) : [];
  return {
    named,
    all: [...Object.values(named), ...more.filter((token): token is string => typeof token === 'string')],
  };
}
