import type { Highlight } from '../../src/app/chat/properties.js';

/** Longer code stays plain. */
const LONGEST = 50_000;

const COLOURS = `
.hljs-comment, .hljs-quote { color: light-dark(#5c6570, #9aa5b5); font-style: italic; }
.hljs-keyword, .hljs-selector-tag, .hljs-doctag, .hljs-meta .hljs-keyword { color: light-dark(#8b1fa8, #d9a1f5); }
.hljs-string, .hljs-regexp, .hljs-symbol, .hljs-template-tag { color: light-dark(#1b6e2d, #9bd48a); }
.hljs-number, .hljs-literal, .hljs-variable.constant_ { color: light-dark(#9a4a00, #f0b37e); }
.hljs-title, .hljs-section, .hljs-name, .hljs-selector-id, .hljs-selector-class { color: light-dark(#1f52b8, #8fb8ff); }
.hljs-type, .hljs-built_in, .hljs-attr, .hljs-attribute, .hljs-property { color: light-dark(#0b6a73, #7fd3dc); }
.hljs-meta, .hljs-link, .hljs-bullet { color: light-dark(#6a5200, #e0c36a); }
.hljs-addition { color: light-dark(#1b6e2d, #9bd48a); }
.hljs-deletion { color: light-dark(#a3261d, #ff9b91); }
.hljs-emphasis { font-style: italic; }
.hljs-strong { font-weight: 700; }
`;

type Library = typeof import('lowlight');
/** Of lowlight's trees, as far as they are drawn. */
interface Piece {
  readonly type: string;
  readonly value?: string;
  readonly properties?: { readonly className?: readonly string[] };
  readonly children?: readonly Piece[];
}

let loaded: ReturnType<Library['createLowlight']> | undefined;
let loading: Promise<void> | undefined;

/** Colours code by lowlight, which is loaded when there is some; a language that it doesn't know stays plain. */
export const colourCode: Highlight = (text, language) => {
  if (text.length > LONGEST || language === '') return undefined;
  const into = document.createElement('span');
  const show = (): void => {
    if (!loaded?.registered(language)) return;
    into.replaceChildren(...loaded.highlight(language, text).children.map((piece) => nodeOf(piece as Piece)));
  };
  into.textContent = text;
  if (loaded) show();
  else {
    loading ??= import('lowlight').then(({ createLowlight, common }) => void (loaded = createLowlight(common)));
    loading.then(show).catch(() => (loading = undefined)); // it stays plain
  }
  return into;
};

const nodeOf = ({ value = '', properties, children = [] }: Piece): Node => {
  if (!properties) return document.createTextNode(value);
  const node = document.createElement('span');
  node.className = (properties.className ?? []).join(' ');
  node.append(...children.map(nodeOf));
  return node;
};

/** Shows code in colours below this root. */
export function addCodeColours(root: ShadowRoot): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(COLOURS);
  root.adoptedStyleSheets.push(sheet);
}
