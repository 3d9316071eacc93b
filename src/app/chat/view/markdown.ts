import { tried } from '../../../base/errors.js';
import { Hooks, Lexer, type MarkedOptions, type MarkedToken, type Token, type Tokens } from 'marked';
import { make } from '../../shared/dom.js';

export interface CodeParts {
  /** The block's head: its language and what can be done with it. */
  head(language: string, text: string): Node;
  /** Coloured code, by the page's own means; undefined leaves it plain. Called once the block has ended. */
  highlight(text: string, language: string): Node | undefined;
  /** Maths, by the page's own means; undefined leaves it as it was written. */
  math(tex: string, display: boolean): Node | undefined;
}

/** Longer texts stay plain: nobody reads them as a page, and their marks may be hostile. */
const LONGEST = 200_000;
/** Quotes and lists within each other, in one line or by indentation, beyond which a text stays plain. */
const NESTED = /^(?:(?:[ \t]{0,3}(?:>|(?:[-*+]|\d{1,9}[.)])[ \t])){20}|[ \t]{40,}(?:>|[-*+]|\d{1,9}[.)])[ \t])/m;
/** Marks times characters that are looked at for emphasis and links: some 0.3 s on a slow machine. */
const MOST_WORK = 8e6;

/**
 * A Markdown text (CommonMark, with GitHub's tables, task lists and strikethrough) as nodes, also while it grows: blocks that can't
 * change any more keep their nodes, so that what is selected stays selected. HTML in it is text, images are links (nothing is fetched
 * unasked), and links lead to http, https and mail addresses only.
 */
export class MarkdownView {
  #text = '';
  /** Characters whose blocks are done, and the nodes of those. */
  #settled = 0;
  #kept = 0;
  /** Depths of the headings that the next block stands under, in what is settled and up to the block being made. */
  #settledUnder: readonly number[] = [];
  #under: readonly number[] = [];

  constructor(
    private readonly into: HTMLElement,
    private readonly code: CodeParts,
  ) {}

