import type { SplitkvChat } from '../../src/app/chat/index.js';

/** Longer TeX stays as it was written. */
const LONGEST = 4000;

/** Shows a chat's maths by Temml, as MathML: it is loaded when there is some. */
export function showMaths(chat: SplitkvChat): void {
  let temml: Promise<(typeof import('temml'))['default']> | undefined;
  let loaded: Awaited<NonNullable<typeof temml>> | undefined;
  const load = async (): NonNullable<typeof temml> => {
    const [{ default: found }, { default: style }] = await Promise.all([
      import('temml'),
      import('temml/dist/Temml-Local.css?inline'),
    ]);
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(style);
    chat.shadowRoot!.adoptedStyleSheets.push(sheet);
    return (loaded = found);
  };
  chat.math = (tex, displayMode) => {
    if (tex.length > LONGEST) return undefined;
    const into = document.createElement('span');
    const render = (by: NonNullable<typeof loaded>): void =>
      by.render(tex, into, { displayMode, throwOnError: true, trust: false, maxExpand: 1000, maxSize: [20, 20] });
    if (loaded) {
      try {
        render(loaded);
      } catch {
        return undefined; // no TeX, or none that it knows
      }
      return into;
    }
    into.textContent = tex;
    temml ??= load();
    temml.then(render).catch(() => (into.textContent = tex));
    return into;
  };
}
