import { Hooks, type MarkedOptions, type Tokens } from 'marked';

/** A span of TeX in a Markdown text: `\(a\)`, `$a$`, `\[a\]`, `$$a$$`. */
export interface MathToken extends Tokens.Generic {
  readonly type: 'math';
  readonly tex: string;
  /** Of its own line. */
  readonly display: boolean;
}

const PAIRS = [
  ['\\[', '\\]', true],
  ['\\(', '\\)', false],
  ['$$', '$$', true],
  ['$', '$', false],
] as const;
const OPENS = /\$|\\[([]/;
const BLANK_LINE = /\n[ \t]*(?:\n|$)/y;

/** What begins a text with the sign of maths, to its end, or (`tex` undefined) that of the paragraph where it has none yet. */
interface Span {
  readonly raw: string;
  readonly tex?: string;
  readonly display: boolean;
}

/**
 * Dollars are money as in Pandoc's rule: a single one opens beside no blank, and the next one closes, beside no blank before it and no
 * digit behind it. No span goes over a blank line or holds a backtick, which is code.
 * @param ended the text is whole: dollars without an end are no maths
 */
function spanAt(text: string, ended: boolean): Span | undefined {
  const pair = PAIRS.find(([open]) => text.startsWith(open));
  if (!pair || /^\$\s/.test(text)) return undefined;
  const [open, close, display] = pair;
  let at = open.length;
  for (; at < text.length && !text.startsWith(close, at); at++) {
    BLANK_LINE.lastIndex = at;
    if (text[at] === '`' || BLANK_LINE.test(text)) break;
    if (text[at] === '\\') at++;
  }
  const tex = text.slice(open.length, at);
  if (!text.startsWith(close, at)) {
    const mayGoOn = close.startsWith('\\') || (!ended && at >= text.length && (display || /^\D.*[\\^_{]/s.test(tex)));
    return mayGoOn ? { raw: text.slice(0, at), display } : undefined;
  }
  const end = at + close.length;
  const isMoney = open === '$' && (/\s$/.test(tex) || /^\d/.test(text.slice(end, end + 1)));
  // `\[x\](y)` is a link that shall be none, `\[ \]` an empty box.
  const isEscape = open === '\\[' && text[end] === '(';
  return tex.trim() === '' || isMoney || isEscape ? undefined : { raw: text.slice(0, end), tex, display };
}

/** Marked's options by which maths stays as it was written. @param ended the text is whole */
export function mathOptions(ended: boolean): MarkedOptions {
  const inline = (text: string): Tokens.Generic | undefined => {
    const span = spanAt(text, ended);
    if (!span) return undefined;
    return span.tex === undefined ? { type: 'escape', raw: span.raw, text: span.raw } : { type: 'math', ...span };
  };
  /** Lines of its own, which would otherwise be read as lists, headings or quotes. */
  const block = (text: string): Tokens.Generic | undefined => {
    const indent = /^ {0,3}(?=\\\[|\$\$)/.exec(text)?.[0];
    const span = indent === undefined ? undefined : spanAt(text.slice(indent.length), ended);
    if (!span) return undefined;
    const raw = indent + span.raw;
    if (span.tex === undefined) {
      return { type: 'paragraph', raw, text: raw, tokens: [{ type: 'escape', raw, text: raw }] };
    }
    const rest = /^[ \t]*(?:\n|$)/.exec(text.slice(raw.length))?.[0];
    return rest === undefined ? undefined : { type: 'math', ...span, raw: raw + rest };
  };
  const startBlock = (text: string): number | undefined => {
    const end = text.indexOf('\n\n');
    const paragraph = end < 0 ? text : text.slice(0, end);
    for (const { index } of paragraph.matchAll(/\n(?= {0,3}(?:\\\[|\$\$))/g)) {
      if (block(text.slice(index + 1))) return index + 1; // a paragraph that is cut for nothing is joined again, at a cost
    }
    return undefined;
  };
  return {
    extensions: {
      block: [block],
      startBlock: [startBlock],
      inline: [inline],
      startInline: [(text) => OPENS.exec(text)?.index],
      childTokens: {},
      renderers: {},
    },
    hooks: new MathHooks(),
  };
}

/** Stars and underscores of maths are no emphasis. */
class MathHooks extends Hooks {
  override emStrongMask(text: string): string {
    let masked = '';
    for (let at = 0; at < text.length;) {
      const span =
        OPENS.test(text.slice(at, at + 2)) && /^[$\\]/.test(text[at]!) ? spanAt(text.slice(at), true) : undefined;
      const length = span ? span.raw.length : text[at] === '\\' ? 2 : 1;
      masked += span ? 'a'.repeat(length) : text.slice(at, at + length);
      at += length;
    }
    return masked;
  }
}
