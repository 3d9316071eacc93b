/**
 * Room: the demo page that shows who holds what while ranks work. parameters.ts lists what its address may say;
 * view.ts has its elements, rank_panel.ts draws. Read view.ts next.
 */

/** The demo page. parameters.ts lists what its address may say. */
import { describeChoice } from './adapter_choice.js';
import { fetchPlanFile, listenForArrangements } from './arrangement_file.js';
import { isLoss } from '../../src/base/errors.js';
import { load, type LoadOptions, type Model, SplitkvError } from '../../src/index.js';
import { type AdapterEntry, listBrowserAdapters } from '../../src/app/shared/adapter_list.js';
import { Outlooks } from './answer/outlooks.js';
import { whatToAdd } from './answer/verdict.js';
import { EMBEDDED_MODEL, QUESTIONS, STORY } from '../../models/example.js';
import { LiveAnswer } from './live_answer.js';
import { type PageParameters, readParameters } from './parameters.js';
import { mayLoad } from '../shared/foreign_model.js';
import { fillPlacementForm, offerRanks } from './placement_form.js';
import { inviteTabs } from '../rank/invite.js';
import { RankPanel } from './rank_panel.js';
import { hideError, showError, showModel, showProgress, showStats, ui } from './view.js';

const query = new URLSearchParams(location.search);
const panel = new RankPanel();
const outlooks = new Outlooks();
let model: Model | undefined;
let answering: AbortController | undefined;

function updateButtons(): void {
  ui.send.disabled = !model || answering !== undefined;
  ui.stop.disabled = answering === undefined;
  ui.compare.disabled = ui.send.disabled;
  ui.folder.disabled = answering !== undefined;
}

/** @param peers in place of the ranks that the address names */
async function open(
  where: URL | readonly File[],
  name: string,
  { load: options }: PageParameters,
  peers: Pick<LoadOptions, 'cluster' | 'ranks'> = {},
): Promise<void> {
  hideError();
  const previous = model;
  model = undefined;
  ui.facts.hidden = true;
  panel.hide();
  outlooks.close();
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
      ...(peers.cluster && { ...peers, virtualRanks: false, workers: false }),
      onProgress: (progress) => showProgress(name, progress),
      onWarning: (message) => console.warn(message),
    });
    showModel(model.info);
    panel.show(model.info, model.stats(), options.virtualRanks ?? false);
    outlooks.open(where, options, model.info, entries);
    ui.compare.textContent = model.info.plan.worldSize > 1 ? 'Compare with one GPU' : 'Compare with two GPUs';
    ui.question.focus({ preventScroll: true });
  } catch (error) {
    ui.progress.hidden = true;
    ui.status.textContent = `${name} could not be loaded.`;
    outlooks.close('Without a model nothing can be said.');
    showError(error);
  } finally {
    updateButtons();
  }
}

const askedText = (): string =>
  [ui.story.value.trim(), ui.question.value.trim()].filter((part) => part !== '').join(' ');

const promptOf = ({ info }: Model, text: string): Parameters<Model['generate']>[0] =>
  info.hasChatTemplate ? { messages: [{ role: 'user', content: text }] } : text;

async function answer({ maxTokens }: PageParameters): Promise<void> {
  const text = askedText();
  if (!model || answering || text === '') return;
  hideError();
  outlooks.pause();
  answering = new AbortController();
  updateButtons();
  ui.answer.textContent = '';
  ui.stats.textContent = '';
  ui.answer.ariaBusy = 'true';
  let live: LiveAnswer | undefined;
  try {
    live = new LiveAnswer(panel, model, model.tokenize(text).length);
    const generation = model.generate(promptOf(model, text), {
      maxTokens,
      timeAttention: true,
      signal: answering.signal,
    });
    for await (const piece of generation) {
      ui.answer.append(ui.answer.textContent === '' ? piece.trimStart() : piece);
      live.token();
    }
    const result = await generation.result;
    live.end(result);
    outlooks.answered(model.info.plan.policy, result);
    showStats(result);
  } catch (error) {
    live?.end(undefined);
    showError(error);
    if (isLoss(error)) await recover(model);
  } finally {
    ui.answer.ariaBusy = 'false';
    answering = undefined;
    updateButtons();
    outlooks.goOn();
  }
}

/** Runs what is loaded and what it is compared with in turns. */
async function compare(): Promise<void> {
  if (!model || answering) return;
  hideError();
  answering = new AbortController();
  updateButtons();
  const { signal } = answering;
  try {
    await outlooks.compare(model, promptOf(model, askedText() || STORY), signal, (line) => {
      ui.compareStatus.textContent = line;
    });
  } catch (error) {
    ui.compareStatus.textContent = '';
    if (!signal.aborted) showError(error);
    if (isLoss(error) && model) await recover(model);
  } finally {
    answering = undefined;
    updateButtons();
    outlooks.goOn();
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
  ui.compare.addEventListener('click', () => void compare());
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

/** Empty where the browser has no WebGPU: the load tells that, with what to do about it. */
async function showAdapters(): Promise<readonly AdapterEntry[]> {
  const found = await listBrowserAdapters().catch(() => []);
  const different = found.filter(({ same_as: same }) => same === undefined);
  const add = whatToAdd(different.length, different[0]?.software ?? false);
  ui.adapters.textContent = `${describeChoice(found)} ${add}`.trim();
  if (different.length > 1) offerRanks(different.map(({ request }) => request).join(','));
  return different;
}

fillPlacementForm(query);
listenForArrangements();
const entries = showAdapters();
try {
  const parameters = readParameters(query);
  listen(parameters);
  if (parameters.model === undefined) suggestQuestions(parameters);
  else ui.story.rows = 3;
  const where = modelUrl(parameters.model ?? EMBEDDED_MODEL);
  const name = decodeURIComponent(where.pathname.split('/').filter(Boolean).at(-1) ?? where.host);
  const asked = parameters.model === undefined ? Promise.resolve() : mayLoad(where.href, ui.status);
  void asked.then(() => open(where, name, parameters));
  inviteTabs((peers) => open(where, name, parameters, peers));
} catch (error) {
  ui.progress.hidden = true;
  ui.status.textContent = 'No model was loaded.';
  showError(error);
}
