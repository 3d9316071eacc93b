/**
 * The demo page. Query parameters: model (URL of a model folder; default: the embedded one), weights (f32, f16, q8, q4),
 * kv (f32, f16), context (tokens), max_tokens (of an answer).
 */
import { didYouMean } from '../base/errors.js';
import { type KvType, load, type LoadOptions, type Model, SplitkvError, type WeightType } from '../index.js';
import { EMBEDDED_MODEL, QUESTIONS, STORY } from './example.js';
import { hideError, showError, showModel, showProgress, showStats, ui } from './view.js';

const PARAMETERS = ['model', 'weights', 'kv', 'context', 'max_tokens'];
const DEFAULT_MAX_TOKENS = 256;

const query = new URLSearchParams(location.search);
let model: Model | undefined;
let answering: AbortController | undefined;

function updateButtons(): void {
  ui.send.disabled = !model || answering !== undefined;
  ui.stop.disabled = answering === undefined;
  ui.folder.disabled = answering !== undefined;
}

function wholeNumber(name: string): number | undefined {
  const text = query.get(name);
  if (text === null) return undefined;
  if (!/^[1-9]\d*$/.test(text))
    throw new SplitkvError('usage', `${name}=${text} in the address: expected a whole number above 0`);
  return Number(text);
}

/** The options that the address names; the library checks the values. */
function loadOptions(): LoadOptions {
  for (const name of query.keys()) {
    if (PARAMETERS.includes(name)) continue;
    throw new SplitkvError('usage', `unknown parameter '${name}' in the address.${didYouMean(name, PARAMETERS)}`);
  }
  const weights = query.get('weights');
  const kv = query.get('kv');
  const contextLength = wholeNumber('context');
  return {
    ...(weights !== null && { weights: weights as WeightType }),
    ...(kv !== null && { kv: kv as KvType }),
    ...(contextLength !== undefined && { contextLength }),
  };
}

async function open(where: URL | readonly File[], name: string): Promise<void> {
  hideError();
  const previous = model;
  model = undefined;
  ui.facts.hidden = true;
  updateButtons();
  try {
    await previous?.dispose();
    model = await load(where, {
      ...loadOptions(),
      onProgress: (progress) => showProgress(name, progress),
      onWarning: (message) => console.warn(message),
    });
    showModel(model.info);
    ui.question.focus();
  } catch (error) {
    ui.progress.hidden = true;
    ui.status.textContent = `${name} could not be loaded.`;
    showError(error);
  } finally {
    updateButtons();
  }
}

async function answer(): Promise<void> {
  const text = [ui.story.value.trim(), ui.question.value.trim()].filter((part) => part !== '').join(' ');
  if (!model || answering || text === '') return;
  hideError();
  answering = new AbortController();
  updateButtons();
  ui.answer.textContent = '';
  ui.stats.textContent = '';
  ui.answer.ariaBusy = 'true';
  try {
    const generation = model.generate(
      model.info.hasChatTemplate ? { messages: [{ role: 'user', content: text }] } : text,
      {
        maxTokens: wholeNumber('max_tokens') ?? DEFAULT_MAX_TOKENS,
        signal: answering.signal,
      },
    );
    for await (const piece of generation) {
      ui.answer.append(ui.answer.textContent === '' ? piece.trimStart() : piece);
    }
    showStats(await generation.result);
  } catch (error) {
    showError(error);
  } finally {
    ui.answer.ariaBusy = 'false';
    answering = undefined;
    updateButtons();
  }
}

ui.form.addEventListener('submit', (event) => {
  event.preventDefault();
  void answer();
});
// Ctrl+Enter (Cmd+Enter) in the text sends, as Enter in the question does; Escape stops.
ui.story.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void answer();
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') answering?.abort();
});
ui.stop.addEventListener('click', () => answering?.abort());
ui.folder.addEventListener('change', () => {
  const files = [...(ui.folder.files ?? [])];
  if (files.length > 0) void open(files, files[0]!.webkitRelativePath.split('/')[0] || 'the folder');
});

const address = query.get('model') ?? EMBEDDED_MODEL;
if (query.get('model') === null) {
  ui.story.value = STORY;
  ui.question.value = QUESTIONS[0].question;
  for (const { question } of QUESTIONS) {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = question;
    button.addEventListener('click', () => {
      ui.question.value = question;
      void answer();
    });
    ui.suggestions.append(button);
  }
} else {
  ui.story.rows = 3;
}

const where = URL.canParse(address, document.baseURI) ? new URL(address, document.baseURI) : undefined;
if (!where) showError(new SplitkvError('usage', `model=${address} in the address is no URL of a model folder`));
else {
  if (!where.pathname.endsWith('/')) where.pathname += '/';
  void open(where, decodeURIComponent(where.pathname.split('/').filter(Boolean).at(-1) ?? address));
}
