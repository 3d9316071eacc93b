/**
 * Room: the other pages, a file each with what only it needs: the chat page (here), head arrangement, the simulator, the
 * check; `bench` has the benchmarks. Long work runs in workers.
 */

/** The chat page: the element, a choice of models, and what the browser keeps. */
import '../../src/app/chat/index.js';
import '../shared/site_nav.js';
import { didYouMean } from '../../src/base/errors.js';
import { ATTRIBUTES } from '../../src/app/chat/index.js';
import { element } from '../shared/elements.js';
import { EMBEDDED_MODEL } from '../../models/example.js';
import { tellStory } from '../shared/story.js';
import { allowModel, mayJoin, mayLoad } from '../shared/foreign_model.js';
import { KeptModels } from '../../src/app/chat/view/picker.js';
import { showMaths } from '../shared/maths.js';

const chat = document.querySelector('splitkv-chat')!;
showMaths(chat);
const query = new URLSearchParams(location.search);
const field = element('model', HTMLInputElement);
const folder = element('folder', HTMLInputElement);
const kept = new KeptModels(element('kept-status', HTMLParagraphElement), element('kept', HTMLUListElement));

// The address may say all that an attribute may.
const names = Object.keys(ATTRIBUTES);
for (const name of names) {
  // Only once it is known whose it is.
  if (name === 'model' || name === 'cluster') continue;
  const value = query.get(name);
  if (value !== null) chat.setAttribute(name, value);
}
const problem = element('which-problem', HTMLParagraphElement);
problem.textContent = [...new Set(query.keys())]
  .filter((name) => !names.includes(name))
  .map((name) => `The address has a parameter '${name}', which means nothing here.${didYouMean(name, names)}`)
  .join(' ');
field.value = query.get('model') ?? EMBEDDED_MODEL;
element('which', HTMLFormElement).addEventListener('submit', () => allowModel(field.value));
const isNamed = query.has('model');
const cluster = query.get('cluster');
const ask = async (): Promise<void> => {
  if (isNamed) await mayLoad(field.value, problem, query.get('hub'));
  if (cluster !== null) {
    element('where', HTMLSpanElement).textContent = 'ranks of a cluster. What you type goes there.';
    await mayJoin(cluster, problem);
    chat.setAttribute('cluster', cluster);
  }
  chat.setAttribute('model', field.value);
};
void ask();
if (!query.has('about') && !query.has('suggestions')) tellStory(chat);
chat.addEventListener('splitkv-state', ({ detail: { state } }) => {
  if (state === 'looking') field.value = chat.files ? '' : (chat.model ?? '');
});

folder.addEventListener('change', () => {
  chat.files = [...(folder.files ?? [])];
});
for (const event of ['splitkv-ready', 'splitkv-error', 'splitkv-preview']) {
  chat.addEventListener(event, () => void kept.refresh());
}
void kept.refresh();
