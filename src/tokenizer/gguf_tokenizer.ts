import { formatError, unsupportedError } from '../base/errors.js';
import { show } from '../base/json.js';
import { nth } from '../base/lists.js';
import { preTokenizer } from './gguf_pre_tokenizers.js';
import type { TokenizerFiles } from './tokenizer.js';

/** Tokens that end an answer by what they are called, as in llama.cpp: files name one or two of them only. */
const ENDS = new Set([
  '</s>',
  '<|endoftext|>',
  '<|end_of_text|>',
  '<|im_end|>',
  '<|eot_id|>',
  '<|eom_id|>',
  '<|end|>',
  '<|return|>',
  '<|call|>',
  '<end_of_turn>',
  '<turn|>',
  '<|tool_response>',
  '<end_of_utterance>',
  '<eos>',
  '<EOT>',
  '_<EOT>',
  '[EOT]',
  '[EOS]',
  '<｜end▁of▁sentence｜>',
]);

/** Which of these end no answer beside which others: gpt-oss's end a message, Gemma 4's is a token like others. */
const ENDS_NOT: readonly (readonly [token: string, beside: readonly string[]])[] = [
  ['<|end|>', ['<|return|>', '<|call|>']],
  ['</s>', ['<|tool_response>']],
];

/** A vocabulary of 262,144 tokens has 20 million; 100 million take half a second, and what is made of them two. */
const MAX_CUT_LETTERS = 5e7;

/**
 * The tokenizer of a GGUF file (`tokenizer.ggml.*`, `tokenizer.chat_template`) as the files of a Hugging Face folder that make the
 * same one; undefined where the file has none. Knows byte-level BPE ('gpt2', with the pre-tokenizers of
 * gguf_pre_tokenizers.ts), SentencePiece BPE ('llama'), SentencePiece's tokens with merges ('gemma4'), WordPiece ('bert') and
 * Unigram ('t5').
 *
 * @param what the file as messages name it
 * @throws SplitkvError `format` for lists that don't fit each other, `unsupported` for another kind of tokenizer
 */
export function ggufTokenizerFiles(metadata: GgufMetadata, what: string): TokenizerFiles | undefined {
  const model = metadata.get('tokenizer.ggml.model') ?? 'none';
  if (model === 'none' || model === 'no_vocab') return undefined;
  const kind = typeof model === 'string' && Object.hasOwn(KINDS, model) ? KINDS[model] : undefined;
  if (!kind) {
    throw unsupportedError(
      `${what}: tokenizer.ggml.model ${show(model)} is not supported; supported are 'gpt2' (byte-level BPE), 'llama' (SentencePiece), ` +
        "'gemma4', 'bert' (WordPiece) and 't5' (Unigram)",
    );
  }
  const vocabulary = new GgufVocabulary(metadata, what);
  const parts = kind.parts(vocabulary, what);
  const bos = vocabulary.special('bos', kind.bos) ?? vocabulary.special('cls', kind.cls);
  const eos = vocabulary.special('eos', kind.eos);
  const { addsEnd = false, pair } = parts;
  const end = vocabulary.special('seperator', kind.sep) ?? eos;
  const textOf = (id: number | undefined) => (id === undefined ? undefined : vocabulary.tokens[id]);
  const named = {
    bos_token: bos,
    eos_token: eos,
    unk_token: vocabulary.special('unknown'),
    pad_token: vocabulary.special('padding'),
  };
  return {
    tokenizerJson: {
      version: '1.0',
      added_tokens: addedTokens(vocabulary),
      ...parts.json,
      post_processor: aroundText(
        vocabulary.said('add_bos_token', parts.addBos) || parts.alwaysBos ? bos : undefined,
        addsEnd ? end : vocabulary.said('add_eos_token', false) ? eos : undefined,
        vocabulary.tokens,
        pair,
      ),
    },
    tokenizerConfig: {
      clean_up_tokenization_spaces: false,
      ...Object.fromEntries(Object.entries(named).map(([name, id]) => [name, textOf(id)])),
      chat_template: chatTemplates(metadata, what),
    },
    generationConfig: { bos_token_id: bos, eos_token_id: endIds(vocabulary, eos) },
  };
}

