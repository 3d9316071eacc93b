import { didYouMean, unsupportedError } from '../base/errors.js';

/** What `tokenizer.ggml.pre` stands for: the parts of a tokenizer.json that a GGUF file names instead of holding. */
export interface PreTokenizer {
  /** The `pre_tokenizer` of tokenizer.json. */
  readonly steps: Record<string, unknown>;
  readonly normalizer?: Record<string, unknown>;
  /** A whole piece that is a token isn't taken apart. */
  readonly ignoreMerges?: boolean;
  /** Where the file doesn't say (tokenizer.ggml.add_bos_token). */
  readonly addBos?: boolean;
}

const byteLevel = (useRegex: boolean) => ({
  type: 'ByteLevel',
  add_prefix_space: false,
  trim_offsets: true,
  use_regex: useRegex,
});
/** Pieces that match, one expression after the other, then bytes as letters; `gpt2`: cut by GPT-2's expression last. */
const splits = (expressions: readonly string[], gpt2 = false) => ({
  type: 'Sequence',
  pretokenizers: [
    ...expressions.map((Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false })),
    byteLevel(gpt2),
  ],
});

/** Expressions as the models' own tokenizer.json files have them. */
const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const wordsAndRest = (digits: string) =>
  `${contractions}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
const gpt2Words = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)";
const [upper, lower] = ['[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'];

const llama3: PreTokenizer = { steps: splits([wordsAndRest('\\p{N}{1,3}')]), ignoreMerges: true, addBos: true };
const digitByDigit: PreTokenizer = { steps: splits([wordsAndRest('\\p{N}')]) };
/** Marks stay with their letters. */
const qwen35 = `${contractions}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
/** OpenAI's o200k. */
const o200k: PreTokenizer = {
  steps: splits([
    [
      `[^\\r\\n\\p{L}\\p{N}]?${upper}*${lower}+${contractions}?`,
      `[^\\r\\n\\p{L}\\p{N}]?${upper}+${lower}*${contractions}?`,
      '\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+',
    ].join('|'),
  ]),
};
const deepseekV3: PreTokenizer = {
  steps: splits([
    '\\p{N}{1,3}',
    '[\\u4E00-\\u9FA5\\u3040-\\u309F\\u30A0-\\u30FF]+',
    '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|' +
      '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+',
  ]),
};
const eastAsian = '[\\u4E00-\\u9FA5\\u0800-\\u4E00\\uAC00-\\uD7FF]+';
/** Letters with case, as DeepSeek's first tokenizer lists them. */
const casedLetters =
  'A-Za-z\\u{B5}\\u{C0}-\\u{D6}\\u{D8}-\\u{F6}\\u{F8}-\\u{1BA}\\u{1BC}-\\u{1BF}\\u{1C4}-\\u{293}\\u{295}-\\u{2AF}' +
  '\\u{370}-\\u{373}\\u{376}\\u{377}\\u{37B}-\\u{37D}\\u{37F}\\u{386}\\u{388}-\\u{38A}\\u{38C}\\u{38E}-\\u{3A1}\\u{3A3}-' +
  '\\u{3F5}\\u{3F7}-\\u{481}\\u{48A}-\\u{52F}\\u{531}-\\u{556}\\u{10A0}-\\u{10C5}\\u{13A0}-\\u{13F5}\\u{13F8}-\\u{13FD}' +
  '\\u{1C90}-\\u{1CBA}\\u{1CBD}-\\u{1CBF}\\u{1D00}-\\u{1D2B}\\u{1D6B}-\\u{1D77}\\u{1D79}-\\u{1D9A}\\u{1E00}-\\u{1F15}' +
  '\\u{1F18}-\\u{1F1D}\\u{1F20}-\\u{1F45}\\u{1F48}-\\u{1F4D}\\u{1F50}-\\u{1F57}\\u{1F59}\\u{1F5B}\\u{1F5D}\\u{1F5F}-' +
  '\\u{1F7D}\\u{1F80}-\\u{1FB4}\\u{1FB6}-\\u{1FBC}\\u{1FBE}\\u{1FC2}-\\u{1FC4}\\u{1FC6}-\\u{1FCC}\\u{1FD0}-\\u{1FD3}' +
  '\\u{1FD6}-\\u{1FDB}\\u{1FE0}-\\u{1FEC}\\u{1FF2}-\\u{1FF4}\\u{1FF6}-\\u{1FFC}\\u{2102}\\u{2107}\\u{210A}-\\u{2113}' +
  '\\u{2115}\\u{2119}-\\u{211D}\\u{2124}\\u{2126}\\u{2128}\\u{212A}-\\u{212D}\\u{212F}-\\u{2134}\\u{2139}\\u{213C}-' +
  '\\u{213F}\\u{2145}-\\u{2149}\\u{214E}\\u{2183}\\u{2184}\\u{2C00}-\\u{2C7B}\\u{2C7E}-\\u{2CE4}\\u{2CEB}-\\u{2CEE}' +
  '\\u{2CF2}\\u{2CF3}\\u{A640}-\\u{A66D}\\u{A680}-\\u{A69B}\\u{A722}-\\u{A76F}\\u{A771}-\\u{A787}\\u{A78B}-\\u{A78E}' +
  '\\u{AB70}-\\u{ABBF}\\u{FB00}-\\u{FB06}\\u{FB13}-\\u{FB17}\\u{FF21}-\\u{FF3A}\\u{FF41}-\\u{FF5A}\\u{10400}-\\u{1044F}' +
  '\\u{104B0}-\\u{104D3}\\u{104D8}-\\u{104FB}\\u{10C80}-\\u{10CB2}\\u{10CC0}-\\u{10CF2}\\u{118A0}-\\u{118DF}\\u{1E900}-' +
  '\\u{1E943}';

