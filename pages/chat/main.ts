/**
 * Room: the chat page: the element, and around it conversations that this browser keeps. Here is what goes between them;
 * conversations.ts keeps them, side_panel.ts lists them, share.ts makes links of them, keys.ts hears shortcuts. Read conversations.ts
 * next.
 */

import '../../src/app/chat/index.js';
import { didYouMean, messageOf } from '../../src/base/errors.js';
import { grouped } from '../../src/base/math.js';
import { ATTRIBUTES } from '../../src/app/chat/index.js';
import { copyText } from '../shared/copy.js';
import { element } from '../shared/elements.js';
import { EMBEDDED_MODEL } from '../../models/example.js';
import { siteModel, tellStory } from '../shared/site_models.js';
import { allowModel, mayJoin, mayLoad } from '../shared/foreign_model.js';
import { addCodeColours, colourCode } from '../shared/code_colours.js';
import { keepSite } from '../shared/keep_site.js';
import { showMaths } from '../shared/maths.js';
import { keepItem, pageStorage } from '../shared/page_storage.js';
import { Conversations } from './conversations.js';
import { pageIcon } from './drawing.js';
import { listen } from './keys.js';
import { PRESETS } from './presets.js';
import { openPresets } from './presets_dialog.js';
import { shareFragment, sharedMessages } from './share.js';
import { SidePanel } from './side_panel.js';

const chat = document.querySelector('splitkv-chat')!;
showMaths(chat);
chat.highlight = colourCode;
addCodeColours(chat.shadowRoot!);
const query = new URLSearchParams(location.search);
const note = element('page-note', HTMLParagraphElement);
const title = element('title', HTMLHeadingElement);
const preset = element('preset', HTMLSelectElement);
const speed = element('speed', HTMLSpanElement);
const meter = element('meter', HTMLSpanElement);

// What was chosen here before; then the address, which may say all that an attribute may.
/** What people choose in the element's dialogs. */
const CHOSEN = [
  'model',
  'weights',
  'context',
  'thinking',
  'max-tokens',
  'temperature',
  'top-p',
  'top-k',
  'min-p',
].concat(['repetition-penalty', 'frequency-penalty', 'presence-penalty', 'seed']);
const CHOICES = 'splitkv-chat-choices';
const chosen = new Map(Object.entries(readChoices()));
const names = Object.keys(ATTRIBUTES);
for (const name of names) {
  // Only once it is known whose it is.
  if (name === 'model' || name === 'cluster') continue;
  const value = query.get(name) ?? (CHOSEN.includes(name) ? chosen.get(name) : undefined);
  if (value !== undefined) chat.setAttribute(name, value);
}
note.textContent = [...new Set(query.keys())]
  .filter((name) => !names.includes(name))
  .map((name) => `The address has a parameter '${name}', which means nothing here.${didYouMean(name, names)}`)
  .join(' ');
new MutationObserver((changes) => {
  for (const { attributeName } of changes) {
    const name = attributeName!;
    const value = chat.getAttribute(name);
    if (!CHOSEN.includes(name) || query.has(name)) continue;
    if (value === null) chosen.delete(name);
    else chosen.set(name, value);
    if (name === 'model' && value !== null) allowModel(value);
  }
  keepItem('localStorage', CHOICES, JSON.stringify(Object.fromEntries(chosen)));
}).observe(chat, { attributes: true });

function readChoices(): Record<string, string> {
  try {
    return JSON.parse(pageStorage('localStorage').getItem(CHOICES) ?? '{}') as Record<string, string>;
  } catch {
    return {};
  }
}

async function openModel(): Promise<void> {
  const model = query.get('model') ?? chosen.get('model') ?? siteModel()?.model ?? EMBEDDED_MODEL;
  if (query.has('model')) await mayLoad(model, note, query.get('hub'));
  const cluster = query.get('cluster');
  if (cluster !== null) {
    await mayJoin(cluster, note);
    chat.setAttribute('cluster', cluster);
  }
  chat.setAttribute('model', model);
}
if (!query.has('about') && !query.has('suggestions')) tellStory(chat);