  /** @param ended the text is whole */
  show(text: string, ended: boolean): void {
    if (!text.startsWith(this.#text.slice(0, this.#settled)) || ended) {
      this.#settled = this.#kept = 0;
      this.#settledUnder = [];
    }
    this.#text = text;
    this.#under = this.#settledUnder;
    const rest = text.slice(this.#settled);
    const tokens = tokensOf(rest, ended);
    const blocks = (tokens ?? []).filter(({ type }) => type !== 'space' && type !== 'def');
    const nodes = tokens
      ? blocks.map((token, index) => {
          const node = this.#block(token, ended || index < blocks.length - 1);
          return token.type === 'paragraph' ? directed(node) : node;
        })
      : [rest];
    while (this.into.childNodes.length > this.#kept) this.into.lastChild?.remove();
    this.into.append(...nodes);
    if (ended || !tokens) return;
    // The last block may go on, and the one before it may be joined to it.
    for (const token of tokens.slice(0, Math.max(0, tokens.length - 3))) {
      this.#settled += token.raw.length;
      if (token.type === 'heading') this.#settledUnder = below(this.#settledUnder, (token as Tokens.Heading).depth);
      if (token.type !== 'space' && token.type !== 'def') this.#kept++;
    }
  }

  #block(token: Token, ended: boolean): HTMLElement {
    if (token.type === 'math') return mathNode(token as MathToken, this.code, 'div');
    const known = token as MarkedToken;
    switch (known.type) {
      case 'heading':
        // The chat's own heading is above them, and no level is left out.
        this.#under = below(this.#under, known.depth);
        return directed(
          make(`h${Math.min(6, this.#under.length + 2)}` as 'h3', '', ...inline(known.tokens, this.code)),
        );
      case 'code':
        return this.#code(known, ended);
      case 'blockquote':
        return directed(make('blockquote', '', ...this.#blocks(known.tokens, ended)));
      case 'list': {
        const list = make(known.ordered ? 'ol' : 'ul', '', ...known.items.map((item) => this.#item(item, ended)));
        if (known.ordered && known.start !== '' && known.start !== 1) (list as HTMLOListElement).start = known.start;
        return list;
      }
      case 'table':
        return table(known, this.code);
      case 'hr':
        return make('hr', '');
      case 'paragraph':
        return make('p', '', ...inline(known.tokens, this.code));
      case 'text':
        return make('span', '', ...inline(known.tokens ?? [known], this.code));
      default:
        return make('p', '', token.raw.trim());
    }
  }

  #blocks(tokens: readonly Token[], ended: boolean): HTMLElement[] {
    return tokens.filter(({ type }) => type !== 'space' && type !== 'def').map((token) => this.#block(token, ended));
  }

  #item(item: Tokens.ListItem, ended: boolean): HTMLElement {
    const nodes = item.tokens
      .filter(({ type }) => type !== 'space' && type !== 'checkbox')
      .map((token) => this.#block(token, ended));
    if (!item.task) return directed(make('li', '', ...nodes));
    const box = make('input', '');
    box.type = 'checkbox';
    box.checked = item.checked === true;
    box.disabled = true;
    return directed(make('li', 'task', make('label', '', box, ' ', ...nodes)));
  }

  #code({ text, lang = '' }: Tokens.Code, ended: boolean): HTMLElement {
    const language = /^[\w+#.-]{1,30}/.exec(lang)?.[0] ?? '';
    const code = codeNode((ended ? this.code.highlight(text, language) : undefined) ?? text);
    const block = make('pre', '', code);
    block.tabIndex = 0; // it scrolls
    return make('figure', 'code', this.code.head(language, text), block);
  }
}

/** The headings that stand above what follows one of this depth, and that one. */
const below = (under: readonly number[], depth: number): readonly number[] => [
  ...under.filter((other) => other < depth),
  depth,
];

/** Undefined for a text that is to stay plain. */
function tokensOf(text: string, ended: boolean): Token[] | undefined {
  if (text.length > LONGEST || NESTED.test(text)) return undefined;
  const options = { gfm: true, breaks: true, ...(/[$\\]/.test(text) && mathOptions(ended)) };
  return tried(() => new BoundedLexer(options).lex(text));
}

/** Stops looking for emphasis and links where that would take long: the time goes with the marks in a paragraph, times its length. */
class BoundedLexer extends Lexer {
  #left = MOST_WORK;

  override inlineTokens(text: string, tokens: Token[] = []): Token[] {
    this.#left -= (text.match(/[*_~`[\]<!@:$\\]/g)?.length ?? 0) * text.length;
    if (this.#left >= 0) return super.inlineTokens(text, tokens);
    tokens.push({ type: 'text', raw: text, text });
    return tokens;
  }
}

function inline(tokens: readonly Token[], parts: CodeParts): Node[] {
  return tokens.map((token): Node => {
    if (token.type === 'math') return mathNode(token as MathToken, parts, 'span');
    const known = token as MarkedToken;
    switch (known.type) {
      case 'strong':
      case 'em':
      case 'del':
        return make(known.type, '', ...inline(known.tokens, parts));
      case 'codespan':
        return codeNode(known.text);
      case 'br':
        return make('br', '');
      case 'link':
        return link(known.href, inline(known.tokens, parts));
      case 'image':
        return link(known.href, [document.createTextNode(known.text || known.href)]);
      case 'text':
        return known.tokens ? group(inline(known.tokens, parts)) : document.createTextNode(decoded(known.text));
      case 'escape':
        return document.createTextNode(known.text);
      default:
        return document.createTextNode(token.raw);
    }
  });
}

/** From left to right or from right to left, as its first letters are: code and items within say theirs by themselves. */
function directed<T extends HTMLElement>(node: T): T {
  node.dir = 'auto';
  return node;
}

/** Whatever stands around it, code is read from left to right, and says nothing of the direction around it. */
function codeNode(content: Node | string): HTMLElement {
  const code = make('code', '', content);
  code.dir = 'ltr';
  return code;
}

/** Maths: as the page shows it, otherwise as it was written. */
function mathNode({ raw, tex, display }: MathToken, parts: CodeParts, tag: 'div' | 'span'): HTMLElement {
  const node = make(tag, display ? 'math display' : 'math', parts.math(tex, display) ?? raw.trim());
  node.dir = 'ltr';
  if (display) node.tabIndex = 0; // it scrolls
  return node;
}

/** Whether the first letter is of a script that is written from right to left. */
const isRightToLeft = (text: string): boolean =>
  /^[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u.test(
    /\p{L}/u.exec(text)?.[0] ?? '',
  );

function group(nodes: readonly Node[]): Node {
  const fragment = document.createDocumentFragment();
  fragment.append(...nodes);
  return fragment;
}

function link(href: string, content: readonly Node[]): Node {
  const address = decoded(href);
  // A relative address would mean something of this page, which the model doesn't know.
  if (!/^(https?:\/\/|mailto:)/i.test(address) || !URL.canParse(address)) return group(content);
  const anchor = make('a', '', ...content);
  anchor.href = address;
  anchor.target = '_blank';
  anchor.rel = 'noopener noreferrer nofollow';
  anchor.title = address;
  return anchor;
}

function table({ header, rows, align }: Tokens.Table, parts: CodeParts): HTMLElement {
  const cells = (tag: 'th' | 'td', row: readonly Tokens.TableCell[]): HTMLElement =>
    make(
      'tr',
      '',
      ...row.map(({ tokens }, column) => {
        const cell = directed(make(tag, '', ...inline(tokens, parts)));
        if (align[column]) cell.style.textAlign = align[column];
        return cell;
      }),
    );
  const whole = make('table', '', make('thead', '', cells('th', header)));
  whole.append(make('tbody', '', ...rows.map((row) => cells('td', row))));
  const frame = make('div', 'table', whole);
  frame.dir = isRightToLeft(header.map(({ text }) => text).join(' ')) ? 'rtl' : 'ltr'; // the order of columns
  frame.tabIndex = 0; // it scrolls
  return frame;
}

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00A0' };

/** Without the commonest character references, which the lexer leaves as they are. */
const decoded = (text: string): string =>
  text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w{2,6}));/gi, (raw, decimal?: string, hex = '', name?: string) => {
    if (name !== undefined) return ENTITIES[name.toLowerCase()] ?? raw;
    const code = decimal === undefined ? Number.parseInt(hex, 16) : Number(decimal);
    return code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? String.fromCodePoint(code) : '\uFFFD';
  });

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
        OPENS.test(text.slice(at, at + 2)) && /^[$\\]/.test(text.slice(at)) ? spanAt(text.slice(at), true) : undefined;
      const length = span ? span.raw.length : text[at] === '\\' ? 2 : 1;
      masked += span ? 'a'.repeat(length) : text.slice(at, at + length);
      at += length;
    }
    return masked;
  }
}