/** By `tokenizer.ggml.model`: its parts, and ids where the file doesn't say them. */
interface Kind extends Readonly<Partial<Record<'bos' | 'eos' | 'cls' | 'sep', number>>> {
  parts(vocabulary: GgufVocabulary, what: string): Parts;
}
const KINDS: Readonly<Record<string, Kind>> = {
  gpt2: {
    parts: (vocabulary, what) => byteLevelParts(vocabulary, preTokenizer(vocabulary.said('pre', 'default'), what)),
  },
  llama: {
    parts: (vocabulary, what) =>
      sentencePieceParts(vocabulary, mergesByScore(vocabulary, what), vocabulary.said('add_space_prefix', true)),
    bos: 1,
    eos: 2,
  },
  gemma4: { parts: (vocabulary) => gemma4Parts(vocabulary) },
  bert: { parts: (vocabulary) => wordPieceParts(vocabulary), cls: 101, sep: 102 },
  t5: { parts: (vocabulary) => unigramParts(vocabulary) },
};

interface Parts {
  readonly json: Record<string, unknown>;
  readonly addBos: boolean;
  /** Whatever the file says. */
  readonly alwaysBos?: boolean;
  /** A text has an end whatever the file says, and what stands between two of a pair: the end, once or twice. */
  readonly addsEnd?: boolean;
  readonly pair?: { readonly between: number; readonly segment: number };
}

function byteLevelParts(vocabulary: GgufVocabulary, pre: ReturnType<typeof preTokenizer>): Parts {
  return {
    json: {
      normalizer: pre.normalizer ?? null,
      pre_tokenizer: pre.steps,
      decoder: { type: 'ByteLevel' },
      model: {
        type: 'BPE',
        unk_token: null,
        byte_fallback: false,
        ignore_merges: pre.ignoreMerges ?? false,
        vocab: vocabIds(vocabulary),
        merges: vocabulary.merges(),
      },
    },
    addBos: pre.addBos ?? false,
  };
}