// Conversations.
const store = new Conversations(pageStorage('localStorage'));
const HERE = 'splitkv-conversation';
const hashed = (): string | undefined => /^#c=([\w.~-]+)$/.exec(location.hash)?.[1];
/** The name of the preset that was chosen last. */
let picked: string | undefined;
let current =
  query.get('keep') ?? hashed() ?? pageStorage('sessionStorage').getItem(HERE) ?? store.list[0]?.id ?? store.newId();

/** Ends the answer that is being written: what there is of it is kept. */
async function settle(): Promise<void> {
  const isBusy = (): boolean => chat.state === 'answering' || chat.state === 'recovering';
  if (!isBusy()) return;
  chat.stop();
  await new Promise<void>((resolve) => {
    const heard = (): void => {
      if (isBusy()) return;
      chat.removeEventListener('splitkv-state', heard);
      setTimeout(resolve); // the element keeps it after that
    };
    chat.addEventListener('splitkv-state', heard);
  });
}

/** @param how the browser's own way back leads to the one before, unless this is it */
async function select(id: string, how: 'push' | 'replace' | 'none' = 'push'): Promise<void> {
  await settle();
  if (how !== 'none' && `#c=${id}` !== location.hash) history[`${how}State`](null, '', `#c=${id}`);
  current = id;
  keepItem('sessionStorage', HERE, id);
  chat.keep = id;
  const { system = '' } = store.find(id) ?? {};
  chat.system = system === '' ? (query.get('system') ?? undefined) : system;
  speed.textContent = '';
  meter.hidden = true;
  show();
}
const begin = async (): Promise<void> => {
  // One that nothing was said in is new.
  if (store.messages(current).length > 0 || chat.messages.length > 0) await select(store.newId());
  chat.focus();
};

const side = new SidePanel(element('side', HTMLElement), store, {
  get current() {
    return current;
  },
  select: (id) => void select(id).then(() => chat.focus()),
  begin: () => void begin(),
  leave: () => select(store.newId(), 'replace'),
});

/** Changes the list, or says why that isn't kept. */
function list(change: () => void): void {
  try {
    change();
  } catch (error) {
    note.textContent =
      error instanceof DOMException && error.name === 'QuotaExceededError'
        ? 'This browser has no room for more conversations: export them, and delete some.'
        : 'This browser lets the page keep nothing: a conversation ends with the page, or with a new one.';
  }
}

function show(): void {
  const entry = store.find(current);
  title.textContent = entry?.title ?? 'New conversation';
  const system = chat.system ?? '';
  const all = [...PRESETS, ...store.presets.list];
  // Of several with one system prompt the one that was picked.
  const at = all.findIndex((one) => one.system === system && (picked === undefined || one.name === picked));
  const known = at < 0 ? all.findIndex((one) => one.system === system) : at;
  preset.replaceChildren(
    ...all.map((one, index) => new Option(one.name, String(index))),
    ...(known < 0 ? [new Option('Your own system prompt', '')] : []),
  );
  preset.value = known < 0 ? '' : String(known);
  side.show();
}

preset.addEventListener('change', () => {
  const chosenOne = [...PRESETS, ...store.presets.list][preset.value === '' ? -1 : Number(preset.value)];
  if (!chosenOne) return;
  picked = chosenOne.name;
  if (chosenOne.question !== undefined) chat.suggestions = chosenOne.question.replaceAll('|', '/');
  chat.system = chosenOne.system === '' ? undefined : chosenOne.system;
});
const presets = element('presets', HTMLButtonElement);
presets.append(pageIcon('rename'));
presets.ariaLabel = presets.title = 'Your presets';
presets.addEventListener('click', () => {
  const question = chat.messages[0]?.content;
  openPresets(store.presets, { system: chat.system ?? '', ...(question !== undefined && { question }) }, show);
});
new MutationObserver(() => {
  // By the list, or by the element's settings.
  list(() => store.change(current, { system: chat.system ?? '' }));
  show();
}).observe(chat, { attributes: true, attributeFilter: ['system'] });

