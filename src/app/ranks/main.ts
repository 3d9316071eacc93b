/**
 * Room: the demo page that shows who holds what while ranks work. parameters.ts lists what its address may say;
 * view.ts has its elements, rank_panel.ts draws. Read view.ts next.
 */

/** The demo page. parameters.ts lists what its address may say. */
import '../shared/site_nav.js';
import { fetchPlanFile, listenForArrangements } from './arrangement_file.js';
import { isLoss } from '../../base/errors.js';
import { load, type Model, SplitkvError } from '../../index.js';
import { describeChoice, listBrowserAdapters } from '../shared/adapter_list.js';
import { EMBEDDED_MODEL, QUESTIONS, STORY } from '../shared/example.js';
import { LiveAnswer } from './live_answer.js';
import { type PageParameters, readParameters } from './parameters.js';
import { mayLoad } from '../shared/foreign_model.js';
import { fillPlacementForm, offerRanks } from './placement_form.js';
import { RankPanel } from './rank_panel.js';
import { hideError, showError, showModel, showProgress, showStats, ui } from './view.js';

const query = new URLSearchParams(location.search);
const panel = new RankPanel();
let model: Model | undefined;
let answering: AbortController | undefined;

function updateButtons(): void {
  ui.send.disabled = !model || answering !== undefined;
  ui.stop.disabled = answering === undefined;
  ui.folder.disabled = answering !== undefined;
}

async function open(where: URL | readonly File[], name: string, { load: options }: PageParameters): Promise<void> {
  hideError();
  const previous = model;
  model = undefined;
  ui.facts.hidden = true;
  panel.hide();
  updateButtons();
  try {
    await previous?.dispose();
    const plan =
      typeof options.plan === 'string' && options.plan.endsWith('.json')
        ? await fetchPlanFile(options.plan)
        : options.plan;
    model = await load(where, {
      ...options,
      ...(plan !== undefined && { plan }),
      onProgress: (progress) => showProgress(name, progress),
      onWarning: (message) => console.warn(message),
    });
    showModel(model.info);
    const loads = typeof plan === 'object' && 'loads' in plan ? plan.loads : undefined;
    panel.show(model.info, model.stats(), options.virtualRanks ?? false, loads);
    ui.question.focus({ preventScroll: true });
  } catch (error) {
    ui.progress.hidden = true;
    ui.status.textContent = `${name} could not be loaded.`;
    showError(error);
  } finally {
    updateButtons();
  }
}

async function answer({ maxTokens }: PageParameters): Promise<void> {
  const text = [ui.story.value.trim(), ui.question.value.trim()].filter((part) => part !== '').join(' ');
  if (!model || answering || text === '') return;
  hideError();
  answering = new AbortController();
  updateButtons();
  ui.answer.textContent = '';
  ui.stats.textContent = '';
  ui.answer.ariaBusy = 'true';
  let live: LiveAnswer | undefined;
  try {
    live = new LiveAnswer(panel, model, model.tokenize(text).length);
    const generation = model.generate(
      model.info.hasChatTemplate ? { messages: [{ role: 'user', content: text }] } : text,
      { maxTokens, signal: answering.signal },
    );
    for await (const piece of generation) {
      ui.answer.append(ui.answer.textContent === '' ? piece.trimStart() : piece);
      live.token();
    }
    const result = await generation.result;
    live.end(result);
    showStats(result);
  } catch (error) {
    live?.end(undefined);
    showError(error);
    if (isLoss(error)) await recover(model);
  } finally {
    ui.answer.ariaBusy = 'false';
    answering = undefined;
    updateButtons();
  }
}

/** Makes the ranks whole again after one lost its device, so that the next question is answered. */
async function recover(lost: Model): Promise<void> {
  ui.answer.ariaBusy = 'false';
  ui.status.textContent = `${lost.info.name}: a rank lost its GPU; bringing it back…`;
  try {
    await lost.recover();
    ui.status.textContent = `${lost.info.name} is ready again.`;
  } catch (error) {
    ui.status.textContent = `${lost.info.name} could not be brought back; load the page again.`;
    showError(error);
  } finally {
    ui.progress.hidden = true;
  }
}

function listen(parameters: PageParameters): void {
  ui.form.addEventListener('submit', (event) => {
    event.preventDefault();
    void answer(parameters);
  });
  // Ctrl+Enter (Cmd+Enter) in the text sends, as Enter in the question does; Escape stops.
  ui.story.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) void answer(parameters);
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') answering?.abort();
  });
  ui.stop.addEventListener('click', () => answering?.abort());
  ui.folder.addEventListener('change', () => {
    const files = [...(ui.folder.files ?? [])];
    if (files.length > 0) void open(files, files[0]!.webkitRelativePath.split('/')[0] || 'the folder', parameters);
  });
}

function suggestQuestions(parameters: PageParameters): void {
  ui.story.value = STORY;
  ui.question.value = QUESTIONS[0].question;
  for (const { question } of QUESTIONS) {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = question;
    button.addEventListener('click', () => {
      ui.question.value = question;
      void answer(parameters);
    });
    ui.suggestions.append(button);
  }
}

/** The model folder or GGUF file that the address names. */
function modelUrl(address: string): URL {
  if (!URL.canParse(address, document.baseURI)) {
    throw new SplitkvError('usage', `model=${address} in the address is no URL of a model folder`);
  }
  const url = new URL(address, document.baseURI);
  if (!url.pathname.endsWith('/') && !url.pathname.endsWith('.gguf')) url.pathname += '/';
  return url;
}

async function showAdapters(): Promise<void> {
  const entries = await listBrowserAdapters();
  ui.adapters.textContent = describeChoice(entries);
  const different = entries.filter(({ same_as: same }) => same === undefined);
  if (different.length > 1) offerRanks(different.map(({ request }) => request).join(','));
}

fillPlacementForm(query);
listenForArrangements();
// A browser without WebGPU is told by the load, with what to do about it.
showAdapters().catch(() => {});
try {
  const parameters = readParameters(query);
  listen(parameters);
  if (parameters.model === undefined) suggestQuestions(parameters);
  else ui.story.rows = 3;
  const where = modelUrl(parameters.model ?? EMBEDDED_MODEL);
  const name = decodeURIComponent(where.pathname.split('/').filter(Boolean).at(-1) ?? where.host);
  const asked = parameters.model === undefined ? Promise.resolve() : mayLoad(where.href, ui.status);
  void asked.then(() => open(where, name, parameters));
} catch (error) {
  ui.progress.hidden = true;
  ui.status.textContent = 'No model was loaded.';
  showError(error);
}
