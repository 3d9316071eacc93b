import type { ShownMessage } from '../../src/app/chat/session.js';
import type { Highlight, MathHook } from '../../src/app/chat/properties.js';
import { make, makeButton } from '../../src/app/shared/dom.js';
import { SAY } from '../../src/app/chat/strings.js';
import { turnsOf } from '../../src/app/chat/session.js';
import { Log } from '../../src/app/chat/view/log.js';
import STYLE from '../../src/app/chat/view/style.css?raw';

/** A conversation to read, without a model. @param inside what shows code and maths @returns the place */
export function sharedView(
  messages: readonly ShownMessage[],
  inside: { readonly highlight: Highlight; readonly math: MathHook },
  goOn: () => void,
  close: () => void,
): HTMLElement {
  const log = new Log({
    text: SAY,
    plain: false,
    ...inside,
    resend() {},
    regenerate() {},
    showVersion() {},
    continue() {},
  });
  for (const [question, { content }] of turnsOf(messages)) {
    const view = log.add(question.content);
    view.add(content);
    view.end('');
  }
  const body = make('div', 'body', make('div', 'measure', log.node));
  body.tabIndex = 0;
  body.role = 'region';
  body.ariaLabel = 'The shared conversation';
  const view = make('div', 'shared-view');
  const root = view.attachShadow({ mode: 'open' });
  const style = new CSSStyleSheet();
  style.replaceSync(`${STYLE} .chat { block-size: 100%; } [data-needs-idle] { display: none; }`);
  root.adoptedStyleSheets = [style];
  root.append(make('div', 'frame', make('section', 'chat', body)));
  const say = make(
    'p',
    'note',
    'Somebody shared this conversation. All of it is in the link: nothing was sent anywhere.',
  );
  return make(
    'div',
    'shared',
    make(
      'div',
      'shared-head',
      say,
      makeButton('', 'Continue from here', goOn),
      makeButton('quiet button', 'Close', close),
    ),
    view,
  );
}