chat.addEventListener('splitkv-new', (event) => {
  event.preventDefault();
  void begin();
});
chat.addEventListener('splitkv-answer', ({ detail: { result } }) => {
  list(() => {
    store.touch(current, chat.messages);
    if (chat.system !== undefined) store.change(current, { system: chat.system });
  });
  const used = result.prompt_tokens + result.tokens.length;
  const most = chat.engine?.info.contextLength ?? 0;
  meter.hidden = most === 0;
  Object.assign(meter.querySelector('meter')!, { max: most, high: most * 0.85, value: used });
  meter.querySelector('span')!.textContent = `${grouped(used)} of ${grouped(most)} tokens`;
  show();
});
addEventListener('storage', ({ key }) => {
  if (Conversations.isList(key)) show();
});
addEventListener('popstate', () => void open('none'));
document.addEventListener('conversation-renamed', show);

// Tokens a second, while they come.
let written = '';
let since = 0;
let told = 0;
chat.addEventListener('splitkv-state', ({ detail: { state } }) => {
  if (state === 'answering') [written, since] = ['', 0];
});
chat.addEventListener('splitkv-piece', ({ detail: { text } }) => {
  const now = performance.now();
  if (since === 0) [since, told] = [now, now];
  else written += text; // the first one's time is the prompt's
  if (now - told < 300 || !chat.engine) return;
  told = now;
  const tokens = chat.engine.tokenize(written, { addSpecial: false }).length;
  speed.textContent = `${((tokens / (now - since)) * 1000).toFixed(1)} tokens/s`;
});

// Links.
const share = element('share', HTMLButtonElement);
share.append(pageIcon('share'));
share.ariaLabel = share.title = 'Share this conversation';
share.addEventListener('click', () => void shareLink());

async function shareLink(): Promise<void> {
  if (chat.messages.length === 0) {
    note.textContent = 'Nothing was said yet that could be shared.';
    return;
  }
  const link = `${location.origin}${location.pathname}${await shareFragment(chat.messages)}`;
  const isCopied = await copyText(link);
  note.textContent = `${isCopied ? 'The link is copied' : `The link: ${link}`}: all that was said is in it, ${grouped(link.length)} characters, without pictures.${
    link.length > 8000 ? ' Some apps cut links that are so long.' : ''
  }`;
}

/** What the address names. */
async function open(how: 'replace' | 'none'): Promise<void> {
  document.querySelector('.shared')?.remove();
  let shared;
  try {
    shared = await sharedMessages(location.hash);
  } catch (error) {
    note.textContent = messageOf(error);
  }
  chat.hidden = element('bar', HTMLDivElement).hidden = shared !== undefined;
  if (!shared) return select(hashed() ?? current, how);
  const messages = shared;
  const { sharedView } = await import('./shared_view.js');
  const away = async (id: string): Promise<void> => {
    document.querySelector('.shared')?.remove();
    chat.hidden = element('bar', HTMLDivElement).hidden = false;
    await select(id);
    chat.focus();
  };
  const goOn = async (): Promise<void> => {
    let id: string | undefined;
    list(() => (id = store.add({}, messages)));
    await away(id ?? store.newId());
    if (id === undefined) chat.messages = messages;
  };
  const view = sharedView(
    messages,
    { highlight: colourCode, math: (tex, display) => chat.math?.(tex, display) },
    () => void goOn(),
    () => void away(current),
  );
  addCodeColours(view.querySelector('.shared-view')!.shadowRoot!);
  element('talk', HTMLElement).append(view);
}

// Shortcuts.
const openSide = element('open-side', HTMLButtonElement);
openSide.append(pageIcon('side'));
openSide.ariaLabel = openSide.title = 'Conversations';
const showKeys = listen([
  { key: 'o', isCommand: true, isShift: true, does: 'New conversation', run: () => void begin() },
  {
    key: 'k',
    isCommand: true,
    does: 'Search conversations',
    run: () => {
      if (openSide.checkVisibility()) element('side', HTMLElement).showPopover();
      side.search.focus();
    },
  },
  { key: '/', does: 'Go to the message field', run: () => chat.focus() },
  { key: 'escape', does: 'Stop the answer' },
  { key: 'enter', does: 'Send' },
  { key: 'enter', isShift: true, does: 'A new line' },
  { key: '?', does: 'These shortcuts', run: () => showKeys() },
]);
const help = element('help', HTMLButtonElement);
help.append(pageIcon('help'));
help.ariaLabel = help.title = 'Keyboard shortcuts';
help.addEventListener('click', showKeys);

keepSite();
void open('replace');
void openModel();