/** @param prefix a blank is put before the text */
function sentencePieceParts(vocabulary: GgufVocabulary, merges: readonly Merge[], prefix: boolean): Parts {
  const blank = '\u2581';
  const unknown = vocabulary.special('unknown', 0);
  return {
    json: {
      normalizer: {
        type: 'Sequence',
        normalizers: [
          ...(prefix ? [{ type: 'Prepend', prepend: blank }] : []),
          { type: 'Replace', pattern: { String: ' ' }, content: blank },
        ],
      },
      pre_tokenizer: null,
      decoder: {
        type: 'Sequence',
        decoders: [
          { type: 'Replace', pattern: { String: blank }, content: ' ' },
          { type: 'ByteFallback' },
          { type: 'Fuse' },
          ...(prefix ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
        ],
      },
      model: {
        type: 'BPE',
        unk_token: unknown === undefined ? null : vocabulary.tokens[unknown],
        fuse_unk: true,
        byte_fallback: true,
        vocab: vocabIds(vocabulary),
        merges,
      },
    },
    addBos: true,
  };
}

/** As SentencePiece, but that the merges are in the file. None crosses the end of a line. Bos is there whatever the file says. */
function gemma4Parts(vocabulary: GgufVocabulary): Parts {
  const { json } = sentencePieceParts(vocabulary, vocabulary.merges(), false);
  const lines = { type: 'Split', pattern: { Regex: '[^\\n]+|\\n+' }, behavior: 'Isolated', invert: false };
  return { json: { ...json, pre_tokenizer: lines }, addBos: true, alwaysBos: true };
}

/** Words' first parts are marked in the file, in a folder the others. A vocabulary without capitals is of lower case. */
function wordPieceParts(vocabulary: GgufVocabulary): Parts {
  const { tokens, types } = vocabulary;
  const vocab = tokens.map((token, id): [string, number] => {
    if (types[id] !== 'normal') return [token, id];
    return [token.startsWith('\u2581') ? token.slice(1) : `##${token}`, id];
  });
  const cased = tokens.some((token, id) => types[id] === 'normal' && /^\u2581[A-Z]+$/.test(token));
  return {
    json: {
      normalizer: {
        type: 'BertNormalizer',
        clean_text: true,
        handle_chinese_chars: true,
        strip_accents: null,
        lowercase: !cased,
      },
      pre_tokenizer: { type: 'BertPreTokenizer' },
      decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
      model: {
        type: 'WordPiece',
        unk_token: tokens[vocabulary.special('unknown', 100) ?? 0],
        continuing_subword_prefix: '##',
        max_input_chars_per_word: 100,
        vocab: Object.fromEntries(vocab.reverse()),
      },
    },
    addBos: true,
    addsEnd: true,
    pair: { between: 1, segment: 1 },
  };
}

function unigramParts(vocabulary: GgufVocabulary): Parts {
  const { tokens } = vocabulary;
  const scores = vocabulary.scores();
  const blank = '\u2581';
  return {
    json: {
      normalizer: { type: 'Precompiled', precompiled_charsmap: '' },
      pre_tokenizer: {
        type: 'Sequence',
        pretokenizers: [
          { type: 'WhitespaceSplit' },
          { type: 'Metaspace', replacement: blank, prepend_scheme: 'always', split: true },
        ],
      },
      decoder: { type: 'Metaspace', replacement: blank, prepend_scheme: 'always', split: true },
      model: {
        type: 'Unigram',
        unk_id: vocabulary.special('unknown', 0) ?? 0,
        vocab: tokens.map((token, id) => [token, nth(scores, id)]),
        byte_fallback: false,
      },
    },
    addBos: true,
    addsEnd: true,
    pair: { between: 2, segment: 0 },
  };
}

type Merge = readonly [left: string, right: string];

/**
 * SentencePiece joins the neighbours whose joint token has the best score: the merges are all cuts of every token in two, by
 * the token's score. A part is a token itself, or one letter, which may be none.
 */
function mergesByScore(vocabulary: GgufVocabulary, what: string): Merge[] {
  const { tokens, types } = vocabulary;
  // All cuts of a token of n letters look at n * n letters.
  const work = tokens.reduce((sum, { length }) => sum + length * length, 0);
  if (work > MAX_CUT_LETTERS) {
    const longest = tokens.reduce((most, { length }) => Math.max(most, length), 0);
    throw formatError(
      `${what}: the tokens of tokenizer.ggml.tokens are too long to be taken apart (the longest has ${longest} letters); ` +
        'expected words, or parts of words',
    );
  }
  const scores = vocabulary.scores();
  const known = new Set(tokens.filter((_, id) => types[id] === 'normal'));
  const ids = tokens.map((_, id) => id).filter((id) => types[id] === 'normal');
  ids.sort((a, b) => scores[b]! - scores[a]! || a - b);
  return ids.flatMap((id) => {
    const token = nth(tokens, id);
    const letters = Array.from(token);
    const merges: Merge[] = [];
    for (let cut = 1, at = 0; cut < letters.length; cut++) {
      at += nth(letters, cut - 1).length;
      const [left, right] = [token.slice(0, at), token.slice(at)];
      if ((cut === 1 || known.has(left)) && (cut === letters.length - 1 || known.has(right)))
        merges.push([left, right]);
    }
    return merges;
  });
}

/** Ids by token. Unused places of a padded vocabulary are left out: their names mean nothing. */
function vocabIds({ tokens, types }: GgufVocabulary): Record<string, number> {
  const entries = tokens.map((token, id) => [token, id] as const).filter(([, id]) => types[id] !== 'unused');
  return Object.fromEntries(entries.reverse()); // of tokens of one name the first counts
}

function addedTokens({ tokens, types }: GgufVocabulary) {
  return tokens.flatMap((content, id) => {
    const special = types[id] === 'control' || types[id] === 'unknown';
    if (content === '' || (!special && types[id] !== 'user_defined')) return [];
    return [{ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special }];
  });
}

function aroundText(
  bos: number | undefined,
  eos: number | undefined,
  tokens: readonly string[],
  { between = 0, segment = 0 }: Partial<NonNullable<Parts['pair']>> = {},
) {
  const ids = [bos, eos].filter((id) => id !== undefined);
  if (ids.length === 0) return null;
  const special = (id: number | undefined, type_id = 0) =>
    id === undefined ? [] : [{ SpecialToken: { id: tokens[id], type_id } }];
  const text = (id: string, type_id = 0) => [{ Sequence: { id, type_id } }];
  const cut = Array.from({ length: between }, () => special(eos)).flat();
  return {
    type: 'TemplateProcessing',
    single: [...special(bos), ...text('A'), ...special(eos)],
    pair: [...special(bos), ...text('A'), ...cut, ...text('B', segment), ...special(eos, segment)],
    special_tokens: Object.fromEntries(
      ids.map((id) => [nth(tokens, id), { id: tokens[id], ids: [id], tokens: [tokens[id]] }]),
    ),
  };
}

function endIds(vocabulary: GgufVocabulary, eos: number | undefined): number[] {
  const { tokens, types } = vocabulary;
  const named = [eos, vocabulary.special('eot'), vocabulary.special('eom')].filter((id) => id !== undefined);
  const byText = tokens.flatMap((token, id) => {
    const marked = types[id] === 'control' || types[id] === 'user_defined';
    return marked && ENDS.has(token) ? [id] : [];
  });
  const texts = new Set(byText.map((id) => tokens[id]));
  const none = ENDS_NOT.filter(([, beside]) => beside.every((text) => texts.has(text))).map(([text]) => text);
  return [...new Set([...named, ...byText])].filter((id) => !none.includes(nth(tokens, id)));
}

/** One template as text, several as tokenizer_config.json lists them. */
function chatTemplates(metadata: GgufMetadata, what: string): unknown {
  const first = metadata.get('tokenizer.chat_template');
  const names = metadata.get('tokenizer.chat_templates') ?? [];
  if (!Array.isArray(names)) throw formatError(`${what}: tokenizer.chat_templates is ${show(names)}; expected names`);
  const more = names.flatMap((name: unknown) => {
    const template = metadata.get(`tokenizer.chat_template.${String(name)}`);
    return template === undefined ? [] : [{ name, template }];
  });
  if (more.length === 0) return first ?? null;
  return first === undefined ? more : [{ name: 'default', template: first }, ...more];
}

type GgufMetadata = ReadonlyMap<string, unknown>;

/** What a token is, by its number in the file (tokenizer.ggml.token_type). */
const TYPES = ['normal', 'normal', 'unknown', 'control', 'user_defined', 'unused', 'byte'] as const;

/** The vocabulary of a GGUF file. Throws `format` for lists of the wrong kind or length. */
class GgufVocabulary {
  readonly tokens: readonly string[];
  readonly types: readonly (typeof TYPES)[number][];

  /** @param what the file as messages name it */
  constructor(
    private readonly metadata: GgufMetadata,
    private readonly what: string,
  ) {
    this.tokens = this.#list('tokens', 'string', undefined) ?? this.#missing('tokens');
    const types = this.#list<number>('token_type', 'number', this.tokens.length);
    this.types = types?.map((type) => TYPES[type] ?? 'normal') ?? this.tokens.map(() => 'normal');
  }

  /** SentencePiece's log probabilities. */
  scores(): readonly number[] {
    return this.#list<number>('scores', 'number', this.tokens.length) ?? this.#missing('scores');
  }

  /** Pairs of tokens that join, the first first. A token may begin with a blank, hence the blank after its first letter. */
  merges(): [string, string][] {
    const lines = this.#list<string>('merges', 'string', undefined) ?? this.#missing('merges');
    return lines.map((line) => {
      const blank = line.indexOf(' ', 1);
      return [line.slice(0, blank), line.slice(blank + 1)];
    });
  }

  /** The id in `tokenizer.ggml.<name>_token_id`, or `fallback`; undefined where no token has it. */
  special(name: string, fallback?: number): number | undefined {
    const id = this.metadata.get(`tokenizer.ggml.${name}_token_id`) ?? fallback;
    return typeof id === 'number' && this.tokens[id] !== undefined ? id : undefined;
  }

  /** What the file says under a name, of the kind of `fallback`, which is taken where it says nothing. */
  said<T extends boolean | string>(name: string, fallback: T): T extends boolean ? boolean : string {
    const value = this.metadata.get(`tokenizer.ggml.${name}`) ?? fallback;
    if (typeof value === typeof fallback) return value as never;
    const expected = typeof fallback === 'boolean' ? 'true or false' : 'a string';
    throw formatError(`${this.what}: tokenizer.ggml.${name} is ${show(value)}; expected ${expected}`);
  }

  #list<T extends string | number>(name: string, kind: 'string' | 'number', length: number | undefined) {
    const value = this.metadata.get(`tokenizer.ggml.${name}`);
    if (value === undefined) return undefined;
    const good = Array.isArray(value) && value.every((item) => typeof item === kind);
    if (!good) throw formatError(`${this.what}: tokenizer.ggml.${name} is ${show(value)}; expected a list of ${kind}s`);
    if (length === undefined || value.length === length) return value as readonly T[];
    throw formatError(
      `${this.what}: tokenizer.ggml.${name} has ${value.length} entries; expected ${length}, one per token`,
    );
  }

  #missing(name: string): never {
    throw formatError(`${this.what} has no tokenizer.ggml.${name}; expected the tokenizer in the file`);
  }
}
