import { unsupportedError } from '../base/errors.js';
import { isObject, show } from '../base/json.js';
import { range } from '../base/lists.js';

export interface TokenPiece {
  /** UTF-8; of a raw piece perhaps a part of a character. */
  readonly bytes: Uint8Array;
  /** Raw bytes join the raw bytes before and after them to characters; other pieces are whole text. */
  readonly raw: boolean;
}

/** How token strings become text, read from the `decoder` of a tokenizer.json. */
export interface TokenDecoder {
  piece(token: string): TokenPiece;
  /** Of an added token, whose content is outside every decoding step. */
  added(content: string): TokenPiece;
  /** Up to this many of this character are dropped at the very start of a text. */
  readonly strip: { readonly count: number; readonly character: string };
}

const encoder = new TextEncoder();
const text = (value: string): TokenPiece => ({ bytes: encoder.encode(value), raw: false });
const noStrip = { count: 0, character: '' };
const supported =
  'supported are ByteLevel, WordPiece, Metaspace, and sequences of Replace, ByteFallback, Fuse, Metaspace and Strip at the start';

/** Without a decoder tokens are words with a blank between, added ones too, as in Hugging Face tokenizers. */
const word = (token: string): TokenPiece => text(` ${token}`);
const joinedByBlanks: TokenDecoder = { piece: word, added: word, strip: { count: 1, character: ' ' } };

/**
 * @param config null or undefined: none
 * @throws SplitkvError `unsupported` for a decoder outside what byte-level and SentencePiece-like tokenizers use
 */
export function createTokenDecoder(config: unknown): TokenDecoder {
  if (config == null) return joinedByBlanks;
  const steps = flatten(config);
  const alone = steps.length === 1 ? ofOneStep(steps[0]!) : undefined;
  if (alone) return alone;
  const replacements: [string, string][] = [];
  let byteFallback = false;
  let strip: TokenDecoder['strip'] = noStrip;
  for (const step of steps) {
    switch (step.type) {
      case 'Replace': {
        const pattern = isObject(step.pattern) ? step.pattern.String : undefined;
        if (typeof pattern !== 'string' || typeof step.content !== 'string') throw unsupported(step);
        replacements.push([pattern, step.content]);
        break;
      }
      case 'ByteFallback':
        byteFallback = true;
        break;
      case 'Fuse':
        break;
      case 'Strip':
        if (step.stop !== 0 || typeof step.start !== 'number' || typeof step.content !== 'string')
          throw unsupported(step);
        strip = { count: step.start, character: step.content };
        break;
      case 'Metaspace':
        replacements.push([typeof step.replacement === 'string' ? step.replacement : '\u2581', ' ']);
        if (step.prepend_scheme !== 'never' && step.add_prefix_space !== false) strip = { count: 1, character: ' ' };
        break;
      default:
        throw unsupported(step);
    }
  }
  const piece = (token: string): TokenPiece => {
    const [, byte] = (byteFallback && /^<0x([0-9A-Fa-f]{2})>$/.exec(token)) || [];
    if (byte !== undefined) return { bytes: Uint8Array.of(Number.parseInt(byte, 16)), raw: true };
    return text(replacements.reduce((value, [from, to]) => value.replaceAll(from, to), token));
  };
  return { piece, added: text, strip };
}

function ofOneStep({ type, prefix }: Step): TokenDecoder | undefined {
  if (type === 'ByteLevel') return { piece: byteLevelPiece, added: text, strip: noStrip };
  return type === 'WordPiece' ? wordPieces(prefix) : undefined;
}

/** Words with a blank between, and what goes on with a word, which begins with `prefix`. */
function wordPieces(prefix: unknown): TokenDecoder {
  const mark = typeof prefix === 'string' ? prefix : '##';
  const piece = (token: string): TokenPiece => (token.startsWith(mark) ? text(token.slice(mark.length)) : word(token));
  return { piece, added: word, strip: { count: 1, character: ' ' } };
}

type Step = Record<string, unknown>;

function flatten(config: unknown): Step[] {
  if (!isObject(config)) throw unsupported(config);
  return config.type === 'Sequence' && Array.isArray(config.decoders) ? config.decoders.flatMap(flatten) : [config];
}

const unsupported = (step: unknown) =>
  unsupportedError(`tokenizer.json: decoder ${show(step)} is not supported; ${supported}`);

/** GPT-2's printable stand-ins for bytes: printable Latin-1 stands for itself, the other bytes for U+0100 and up in order. */
let next = 256;
export const byteCharacters: readonly string[] = range(0, 256).map((byte) =>
  String.fromCharCode((byte > 32 && byte < 127) || (byte > 160 && byte !== 173) ? byte : next++),
);
const bytesOfCharacters = new Map(byteCharacters.map((character, byte) => [character, byte]));

/** A token with a character that stands for no byte stands for its own UTF-8, as in Hugging Face tokenizers. */
function byteLevelPiece(token: string): TokenPiece {
  const bytes = new Uint8Array(token.length);
  for (let i = 0; i < token.length; i++) {
    const byte = bytesOfCharacters.get(token.charAt(i));
    if (byte === undefined) return { bytes: encoder.encode(token), raw: true };
    bytes[i] = byte;
  }
  return { bytes, raw: true };
}