/** Each with its names. */
const PRE_TOKENIZERS: readonly (readonly [names: string, PreTokenizer])[] = [
  ['llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2', llama3],
  ['dbrx smaug-bpe chatglm-bpe glm4', { steps: llama3.steps }],
  // Qwen's own tokenizer composes characters first; llama.cpp leaves that out.
  ['qwen2', { ...digitByDigit, normalizer: { type: 'NFC' } }],
  ['qwen35', { steps: splits([qwen35]) }],
  ['deepseek-r1-qwen megrez stablelm2 hunyuan kormo solar-open', digitByDigit],
  [
    'deepseek-llm',
    {
      steps: splits([
        '[\\r\\n]',
        `\\s?[${casedLetters}]+`,
        '\\s?[!-/:-~\\uFF01-\\uFF0F\\uFF1A-\\uFF5E\\u2018-\\u201F\\u3000-\\u3002]+',
        '\\s+$',
        eastAsian,
        '\\p{N}+',
      ]),
    },
  ],
  ['deepseek-coder', { steps: splits(['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', eastAsian, '\\p{N}']) }],
  ['deepseek-v3 hunyuan-dense joyai-llm', deepseekV3],
  [
    'tekken',
    {
      steps: splits([
        `[^\\r\\n\\p{L}\\p{N}]?${upper}*${lower}+|[^\\r\\n\\p{L}\\p{N}]?${upper}+${lower}*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|` +
          '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+',
      ]),
      ignoreMerges: true,
      addBos: true,
    },
  ],
  ['gpt-4o llama4 kanana2', o200k],
  ['smollm starcoder refact command-r codeshell exaone minerva-7b', { steps: splits(['\\p{N}'], true) }],
  ['gpt-2 phi-2 gigachat mellum a.x-4.0 mpt olmo jais trillion exaone4 granite-docling', { steps: byteLevel(true) }],
  // What llama.cpp does where a file doesn't name one.
  ['default', { steps: splits(['[\\p{P}\\$\\+<=>\\^~\\|]+', gpt2Words, '\\p{N}+', '[0-9][0-9][0-9]']) }],
];
const preTokenizers = new Map(PRE_TOKENIZERS.flatMap(([names, of]) => names.split(' ').map((name) => [name, of])));

export const preTokenizerNames: readonly string[] = [...preTokenizers.keys()];

/** Throws `unsupported` for a name that isn't known. */
export function preTokenizer(name: string, what: string): PreTokenizer {
  const found = preTokenizers.get(name);
  if (found) return found;
  throw unsupportedError(
    `${what}: tokenizer.ggml.pre '${name}' is not supported; supported are ${preTokenizerNames.join(', ')}.${didYouMean(name, preTokenizerNames)}`,
  );
}
