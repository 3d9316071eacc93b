/**
 * Room: what the site shows beside the tools: the page that it opens with (here), and the gallery of
 * recipes, whose texts lie in recipes/. `npm run site` puts all pages, the library and its reference into one folder.
 */
import '../../src/app/chat/index.js';
import { copyOnClick } from '../shared/copy.js';
import { make } from '../../src/app/shared/dom.js';
import { element } from '../shared/elements.js';
import { tellStory } from '../shared/site_models.js';
import { addCodeColours, colourCode } from '../shared/code_colours.js';
import { keepSite } from '../shared/keep_site.js';
import { showMaths } from '../shared/maths.js';
import { PAGES } from '../shared/pages.js';
import { EXAMPLES, withModel } from './examples.js';
import { offeredModels, USUAL_MODEL } from './models.js';

const chat = document.querySelector('splitkv-chat')!;
showMaths(chat);
chat.highlight = colourCode;
addCodeColours(chat.shadowRoot!);
keepSite();
const choices = element('models', HTMLDivElement);
const note = element('model-note', HTMLParagraphElement);
const code = element('tag', HTMLPreElement).querySelector('code')!;
const [tag] = Object.values(EXAMPLES[0]!.files);

tellStory(chat);

/** Puts a model into the chat, which says what it would download, and asks. */
function tryModel(model: string): void {
  code.textContent = withModel(tag!, model);
  chat.files = undefined;
  chat.model = model;
}

// Nothing of the page waits for the catalog; the buttons stand in it.
code.textContent = withModel(tag!, USUAL_MODEL);
copyOnClick(element('copy', HTMLButtonElement), () => code.textContent ?? '');

element('pages', HTMLUListElement).replaceChildren(
  ...PAGES.slice(1).map(({ address, name, about }) => {
    const link = make('a', '', name);
    link.href = address;
    return make('li', 'card', make('h3', '', link), make('p', '', about));
  }),
);

for (const { model, name, about } of await offeredModels()) {
  const button = [...choices.querySelectorAll('button')].find((other) => other.textContent === name)!;
  button.addEventListener('click', () => {
    for (const other of choices.querySelectorAll('button')) other.ariaPressed = String(other === button);
    note.textContent = about;
    tryModel(model);
  });
}
chat.addEventListener('splitkv-state', ({ detail: { state } }) => {
  if (state !== 'looking' || !chat.files) return;
  // What was dropped is none of them.
  for (const button of choices.querySelectorAll('button')) button.ariaPressed = 'false';
  note.textContent = '';
});
